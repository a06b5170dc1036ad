"""The two scenes that sparse unmixing is compared on, DC1 and DC2 (Iordache, Bioucas-Dias and Plaza 2011, 2012), of any library."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unmix.commands.synth import Fields, SyntheticScene
from unmix.library import Endmembers

# Side of DC1 in pixels, and of its cells, in each of which lies a square.
SIDE, CELL, SQUARE = 75, 15, 5
# Fractions of the five materials between the squares.
BACKGROUND = (0.1149, 0.0741, 0.2003, 0.2055, 0.4051)
# Side and materials of DC2.
SIDE_2, MATERIALS_2 = 100, 9


@dataclass(frozen=True)
class SparseChoice:
    """Which scene of few materials of a library.

    Attributes
    ----------
    like : {"dc1", "dc2"}
        DC1: 75 x 75 pixels, five materials; squares of one to five of them in equal parts lie on a mixture of all. DC2:
        100 x 100 pixels, patches of nine materials.
    snr : float or None
        Signal to noise in dB, of white noise; None is without noise.
    seed : int
        Of the choice of materials, and of noise.
    """

    like: str
    snr: float | None = 30.0
    seed: int = 0


def fractions_dc1() -> np.ndarray:
    """Return the abundances of five materials, (75, 75, 5): row k of squares is of k materials in equal parts, each from another on."""
    A = np.tile(np.array(BACKGROUND) / sum(BACKGROUND), (SIDE, SIDE, 1))
    edge = (CELL - SQUARE) // 2
    for row in range(5):
        for column in range(5):
            part = np.zeros(5)
            part[[(column + k) % 5 for k in range(row + 1)]] = 1 / (row + 1)
            lines, samples = (slice(CELL * at + edge, CELL * at + edge + SQUARE) for at in (row, column))
            A[lines, samples] = part
    return A


def fractions_dc2(seed: int) -> np.ndarray:
    """Return the abundances of nine materials, (100, 100, 9): smooth patches of few materials each."""
    return Fields(SyntheticScene(SIDE_2, SIDE_2, MATERIALS_2, MATERIALS_2, seed)).abundances(slice(0, SIDE_2))


FRACTIONS: dict[str, Callable[[int], np.ndarray]] = {"dc1": lambda seed: fractions_dc1(), "dc2": fractions_dc2}


def sparse_scene(library: Endmembers, settings: SparseChoice) -> tuple[np.ndarray, np.ndarray]:
    """Return pixels (lines, samples, L) and abundances of the library's spectra (lines, samples, p), float32, five or nine not 0."""
    fractions = FRACTIONS[settings.like](settings.seed)
    count, p = fractions.shape[2], len(library.names)
    random = np.random.Generator(np.random.PCG64([settings.seed, 11]))
    chosen = random.choice(p, count, replace=False)
    A = np.zeros((*fractions.shape[:2], p))
    A[..., chosen] = fractions
    Y = fractions @ library.matrix[:, chosen].T
    if settings.snr is not None:
        sigma = np.sqrt(np.square(Y).mean() / 10 ** (settings.snr / 10))
        Y += sigma * random.standard_normal(Y.shape)
    return Y.astype(np.float32), A.astype(np.float32)
