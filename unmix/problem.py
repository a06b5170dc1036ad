"""The problem of a run: endmembers, factors and constants that all pixels share, planned once."""

import logging
import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from .errors import CubeError, LibraryError, MethodError
from .io import Bands, Cube, as_stored, bytes_per_line, missing, open_cube, spectra
from .library import Endmembers
from .methods import Method, Solver

log = logging.getLogger("unmix")

WARN_CONDITION = 1e5
WORST_CONDITION = 1e8
# From here on updates of an inverse are too poor to find the support, and `safe` searches with a QR at every step.
UPDATED = 1e4
# No abundance may be off by more than this for a dual that was taken for zero.
ABUNDANCE_TOLERANCE = 1e-7
# The 98th percentile of |y| over the largest |e|: dark scenes reach 0.1, so no tighter.
SCALE_RANGE = (0.02, 50.0)
SCALE_SAMPLE = 100_000


@dataclass(frozen=True)
class Problem:
    """Everything that all pixels share.

    Attributes
    ----------
    method, solver : Method, Solver
    endmembers : Endmembers
        ``endmembers.matrix`` is E, (L, p).
    bands : Bands
    nodata : float or None
        Compared with stored values.
    layout : str
        bip, bil or bsq: how blocks lie.
    Q, R, G, inverse : arrays (L, p) and (p, p), float64
        ``E = QR``, ``G = EᵀE``, ``inverse = G⁻¹``.
    norms : array (p,), float64
    curvature : float
        σ_min(E)².
    condition : float
        cond(E).
    """

    method: Method
    solver: Solver
    endmembers: Endmembers
    bands: Bands
    nodata: float | None
    layout: str
    Q: np.ndarray
    R: np.ndarray
    G: np.ndarray
    inverse: np.ndarray
    norms: np.ndarray
    curvature: float
    condition: float

    @property
    def E(self) -> np.ndarray:
        return self.endmembers.matrix

    @property
    def pixel(self) -> str:
        """The function of `unmix.solvers.pixel` that searches."""
        return "safe" if self.solver.pixel == "active_set" and self.condition > UPDATED else self.solver.pixel

    @property
    def places(self) -> np.ndarray:
        """Where entry j of a tableau's row k lies, of a triangle that is kept row by row: (p, p + 1) uint64."""
        k, j = np.indices((self.E.shape[1], self.E.shape[1] + 1))
        low, high = np.minimum(k, j), np.maximum(k, j)
        return (high * (high + 1) // 2 + low).astype(np.uint64)

    @property
    def unit_gram(self) -> np.ndarray:
        """Gram matrix of the endmembers at unit length, (p, p)."""
        return self.G / np.multiply.outer(self.norms, self.norms)

    @property
    def dual_tolerance(self) -> float:
        """Below which a dual counts as zero, relative to |e_j| and the pixel's scale.

        An ignored dual costs up to its size times cond(E)² in the abundances; 1e-12 is 100 times the rounding of a dual,
        and 100 times tighter than the certificate.
        """
        return min(1e-12, max(1e-15, ABUNDANCE_TOLERANCE / self.condition**2))

    def stored(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
        """The fields of `unmix.solvers.tile.Stored`."""
        nodata = float("nan") if self.nodata is None else self.nodata
        return self.bands.index, self.bands.gain, self.bands.offset, nodata

    def plan(self) -> tuple[Any, ...]:
        """The fields of `unmix.solvers.pixel.Plan`."""
        return (
            self.E, self.Q, self.R, self.places, self.unit_gram, self.G, self.inverse, self.norms, 1.0 / self.norms, self.curvature,
            self.dual_tolerance, self.method.sum_to_one, self.method.nonnegative,
        )  # fmt: skip


def plan_problem(
    endmembers: Endmembers, method: Method, solver: Solver, bands: Bands, nodata: float | None, layout: str
) -> Problem:
    """Factor the endmembers and refuse those that no exact answer can come from.

    Raises
    ------
    LibraryError
        Where there are more endmembers than bands, or cond(E) is above 1e8; it names the columns that are collinear.
    """
    E = endmembers.matrix
    L, p = E.shape
    if p > L:
        raise LibraryError(
            f"{endmembers.source}: {p} endmembers for {L} bands; solver '{solver.name}' needs at most as many as bands"
        )
    size = np.square(E).sum(axis=0)
    if not np.all((size > 1e-200) & (size < 1e200)):
        raise LibraryError(f"{endmembers.source}: an endmember is zero, or too large or small for float64; rescale it")
    _, singular, right = np.linalg.svd(E, full_matrices=False)
    condition = float(singular[0] / singular[-1]) if singular[-1] > 0 else float("inf")
    if condition > WARN_CONDITION:
        weights = np.abs(right[-1]) * np.linalg.norm(E, axis=0)
        culprits = ", ".join(endmembers.names[j] for j in range(p) if weights[j] > 0.1 * weights.max())
        text = f"{endmembers.source}: nearly collinear endmembers, cond(E) = {condition:.1e}: {culprits}"
        if condition > WORST_CONDITION:
            raise LibraryError(text + "; leave one out")
        log.warning(text)
    Q, R = np.linalg.qr(E)
    Q, R = np.ascontiguousarray(Q), np.ascontiguousarray(np.triu(R))
    small = np.linalg.solve(R, np.eye(p))  # G⁻¹ = R⁻¹R⁻ᵀ: cond(E) counts once
    return Problem(
        method=method,
        solver=solver,
        endmembers=endmembers,
        bands=bands,
        nodata=nodata,
        layout=layout,
        Q=Q,
        R=R,
        G=E.T @ E,
        inverse=small @ small.T,
        norms=np.sqrt(np.square(E).sum(axis=0)),
        curvature=float(singular[-1] ** 2),
        condition=condition,
    )


def open_scene(
    path: str | os.PathLike[str],
    scale: float | None = None,
    nodata: float | None = None,
    bands: str = "good",
    dataset: str | None = None,
    wavelengths: str | None = None,
) -> tuple[Cube, Bands, float | None]:
    """Open a cube and decide how to read it; warns of what opening found.

    Parameters
    ----------
    path : path-like
    scale, nodata : float or None
        Instead of the file's own.
    bands : str
        See `choose_bands`.
    dataset, wavelengths : str, optional
        See `unmix.io.open_cube`.

    Returns
    -------
    Cube
    Bands
    float or None
        The nodata value as the cube's type holds it.

    Raises
    ------
    CubeError, MethodError
        See `open_cube` and `choose_bands`.
    """
    cube = open_cube(path, dataset, wavelengths)
    problems = list(cube.problems)
    missing_value = cube.nodata if nodata is None else as_stored(nodata, cube.dtype, "--nodata", problems)
    for problem in problems:
        log.warning(problem)
    return cube, choose_bands(cube, bands, scale), missing_value


def choose_bands(cube: Cube, which: str, scale: float | None) -> Bands:
    """The bands in use, with their gains and offsets.

    Parameters
    ----------
    cube : Cube
    which : str
        ``good`` (those that the header's bbl calls good), ``all``, or a list such as ``1-50,60`` (from 1, inclusive).
    scale : float or None
        Divides stored values in place of everything that the file says about scale.

    Raises
    ------
    MethodError
        Where the list is no list of bands of this cube, or the scale is not positive.
    CubeError
        Where no band is good.
    """
    if which == "good":
        index = np.arange(cube.bands) if cube.good_bands is None else np.flatnonzero(cube.good_bands)
        if len(index) == 0:
            raise CubeError(f"{cube.path}: the header's bbl calls no band good; use --bands all")
    elif which == "all":
        index = np.arange(cube.bands)
    else:
        index = parse_bands(which, cube.bands)
    gain = np.ones(cube.bands) if cube.gain is None else cube.gain
    offset = np.zeros(cube.bands) if cube.offset is None else cube.offset
    if scale is not None:
        if not (np.isfinite(scale) and scale > 0 and np.isfinite(1.0 / scale)):
            raise MethodError(f"--scale {scale} must be above 0; stored values are divided by it")
        gain, offset = np.full(cube.bands, 1.0 / scale), np.zeros(cube.bands)
    return Bands(
        index.astype(np.int64), np.ascontiguousarray(gain[index], float), np.ascontiguousarray(offset[index], float)
    )


def parse_bands(text: str, bands: int) -> np.ndarray:
    """Places from 0 of a list such as ``1-50,60`` (from 1, inclusive), ascending, each once."""
    index: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if not all(word.isascii() and word.isdigit() and len(word) < 10 for word in (first, last or first)):
            raise MethodError(f"--bands '{text}': write good, all, or numbers from 1 such as 1-50,60")
        low, high = int(first), int(last or first)
        if not 1 <= low <= high <= bands:
            raise MethodError(f"--bands '{part.strip()}': the cube has bands 1 to {bands}")
        index |= set(range(low - 1, high))
    return np.array(sorted(index))


def check_scale(cube: Cube, endmembers: Endmembers, bands: Bands, nodata: float | None) -> None:
    """Compare the sizes of pixels and endmembers on at most 100 000 pixels, evenly spread over the scene.

    Raises
    ------
    CubeError
        Where the 98th percentile of |y| over the largest |e| is outside 0.02 to 50: most likely one is in 0-10000 and
        the other in 0-1.
    """
    wanted = min(cube.lines, max(1, SCALE_SAMPLE // cube.samples))
    apart = max(1, cube.samples // SCALE_SAMPLE)
    together = min(cube.lines_together, cube.lines)  # whole chunks: each line of one costs all of it
    buffer = np.empty(together * bytes_per_line(cube), np.uint8)
    lengths = [np.empty(0)]
    places = np.linspace(0, cube.lines - 1, max(1, wanted // together)).astype(int) // together * together
    for line in np.unique(places):
        raw = cube.read(slice(int(line), min(int(line) + together, cube.lines)), buffer)
        step = max(1, 2048 // together) * apart
        for first in range(0, cube.samples, step):  # in pieces: they are float64
            some = slice(first, first + step, apart)
            part = raw[:, some] if cube.layout == "bip" else raw[..., some]
            good = ~missing(part, cube.layout, bands, nodata)
            with np.errstate(over="ignore"):
                lengths.append(np.sqrt(np.square(spectra(part, cube.layout, bands)[good]).sum(axis=1)))
    found = np.concatenate(lengths)
    if len(found) == 0:
        return
    pixel = float(np.percentile(found, 98))
    endmember = float(np.sqrt(np.square(endmembers.matrix).sum(axis=0)).max())
    if pixel > 0 and not SCALE_RANGE[0] <= pixel / endmember <= SCALE_RANGE[1]:
        raise CubeError(
            f"{cube.path}: pixels are {pixel / endmember:.3g} times as large as the endmembers of {endmembers.source} "
            f"(|y| {pixel:.3g}, |e| {endmember:.3g}); divide the stored values with --scale (10000, say), "
            f"or --scale 1 if this is meant"
        )
