"""`nmf`: pixels as mixtures of endmembers that nobody gave, both found together by multiplicative updates."""

import logging
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..blocks import cores
from ..devices import one_device
from ..errors import InputError, MethodError
from ..pipeline import Step
from ..solvers.nmf.updates import LOSSES

log = logging.getLogger("unmix")
# As many as scikit-learn's, which is where its stop comes from, too.
MOST_STEPS, TOLERANCE = 200, 1e-4
EVERY = 25  # Arun Kumar et al.
# Of an endmember's mean: what is zero would stay so.
FLOOR = 1e-4
# No pixel may have more: its square, and sums of them, are float32 too.
LARGEST = 1e15
# Largest endmembers that are taken as they are.
USUAL = 2.0**-4, 2.0**20
# By so much a loss may seem to rise.
ROUNDING = 1e-5
Progress = Callable[[Step], None]
# A block's pixels and abundances, in the shapes that the engine asks for.
Block = tuple[np.ndarray, np.ndarray]


class Blocks(Protocol):
    """All pixels with their abundances, which are changed in place, as often as it is gone through."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Block]: ...


@dataclass(frozen=True)
class Factors:
    """What a factorisation found.

    Attributes
    ----------
    E : array (L, p), float32
        Endmembers.
    A : array (N, p), float32
        Abundances; ``X ≈ A Eᵀ``.
    costs : list of (int, float)
        Steps made, and the loss after them: ``Σ x log(x / m) − x + m``, or ``½ Σ (x − m)²``. The first is infinite where a
        value above 0 has a model of 0; whether it still falls is then judged with a model of 1.2e-7 there.
    converged : bool
        Whether the tolerance stopped it, and not the most steps.
    device : str
    """

    E: np.ndarray
    A: np.ndarray
    costs: list[tuple[int, float]]
    converged: bool
    device: str


@dataclass(frozen=True)
class Plan:
    """How to descend; the fields are `nmf`'s."""

    loss: str = "kl"
    sum_to_one: bool = False
    steps: int = MOST_STEPS
    tol: float = TOLERANCE
    every: int = EVERY

    def __post_init__(self) -> None:
        if self.loss not in LOSSES:
            raise MethodError(f"unknown loss '{self.loss}'; there are {', '.join(LOSSES)}")
        if self.steps < 1 or self.every < 1 or not self.tol >= 0:
            raise MethodError("`steps` and `every` must be at least 1, `tol` at least 0")


def nmf(
    X: np.ndarray,
    E: np.ndarray,
    A: np.ndarray | None = None,
    *,
    loss: str = "kl",
    sum_to_one: bool = False,
    steps: int = MOST_STEPS,
    tol: float = TOLERANCE,
    every: int = EVERY,
    device: str = "cpu",
    threads: int | None = None,
) -> Factors:
    """Factorise pixels, ``X ≈ A Eᵀ``, nothing negative, from a start.

    Multiplicative updates (Lee and Seung 2001; Arun Kumar et al.): abundances, then with a fresh quotient endmembers, as scikit-learn's
    ``solver="mu"`` makes them; the loss never rises. In float32.

    Parameters
    ----------
    X : array-like of shape (N, L)
        Pixels; not negative.
    E : array-like of shape (L, p)
        Endmembers to begin with; zeros stay zeros.
    A : array-like of shape (N, p), optional
        Abundances to begin with; default is equal ones that give each pixel its sum (or, with ``sum_to_one``, 1).
    loss : {"kl", "frobenius"}
        Kullback-Leibler divergence, or half the squared distance.
    sum_to_one : bool
        Keep each pixel's abundances at a sum of 1.
    steps : int
        The most that are made.
    tol : float
        Stop where the loss fell by less than this share of the first between two looks at it; 0 for all steps.
    every : int
        Steps between looks.
    device : str
        "cpu", "cuda", "cuda:K" or "auto".
    threads : int, optional
        CPU threads; default is all.

    Returns
    -------
    Factors

    Raises
    ------
    InputError
        Where shapes do not go together, or something is negative or not finite.
    MethodError, DeviceError
        Where an option is wrong, or the device is not there.

    Examples
    --------
    >>> import numpy as np, unmix
    >>> found = unmix.nmf(np.array([[1.0, 2], [2, 4]]), np.array([[1.0], [1]]), steps=1)
    >>> (found.A @ found.E.T).round(3).tolist()
    [[1.0, 2.0], [2.0, 4.0]]
    """
    plan = Plan(loss, sum_to_one, steps, tol, every)
    X, E = np.asarray(X, np.float32), np.asarray(E, np.float32)
    A = equal_parts(X, E, sum_to_one) if A is None else np.asarray(A, np.float32)
    if X.ndim != 2 or E.ndim != 2 or A.shape != (X.shape[0], E.shape[1]) or X.shape[1] != E.shape[0] or 0 in A.shape:
        raise InputError(f"X {X.shape}, E {E.shape} and A {A.shape} do not go together: (N, L), (L, p) and (N, p)")
    for name, values in (("X", X), ("E", E), ("A", A)):
        if not (values.min() >= 0 and values.max() < np.inf):  # NaN is neither
            raise InputError(f"{name} holds values that are negative or not finite")
    if X.max() > LARGEST:
        raise InputError(f"X holds values above {LARGEST:g}, too large for float32's squares")
    unit = unit_of(E)
    with (
        one_device(device, threads) as machine,
        closing(engine_for((len(X), *E.shape), plan, machine.name != "cpu", threads)) as engine,
    ):
        block = filled(engine, X if unit == 1 else X * np.float32(unit), A)
        E, costs, converged = descend(engine, E, [block], True, plan, unit)
        return Factors(E, block[1][: len(X), : E.shape[1]].copy(), costs, converged, machine.name)


def unit_of(E: np.ndarray) -> float:
    """The power of two that pixels and endmembers are multiplied by, as the updates divide by no less than 1.2e-7; mostly 1."""
    highest = float(E.max())
    return 1.0 if USUAL[0] <= highest <= USUAL[1] or highest <= 0 else float(2.0 ** -np.round(np.log2(highest)))


def equal_parts(X: np.ndarray, E: np.ndarray, sum_to_one: bool) -> np.ndarray:
    """Abundances to begin with: equal ones, (N, p) float32; zeros for pixels of zeros, which have none."""
    p, total = E.shape[1], float(E.sum())
    sums = X.sum(axis=1, dtype=np.float64, keepdims=True)
    parts = np.where(sums > 0, 1.0 / p, 0.0) if sum_to_one else sums / (total if total > 0 else 1.0)
    return np.repeat(parts.astype(np.float32), p, axis=1)


def engine_for(shape: tuple[int, ...], plan: Plan, gpu: bool, threads: int | None) -> Any:
    """What makes the steps, for a shape: pixels of the largest block, bands, endmembers."""
    most, L, p = shape
    if gpu:
        from ..solvers.nmf.cuda import CudaEngine

        return CudaEngine(L, p, most, plan.loss, plan.sum_to_one)
    from ..solvers.nmf.cpu import CpuEngine

    return CpuEngine(L, p, most, plan.loss, plan.sum_to_one, threads or cores())


def filled(engine: Any, X: np.ndarray, A: np.ndarray) -> Block:
    """Pixels and abundances in the shapes of the engine; abundances are copied, since they change."""
    tall, wide = engine.shape(len(X))
    return in_shape(X, tall), in_shape(A, wide) if A.shape != wide else A.copy()


def in_shape(values: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """The same with zeros up to a shape."""
    if values.shape == shape:
        return np.ascontiguousarray(values)
    whole = np.zeros(shape, np.float32)
    whole[: values.shape[0], : values.shape[1]] = values
    return whole


def descend(
    engine: Any,
    E: np.ndarray,
    blocks: Blocks,
    held: bool,
    plan: Plan,
    unit: float = 1.0,
    progress: Progress | None = None,
) -> tuple[np.ndarray, list[tuple[int, float]], bool]:
    """Steps until the tolerance or the most.

    Parameters
    ----------
    engine : OnCpu or OnGpu
    E : array (L, p), float32
        To begin with.
    blocks : Blocks
    held : bool
        There is one block, and it stays where it is.
    plan : Plan
    unit : float
        What the pixels have been multiplied by.
    progress : callable, optional
        Called with an `unmix.pipeline.Step`.

    Returns
    -------
    E : array (L, p), float32
    costs : list of (int, float)
    converged : bool

    Raises
    ------
    InputError
        Where the loss is not finite.
    """
    engine.begin(E * np.float32(unit))
    to_loss = 1.0 / unit if plan.loss == "kl" else 1.0 / unit**2
    steady = engine.hold(*next(iter(blocks))) if held else None
    now, missed = cost_of(engine, blocks, steady)
    first = before = now = to_loss * now
    costs = [(0, np.inf if missed else now)]
    made, converged = 0, False
    while made < plan.steps and not converged:
        count = min(plan.every, plan.steps - made)
        if steady is not None:
            engine.steps(steady, count)
        else:
            for step in range(count):
                one_pass(engine, blocks)
                if progress is not None:
                    progress(Step(made + step + 1, plan.steps))
        made += count
        before = now
        now, missed = cost_of(engine, blocks, steady)
        now *= to_loss
        costs.append((made, np.inf if missed else now))
        if progress is not None:
            progress(Step(made, plan.steps))
        if not np.isfinite(first) or not np.isfinite(now):
            raise InputError("the loss is not finite: are there values that are no data, or far too large?")
        risen = now - before > ROUNDING * before
        if risen:
            log.warning(
                f"the loss rose from {before:.6g} to {now:.6g} by step {made}: float32 does not hold what the pixels span"
            )
        converged = plan.tol > 0 and before - now < plan.tol * first and not risen
    if missed:
        log.warning(
            f"the loss is infinite: {missed} values above 0 are given 0 by endmembers and abundances, whose zeros stay; begin with "
            "endmembers without zeros there, or use the Frobenius loss"
        )
    if steady is not None:
        engine.fetch(steady, next(iter(blocks))[1])
    return engine.E / np.float32(unit), costs, converged


def cost_of(engine: Any, blocks: Blocks, steady: Any) -> tuple[float, int]:
    """Return the loss of all pixels with a least model, and how many values make the loss itself infinite."""
    if steady is not None:
        loss, missed = engine.cost(steady)
    else:
        loss, missed = sum(engine.cost(engine.hold(*block)) for block in blocks)
    return float(loss), int(missed)


def one_pass(engine: Any, blocks: Blocks) -> None:
    """A step with pixels in several blocks."""
    for i, block in enumerate(blocks):
        there = engine.hold(*block)
        engine.steps(there, 1, i == 0, i == len(blocks) - 1)
        engine.fetch(there, block[1])
