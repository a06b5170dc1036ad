"""Define means and standard deviations of sums by class over draws of spectra and noise (`average` plain)."""

from collections.abc import Callable, Sequence

import numpy as np

from .fractions import NODATA, Classes

# Share of a spectrum outside the span of those before it, below which it adds only rounding to their basis.
DEPENDENT_SPECTRUM = 1e-9


def drawn_spectra(members: Sequence[Sequence[int]], count: int, draws: int, seed: int) -> list[np.ndarray]:
    """Return the sorted numbers of the ``count`` spectra of each draw: one of each class in turn, all in random order."""
    if count == sum(map(len, members)):
        return [np.arange(count)] * draws
    random, found = np.random.Generator(np.random.PCG64(seed)), []
    for _ in range(draws):
        piles = [list(random.permutation(some)) for some in members]
        order = random.permutation(len(piles))
        chosen: list[int] = []
        while len(chosen) < count:
            chosen += [piles[c].pop() for c in order if piles[c]]
        found.append(np.sort(chosen[:count]))
    return found


def normals_by_definition(seed: int, draw: int, lines: np.ndarray, samples: np.ndarray, count: int) -> np.ndarray:
    """Return the normal numbers (N, count) of a draw of pixels: the last of those up to a pixel of its line's generator."""
    keys = [np.random.Philox(key=[seed, draw], counter=[0, 0, 0, line]) for line in lines]
    return np.array(
        [np.random.Generator(key).standard_normal((s + 1) * count)[-count:] for key, s in zip(keys, samples)]
    )


def factor_by_definition(E: np.ndarray, noise: np.ndarray | None) -> np.ndarray:
    """Return F (L, k), by which k normal numbers become noise that moves ``Eᵀy`` as noise of the bands does, of
    ``noise`` (L,) or of 1.

    With an orthonormal basis Q of the spectra E (L, K), from the first to the last, ``F = Q C`` and ``C Cᵀ = Qᵀ Σ Q``.
    """
    Q = np.zeros((len(E), 0))
    for e in E.T:
        rest = e - Q @ (Q.T @ e)
        rest -= Q @ (Q.T @ rest)
        if np.linalg.norm(rest) > DEPENDENT_SPECTRUM * np.linalg.norm(e):
            Q = np.column_stack([Q, rest / np.linalg.norm(rest)])
    if noise is None:
        return Q
    R = np.linalg.qr(noise[:, None] * Q)[1]
    return Q @ (R * np.sign(np.diag(R))[:, None]).T


def noise_by_definition(Y: np.ndarray, E: np.ndarray, A: np.ndarray, sum_to_one: bool) -> np.ndarray:
    """Return the noise that the residuals of pixels (N, L) with abundances (N, p) show, the same in all bands, (N,); NaN if none."""
    free = len(E) - np.count_nonzero(A, axis=1) + sum_to_one
    return np.where(free > 0, np.sqrt(np.square(Y - A @ E.T).sum(axis=1) / np.maximum(1, free)), np.nan)


def over_draws(
    Y: np.ndarray,
    E: np.ndarray,
    classes: Classes,
    sets: Sequence[np.ndarray],
    noises: Sequence[np.ndarray] | None,
    solve: Callable[[np.ndarray, np.ndarray], np.ndarray],
    shade: bool,
) -> np.ndarray:
    """Return means and then standard deviations of the sums by class over draws, (N, bands).

    Parameters
    ----------
    Y, E : arrays (N, L) and (L, p), float64
        E with shade as its last column where the method has it.
    classes : Classes
    sets : sequence of arrays of int
        The spectra of each draw, as from `drawn_spectra`.
    noises : sequence of arrays (N, L), or None
        The noise that each draw adds to the pixels.
    solve : callable
        Returns abundances (N, k) of pixels (N, L) for spectra (L, k).
    shade : bool
        Whether shade has a band, between the sums and the sum of all.

    Returns
    -------
    array (N, bands), float64
        Of sums that are divided by the sum of all, only draws count in which that is above 0; −9999 where too few are
        left.
    """
    rest = np.arange(sum(map(len, classes.members)), E.shape[1])
    values = []
    for draw, chosen in enumerate(sets):
        columns = np.append(chosen, rest)
        A = np.zeros((len(Y), E.shape[1]))
        A[:, columns] = solve(Y if noises is None else Y + noises[draw], E[:, columns])
        sums, total = classes.sums(A)
        values.append(np.column_stack([sums, *([A[:, -1]] if shade else []), total]))
    V = np.array(values)
    known = ~np.isnan(V)
    count = known.sum(axis=0)
    mean = np.where(known, V, 0.0).sum(axis=0) / np.maximum(count, 1)
    squares = np.square(np.where(known, V - mean, 0.0)).sum(axis=0)
    deviation = np.sqrt(squares / np.maximum(count - 1, 1))
    return np.hstack([np.where(count > 0, mean, NODATA), np.where(count > 1, deviation, NODATA)])
