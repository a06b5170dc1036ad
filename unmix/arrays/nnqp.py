"""`nnqp`: convex quadratic programmes over x ≥ 0, dense or sparse, by multiplicative updates; certified."""

from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse

from ..certificate import CERTIFIED
from ..devices import one_device
from ..errors import InputError, MethodError
from ..solvers.nnqp.programmes import BLOCKS_AT_ONCE, REGISTERS, THREADS, StepEngine
from ..solvers.pixels.multiplicative import ENOUGH, FIRST_TRIAL, MOST_STEPS
from .engines import groups_on
from .supports import of_support, way_down

# Up to this size the smallest eigenvalue of a dense Q is computed: 1 s.
EIGENVALUES = 2000
LARGEST = 1e150
# Supports that a trial solves, each shown by the answer on the one before. With one, of n = 20 000 entries some stay on the wrong side
# of the edge for thousands of steps; the second or third support was optimal after 16.
TRIES = 20
# An answer that shows its own support, and was factored, ends the search where its κ is rounding, a few ulps of |Q||x|: x of 1e9 |h|
# has no smaller one in float64. Above the second, Q is singular to rounding.
ROUNDING, SINGULAR = 16 * 2.0**-52, 1e-3


@dataclass(frozen=True)
class Programme:
    """Answers to a batch of quadratic programmes.

    Attributes
    ----------
    x : array (N, n), float64
    cost : array (N,), float64
        ``½ xᵀQx + hᵀx``.
    kappa, delta : arrays (N,), float64
        With ``v = −(Qx + h)``, where x_j = 0 only its positive part: ``κ = max_j |v_j| / (√Q_jj s)``, ``s = max_j |h_j| / √Q_jj``, and
        at least the largest −x_j √Q_jj / s; ``δ = |v|₂ / λ``, λ ≤ λ_min(Q), infinite where none above 0 is known.
    steps : array (N,), int32
    convex : bool or None
        Whether Q is known to be convex; None where it is not known, and what is certified is a stationary point.
    device : str
        Where the steps were made.
    ways_down : dict of int to array (n,), float64
        Of the systems whose cost has no bottom: a direction ``d ≥ 0`` of length 1 with ``Qd = 0`` and ``hᵀd < 0``, along which it
        falls for ever. Their cost is -inf, their κ and δ infinite, and x is where the search ended.
    """

    x: np.ndarray
    cost: np.ndarray
    kappa: np.ndarray
    delta: np.ndarray
    steps: np.ndarray
    convex: bool | None
    device: str
    ways_down: dict[int, np.ndarray] = field(default_factory=dict)

    @property
    def unbounded(self) -> np.ndarray:
        """The systems whose cost has no bottom."""
        return np.array(sorted(self.ways_down), int)

    @property
    def failed(self) -> np.ndarray:
        """The systems that are not certified."""
        return np.flatnonzero(~(self.kappa <= CERTIFIED))


def nnqp(
    Q: Any, H: np.ndarray, *, device: str = "cpu", threads: int | None = None, steps: int = MOST_STEPS
) -> Programme:
    """``min ½ xᵀQx + hᵀx`` over x ≥ 0, for every h.

    Multiplicative updates (Sha et al. 2007, `unmix.solvers.nnqp.updates`); before step 1 and after 16, 32, 64, … steps the support that
    shows is solved, by Cholesky or (sparse, with a wide band) conjugate gradients, and corrected; the optimality conditions
    decide. A programme without a bottom is told as such (``ways_down``). Memory is that of Q a few times over where
    it is dense, else of Q, its band (up to 1 GB) and some vectors.

    Parameters
    ----------
    Q : array-like or scipy.sparse matrix, (n, n)
        Symmetric, with a positive diagonal; convex.
    H : array-like of shape (n,) or (N, n)
    device : str
        "cpu", "cuda", "cuda:K" or "auto".
    threads : int, optional
        CPU threads, of which a system uses one; default is all.
    steps : int
        The most that are made.

    Returns
    -------
    Programme

    Raises
    ------
    InputError
        Where Q is not symmetric, not convex or has a diagonal that is not positive, shapes do not go together, or something is not
        finite.
    MethodError, DeviceError
        Where the device is not there, or ``steps`` is below 1.

    Examples
    --------
    >>> import numpy as np, unmix
    >>> unmix.nnqp(np.array([[2.0, 1], [1, 2]]), np.array([-2.0, 1])).x
    array([[1., 0.]])
    """
    if steps < 1:
        raise MethodError(f"`steps` {steps}: must be at least 1")
    Q, H = checked(Q, np.atleast_2d(np.asarray(H, np.float64)))
    least = least_curvature(Q)
    with one_device(device, threads) as machine:
        groups = groups_on(machine, threads, THREADS, BLOCKS_AT_ONCE, REGISTERS)
        with closing(StepEngine(groups, Q, H)) as engine:
            X, taken, ways = search(Q, H, engine, steps)
    kappa, delta, cost = certify(Q, H, X, max(least or 0.0, 0.0))
    for i in ways:
        cost[i], kappa[i], delta[i] = -np.inf, np.inf, np.inf
    return Programme(X, cost, kappa, delta, taken, None if least is None else True, machine.name, ways)


def checked(Q: Any, H: np.ndarray) -> tuple[Any, np.ndarray]:
    """Q as float64, dense or CSR, and H, or what is wrong with them."""
    Q = (
        scipy.sparse.csr_matrix(Q, dtype=np.float64, copy=True)
        if scipy.sparse.issparse(Q)
        else np.asarray(Q, np.float64)
    )
    if Q.ndim != 2 or Q.shape[0] != Q.shape[1] or 0 in Q.shape:
        raise InputError(f"Q must be square, and not empty; it has shape {Q.shape}")
    if H.ndim != 2 or H.shape[1] != Q.shape[0]:
        raise InputError(f"Q is {Q.shape[0]} x {Q.shape[0]}, but h has shape {H.shape}; it is (n,), or (N, n)")
    values = Q.data if scipy.sparse.issparse(Q) else Q
    if not np.all(np.isfinite(values)) or not np.all(np.isfinite(H)):
        raise InputError(f"{'h' if np.all(np.isfinite(values)) else 'Q'} holds values that are not finite")
    if max(np.abs(values).max(initial=0), np.abs(H).max(initial=0)) > LARGEST:
        raise InputError(f"Q or h holds values above {LARGEST:g}, whose squares float64 does not hold; rescale them")
    if not np.all(Q.diagonal() > 0):
        where = int(np.flatnonzero(~(Q.diagonal() > 0))[0])
        raise InputError(f"Q[{where}, {where}] is {Q.diagonal()[where]:g}; the diagonal must be positive")
    off = abs(Q - Q.T).max()
    if off > 1e-12 * abs(values).max():
        raise InputError(f"Q is not symmetric: entries differ by up to {off:.1e}; use (Q + Qᵀ) / 2")
    if scipy.sparse.issparse(Q):
        Q.sum_duplicates()
    return Q, np.ascontiguousarray(H)


def least_curvature(Q: Any) -> float | None:
    """No more than λ_min(Q), by Gershgorin's circles or, of a small dense one, by its eigenvalues; None where unknown."""
    diagonal = Q.diagonal()
    circles = float((2 * diagonal - np.asarray(abs(Q).sum(axis=1)).ravel()).min())
    if circles > 0:
        return circles
    if len(diagonal) > EIGENVALUES:
        return None
    Q = Q.toarray() if scipy.sparse.issparse(Q) else Q
    value, rounding = float(np.linalg.eigvalsh(Q)[0]), len(Q) * 2.3e-16 * float(np.trace(Q))
    if value < -rounding:
        raise InputError(f"Q is not convex: its smallest eigenvalue is {value:.1e}")
    return value - rounding if value > rounding else None if value < 0 else 0.0


def search(Q: Any, H: np.ndarray, engine: Any, most: int) -> tuple[np.ndarray, np.ndarray, dict[int, np.ndarray]]:
    """Trials and steps until every system is solved, is found to have no bottom, or has made the most steps.

    The first trial is before the first step, from the places where h falls: with off-diagonals below zero (a Laplacian) it is right
    at once, where steps would need as many as it takes to cross the matrix.
    """
    N, n = H.shape
    lengths = np.sqrt(Q.diagonal())
    scale = (np.abs(H) / lengths).max(axis=1)
    X = np.outer(scale, 1.0 / (n * lengths))
    X[scale == 0] = 0.0
    taken = np.zeros(N, np.int32)
    ways: dict[int, np.ndarray] = {}
    todo, trial, made = np.flatnonzero(scale > 0), FIRST_TRIAL, 0
    while len(todo):
        left = []
        for i in todo:
            answer = finish(Q, H[i], X[i] if made else np.zeros(n))
            if answer is not None:
                X[i] = answer
            elif made and (way := way_down(Q, H[i], X[i])) is not None:
                ways[int(i)] = way
            else:
                left.append(i)
        todo = np.array(left, int)
        if made >= most or len(todo) == 0:
            break
        trial = min(trial, most)
        engine.advance(X, todo, trial - made)
        made, trial = trial, 2 * trial
        taken[todo] = made
    return X, taken, ways


def finish(Q: Any, h: np.ndarray, x: np.ndarray) -> np.ndarray | None:
    """From x, solve the support that shows, and again while the answer shows another; None where none was optimal.

    What shows it is the natural residual ``min(x_j Q_jj, (Qx + h)_j)``: j is in where x_j Q_jj is the larger. Negative entries of an
    answer leave by the same rule, and violated ones enter: primal-dual active sets (Hintermüller, Ito and Kunisch 2002). An answer
    that shows its own support is the optimum, as nearly as rounding allows.
    """
    if kappa_of(Q, h, x) <= ENOUGH:
        return x
    answer, diagonal, before, sure = x, Q.diagonal(), np.empty(0, int), False
    for _ in range(TRIES):
        P = np.flatnonzero(answer * diagonal > Q @ answer + h)
        if sure and len(P) == len(before) and np.all(before == P) and is_rounding(Q, h, np.maximum(answer, 0.0)):
            return np.maximum(answer, 0.0)
        found, sure = of_support(Q, h, P, answer)
        if found is None or not np.isfinite(found).all():
            return None
        answer, before = np.zeros_like(x), P
        answer[P] = found
        if kappa_of(Q, h, answer) <= ENOUGH:
            return np.maximum(answer, 0.0)
    return None


def is_rounding(Q: Any, h: np.ndarray, x: np.ndarray) -> bool:
    """Return whether what κ is above zero may be the rounding of x and of its products, and x no larger than a regular Q makes it."""
    lengths = np.sqrt(Q.diagonal())
    rounding = float(((np.asarray(abs(Q) @ x).ravel() + np.abs(h)) / lengths).max()) * ROUNDING
    return kappa_of(Q, h, x) <= min(SINGULAR, rounding / float((np.abs(h) / lengths).max()))


def kappa_of(Q: Any, h: np.ndarray, x: np.ndarray) -> float:
    """Return κ of one system."""
    return float(certify(Q, h[None], x[None], 0.0)[0][0])


def certify(Q: Any, H: np.ndarray, X: np.ndarray, least: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """κ, δ and cost of every system, from Q, h and x alone; see `Programme`."""
    lengths = np.sqrt(Q.diagonal())
    scale = (np.abs(H) / lengths).max(axis=1)
    product = np.asarray((Q @ X.T).T)
    dual = -(product + H)
    cost = (X * (0.5 * product + H)).sum(axis=1)
    violation = np.where((X <= 0) & (dual < 0), 0.0, dual)
    sizes = np.maximum(np.abs(violation) / lengths, np.maximum(-X, 0.0) * lengths)
    with np.errstate(divide="ignore", invalid="ignore"):
        kappa = np.where(sizes.max(axis=1) > 0, sizes.max(axis=1) / scale, 0.0)
        delta = np.linalg.norm(violation, axis=1) / least if least > 0 else np.full(len(H), np.inf)
    return np.where(np.isfinite(dual).all(axis=1), kappa, np.inf), delta, cost
