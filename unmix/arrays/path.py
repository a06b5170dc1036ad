"""The whole path of sparse regression for one pixel: abundances for every λ, by homotopy."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import CubeError, MethodError
from ..methods import choose
from ..problem import Problem, plan_problem, rest_of_product
from ..rescue import NO_TABLEAU
from .others.kinds import on_host
from .pixels import checked, numbered

# Most breakpoints for each endmember; paths of 498 minerals have up to 110 in all.
MOST_FOR_EACH = 50


@dataclass(frozen=True)
class Path:
    """The path of one pixel; between two breakpoints abundances are linear in λ.

    Attributes
    ----------
    lambdas : array (K,), float64
        The breakpoints, descending: from the λ from which on all abundances are 0, to 0.
    abundances : array (K, p), float64
        Abundances at each breakpoint.
    kappa : array (K,), float64
        Largest violation of the optimality conditions there, relative to the lengths of endmember and pixel (`unmix.certificate`,
        without the duality gap). An abundance counts as used if it is at a neighbouring breakpoint: violations are linear in λ, so
        none between two breakpoints is larger.
    delta : array (K,), float64
        No abundance at the breakpoint is further than this from the optimum for its λ, rounding included (`unmix.certificate`).
        It is infinite where the optimum is not unique.
    """

    lambdas: np.ndarray
    abundances: np.ndarray
    kappa: np.ndarray
    delta: np.ndarray

    def at(self, l1: float) -> np.ndarray:
        """Return the abundances for one λ, array (p,)."""
        high = int(np.searchsorted(-self.lambdas, -l1, side="left"))
        if high == 0:
            return np.zeros(self.abundances.shape[1])
        if high == len(self.lambdas):
            raise MethodError(f"`l1` {l1:g}: must not be negative")
        above, below = self.lambdas[high - 1], self.lambdas[high]
        share = (above - l1) / (above - below)
        return np.asarray((1.0 - share) * self.abundances[high - 1] + share * self.abundances[high])

    def last(self, count: int) -> np.ndarray:
        """Return the numbers of the ``count`` endmembers that stay longest as λ grows, the longest first."""
        present = self.abundances > 0
        used = np.flatnonzero(present.any(axis=0))
        return used[np.argsort(present[:, used].argmax(axis=0), kind="stable")][:count]


def path(y: np.ndarray, E: np.ndarray, weights: np.ndarray | None = None) -> Path:
    """Find abundances for every λ of ``min ½ |y − E a|² + λ wᵀa`` over a ≥ 0.

    On a support S the optimum is ``a_S = u − λ v`` with ``u = (E_SᵀE_S)⁻¹E_Sᵀy`` and ``v = (E_SᵀE_S)⁻¹w_S``, down to the λ where an
    abundance, or the dual of another endmember, becomes 0 (Osborne, Presnell and Turlach 2000; Efron et al. 2004). Several that do so
    at one λ enter and leave together (`unmix.solvers.pixels.homotopy`). Abundances at a breakpoint are those of `unmix.solve` for its
    λ, with their δ.

    Parameters
    ----------
    y : array-like of shape (L,)
        The pixel.
    E : array-like of shape (L, p)
        Endmembers, one per column, in the unit of y.
    weights : array-like of shape (p,), optional
        The weights w, above 0; default is 1.

    Returns
    -------
    Path

    Raises
    ------
    CubeError, LibraryError
        If shapes do not match, numbers are not finite, or an endmember's length is outside of 1e-30 to 1e30.
    MethodError
        If a weight is not above 0, abundances are beyond float64's range, or the path does not end: endmembers depend on each
        other.

    Examples
    --------
    >>> import numpy as np, unmix
    >>> E = np.array([[1.0, 0.0, 0.5], [0.0, 1.0, 0.5], [0.0, 0.0, 0.5]])
    >>> found = unmix.path(np.array([1.0, 0.5, 0.0]), E)
    >>> found.lambdas.round(3), found.abundances.round(3)
    (array([1. , 0.5, 0. ]), array([[0. , 0. , 0. ],
           [0.5, 0. , 0. ],
           [1. , 0.5, 0. ]]))
    """
    y, E = checked(np.atleast_1d(on_host(y)), E)
    y, p = np.asarray(y, float), E.shape[1]
    w = np.ones(p) if weights is None else on_host(weights).astype(float)
    if y.ndim != 1 or not np.all(np.isfinite(y)):
        raise CubeError(f"y must be (L,) of finite numbers, but has shape {y.shape}")
    if w.shape != (p,) or not np.all((w > 0) & np.isfinite(w)):
        raise MethodError(f"`weights`: {w.size} numbers; there must be one above 0 for each of {p} endmembers")
    problem = plan_problem(numbered(E), *choose("nnls"), warns=False)
    # Scaled by powers of 2, so that squares of y stay within float64's range; abundances and λ scale with y, and λ inversely with w.
    scale = 2.0 ** -int(np.frexp(np.abs(y).max())[1])
    heavy = 2.0 ** -int(np.frexp(w.max())[1])
    lambdas, A = breakpoints(problem, y * scale, w * heavy)
    delta = np.empty(len(lambdas))
    for i, l1 in enumerate(lambdas):
        A[i], delta[i] = proved(problem, y * scale, float(l1), w * heavy, A[i])
    kappa = violations(E, y * scale, w * heavy, lambdas, A)
    with np.errstate(over="ignore"):
        found = Path(lambdas / scale * heavy, A / scale, kappa, delta / scale)
    if not (np.all(np.isfinite(found.lambdas)) and np.all(np.isfinite(found.abundances))):
        raise MethodError("abundances are beyond the range of numbers; rescale y or E")
    return found


def breakpoints(problem: Problem, y: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return λ, (K,), and abundances, (K, p), of every breakpoint; `MethodError` where the path does not end."""
    from ..solvers.pixels.active_set_extended import new_extended_work  # compiles
    from ..solvers.pixels.homotopy import Ray, products_of_library
    from ..solvers.pixels.homotopy import breakpoints_of_pixel as find

    p = len(w)
    work = new_extended_work(p)
    work.f[:] = products_of_library(problem.E, y)
    ray = Ray(w, np.empty((p, 2)), np.empty((p, 2)), np.empty((2, p)), np.empty(p, np.uint8))
    lambdas, A = np.empty(MOST_FOR_EACH * p), np.empty((MOST_FOR_EACH * p, p))
    count = find(problem.exact, work, ray, float(np.linalg.norm(y)), lambdas, A)
    if count < 0:
        raise MethodError("the path does not end: endmembers depend on each other; leave some out")
    return lambdas[:count].copy(), A[:count].copy()


def proved(problem: Problem, y: np.ndarray, l1: float, w: np.ndarray, a: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the optimum for one λ and its δ, from abundances that are right to rounding; abundances of 0 stay 0."""
    from ..devices import Line
    from ..solvers.pixels.active_set_extended import pairs_of, prove_pixels
    from ..solvers.pixels.cpu import Plan, Results, Stored

    line = Line(1, y.nbytes, real=np.float64)
    results = dict[str, Any]()
    for name, (kind, shape) in line.results(
        1, problem
    ).items():  # float64, as `unmix.rescue.taken` makes them: compiled once for both
        results[name] = np.empty(shape, np.float64 if np.dtype(kind).kind == "f" else kind)
    results["abundance"][0, :, 0] = a
    results["rmse"][0, 0] = np.sqrt(np.square(y - problem.E @ a).mean())
    penalty = l1 * w
    plan = Plan(*problem.plan(NO_TABLEAU))._replace(penalty=penalty)
    exact = problem.exact._replace(penalty=pairs_of(penalty, rest_of_product(l1, w)))
    prove_pixels(y[None, None], Stored(*problem.stored()), plan, exact, Results(**results))
    found, bound = results["abundance"][0, :, 0], float(results["delta"][0, 0])
    if (
        not bound < np.inf
    ):  # endmembers depend on each other: the search ends anywhere, and the path was right to rounding
        return a, bound
    answer = np.where(a > 0, found, 0.0)
    return answer, bound + float(np.abs(found - answer).sum())


def violations(E: np.ndarray, y: np.ndarray, w: np.ndarray, lambdas: np.ndarray, A: np.ndarray) -> np.ndarray:
    """Return κ of the abundances A (K, p) at each λ, (K,), with endmembers that are in use at a neighbouring breakpoint."""
    V = (y - A @ E.T) @ E - lambdas[:, None] * w
    used = A > 0
    near = used.copy()
    near[1:] |= used[:-1]
    near[:-1] |= used[1:]
    V = np.where(near, np.abs(V), np.maximum(V, 0.0))
    return np.asarray(
        (V / (np.linalg.norm(E, axis=0) * max(float(np.linalg.norm(y)), np.finfo(float).tiny))).max(axis=1)
    )
