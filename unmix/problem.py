"""The problem of a run: endmembers, factors and constants that all pixels share, planned once."""

import functools
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .errors import LibraryError
from .io import Bands
from .library import Endmembers
from .methods import Method, Solver

log = logging.getLogger("unmix")

WARN_CONDITION = 1e5
# From here on endmembers are named where abundances are not pinned down.
ALIKE = 1e3
WORST_CONDITION = 1e8
# No abundance may be off by more than this for a dual that was taken for zero.
ABUNDANCE_TOLERANCE = 1e-7
# Lengths of endmembers between which no product of the proof leaves float64's range.
SHORTEST, LONGEST = 1e-30, 1e30


@dataclass(frozen=True)
class Problem:
    """Everything that all pixels share.

    Under Σa = 1 a common shift of endmembers and pixels changes nothing, so both are taken from the mean endmember there, and a
    band of constant height h is added: it leaves the answers as they are, and the Gram matrix has full rank, where one endmember
    is zero, too.

    Attributes
    ----------
    method, solver : Method, Solver
    endmembers : Endmembers
        As they are given, ``endmembers.matrix`` (L, p).
    bands : Bands
    nodata : float or None
        Compared with stored values.
    interleave : str
        bip, bil or bsq: how blocks lie.
    E : array (L, p), float64
        The endmembers that are computed with, less ``shift``.
    shift : array (L,) or (0,), float64
        The mean endmember under Σa = 1; (0,) where there is none.
    height : float
        h, of the constant band; 0 where there is none.
    Q, R, G, inverse : arrays (L + 1, p) and (p, p), float64
        Of E and the constant band: ``QR``, Gram matrix, and its inverse.
    norms : array (p,), float64
        Lengths of the columns of E with the constant band.
    sizes : array (p,), float64
        Lengths of the columns of E.
    curvature : float
        A lower bound of σ_min(E)², for Σa = 1 of E on vectors that sum to 0; 0 where that may be 0.
    condition : float
        cond(E), for Σa = 1 of E on vectors that sum to 0.
    culprits : tuple of str
        The endmembers that are the nearest to a mixture of each other.
    """

    method: Method
    solver: Solver
    endmembers: Endmembers
    bands: Bands
    nodata: float | None
    interleave: str
    E: np.ndarray
    shift: np.ndarray
    height: float
    Q: np.ndarray
    R: np.ndarray
    G: np.ndarray
    inverse: np.ndarray
    norms: np.ndarray
    sizes: np.ndarray
    curvature: float
    condition: float
    culprits: tuple[str, ...]

    @property
    def alike(self) -> tuple[str, ...]:
        """The culprits, where they matter."""
        return self.culprits if self.condition > ALIKE or self.curvature == 0.0 else ()

    @property
    def pixel(self) -> str:
        """The function of `unmix.solvers.pixels.tile.SEARCH` that finds the abundances."""
        return self.solver.pixel

    @property
    def columns(self) -> np.ndarray:
        """E's transpose, where the solver asks for it."""
        return np.ascontiguousarray(self.E.T) if self.solver.any_rank else np.empty((0, 0))

    @property
    def packed_index(self) -> np.ndarray:
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

    def stored(self) -> tuple[Any, ...]:
        """The fields of `unmix.solvers.pixels.gather.Stored`."""
        nodata = float("nan") if self.nodata is None else self.nodata
        return self.bands.index, self.bands.gain, self.bands.offset, nodata, self.shift

    def plan(self) -> tuple[Any, ...]:
        """The fields of `unmix.solvers.pixels.scalar.Plan`."""
        L = len(self.E)
        lifts = self.height * self.Q[L] if len(self.Q) > L else np.zeros(self.E.shape[1])
        return (
            self.E, self.Q[:L], self.R, self.packed_index, self.unit_gram, self.G, self.inverse, self.norms, 1.0 / self.norms,
            self.sizes, self.slopes, self.curvature, self.dual_tolerance, self.height**2, lifts, self.method.sum_to_one,
            self.method.nonnegative, self.columns,
        )  # fmt: skip

    @functools.cached_property
    def exact(self) -> Any:
        """What `unmix.rescue` needs of it in double-double."""
        from .solvers.pixels.active_set_extended import exact_of  # what compiles is imported when it is wanted

        given = np.ascontiguousarray(self.endmembers.matrix)
        return exact_of(given, self.height, self.curvature, self.method.sum_to_one, self.method.nonnegative)

    @functools.cached_property
    def slopes(self) -> np.ndarray:
        """``e_jᵀc`` with the vector c of length 1 that is nearest to all endmembers, (p,), for the duality gap where E has no full
        rank; zeros where it has, and where some mixture of endmembers is zero.

        c points to the point of the endmembers' hull that is nearest to zero: no e_jᵀc is smaller than its length.
        """
        none = np.zeros(self.E.shape[1])
        if self.curvature > 0.0 or self.method.sum_to_one:
            return none
        from scipy.optimize import nnls  # slow to import, and seldom wanted

        unit = self.E / self.norms
        mixture = nnls(
            np.vstack([unit, np.ones(unit.shape[1])]), np.append(np.zeros(len(unit)), 1.0), maxiter=30 * unit.shape[1]
        )[0]
        nearest = unit @ mixture
        length = np.linalg.norm(nearest)
        found = self.E.T @ nearest / length if length > 0 else none
        return found if np.all(found > 1e-9 * self.norms) else none


def condition_of(endmembers: Endmembers, sum_to_one: bool) -> tuple[float, float, tuple[str, ...]]:
    """How well the abundances are determined.

    Returns
    -------
    condition : float
        cond(E), for the sum to one of E on vectors that sum to 0.
    smallest : float
        A lower bound of the smallest singular value; 0 where rounding may have made it.
    culprits : tuple of str
        The endmembers that are nearly a mixture of each other there; of more than bands, the two that are most alike.
    """
    E = endmembers.matrix
    L, p = E.shape
    size = np.linalg.norm(E, axis=0)
    basis = np.eye(p)
    if sum_to_one:
        E = E - E.mean(axis=1, keepdims=True)
        size = np.full(p, np.linalg.norm(E, axis=0).max())
        basis = np.linalg.qr(np.column_stack([np.ones(p), np.eye(p)[:, 1:]]))[0][:, 1:]  # of vectors that sum to 0
    if basis.shape[1] == 0:
        return 1.0, float("inf"), ()
    if basis.shape[1] > L:
        return float("inf"), 0.0, closest_pair(endmembers)
    _, singular, right = np.linalg.svd(E @ basis, full_matrices=False)
    smallest = max(0.0, float(singular[-1] - 8 * max(L, p) * 2.0**-53 * singular[0]))
    condition = float(singular[0] / singular[-1]) if singular[-1] > 0 else float("inf")
    weights = np.abs(basis @ right[-1]) * size
    heaviest = np.argsort(-weights, kind="stable")
    return condition, smallest, tuple(endmembers.names[j] for j in heaviest if weights[j] > 0.1 * weights.max())


def closest_pair(endmembers: Endmembers) -> tuple[str, ...]:
    """The two endmembers with the smallest angle between them."""
    unit = endmembers.matrix / np.maximum(np.linalg.norm(endmembers.matrix, axis=0), SHORTEST)
    alike = unit.T @ unit - 3 * np.eye(unit.shape[1])
    i, j = np.unravel_index(int(np.argmax(alike)), alike.shape)
    return endmembers.names[i], endmembers.names[j]


def some_of(names: Sequence[str], most: int = 8) -> str:
    """Names in one line, the first ``most``."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def plan_problem(
    endmembers: Endmembers, method: Method, solver: Solver, bands: Bands, nodata: float | None, interleave: str
) -> Problem:
    """Factor the endmembers and refuse those that no exact answer can come from.

    Raises
    ------
    LibraryError
        Where there are more endmembers than bands, or cond(E) is above 1e8; it names the columns that are collinear.
    """
    L, p = endmembers.matrix.shape
    if p > L and not solver.any_rank:
        raise LibraryError(
            f"{endmembers.source}: {p} endmembers for {L} bands; solver '{solver.name}' needs at most as many as bands (for more: "
            "`method` nnls `solver` qr)"
        )
    from_mean = method.sum_to_one and not solver.as_given
    refuse_sizes(endmembers, from_mean)
    condition, smallest, culprits = condition_of(endmembers, from_mean)
    full = condition <= WORST_CONDITION
    if condition > WARN_CONDITION and not solver.any_rank:
        text = f"{endmembers.source}: nearly collinear endmembers, cond(E) = {condition:.1e}: {some_of(culprits)}"
        if not full:
            raise LibraryError(text + "; leave one out")
        log.warning(
            f"{text}: only small differences tell them apart; merge them, or leave one out, where noise is larger"
        )
    E, shift, height = centred(endmembers.matrix) if from_mean else (endmembers.matrix, np.zeros(0), 0.0)
    raised = np.vstack([E, np.full(p, height)]) if from_mean else E
    Q, R, inverse = (np.empty((0, 0)),) * 3 if solver.any_rank else factors(raised)
    lengths, norms = (np.sqrt(np.square(columns).sum(axis=0)) for columns in (E, raised))
    return Problem(
        method=method,
        solver=solver,
        endmembers=endmembers,
        bands=bands,
        nodata=nodata,
        interleave=interleave,
        E=E,
        shift=shift,
        height=height,
        Q=Q,
        R=R,
        G=raised.T @ raised,
        inverse=inverse,
        norms=norms,
        sizes=lengths,
        curvature=smallest**2 if full else 0.0,  # then δ is infinite
        condition=condition,
        culprits=culprits,
    )


def refuse_sizes(endmembers: Endmembers, zero: bool) -> None:
    """Raise `LibraryError` where an endmember is zero and may not be, or beyond what can be squared twice."""
    with np.errstate(over="ignore"):
        lengths = np.linalg.norm(endmembers.matrix, axis=0)
    if not np.all(lengths < LONGEST) or not np.all((lengths > SHORTEST) | ((lengths == 0) & zero)):
        short = (lengths <= SHORTEST) & ~((lengths == 0) & zero)
        j = int(np.flatnonzero(short | ~(lengths < LONGEST))[0])
        what = (
            "is zero (shade: use `method` fcls or scls)"
            if lengths[j] == 0
            else f"has length {lengths[j]:.1e}; rescale it"
        )
        raise LibraryError(f"{endmembers.source}: {endmembers.names[j]} {what}")


def centred(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Endmembers less their mean, the mean, and the height of the constant band: that direction's singular value is then the
    quadratic mean of all others, to a power of 2."""
    shift = matrix.mean(axis=1)
    E = np.ascontiguousarray(matrix - shift[:, None])
    size = float(np.linalg.norm(E))
    return E, shift, 2.0 ** round(np.log2(size / E.shape[1])) if size > 0 else 1.0


def factors(E: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Q and R of E, and the inverse of its Gram matrix."""
    Q, R = np.linalg.qr(E)
    Q, R = np.ascontiguousarray(Q), np.ascontiguousarray(np.triu(R))
    small = np.linalg.solve(R, np.eye(E.shape[1]))  # G⁻¹ = R⁻¹R⁻ᵀ: cond(E) counts once
    return Q, R, small @ small.T
