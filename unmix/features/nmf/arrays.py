"""Factorise pixels into unknown endmembers and abundances (NMF) by multiplicative updates."""

import logging
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ...arrays.others.kinds import on_host
from ...arrays.shown import Shown
from ...blocks import cores
from ...devices import one_device
from ...errors import InputError, MethodError
from ...pipeline import JobProgress
from .updates import LOSSES

log = logging.getLogger("unmix")
# Defaults of the options ``steps`` and ``tol``: those of scikit-learn, as is the rule for when to stop.
MOST_STEPS, DEFAULT_TOLERANCE = 200, 1e-4
EVERY = 25  # steps between evaluations of the loss (Arun Kumar et al.)
# Endmembers begin with at least this share of their mean: updates would leave a zero at zero.
FLOOR = 1e-4
LARGEST_PIXEL_VALUE = 1e15  # squares of values, and sums of them, are float32 too
# If the largest endmember value lies in this range, endmembers and pixels are not rescaled.
UNSCALED = 2.0**-4, 2.0**20
# Largest relative rise of the loss that may be rounding.
LOSS_ROUNDING = 1e-5
Progress = Callable[[JobProgress], None]
# Pixels and abundances of a block, in the shapes that the engine needs.
Block = tuple[np.ndarray, np.ndarray]


class Blocks(Protocol):
    """All pixels in blocks with their abundances, which change in place; iterated any number of times."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Block]: ...


@dataclass(frozen=True, repr=False)
class Factors(Shown):
    """The result of a factorisation.

    Attributes
    ----------
    E : array (L, p), float32
        Endmembers.
    A : array (N, p), float32
        Abundances; ``X ≈ A Eᵀ``.
    costs : list of (int, float)
        Steps made, and the loss after them: ``Σ x log(x / m) − x + m``, or ``½ Σ (x − m)²``, with m = A Eᵀ. The
        divergence is infinite where a value above 0 has a model of 0; convergence is then judged with a model of 1.2e-7
        there.
    converged : bool
        Whether the descent stopped by the tolerance, and not at the largest number of steps.
    device : str
        The name of the device.
    """

    E: np.ndarray
    A: np.ndarray
    costs: list[tuple[int, float]]
    converged: bool
    device: str


@dataclass(frozen=True)
class FactorPlan:
    """Options of a descent; the fields are parameters of `nmf`."""

    loss: str = "kl"
    sum_to_one: bool = False
    steps: int = MOST_STEPS
    tol: float = DEFAULT_TOLERANCE
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
    tol: float = DEFAULT_TOLERANCE,
    every: int = EVERY,
    device: str = "cpu",
    threads: int | None = None,
) -> Factors:
    """Factorise pixels, ``X ≈ A Eᵀ`` with A, E ≥ 0, from initial endmembers.

    Multiplicative updates (Lee and Seung 2001; Arun Kumar et al.) in float32: each step updates the abundances, then,
    from a new quotient, the endmembers, as scikit-learn's ``solver="mu"`` does; the loss never rises.

    Parameters
    ----------
    X : array-like of shape (N, L)
        Pixels; not negative.
    E : array-like of shape (L, p)
        Initial endmembers; zeros stay zeros.
    A : array-like of shape (N, p), optional
        Initial abundances; default is equal ones that give each pixel its sum (or, with ``sum_to_one``, 1).
    loss : {"kl", "frobenius"}
        Kullback-Leibler divergence, or half the squared distance.
    sum_to_one : bool
        Keep each pixel's abundances at a sum of 1.
    steps : int
        The largest number of steps.
    tol : float
        Stop when the loss falls by less than this share of the first loss between two evaluations; 0 makes all steps.
    every : int
        Steps between evaluations of the loss.
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
        If shapes do not match, or a value is negative, not finite or too large.
    MethodError, DeviceError
        If an option is wrong, or the device is not available.

    Examples
    --------
    >>> import numpy as np, unmix
    >>> factors = unmix.nmf(np.array([[1.0, 2], [2, 4]]), np.array([[1.0], [1]]), steps=1)
    >>> (factors.A @ factors.E.T).round(3).tolist()
    [[1.0, 2.0], [2.0, 4.0]]
    """
    plan = FactorPlan(loss, sum_to_one, steps, tol, every)
    X, E = np.asarray(on_host(X), np.float32), np.asarray(on_host(E), np.float32)
    if X.ndim != 2 or E.ndim != 2 or X.shape[1] != E.shape[0] or 0 in X.shape + E.shape:
        raise InputError(f"X {X.shape} and E {E.shape} do not match; they must be (N, L) and (L, p)")
    A = equal_parts(X, E, sum_to_one) if A is None else np.asarray(on_host(A), np.float32)
    if A.shape != (X.shape[0], E.shape[1]):
        raise InputError(f"A {A.shape} does not match X {X.shape} and E {E.shape}; it must be (N, p)")
    for name, values in (("X", X), ("E", E), ("A", A)):
        if not (values.min() >= 0 and values.max() < np.inf):  # NaN is neither
            raise InputError(f"{name} holds values that are negative or not finite")
    if X.max() > LARGEST_PIXEL_VALUE:
        raise InputError(f"X holds values above {LARGEST_PIXEL_VALUE:g}, too large for float32's squares")
    unit = unit_of_data(E)
    with (
        one_device(device, threads) as machine,
        closing(engine_for((len(X), *E.shape), plan, machine.name != "cpu", threads)) as engine,
    ):
        block = filled_factor(engine, X if unit == 1 else (X * np.float64(unit)).astype(np.float32), A)
        E, costs, converged = descend_factors(engine, E, [block], True, plan, unit)
        return Factors(E, block[1][: len(X), : E.shape[1]].copy(), costs, converged, machine.name)


def unit_of_data(E: np.ndarray) -> float:
    """Return the power of two, mostly 1, by which pixels and endmembers are scaled."""
    # The updates divide by no less than 1.2e-7.
    highest = float(E.max())
    return 1.0 if UNSCALED[0] <= highest <= UNSCALED[1] or highest <= 0 else float(2.0 ** -np.round(np.log2(highest)))


def equal_parts(X: np.ndarray, E: np.ndarray, sum_to_one: bool) -> np.ndarray:
    """Return equal initial abundances, (N, p) float32; zeros for pixels of zeros."""
    p, total = E.shape[1], float(E.sum())
    sums = X.sum(axis=1, dtype=np.float64, keepdims=True)
    parts = np.where(sums > 0, 1.0 / p, 0.0) if sum_to_one else sums / (total if total > 0 else 1.0)
    return np.repeat(parts.astype(np.float32), p, axis=1)


def engine_for(shape: tuple[int, ...], plan: FactorPlan, gpu: bool, threads: int | None) -> Any:
    """Return the engine that makes the steps; ``shape`` is pixels of the largest block, bands, endmembers."""
    most, L, p = shape
    if gpu:
        from .cuda import CudaEngine

        return CudaEngine(L, p, most, plan.loss, plan.sum_to_one)
    from .cpu import CpuEngine

    return CpuEngine(L, p, most, plan.loss, plan.sum_to_one, threads or cores())


def filled_factor(engine: Any, X: np.ndarray, A: np.ndarray) -> Block:
    """Return pixels and a copy of the abundances in the engine's shapes, padded with zeros."""
    tall, wide = engine.shape(len(X))
    return in_shape(X, tall), in_shape(A, wide) if A.shape != wide else A.copy()


def in_shape(values: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Return the values padded with zeros to a shape, float32."""
    if values.shape == shape:
        return np.ascontiguousarray(values)
    whole = np.zeros(shape, np.float32)
    whole[: values.shape[0], : values.shape[1]] = values
    return whole


def descend_factors(
    engine: Any,
    E: np.ndarray,
    blocks: Blocks,
    held: bool,
    plan: FactorPlan,
    unit: float = 1.0,
    progress: Progress | None = None,
) -> tuple[np.ndarray, list[tuple[int, float]], bool]:
    """Make steps until the loss converges or ``plan.steps`` is reached; return E (L, p), costs and convergence."""
    # Pixels have been multiplied by ``unit``, E has not. A single block is held on the device.
    engine.begin((E * np.float64(unit)).astype(np.float32))
    to_loss = 1.0 / unit if plan.loss == "kl" else 1.0 / unit**2
    resident = engine.hold(*next(iter(blocks))) if held else None
    loss, infinite = cost_of_factors(engine, blocks, resident)
    first = previous = loss = to_loss * loss
    costs = [(0, np.inf if infinite else loss)]
    steps_made, converged = 0, False
    while steps_made < plan.steps and not converged:
        count = min(plan.every, plan.steps - steps_made)
        if resident is not None:
            engine.steps(resident, count)
        else:
            for step in range(count):
                one_pass(engine, blocks)
                if progress is not None:
                    progress(JobProgress(steps_made + step + 1, plan.steps))
        steps_made += count
        previous = loss
        loss, infinite = cost_of_factors(engine, blocks, resident)
        loss *= to_loss
        costs.append((steps_made, np.inf if infinite else loss))
        if progress is not None:
            progress(JobProgress(steps_made, plan.steps))
        if not np.isfinite(first) or not np.isfinite(loss):
            raise InputError(
                "the loss is not finite: does the input hold nodata values, or values that are far too large?"
            )
        risen = loss - previous > LOSS_ROUNDING * previous
        if risen:
            log.warning(
                f"the loss rose from {previous:.6g} to {loss:.6g} by step {steps_made}: the pixels' values "
                "span more than float32 resolves"
            )
        converged = plan.tol > 0 and previous - loss < plan.tol * first and not risen
    if infinite:
        log.warning(
            f"the loss is infinite: {infinite} values above 0 have a model of 0, and zeros of endmembers or abundances "
            "stay; begin "
            "with endmembers without zeros there, or use the Frobenius loss"
        )
    if resident is not None:
        engine.fetch(resident, next(iter(blocks))[1])
    return (engine.E / np.float64(unit)).astype(np.float32), costs, converged


def cost_of_factors(engine: Any, blocks: Blocks, resident: Any) -> tuple[float, int]:
    """Return the loss of all pixels, with models of at least 1.2e-7, and the number of values > 0 with a model of 0."""
    if resident is not None:
        loss, infinite = engine.cost(resident)
    else:
        loss, infinite = sum(engine.cost(engine.hold(*block)) for block in blocks)
    return float(loss), int(infinite)


def one_pass(engine: Any, blocks: Blocks) -> None:
    """Make one step over pixels in several blocks."""
    for i, block in enumerate(blocks):
        loaded = engine.hold(*block)
        engine.steps(loaded, 1, i == 0, i == len(blocks) - 1)
        engine.fetch(loaded, block[1])
