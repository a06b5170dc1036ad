"""Solve and certify convex quadratic programmes over x ≥ 0, dense or sparse, by multiplicative updates."""

from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse

from ...arrays.groups import groups_on
from ...arrays.others.kinds import as_kind, kind_of_array, on_host
from ...arrays.supports import descent_direction, recession_direction, solve_support
from ...certificate import CERTIFIED, UNDERFLOW, UNIT_ROUNDOFF
from ...devices import one_device
from ...errors import InputError, MethodError
from ...solvers.nnqp.programmes import BLOCKS_AT_ONCE, REGISTERS, THREADS, StepEngine

# Steps before the support is solved for the first time (then after twice as many, and so on), and the most steps.
FIRST_TRIAL, MOST_STEPS = 16, 10_000
# Largest κ (see `Programme`) at which the search ends: a tenth of the κ that is certified.
LARGEST_FINAL_KAPPA = 1e-11
# Most unknowns for which the smallest eigenvalue of Q is computed: 1 s.
MOST_EIGEN = 2000
# Most unknowns of a linear programme that is quick: it takes half a second if Q is dense; one of 1000 takes 23 s.
MOST_QUICK = 300
SMALLEST_SUBNORMAL = float(np.finfo(float).smallest_subnormal)  # twice the rounding below float64's range
# The most supports that a trial solves, each derived from the answer on the one before. With one, of n = 20 000 entries
# some stay on the wrong side of the edge for thousands of steps; the second or third support was optimal after 16.
MOST_TRIES = 20
# Largest κ of an answer that implies its own support and was found by a factorisation: the rounding, `ULPS` of |Q||x|,
# since for x of 1e9 |h| float64 allows no smaller κ. If κ is above `LARGEST_REGULAR_KAPPA`, Q is singular to rounding.
ULPS, LARGEST_REGULAR_KAPPA = 16 * 2.0**-52, 1e-3


@dataclass(frozen=True)
class Programme:
    """Answers to a batch of quadratic programmes.

    Attributes
    ----------
    x : array (N, n), float64
    cost : array (N,), float64
        ``½ xᵀQx + hᵀx``.
    kappa, delta : arrays (N,), float64
        With ``v = −(Qx + h)``, where x_j = 0 only its positive part: ``κ = max_j |v_j| / (√Q_jj s)``, ``s = max_j |h_j|
        / √Q_jj``, and at least the largest −x_j √Q_jj / s; ``δ = |v + ρ|₂ / λ``, ρ a bound on the rounding of v and λ ≤
        λ_min(Q), infinite if no λ above 0 is known: x is no further than δ from the optimum.
    steps : array (N,), int32
    convex : bool or None
        True if Q is known to be convex; None if that is not known: then only a stationary point is certified.
    device : str
        The name of the device that made the steps.
    ways_down : dict of int to array (n,), float64
        For each system whose cost is unbounded below: a direction ``d ≥ 0`` of length 1 with ``Qd = 0`` and ``hᵀd <
        0``, along which the cost falls without end. The cost of these systems is -inf, their κ and δ are infinite, and
        x is the last iterate.
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
        """Return the indices of the systems whose cost is unbounded below."""
        return np.array(sorted(self.ways_down), int)

    @property
    def failed(self) -> np.ndarray:
        """Return the indices of the systems whose κ is above 1e-10; the others are certified where δ is finite."""
        return np.flatnonzero(~(on_host(self.kappa) <= CERTIFIED))


def nnqp(
    Q: Any, H: np.ndarray, *, device: str = "cpu", threads: int | None = None, steps: int = MOST_STEPS
) -> Programme:
    """Minimise ``½ xᵀQx + hᵀx`` over x ≥ 0, for every h.

    Multiplicative updates (Sha et al. 2007, `unmix.solvers.nnqp.updates`). Before step 1 and after 16, 32, 64, … steps
    the programme is solved on the support that x implies, by Cholesky or (sparse, with a wide band) conjugate
    gradients, and the support is corrected; the optimality conditions decide whether the answer is accepted. Unbounded
    programmes are listed in ``ways_down``. Memory holds a few copies of Q if it is dense, else Q, its band (up
    to 1 GB) and some vectors.

    Parameters
    ----------
    Q : array-like or scipy.sparse matrix, (n, n)
        Symmetric, with a positive diagonal; convex.
    H : array-like of shape (n,) or (N, n)
        The linear terms; each row is a system.
    device : str
        "cpu", "cuda", "cuda:K" or "auto".
    threads : int, optional
        CPU threads; each system uses one. Default is all.
    steps : int
        The largest number of steps.

    Returns
    -------
    Programme
        Of arrays of the kind of H, where H is (torch, CuPy, JAX, numba); they are copied to the host, where supports
        are solved.

    Raises
    ------
    InputError
        If Q is not symmetric, not convex or has a diagonal that is not positive, shapes do not match, or a value is not
        finite or too large.
    MethodError, DeviceError
        If the device is not available, or ``steps`` is below 1.

    Examples
    --------
    >>> import numpy as np, unmix
    >>> unmix.nnqp(np.array([[2.0, 1], [1, 2]]), np.array([-2.0, 1])).x
    array([[1., 0.]])
    """
    if steps < 1:
        raise MethodError(f"`steps` {steps}: must be at least 1")
    kind, given = kind_of_array(H), H
    Q, H = checked_programme(
        Q if scipy.sparse.issparse(Q) else on_host(Q), np.atleast_2d(np.asarray(kind.host(H), np.float64))
    )
    # Divided by powers of 2, so that no product leaves float64's range.
    size, sizes = max(-1000, int(np.frexp(Q.diagonal().max())[1])), np.frexp(np.abs(H).max(axis=1))[1]
    Q, H = Q * 2.0**-size, np.ldexp(H, -sizes[:, None])
    if not np.all(Q.diagonal() > 0):
        raise InputError("Q's diagonal entries differ by more than float64 can hold: divide rows and columns")
    least = least_curvature(Q)
    with one_device(device, threads) as machine:
        groups = groups_on(machine, threads, THREADS, BLOCKS_AT_ONCE, REGISTERS)
        # What leaves float64's range is no answer, and has a κ of infinity.
        with closing(StepEngine(groups, Q, H)) as engine, np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            X, steps_taken, directions = solve_batch(Q, H, engine, steps, not least)
            kappa, delta, cost = certify(Q, H, X, least or 0.0)
    with np.errstate(over="ignore", under="ignore"):
        X = np.ldexp(X, sizes[:, None] - size)
        delta = np.ldexp(delta, sizes - size) + len(Q.diagonal()) * SMALLEST_SUBNORMAL
        cost = np.ldexp(cost, 2 * sizes - size)
    beyond = ~(np.isfinite(X).all(axis=1) & (delta >= 0.0))
    kappa[beyond], delta[beyond] = np.inf, np.inf
    for i in directions:
        cost[i], kappa[i], delta[i] = -np.inf, np.inf, np.inf
    answer = Programme(X, cost, kappa, delta, steps_taken, None if least is None else True, machine.name, directions)
    return as_kind(answer, kind, given)


def checked_programme(Q: Any, H: np.ndarray) -> tuple[Any, np.ndarray]:
    """Return Q as float64, dense or CSR, and H; raise `InputError` if they are wrong."""
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
    if not np.all(Q.diagonal() > 0):
        i = int(np.flatnonzero(~(Q.diagonal() > 0))[0])
        raise InputError(f"Q[{i}, {i}] is {Q.diagonal()[i]:g}; the diagonal must be positive")
    asymmetry = abs(Q - Q.T).max()
    if asymmetry > 1e-12 * abs(values).max():
        raise InputError(f"Q is not symmetric: entries differ by up to {asymmetry:.1e}; use (Q + Qᵀ) / 2")
    if scipy.sparse.issparse(Q):
        Q.sum_duplicates()
    return Q, np.ascontiguousarray(H)


def least_curvature(Q: Any) -> float | None:
    """Return a lower bound of λ_min(Q), None if unknown; `InputError` if Q is not convex."""
    diagonal = Q.diagonal()
    sums = np.asarray(abs(Q).sum(axis=1)).ravel()
    circles = float((2 * diagonal - sums * (1.0 + (len(diagonal) + 2.0) * UNIT_ROUNDOFF)).min())
    if circles > 0:
        return circles
    if len(diagonal) > MOST_EIGEN:
        return None
    Q = Q.toarray() if scipy.sparse.issparse(Q) else Q
    value, rounding = float(np.linalg.eigvalsh(Q)[0]), len(Q) * 2.3e-16 * float(np.trace(Q))
    if value < -rounding:
        raise InputError(f"Q is not convex: its smallest eigenvalue is {value:.1e}")
    return value - rounding if value > rounding else None if value < 0 else 0.0


def solve_batch(
    Q: Any, H: np.ndarray, engine: Any, most: int, singular: bool
) -> tuple[np.ndarray, np.ndarray, dict[int, np.ndarray]]:
    """Alternate trials and steps; return X (N, n), steps (N,) int32, and `Programme.ways_down` by system."""
    N, n = H.shape
    lengths = np.sqrt(Q.diagonal())
    scale = (np.abs(H) / lengths).max(axis=1)
    X = np.outer(scale, 1.0 / (n * lengths))
    X[scale == 0] = 0.0
    steps_taken = np.zeros(N, np.int32)
    directions: dict[int, np.ndarray] = {}
    todo, next_trial, steps_made = np.flatnonzero(scale > 0), FIRST_TRIAL, 0
    while len(todo):
        unsolved = []
        for i in todo:
            # The first trial is on the support where h < 0: with negative off-diagonals (a Laplacian) it is right at
            # once, where steps would have to carry the solution across the whole matrix.
            answer = try_supports(Q, H[i], X[i] if steps_made else np.zeros(n))
            if answer is not None:
                X[i] = answer
                continue
            direction = descent_direction(Q, H[i], X[i]) if steps_made else None
            # A linear programme decides whether the system has an optimum.
            if direction is None and singular and may_ask(n, steps_made, most):
                direction = recession_direction(Q, H[i])
            if direction is None:
                unsolved.append(i)
            else:
                directions[int(i)] = direction
        todo = np.array(unsolved, int)
        if steps_made >= most or len(todo) == 0:
            break
        next_trial = min(next_trial, most)
        engine.advance(X, todo, next_trial - steps_made)
        steps_made, next_trial = next_trial, 2 * next_trial
        steps_taken[todo] = steps_made
    return X, steps_taken, directions


def may_ask(n: int, steps_made: int, most: int) -> bool:
    """Return whether a linear programme is due: after the first steps if quick, else after the last if small enough."""
    return steps_made == min(FIRST_TRIAL, most) if n <= MOST_QUICK else steps_made == most and n <= MOST_EIGEN


def try_supports(Q: Any, h: np.ndarray, x: np.ndarray) -> np.ndarray | None:
    """Solve on the support that x implies until the answer implies it too; return the optimum, None if not found."""
    if kappa_of_programme(Q, h, x) <= LARGEST_FINAL_KAPPA:
        return x
    answer, diagonal, previous, is_factored = x, Q.diagonal(), np.empty(0, int), False
    for _ in range(MOST_TRIES):
        # By the natural residual min(x_j Q_jj, (Qx + h)_j), j is in the support if x_j Q_jj is the larger: primal-dual
        # active sets (Hintermüller, Ito and Kunisch 2002).
        P = np.flatnonzero(answer * diagonal > Q @ answer + h)
        unchanged = is_factored and len(P) == len(previous) and np.all(previous == P)
        if unchanged and is_optimal_to_rounding(Q, h, np.maximum(answer, 0.0)):
            return np.maximum(answer, 0.0)
        values, is_factored = solve_support(Q, h, P, answer)
        if values is None or not np.isfinite(values).all():
            return None
        answer, previous = np.zeros_like(x), P
        answer[P] = values
        if kappa_of_programme(Q, h, answer) <= LARGEST_FINAL_KAPPA:
            return np.maximum(answer, 0.0)
    return None


def is_optimal_to_rounding(Q: Any, h: np.ndarray, x: np.ndarray) -> bool:
    """Return whether rounding of x and its products explains κ, and κ is small enough for a regular Q."""
    lengths = np.sqrt(Q.diagonal())
    rounding = float(((np.asarray(abs(Q) @ x).ravel() + np.abs(h)) / lengths).max()) * ULPS
    return kappa_of_programme(Q, h, x) <= min(LARGEST_REGULAR_KAPPA, rounding / float((np.abs(h) / lengths).max()))


def kappa_of_programme(Q: Any, h: np.ndarray, x: np.ndarray) -> float:
    """Return κ of one system."""
    return float(certify(Q, h[None], x[None], 0.0)[0][0])


def certify(Q: Any, H: np.ndarray, X: np.ndarray, least: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return κ, δ and cost (N,) of X (N, n) for Q and H; δ is infinite unless ``least`` ≤ λ_min(Q) is above 0."""
    lengths = np.sqrt(Q.diagonal())
    scale = (np.abs(H) / lengths).max(axis=1)
    product = np.asarray((Q @ X.T).T)
    dual = -(product + H)
    cost = (X * (0.5 * product + H)).sum(axis=1)
    violation = np.where((X <= 0) & (dual < 0), 0.0, dual)
    sizes = np.maximum(np.abs(violation) / lengths, np.maximum(-X, 0.0) * lengths)
    kappa = np.where(sizes.max(axis=1) > 0, np.inf, 0.0)
    np.divide(sizes.max(axis=1), scale, out=kappa, where=scale > 0)
    kappa[~np.isfinite(dual).all(axis=1)] = np.inf
    if not least > 0:
        return kappa, np.full(len(H), np.inf), cost
    terms = np.diff(Q.indptr).max() if scipy.sparse.issparse(Q) else len(lengths)
    margin = (terms + 2.0) * UNIT_ROUNDOFF * (np.asarray((abs(Q) @ np.abs(X).T).T) + np.abs(H))
    bound = np.where(X > 0, np.abs(dual) + margin, np.maximum(dual + margin, 0.0))
    rounding = 1.0 + 4.0 * (len(lengths) + 4.0) * UNIT_ROUNDOFF
    delta = np.sqrt(np.square(bound).sum(axis=1) + UNDERFLOW) / least * rounding
    return kappa, np.where(np.isfinite(delta) & (X >= 0).all(axis=1), delta, np.inf), cost
