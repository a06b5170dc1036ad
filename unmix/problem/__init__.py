"""Prepare once what all pixels of a run share: endmembers, their factors and constants."""

import functools
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..certificate import blur_of
from ..errors import LibraryError, MethodError
from ..io import Bands, Cube, Scene
from ..library import Endmembers, Normalization
from ..methods import ALLOWANCE, SOLVERS, Method, ModelChoice, Solver, classes_in_order
from ..methods.constraint import Constraint
from ..settings import settings_of
from ..settings.run import RunSettings
from .factors import (
    LONGEST,
    SHORTEST,
    centred,
    condition_of,
    factors,
    gram_matrix,
    nearly_black,
    of_unit_length,
)
from .steps import LessBackground, LessShade, Step, Weights, applied, of_mean_square_one

log = logging.getLogger("unmix")

# cond(E) above which a warning is logged.
WARN_CONDITION = 1e5
# cond(E) above which nearly collinear endmembers are named, where pixels are certified in their fit alone.
ALIKE = 1e3
# The cosine of two spectra below which they are opposite: one spectrum of any sign.
OPPOSITE = 1e-12 - 1.0
# cond(E) above which endmembers are refused.
WORST_CONDITION = 1e8
# The largest error of an abundance that a dual treated as zero may cause.
ABUNDANCE_TOLERANCE = 1e-7
# cond(E) up to which least squares without a search is one product with a planned matrix: κ of its answers is some
# 1e-16 cond(E).
PLANNED_UP_TO = 1e4


@dataclass(frozen=True)
class Problem:
    """Everything that all pixels share.

    Under Σa = 1, subtracting one spectrum from endmembers and pixels changes no abundance. So the mean endmember is
    subtracted there, and a band of constant value h is added: it changes no abundance either, and gives the Gram matrix
    full rank, even if one endmember is zero.

    Attributes
    ----------
    method, solver : Method, Solver
    endmembers : Endmembers
        As given, and shade if the method has it, with ``endmembers.matrix`` (L, p).
    bands : Bands
    nodata : float or None
        The stored value that means no data.
    interleave : str
        bip, bil or bsq: the layout of blocks.
    E : array (L, p), float64
        The endmembers less ``shift``, which the solvers use.
    shift : array (L,) or (0,), float64
        The mean endmember under Σa = 1; else (0,).
    height : float
        The value h of the constant band; 0 without Σa = 1.
    Q, R, G, inverse : arrays (L + 1, p) and (p, p), float64
        QR factors, Gram matrix and its inverse, of E with the constant band.
    norms : array (p,), float64
        Lengths of the columns of E with the constant band.
    sizes : array (p,), float64
        Lengths of the columns of E.
    curvature : float
        A lower bound of σ_min(E)² (for Σa = 1, of E on vectors that sum to 0); 0 where that may be 0.
    condition : float
        cond(E) (for Σa = 1, of E on vectors that sum to 0).
    culprits : tuple of str
        Names of the endmembers that come nearest to being mixtures of each other.
    mesma : ModelChoice or None
        How models are chosen; None for every method but MESMA.
    noise : array (L,), unmix.maps.derived.noise.NoiseCube or None
        Standard deviation of each band, or of each band of each pixel, where it is given.
    lost : int
        Dimensions of the bands in which the pixels have no noise, as background was taken out of them.
    own : unmix.runs.inputs.CountedPixels, unmix.runs.penalties.neighbours.Smoothed or None
        Weights and the like of each pixel, or the abundances that were found for all pixels together.
    further : mapping
        What features have added, by their names.
    plain : Bands, Endmembers
        Bands and endmembers before the steps; all else of the problem is after them.
    steps : sequence of Step
        How these were changed, in this order.
    penalty : array (p,) or (0,), float64
        The cost of an abundance of one beside the residual, at least 0. Without a penalty (0,).
    search : (str, value) or None
        The feature whose search finds the abundances in place of the solver's, and its option's value.
    normalization : Normalization or None
        How fractions are made of the abundances, where they are to be.
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
    plain: tuple[Bands, Endmembers]
    steps: Sequence[Step] = ()
    mesma: ModelChoice | None = None
    noise: Any = None
    lost: int = 0
    own: Any = None
    further: Mapping[str, Any] = field(default_factory=dict)
    penalty: np.ndarray = field(default_factory=lambda: np.empty(0))
    search: tuple[str, Any] | None = None
    normalization: Normalization | None = None

    def penalised(self, l1: float) -> "Problem":
        """Return the problem of minimising ``½ |y − E a|² + λ Σa``, with λ ≥ 0 in the unit of ``½ |y|²``."""
        self.refuse("l1", float(l1))
        # With a ≥ 0 this is Eᵀy − λ in place of Eᵀy, and nothing else: search and proof stay exact.
        return replace(self, penalty=np.full(len(self.endmembers.names), float(l1)))

    def refuse(self, name: str, value: Any) -> None:
        """Raise `MethodError` where an option of runs does not take a value, or is not for the method and solver."""
        for fault in settings_of(RunSettings)[name].faults(name, value, self.method.name, self.solver.name):
            raise MethodError(fault)

    @property
    def constraint(self) -> Constraint:
        """The method's constraint on abundances."""
        return self.method.constraint

    def scene(self, cube: Cube) -> Scene:
        """Return a cube as the problem takes its pixels."""
        return Scene(cube, self.bands, self.nodata)

    @property
    def is_rescued(self) -> bool:
        """Whether doubtful pixels are solved again (`unmix.rescue`): for exact solvers, but not MESMA or a search."""
        return self.solver.exact and not self.mesma and self.search is None

    @property
    def alike(self) -> tuple[str, ...]:
        """The culprits where cond(E) is above 1e3, else nothing."""
        return self.culprits if self.condition > ALIKE or self.curvature == 0.0 else ()

    @functools.cached_property
    def black(self) -> dict[str, float]:
        """The nearly black spectra, with their shares of brightness; none where abundances sum to one without shade."""
        own = self.plain[1]
        given = own.take(range(len(own.names) - 1)) if self.constraint.has_shade else own
        is_open = self.constraint.is_cone or self.constraint.has_shade
        return nearly_black(given) if is_open and not self.mesma else {}

    @functools.cached_property
    def collinear(self) -> tuple[str, ...]:
        """The culprits of a condition above 1e5 that dark spectra alone do not explain; else none."""
        if self.condition <= WARN_CONDITION:
            return ()
        if not self.black or self.constraint.sum_to_one:
            alike = [name for name in self.culprits if name not in self.black]
            return self.culprits if len(alike) > 1 else ()
        condition, _, culprits = condition_of(of_unit_length(self.endmembers), False)
        return culprits if condition > WARN_CONDITION else ()

    @property
    def pixel(self) -> str:
        """The key of the function in `unmix.solvers.pixels.tile.SEARCH` that finds the abundances."""
        if self.search is not None:
            return self.search[0]
        planned = self.solver.pixel == "direct" and self.condition <= PLANNED_UP_TO
        return "planned" if planned else self.solver.pixel

    @property
    def unit_gram(self) -> np.ndarray:
        """Gram matrix of the endmembers scaled to length 1, (p, p)."""
        return self.G / np.multiply.outer(self.norms, self.norms)

    @property
    def dual_tolerance(self) -> float:
        """The size below which a dual counts as zero, relative to |e_j| and the pixel's scale."""
        # An ignored dual changes the abundances by up to its size times cond(E)²; 1e-12 is 100 times the rounding error
        # of a dual, and 100 times tighter than the certificate.
        return min(1e-12, max(1e-15, ABUNDANCE_TOLERANCE / self.condition / self.condition))

    @functools.cached_property
    def blur(self) -> float:
        """By how much an endmember may be off for the rounding of its values, over its length in ``norms``."""
        given = np.sqrt(np.square(self.endmembers.matrix).sum(axis=0))
        return blur_of(len(self.E), float((given / self.norms).max()))

    @functools.cached_property
    def has_duplicates(self) -> bool:
        """Whether an endmember is another one, or a multiple of it under nnls; its δ is then infinite."""
        close = self.unit_gram - np.eye(len(self.norms)) > 1.0 - 1e-14
        unit = self.E / self.norms
        pairs = zip(*np.nonzero(close & np.tri(len(close), k=-1, dtype=bool)))
        return any(np.abs(unit[:, i] - unit[:, j]).max() <= 4 * 2.0**-53 for i, j in pairs)

    def stored(self) -> tuple[Any, ...]:
        """Return the fields of `unmix.solvers.pixels.gather.Stored`."""
        nodata = float("nan" if self.nodata is None else self.nodata)  # one type, for which all is compiled once
        return self.bands.index, self.bands.gain, self.bands.offset, nodata, self.shift

    def plan(self, path: str | None = None) -> tuple[Any, ...]:
        """Return the fields of `unmix.solvers.pixels.scalar.Plan`; ``path`` replaces `pixel` for some devices."""
        from ..solvers.pixels.active_set import index_of_entries
        from ..solvers.pixels.tile import SWEPT

        L, p = self.E.shape
        rows = SWEPT.get(path or self.pixel)
        places = np.empty((0, 0), np.uint64) if rows is None else index_of_entries(rows(p))
        lifts = self.height * self.Q[L] if len(self.Q) > L else np.zeros(p)
        Q = self.Q[:L]
        if self.pixel == "planned":
            Q, lifts = np.ascontiguousarray(np.linalg.solve(self.R, Q.T).T), self.inverse.sum(axis=1)
        E = np.ascontiguousarray(self.E)  # drawn spectra are in another order, for which all would be compiled again
        return (
            E,
            Q,
            self.R,
            places,
            self.unit_gram,
            self.G,
            self.inverse,
            self.norms,
            1.0 / self.norms,
            self.sizes,
            self.slopes,
            self.curvature,
            self.centre,
            self.blur,
            self.dual_tolerance,
            self.height**2,
            lifts,
            *self.constraint.flags,
            self.models,
            self.penalty,
        )

    @functools.cached_property
    def models(self) -> Any:
        """The models of a pixel: of MESMA (`unmix.solvers.pixels.mesma.tables.Models`), a search's value, or (0, 0)."""
        if self.search is not None:
            return self.search[1]
        choice = self.mesma
        if not choice:
            return np.empty((0, 0))
        from ..solvers.pixels.mesma.tables import (
            MOST_BYTES,
            Models,
            all_models,
            bytes_of_models,
            table_of_models,
            tabulated,
        )

        kinds, (fewest, most), L = list(self.endmembers.classes or ()), choice.sizes, float(len(self.E))
        names, counts = classes_in_order(kinds), choice.models_by_size(kinds)
        if bytes_of_models(counts) > MOST_BYTES:
            raise LibraryError(
                f"{self.endmembers.source}: the tables of {sum(counts)} models need {bytes_of_models(counts)} bytes, "
                f"more than {MOST_BYTES}; use fewer spectra (`select`) or lower `levels`"
            )
        number, sets = np.array([names.index(kind) for kind in kinds]), choice.allowed_sets(kinds)
        least = 1 if choice.limits == "exact" else fewest
        made = [tabulated(self.G, all_models(number, k, sets)) for k in range(least, most + 1)]
        values: Any = (
            *table_of_models(made),
            self.norms,
            most,
            fewest,
            choice.limits == "exact",
            choice.min_fraction - ALLOWANCE,
            choice.max_fraction + ALLOWANCE,
            choice.min_shade - ALLOWANCE,
            choice.max_shade + ALLOWANCE,
            float(np.nextafter(L * choice.largest_rmse**2, np.inf)),
            -1.0 if choice.fusion is None else choice.fusion,
            choice.fusion_rule == "kept",
            L,
            float("inf") if choice.max_residual is None else choice.max_residual,
            choice.residual_bands,
        )
        return Models(*values)

    @functools.cached_property
    def exact(self) -> Any:
        """The constants that `unmix.rescue` needs, in double-double."""
        from ..solvers.pixels.active_set_extended import exact_of  # imported only when needed: it compiles

        given = np.ascontiguousarray(self.endmembers.matrix)
        return exact_of(given, self.height, self.curvature, self.blur, *self.constraint.flags, self.penalty)

    @property
    def centre(self) -> float:
        """The length of the mean endmember, where that is subtracted; else 0."""
        return float(np.linalg.norm(self.shift))

    @functools.cached_property
    def slopes(self) -> np.ndarray:
        """The slopes (p,) of `slopes_of_dual` where E lacks full rank and abundances need no sum of one; else zeros."""
        if self.curvature > 0.0 or not self.constraint.is_cone:
            return np.zeros(self.E.shape[1])
        from .dual_point import slopes_of_dual

        return slopes_of_dual(self.E, self.norms, len(self.penalty) > 0)


def some_of(names: Sequence[str], most: int = 8) -> str:
    """Return the first ``most`` names in one line, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def plan_problem(
    endmembers: Endmembers,
    method: Method,
    solver: Solver,
    scene: Scene | None = None,
    mesma: ModelChoice | None = None,
    warns: bool = True,
    steps: Sequence[Step] = (),
) -> Problem:
    """Factor the endmembers (L, p), in the unit of scaled pixels, and refuse endmembers that bar an exact solution."""
    bands = Bands.of(np.arange(len(endmembers.matrix))) if scene is None else scene.bands
    plain = bands, endmembers.with_shade() if method.constraint.has_shade else endmembers
    bands, endmembers = applied(steps, *plain)
    if method.constraint.has_shade:
        materials = endmembers.take(range(len(endmembers.names) - 1))
        refuse_sizes(materials, False, "; pcls adds shade itself: leave it out")
    L, p = endmembers.matrix.shape
    if p > L and not solver.any_rank:
        raise LibraryError(
            f"{endmembers.source}: {p} endmembers for {L} bands; solver '{solver.name}' takes at most as many as "
            "bands; use fewer, "
            f"or {without_rank(method)}"
        )
    from_mean = method.constraint.sum_to_one and not solver.as_given
    others = "" if mesma else ", or use `method` fcls, scls or pcls"
    refuse_sizes(endmembers, from_mean, f" (shade); leave it out{others}")
    condition, smallest, culprits = condition_of(endmembers, from_mean)
    full_rank = condition <= WORST_CONDITION
    E, shift, height = centred(endmembers.matrix) if from_mean else (endmembers.matrix, np.zeros(0), 0.0)
    extended = np.vstack([E, np.full(p, height)]) if from_mean else E
    if not full_rank and not solver.any_rank:
        raise LibraryError(
            f"{endmembers.source}: nearly collinear endmembers, cond(E) = {condition:.1e}: {some_of(culprits)}: above "
            "the limit of "
            f"{WORST_CONDITION:g}; leave one of them out, or use {without_rank(method)}"
        )
    Q, R, inverse = (np.empty((0, 0)),) * 3 if solver.any_rank else factors(extended)
    lengths, norms = (np.sqrt(np.square(columns).sum(axis=0)) for columns in (E, extended))
    problem = Problem(
        method=method,
        solver=solver,
        endmembers=endmembers,
        bands=bands,
        nodata=None if scene is None else scene.nodata,
        interleave="bip" if scene is None else scene.cube.interleave,
        E=E,
        shift=shift,
        height=height,
        Q=Q,
        R=R,
        G=gram_matrix(extended),
        inverse=inverse,
        norms=norms,
        sizes=lengths,
        curvature=smallest**2 if full_rank else 0.0,  # 0 makes δ infinite
        condition=condition,
        culprits=culprits,
        plain=plain,
        steps=steps,
        mesma=mesma and mesma.of_library(endmembers.classes or (), L),
    )
    if warns:
        for fault in faults_of(problem):
            log.warning(f"{endmembers.source}: {fault}")
    return problem


def faults_of(problem: Problem) -> Iterator[str]:
    """Yield why abundances of the endmembers may be far off, a sentence each."""
    opposite = np.argwhere(np.triu(problem.unit_gram) < OPPOSITE) if problem.collinear else ()
    for one, other in opposite[:1]:
        names = problem.endmembers.names
        yield f"{names[one]} is opposite to {names[other]}: leave one out, or give it with `free` of a run"
    if problem.black:
        name, share = min(problem.black.items(), key=lambda one: one[1])
        advice = (
            "pcls adds shade itself: leave it out"
            if problem.constraint.has_shade
            else "leave it out, or use `method` pcls"
        )
        yield f"{name} is {share:.0e} times as bright as the others, so that its abundances may be thousands: {advice}"
    L, p = problem.endmembers.matrix.shape
    if problem.collinear and not problem.mesma and (p <= L or not problem.solver.any_rank):
        yield (
            f"nearly collinear endmembers, cond(E) = {problem.condition:.1e}: {some_of(problem.collinear)}: noise may grow "
            "that many times; merge them, leave one out, or give them one class and take sums (`by` class)"
        )


def without_rank(method: Method) -> str:
    """Return advice for endmembers that lack full rank: a solver of the method, or other methods."""
    solvers = [name for name in method.solvers if SOLVERS[name].any_rank and SOLVERS[name].exact]
    return f"`solver` {solvers[0]}" if solvers else "`method` nnls or fcls"


def refuse_sizes(endmembers: Endmembers, zero_allowed: bool, advice: str = "") -> None:
    """Raise `LibraryError` where an endmember is zero but may not be, or its length is outside of 1e-30 to 1e30."""
    largest = np.abs(endmembers.matrix).max(axis=0)  # whose square may be no number
    lengths = largest * np.linalg.norm(endmembers.matrix / np.where(largest > 0, largest, 1.0), axis=0)
    if not np.all(lengths < LONGEST) or not np.all((lengths > SHORTEST) | ((lengths == 0) & zero_allowed)):
        short = (lengths <= SHORTEST) & ~((lengths == 0) & zero_allowed)
        j = int(np.flatnonzero(short | ~(lengths < LONGEST))[0])
        fault = f"has length {lengths[j]:.1e}, not between {SHORTEST:g} and {LONGEST:g}; rescale it"
        fault = f"is zero in all bands{advice}" if lengths[j] == 0 else fault
        raise LibraryError(f"{endmembers.source}: {endmembers.names[j]} {fault}")
