"""Add the pixels of collaborative sparse regression to the sums of a pass (`unmix.arrays.collaborative`)."""

import numpy as np

from ...certificate import UNIT_ROUNDOFF
from ...compiled.jit import allocating


@allocating
def add_pixels(Y, X, E, columns, G, scales, l21, used, totals, rows, duals, curvature):
    """Add n pixels to sums.

    Parameters
    ----------
    Y : array (n, L), float64
    X : array (n, k), float64
        Their optimal abundances of the k endmembers in use, for the scales η.
    E : array (L, p), float64
    columns : array (k, L), float64
        The endmembers in use.
    G : array (k, k), float64
        Their Gram matrix.
    scales : array (k,), float64
        η, above 0.
    l21 : float
        λ.
    used : array (k,), int64
        Their numbers.
    totals : array (6,), float64
        ``Σ|r|²``, ``Σ xᵀw`` with w = Eᵀr, and degrees of freedom: on the support, D = diag(η), the trace of
        ``(λ + D^½ G D^½)⁻¹ D^½ G D^½``. Then, with the bound ``ρ = u ((L + 2)|r| + (k + 2)(|y| + Σ|e_j|x_j))`` of the rounding of
        ``w_j / |e_j|`` (`unmix.certificate`), ``Σρ²`` and ``Σρ Σ|e_j|x_j``. Last ``Σ|x_j w_j|``.
    rows, duals : arrays (k,) and (p,), float64
        ``Σ x_j²`` and ``Σ max(w_j, 0)²``.
    curvature : array (k, k), float64
        ``Σ w wᵀ ∘ G (λ + D G)⁻¹`` on the support: λ times the second derivatives by η of the pixels' least costs.
    """
    L, p = E.shape
    k = len(used)
    r, w = np.empty(L), np.empty(p)
    support, root = np.empty(k, np.int64), np.empty(k)
    T, inverse = np.empty((k, k)), np.empty((k, k))
    for n in range(len(Y)):
        size, left, length, reach = 0, 0.0, 0.0, 0.0
        r[:] = Y[n]
        for i in range(k):
            x = X[n, i]
            if x > 0.0:
                support[size], root[size] = i, np.sqrt(scales[i])
                size += 1
                rows[i] += x * x
                reach += np.sqrt(G[i, i]) * x
                for b in range(L):
                    r[b] -= x * columns[i, b]
        w[:] = 0.0
        for b in range(L):
            for j in range(p):
                w[j] += E[b, j] * r[b]
            left += r[b] * r[b]
            length += Y[n, b] * Y[n, b]
        totals[0] += left
        rounding = UNIT_ROUNDOFF * ((L + 2.0) * np.sqrt(left) + (size + 2.0) * (np.sqrt(length) + reach))
        totals[3] += rounding * rounding
        totals[4] += rounding * reach
        for j in range(p):
            duals[j] += max(w[j], 0.0) ** 2
        # K = D^½ G D^½ + λ on the support, its Cholesky factor T (lower), T⁻¹ (kept transposed), and I − λ K⁻¹.
        for i in range(size):
            for m in range(i + 1):
                value = G[support[i], support[m]] * root[i] * root[m] + (l21 if i == m else 0.0)
                for q in range(m):
                    value -= T[i, q] * T[m, q]
                T[i, m] = np.sqrt(value) if i == m else value / T[m, m]
        for i in range(size):
            inverse[i, i] = 1.0 / T[i, i]
            for m in range(i):
                value = 0.0
                for q in range(m, i):
                    value -= T[i, q] * inverse[m, q]
                inverse[m, i] = value / T[i, i]
        for i in range(size):
            at = support[i]
            explained = X[n, at] * w[used[at]]
            totals[1] += explained
            totals[5] += abs(explained)
            for m in range(i + 1):
                value = 0.0
                for q in range(i, size):
                    value += inverse[i, q] * inverse[m, q]
                value = (1.0 if i == m else 0.0) - l21 * value
                if i == m:
                    totals[2] += value
                value /= root[i] * root[m]
                value *= w[used[at]] * w[used[support[m]]]
                curvature[at, support[m]] += value
                if i != m:
                    curvature[support[m], at] += value
