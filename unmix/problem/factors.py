"""The factors of a set of endmembers, and how well they determine abundances."""

from dataclasses import replace

import numpy as np

from ..library import Endmembers

# Bands over which the products of 22-bit numbers can be summed exactly.
EXACT_BANDS = 2048
# A spectrum whose length is below this share of the median of all is nearly black: the abundance of it may be
# thousands.
NEARLY_BLACK = 1e-3
# Endmembers of a length between these keep every product of the certificate within float64's range.
SHORTEST, LONGEST = 1e-30, 1e30


def condition_of(endmembers: Endmembers, sum_to_one: bool) -> tuple[float, float, tuple[str, ...]]:
    """Return cond(E), a lower bound of the least singular value, and the names of the nearly collinear endmembers."""
    E = endmembers.matrix
    L, p = E.shape
    lengths = np.linalg.norm(E, axis=0)
    basis = np.eye(p)
    if sum_to_one:
        E = E - E.mean(axis=1, keepdims=True)
        lengths = np.full(p, np.linalg.norm(E, axis=0).max())
        with_ones = np.column_stack([np.ones(p), np.eye(p)[:, 1:]])
        basis = np.linalg.qr(with_ones)[0][:, 1:]  # orthonormal, of the vectors that sum to 0
    if basis.shape[1] == 0:
        return 1.0, float("inf"), ()
    if basis.shape[1] > L:
        return float("inf"), 0.0, closest_pair(endmembers)
    _, singular, right = np.linalg.svd(E @ basis, full_matrices=False)
    smallest = max(0.0, float(singular[-1] - 8 * max(L, p) * 2.0**-53 * singular[0]))
    condition = float(singular[0] / singular[-1]) if singular[-1] > 0 else float("inf")
    weights = np.abs(basis @ right[-1]) * lengths
    heaviest = np.argsort(-weights, kind="stable")
    return condition, smallest, tuple(endmembers.names[j] for j in heaviest if weights[j] > 0.1 * weights.max())


def nearly_black(endmembers: Endmembers) -> dict[str, float]:
    """Return the nearly black spectra's names, each with its length as a share of the median of the others."""
    lengths = np.linalg.norm(endmembers.matrix, axis=0)
    bright = float(np.median(lengths[lengths > NEARLY_BLACK * lengths.max()])) if lengths.any() else 0.0
    return {
        name: length / bright
        for name, length in zip(endmembers.names, lengths.tolist())
        if 0 < length < NEARLY_BLACK * bright
    }


def of_unit_length(endmembers: Endmembers) -> Endmembers:
    """Return endmembers, none of them zero, at unit length: how bright they are is no collinearity."""
    return replace(endmembers, matrix=endmembers.matrix / np.linalg.norm(endmembers.matrix, axis=0))


def closest_pair(endmembers: Endmembers) -> tuple[str, ...]:
    """Return the names of the two endmembers with the smallest angle between them."""
    unit = endmembers.matrix / np.maximum(np.linalg.norm(endmembers.matrix, axis=0), SHORTEST)
    cosines = unit.T @ unit - 3 * np.eye(unit.shape[1])
    i, j = np.unravel_index(int(np.argmax(cosines)), cosines.shape)
    return endmembers.names[i], endmembers.names[j]


def centred(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the endmembers less their mean, the mean, and the value of the constant band, a power of 2."""
    shift = matrix.mean(axis=1)
    E = np.ascontiguousarray(matrix - shift[:, None])
    size = float(np.linalg.norm(E))
    # The singular value of the band's direction is then near the quadratic mean of all others.
    return E, shift, 2.0 ** round(np.log2(size / E.shape[1])) if size > 0 else 1.0


def gram_matrix(E: np.ndarray) -> np.ndarray:
    """Return EᵀE, each entry to two units of rounding relative to its columns' lengths; a product is right to L."""
    largest = np.maximum(np.abs(E).max(axis=0), np.finfo(float).tiny * 2.0**64)
    grid = 2.0 ** (np.ceil(np.log2(largest)) - 21)
    # 22 bits a number: products of these, and their sums over 2048 bands, are exact.
    first = np.round(E / grid) * grid
    second = E - first
    across = first.T @ second
    exact = sum(part.T @ part for part in np.split(first, range(EXACT_BANDS, len(first), EXACT_BANDS)))
    return np.asarray(exact + (across + across.T + second.T @ second))


def factors(E: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return Q and R of E, and the inverse of its Gram matrix."""
    Q, R = np.linalg.qr(E)
    Q, R = np.ascontiguousarray(Q), np.ascontiguousarray(np.triu(R))
    R_inverse = np.linalg.solve(R, np.eye(E.shape[1]))  # G⁻¹ = R⁻¹R⁻ᵀ: the error grows with cond(E), not cond(E)²
    return Q, R, R_inverse @ R_inverse.T
