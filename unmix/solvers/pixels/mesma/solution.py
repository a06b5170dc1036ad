"""Compute the abundances of one model of a pixel from the tables that all pixels share."""

from ....compiled.jit import inlined
from .tables import ALPHA, BETA, ROW

# Abundances that differ by less are not of different models.
SAME_ABUNDANCE = 1e-6


@inlined
def ones_of(models, k, i, j, m):
    """Return the elements of ``G⁻¹1``, along which a model's abundances change with their sum; 0 after the k-th."""
    weights, rho = models.weights, models.rho
    w_i, w_j, w_m = weights[i], 0.0, 0.0  # the coefficients of the vector of ones, by the elimination of `solution_of`
    if k > 1:
        scale = models.scale[i, j]
        w_j = (weights[j] - rho[i, j] * w_i) * scale
        if k > 2:
            at = ROW * (models.place[i, j] + m)
            alpha, beta = models.triples[at + ALPHA], models.triples[at + BETA]
            rest = alpha * (weights[m] - rho[i, m] * w_i) + beta * w_j
            w_j += beta * rest
            w_m = alpha * rest
        w_j *= scale
        w_i -= rho[i, j] * w_j
        if k > 2:
            w_i -= rho[i, m] * w_m
    return w_i * weights[i], w_j * weights[j], w_m * weights[m]


@inlined
def solution_of(models, k, i, j, m, u_i, t_j, t_m):
    """Return the abundances of a model of k spectra from its Gram-Schmidt coefficients; 0 after the k-th."""
    weights, rho = models.weights, models.rho
    x_i, x_j, x_m = u_i, 0.0, 0.0
    if k > 1:
        scale, x_j = models.scale[i, j], t_j
        if k > 2:
            at = ROW * (models.place[i, j] + m)
            x_j += models.triples[at + BETA] * t_m
            x_m = models.triples[at + ALPHA] * t_m
        x_j *= scale
        x_i -= rho[i, j] * x_j
        if k > 2:
            x_i -= rho[i, m] * x_m
    return x_i * weights[i], x_j * weights[j], x_m * weights[m]
