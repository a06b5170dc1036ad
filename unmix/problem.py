"""The problem of a run: endmembers, factors and constants that all pixels share, planned once."""

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np

from .errors import LibraryError
from .io import Bands
from .library import Endmembers
from .methods import Method, Solver

log = logging.getLogger("unmix")

WARN_CONDITION = 1e5
WORST_CONDITION = 1e8
# From here on updates of an inverse are too poor to find the support, and `safe` searches with a QR at every step.
UPDATED = 1e4
# No abundance may be off by more than this for a dual that was taken for zero.
ABUNDANCE_TOLERANCE = 1e-7


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
    def columns(self) -> np.ndarray:
        """E's transpose, where the solver asks for it."""
        return np.ascontiguousarray(self.E.T) if self.solver.any_rank else np.empty((0, 0))

    @property
    def places(self) -> np.ndarray:
        """Where entry j of a tableau's row k lies, of a triangle that is kept row by row: (p, p + 1) uint64."""
        if self.solver.any_rank:  # which sweeps nothing
            return np.empty((0, 0), np.uint64)
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
            self.dual_tolerance, self.method.sum_to_one, self.method.nonnegative, self.columns,
        )  # fmt: skip


def condition_of(endmembers: Endmembers) -> tuple[float, list[str]]:
    """cond(E), and the names of the endmembers that are nearly a mixture of each other where it is the largest."""
    E = endmembers.matrix
    _, singular, right = np.linalg.svd(E, full_matrices=False)
    condition = float(singular[0] / singular[-1]) if singular[-1] > 0 else float("inf")
    weights = np.abs(right[-1]) * np.linalg.norm(E, axis=0)
    heaviest = np.argsort(-weights, kind="stable")
    return condition, [endmembers.names[j] for j in heaviest if weights[j] > 0.1 * weights.max()]


def some_of(names: list[str], most: int = 8) -> str:
    """Names in one line, the first ``most``."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


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
    if p > L and not solver.any_rank:
        raise LibraryError(
            f"{endmembers.source}: {p} endmembers for {L} bands; solver '{solver.name}' needs at most as many as bands (for more: "
            "--method nnls --solver qr)"
        )
    size = np.square(E).sum(axis=0)
    if not np.all((size > 1e-200) & (size < 1e200)):
        raise LibraryError(f"{endmembers.source}: an endmember is zero, or too large or small for float64; rescale it")
    condition, culprits = condition_of(endmembers)
    full = p <= L and condition <= WORST_CONDITION
    if condition > WARN_CONDITION and not solver.any_rank:
        text = f"{endmembers.source}: nearly collinear endmembers, cond(E) = {condition:.1e}: {some_of(culprits)}"
        if not full:
            raise LibraryError(text + "; leave one out")
        log.warning(text)
    Q, R, inverse = (np.empty((0, 0)),) * 3 if solver.any_rank else factors(E)
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
        inverse=inverse,
        norms=np.sqrt(np.square(E).sum(axis=0)),
        curvature=float(np.linalg.svd(E, compute_uv=False)[-1] ** 2) if full else 0.0,  # then δ is infinite
        condition=condition if p <= L else float("inf"),
    )


def factors(E: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Q and R of E, and the inverse of its Gram matrix."""
    Q, R = np.linalg.qr(E)
    Q, R = np.ascontiguousarray(Q), np.ascontiguousarray(np.triu(R))
    small = np.linalg.solve(R, np.eye(E.shape[1]))  # G⁻¹ = R⁻¹R⁻ᵀ: cond(E) counts once
    return Q, R, small @ small.T
