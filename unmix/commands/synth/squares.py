"""The two scenes that sparse unmixing is compared on, DC1 and DC2 (Iordache, Bioucas-Dias and Plaza 2011, 2012), of any library."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..._version import VERSION
from ...errors import LibraryError
from ...io.formats.header import axis_fields, image_header
from ...io.opening import write_new
from ...library import Endmembers
from ...outputs.names import Inputs
from . import CODES, Fields, SyntheticScene, refuse_noise, stem_of_scene, written_scene

log = logging.getLogger("unmix")

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
        DC1: 75 x 75 pixels, five materials; squares of one to five of them in equal parts lie on a mixture of all. DC2: 100 x 100
        pixels, patches of nine materials.
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
    """Return pixels (lines, samples, L) and abundances of the library's spectra (lines, samples, p), float32, five or nine not 0.

    `MethodError` or `LibraryError` where it cannot be made, or the library has fewer spectra.
    """
    refuse_noise(settings.seed, settings.snr)
    fractions = FRACTIONS[settings.like](settings.seed)
    count, p = fractions.shape[2], len(library.names)
    if p < count:
        raise LibraryError(f"{library.source}: {p} spectra; {settings.like} is of {count}")
    random = np.random.Generator(np.random.PCG64([settings.seed, 11]))
    chosen = random.choice(p, count, replace=False)
    A = np.zeros((*fractions.shape[:2], p))
    A[..., chosen] = fractions
    Y = fractions @ library.matrix[:, chosen].T
    if settings.snr is not None:
        sigma = np.sqrt(np.square(Y).mean() / 10 ** (settings.snr / 10))
        Y += sigma * random.standard_normal(Y.shape)
    return Y.astype(np.float32), A.astype(np.float32)


def synthesise_sparse(
    path: Path,
    library: Endmembers,
    settings: SparseChoice,
    overwrite: bool = False,
    command: str = "",
    inputs: Inputs = (),
) -> list[Path]:
    """Write a scene as ``X.hdr`` and ``.img``, and its true abundances, ``X_truth_abundance``; return the files.

    Errors as of `sparse_scene` and `unmix.commands.synth.synthesise`.
    """
    Y, A = sparse_scene(library, settings)
    used = [library.names[j] for j in np.flatnonzero(A.sum(axis=(0, 1)))]
    log.info(f"{path.name}: mixtures of {', '.join(used)}")
    headers: dict[str, tuple[str, dict[str, Any]]] = {
        "": (command or "synthetic scene by unmix", axis_fields(library.wavelengths)),
        "_truth_abundance": (
            f"true abundances; there are {'; '.join(used)}", {"band names": list(library.names), "unmix version": VERSION},
        ),
    }  # fmt: skip

    def write(parts: dict[str, Path]) -> None:
        for name, values in (("", Y), ("_truth_abundance", A)):
            size = len(values), values.shape[1], values.shape[2]
            write_new(parts[f"{name}.img"], np.ascontiguousarray(values.transpose(0, 2, 1), "<f4").tobytes())
            write_new(parts[f"{name}.hdr"], image_header(*size, CODES["float32"], *headers[name]))

    names = [f"{name}{ending}" for name in headers for ending in (".img", ".hdr")]
    return written_scene(stem_of_scene(path), names, write, overwrite, inputs)
