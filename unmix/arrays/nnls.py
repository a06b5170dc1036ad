"""Solve batches of non-negative least squares problems; the systems share one matrix, or have one each."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..certificate import CERTIFIED
from ..devices import one_device
from ..errors import InputError
from ..solvers.nnls.systems import BLOCKS_AT_ONCE, THREADS, SystemEngine
from .engines import groups_on

# Fewest systems that share one AᵀA: computing it costs as much as some dozen steps.
FEWEST_SHARING = 4
# Columns whose largest entry is between 2 to the power of minus this and of this are not scaled: float64 holds their fourth powers.
ORDINARY = 64


@dataclass(frozen=True)
class Batch:
    """Answers to a batch of systems.

    Attributes
    ----------
    x : array (N, n), float64
    rmse : array (N,), float64
        ``|b − A x| / √m``.
    kappa, delta : arrays (N,), float64
        The certificate (`unmix.certificate`): a κ above 1e-10 is a failure; δ bounds the distance from the optimum, and is infinite
        if the optimum is not unique, cond(A) is above some 1e6, or each system has its own matrix. A system is certified where κ is
        at most 1e-10 and δ is finite.
    steps : array (N,), int32
        Columns that entered or left.
    """

    x: np.ndarray
    rmse: np.ndarray
    kappa: np.ndarray
    delta: np.ndarray
    steps: np.ndarray

    @property
    def failed(self) -> np.ndarray:
        """Return the indices of the systems whose κ is above 1e-10; the others are certified where δ is finite."""
        return np.flatnonzero(~(self.kappa <= CERTIFIED))


def nnls(A: np.ndarray, B: np.ndarray, *, device: str = "cpu", threads: int | None = None) -> Batch:
    """Minimise ``|A x − b|`` over x ≥ 0, for every right-hand side b.

    Lawson-Hanson with an updated QR (Luo and Duraiswami 2011). A may have any rank, and more columns than rows.

    Parameters
    ----------
    A : array-like of shape (m, n), or (N, m, n)
        The matrix of all systems, or one each.
    B : array-like of shape (m,) or (N, m)
        The right-hand sides.
    device : str
        "cpu", "cuda", "cuda:K" or "auto".
    threads : int, optional
        CPU threads; default is all.

    Returns
    -------
    Batch

    Raises
    ------
    InputError
        If shapes do not match, or a value is not finite.
    MethodError, DeviceError
        If the device is not available.

    Examples
    --------
    >>> import numpy as np, unmix
    >>> unmix.nnls(np.array([[1.0, 2], [3, 4]]), np.array([1.0, 1])).x.round(3)
    array([[0. , 0.3]])
    """
    A, B = np.asarray(A, np.float64), np.atleast_2d(np.asarray(B, np.float64))
    with solver_for(A, len(B), device, threads) as solve:
        return solve(B)


@contextlib.contextmanager
def solver_for(A: np.ndarray, most: int, device: str, threads: int | None) -> Iterator["SystemSolver"]:
    """Yield a solver of several batches with the same matrix, of any size; choices are made for ``most`` systems."""
    if A.ndim not in (2, 3) or 0 in A.shape:
        raise InputError(f"A must be (m, n), or (N, m, n), and not empty; it has shape {A.shape}")
    if not np.all(np.isfinite(A)):
        raise InputError("A holds values that are not finite")
    near, sizes = near_one(A)
    with (
        one_device(device, threads) as machine,
        contextlib.closing(groups_on(machine, threads, THREADS, BLOCKS_AT_ONCE)) as groups,
    ):
        yield SystemSolver(SystemEngine(groups, near, A.ndim == 2 and most >= FEWEST_SHARING), sizes, machine.name)


class SystemSolver(NamedTuple):
    """Solver of batches with one matrix, whose columns were divided by 2 to the power of ``sizes``; ``name`` is the device's."""

    engine: SystemEngine
    sizes: np.ndarray
    name: str

    def __call__(self, B: np.ndarray) -> Batch:
        """Solve and certify a batch; B is (N, m)."""
        count, m, n = self.engine.shape
        if B.ndim != 2 or B.shape[1] != m or (self.engine.each and len(B) != count):
            matrices = f" of {count}" if self.engine.each else ""
            raise InputError(f"A is {m} x {n}{matrices}, but B has shape {B.shape}; a right-hand side is a row of {m}")
        if not np.all(np.isfinite(B)):
            raise InputError(
                f"B holds values that are not finite, first in row {int(np.argwhere(~np.isfinite(B))[0, 0])}"
            )
        N = len(B)
        answers: dict[str, Any] = {"x": np.zeros((N, n)), "steps": np.zeros(N, np.int32)}
        answers |= {name: np.zeros((N, 1)) for name in ("rmse", "kappa", "delta")}
        if N:
            right, size = near_one(B.T)
            self.engine.solve(np.ascontiguousarray(right.T), answers)
            grow(answers, self.sizes, size)
        return Batch(**{name: values if name == "x" else values.reshape(N) for name, values in answers.items()})


def near_one(A: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return matrices (..., m, n) with columns over powers of 2, and their exponents (..., n): no square then leaves float64's range.

    Columns of an ordinary size are left as they are, with exponents of 0.
    """
    exponents = np.frexp(np.maximum(A.max(axis=-2), -A.min(axis=-2)))[1]
    exponents = np.where(np.abs(exponents) > ORDINARY, exponents, 0)
    return (np.ldexp(A, -exponents[..., None, :]) if exponents.any() else A), exponents


def grow(answers: dict[str, np.ndarray], of_columns: np.ndarray, of_rows: np.ndarray) -> None:
    """Bring answers to the unit of A and B, in place, for the exponents (n,) or (N, n), and (N,), of `near_one`."""
    if not (of_columns.any() or of_rows.any()):
        return
    shifts = of_rows[:, None] - of_columns
    with np.errstate(over="ignore"):
        answers["x"][:] = np.ldexp(answers["x"], shifts)
        answers["rmse"][:] = np.ldexp(answers["rmse"], of_rows[:, None])
        answers["delta"][:] = np.ldexp(answers["delta"], shifts.max(axis=1, keepdims=True))
    answers["delta"] += answers["x"].shape[1] * float(np.finfo(float).smallest_subnormal)
    beyond = ~np.isfinite(answers["x"]).all(axis=1)
    answers["kappa"][beyond], answers["delta"][beyond] = np.inf, np.inf


def toeplitz(pulse: np.ndarray, m: int) -> np.ndarray:
    """Return the matrix of a convolution (m, m), or (N, m, m): column j is the pulse, shifted to begin at sample j.

    All systems have one pulse (w,), or each has its own (N, w); m is the number of samples of the received signal. Luo and Duraiswami
    2011, eq. 6.2, for a pulse that begins at 0.
    """
    pulse = np.asarray(pulse, np.float64)
    w = min(m, pulse.shape[-1])
    A = np.zeros((*pulse.shape[:-1], m, m))
    for k in range(w):
        rows = np.arange(k, m)
        A[..., rows, rows - k] = pulse[..., k, None]
    return A


def batches(N: int, size: int) -> Iterator[slice]:
    """Yield ranges of at most ``size`` that cover 0 to N."""
    for first in range(0, N, size):
        yield slice(first, min(first + size, N))
