"""The arrays of a scene in a search for abundances with a spatial prior, and the costs of differences between neighbours."""

from dataclasses import dataclass

import numpy as np

from ...certificate import UNIT_ROUNDOFF
from ...errors import MethodError
from ...methods import LARGEST_THRESHOLD
from ...problem.factors import gram_matrix
from ...solvers.spatial.lines import LASTING
from ...solvers.spatial.pixel import Programme

# The ratio of the Gram matrix's eigenvalues, for columns of length 1, up to which spectra may depend on each other.
DEPENDENT_RATIO = 1e-9


@dataclass(frozen=True)
class Prior:
    """The cost of a difference between the abundances of neighbours.

    Attributes
    ----------
    kind : {"tv", "laplacian"}
        ``λ |a_i − a_j|`` or ``½ λ (a_i − a_j)²``, added up over endmembers and pairs of neighbours.
    weight : float
        λ.
    """

    kind: str
    weight: float

    @property
    def smooth(self) -> bool:
        """Whether differences cost their squares."""
        return self.kind == "laplacian"


def prior_of(tv: float | None = None, laplacian: float | None = None) -> Prior:
    """Return the prior of which one weight is given; `MethodError` if there are both or none, or it is out of range."""
    if (tv is None) == (laplacian is None):
        raise MethodError("name one of `tv` and `laplacian`")
    name, weight = ("laplacian", laplacian) if tv is None else ("tv", tv)
    assert weight is not None
    if not 0 < weight < LARGEST_THRESHOLD:
        raise MethodError(f"`{name}` {weight:g}: must be above 0, and below {LARGEST_THRESHOLD:g}")
    return Prior(name, float(weight))


@dataclass
class Field:
    """The arrays of a scene that outlast a pass, as `unmix.solvers.spatial.lines.Strip` has them; in memory or in a file.

    Attributes
    ----------
    arrays : dict
        By the names of `LASTING`.
    half_squares : float
        ``½ Σ |y|²``.
    """

    arrays: dict[str, np.ndarray]
    half_squares: float = 0.0

    @staticmethod
    def layout(lines: int, samples: int, p: int, q: int) -> dict[str, tuple[int, ...]]:
        """Return the shape of each array."""
        pixels, all_, edges = (lines, samples), (lines, p, samples), (lines, q, samples)
        shapes = (all_, pixels, pixels, pixels, all_, edges, edges, all_, all_)
        return dict(zip(LASTING, shapes))

    @classmethod
    def in_memory(cls, lines: int, samples: int, p: int, q: int) -> "Field":
        """Return a field of zeros."""
        return cls({name: np.zeros(shape) for name, shape in cls.layout(lines, samples, p, q).items()})

    def fill(self, first: int, Y: np.ndarray, valid: np.ndarray, E: np.ndarray, l1: np.ndarray | float) -> None:
        """Take pixels of some lines, (n, S, L), of which ``valid`` (n, S) have values in all bands."""
        n = len(Y)
        near = np.where(valid[..., None], Y, 0.0)
        F = near @ E - l1 * valid[..., None]
        self.arrays["F"][first : first + n] = F.transpose(0, 2, 1)
        with np.errstate(over="ignore"):  # which a search refuses
            squares = np.square(near).sum(axis=2)
        self.arrays["lengths"][first : first + n] = np.where(valid, np.sqrt(squares), -1.0)
        self.half_squares += 0.5 * float(squares.sum())

    def is_finite(self) -> bool:
        """Return whether a search may go on from the iterate."""
        return all(bool(np.isfinite(line).all()) for name in ("a", "W", "U", "V", "x") for line in self.arrays[name])

    def begin(self, plan: Programme) -> None:
        """Set the iterate to the abundances without the prior, which ``x`` holds, and to the duals of their nonnegativity."""
        for F, a, x, V in zip(*(self.arrays[name] for name in ("F", "a", "x", "V"))):
            a[:] = x
            slope = F - plan.gram @ a
            V[:] = np.minimum(slope - slope.max(axis=0) if plan.sum_to_one else slope, 0.0)

    def connect(self, cost: float, across: np.ndarray | float = 1.0, down: np.ndarray | float = 1.0) -> None:
        """Set the costs of edges, where both pixels have values; ``across`` and ``down`` (lines, S) are their weights."""
        there = self.arrays["lengths"] >= 0
        self.arrays["across"][:, :-1] = (
            cost * (there[:, 1:] & there[:, :-1]) * np.broadcast_to(across, there.shape)[:, :-1]
        )
        self.arrays["W"][..., -1], self.arrays["U"][-1] = 0.0, 0.0  # no step changes these
        self.arrays["down"][:-1] = cost * (there[1:] & there[:-1]) * np.broadcast_to(down, there.shape)[:-1]


def feasible(a: np.ndarray, sum_to_one: bool) -> np.ndarray:
    """Return abundances (lines, p, S) of an iterate: its positive parts, divided by their sum if they must sum to one."""
    A = np.maximum(a, 0.0)
    return A / A.sum(axis=1, keepdims=True) if sum_to_one else A


def programme_of(E: np.ndarray, sum_to_one: bool) -> Programme:
    """Return what the programmes of all pixels share; `MethodError` if no bound exists, since some mixture of spectra is zero."""
    gram = gram_matrix(E)
    G = gram + float(np.mean(np.diag(gram))) if sum_to_one else gram
    L, p = E.shape
    ray = np.ones(p)
    if not sum_to_one and (gram @ ray).min() <= 0:
        ray = np.linalg.lstsq(gram, np.ones(p), rcond=1e-10)[0]
    duals = gram @ ray
    if not sum_to_one and not duals.min() > 0:
        raise MethodError(
            "some mixture of the endmembers is zero, so that no cost is bounded from below: leave spectra out, or use fcls"
        )
    roundings = UNIT_ROUNDOFF * (L + 2.0 * p + 10.0)
    lengths = np.sqrt(np.diag(gram))
    size = np.sqrt(np.diag(G))
    values = np.linalg.eigvalsh(G / np.multiply.outer(size, size)) if size.all() else np.zeros(1)
    dependent = bool(values[0] <= DEPENDENT_RATIO * values[-1])
    return Programme(G, gram, size, 1e-12, sum_to_one, lengths, ray, duals, dependent, roundings)
