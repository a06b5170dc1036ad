"""Solve batches of non-negative least squares problems; the systems share one matrix, or have one each."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..certificate import CERTIFIED
from ..devices import one_device
from ..errors import InputError
from ..solvers.nnls.systems import FEWEST_SHARING, SystemEngine, block_for, near_one
from .groups import groups_on
from .others.autograd import as_tensor, is_recorded, is_traced, traced, with_derivatives
from .others.gradient import CASES
from .others.kinds import TORCH, OnGpu, as_kind, kind_of_array, on_host
from .shown import Shown


@dataclass(frozen=True, repr=False)
class Batch(Shown):
    """Answers to a batch of systems, in arrays of the kind of its right-hand sides.

    Attributes
    ----------
    x : array (N, n), float64
    rmse : array (N,), float64
        ``|b − A x| / √m``, of rows as weighted.
    kappa, delta : arrays (N,), float64
        The certificate (`unmix.certificate`): a κ above 1e-10 is a failure; δ bounds the distance from the optimum, and
        is infinite if the optimum is not unique, or depends on more than 96 columns or nearly dependent ones. A system
        is certified where κ is at most 1e-10 and δ is finite. A system of the host without data (a value of b is not
        finite, or all weights are 0) has NaN in all.
    steps : array (N,), int32
        Columns that entered or left.
    smooth : tensor (N,), bool, or None
        Where torch records: the systems whose x has derivatives.
    """

    x: np.ndarray
    rmse: np.ndarray
    kappa: np.ndarray
    delta: np.ndarray
    steps: np.ndarray
    smooth: Any = None

    @property
    def failed(self) -> np.ndarray:
        """Return the indices of the systems whose κ is above 1e-10; the others are certified where δ is finite."""
        return np.flatnonzero(on_host(self.kappa) > CERTIFIED)


def nnls(
    A: np.ndarray,
    B: np.ndarray,
    *,
    weights: np.ndarray | None = None,
    allowed: np.ndarray | None = None,
    start: np.ndarray | None = None,
    dictionary: np.ndarray | None = None,
    device: str | None = None,
    threads: int | None = None,
) -> Batch:
    """Minimise ``Σ w_i (b − A x)_i²`` over x ≥ 0, for every right-hand side b.

    Lawson-Hanson with an updated QR (Luo and Duraiswami 2011). A may have any rank, and more columns than rows.

    Parameters
    ----------
    A : array-like of shape (m, n), or (K, m, n)
        The matrix of all systems, or one for each of K = N, or the matrices that ``dictionary`` chooses from.
    B : array-like of shape (m,) or (N, m)
        The right-hand sides. Of the host's, a row with a value that is not finite, or masked, has NaN as answers, but
        where its weight is 0.
    weights : array-like of shape (m,) or (N, m), optional
        Weights of the rows, of all systems or of each, at least 0, such as 1/σ²; default is 1. Of the host's rows,
        those of weight 0 may have no value.
    allowed : array-like of shape (n,) or (N, n), bool, optional
        The columns that x may use; x is 0 in the others, and the certificate holds for the problem without them.
    start : array-like of shape (n,) or (N, n), optional
        The columns that the search begins with: bool, or x of similar systems: all columns above 0 are meant. It
        changes how long the search takes and, if the optimum is not unique, which one is found.
    dictionary : array-like of shape (N,), int, optional
        The number of each system's matrix in A, from 0.
    device : str, optional
        "cpu", "cuda", "cuda:K" or "auto"; default is the CPU, and for arrays on a GPU that GPU.
    threads : int, optional
        CPU threads; default is all.

    Returns
    -------
    Batch
        Of arrays of B's kind, where B is: NumPy, CuPy, torch, JAX, or numba's for whatever else has
        ``__cuda_array_interface__``.

    Raises
    ------
    InputError
        If shapes do not match, a value of A or a weight is not finite, a weight is negative, or ``dictionary`` names a
        matrix that there is not.
    MethodError, DeviceError
        If the device is not available.

    Notes
    -----
    Arrays on a GPU are solved there, in the caller's stream (torch's, CuPy's), and nothing is waited for: a system with
    a value that is not finite, a negative weight or a matrix that there is not raises nothing, but has a κ of infinity.
    A matrix of all systems is best given as an array of the host: it is prepared there, once for calls that come again.

    torch and JAX can differentiate x by A, B and (torch) the weights, as abundances of `unmix.solve`.

    Examples
    --------
    >>> import numpy as np, unmix
    >>> A = np.array([[1.0, 2], [3, 4]])
    >>> unmix.nnls(A, np.array([1.0, 1])).x.round(3)
    array([[0. , 0.3]])
    >>> unmix.nnls(A, np.array([1.0, 1]), weights=[4, 1], allowed=[True, False]).x.round(3)
    array([[0.538, 0.   ]])
    """
    own = {"weights": weights, "allowed": allowed, "start": start, "dictionary": dictionary}
    own = {name: values for name, values in own.items() if values is not None}
    if is_traced(A, B, *own.values()):
        return traced_batch(A, B, own, device, threads)
    if is_recorded(A, B, weights):
        B = as_tensor(B, A, weights)
        with TORCH.module.no_grad():
            known = nnls(A, B, device=device, threads=threads, **own)
        each = A if dictionary is None or A.ndim == 2 else as_tensor(A, B)[as_tensor(dictionary, B).long()]
        return with_derivatives(known, "x", CASES["nnls"], B.reshape(-1, B.shape[-1]), each, weights, allowed)
    kind = kind_of_array(B)
    if isinstance(kind, OnGpu) and kind.gpu(B) is not None:
        from .others.systems import solve_systems_there

        return Batch(**solve_systems_there(A, B if len(B.shape) > 1 else B.reshape((1, -1)), own, kind, device))
    A, rows = np.asarray(on_host(A), np.float64), np.atleast_2d(np.asarray(kind.host(B), np.float64))
    given = {name: on_host(values) for name, values in own.items()}
    with solver_for(A, len(rows), device or "cpu", threads, bool(set(given) & {"weights", "allowed"})) as solve:
        return as_kind(solve(rows, **given), kind, B)


def traced_batch(A: Any, B: Any, own: dict[str, Any], device: str | None, threads: int | None) -> Batch:
    """Return the answers to systems while JAX traces a function."""
    if own or np.ndim(A) != 2 or np.ndim(B) != 2:
        raise InputError("while JAX traces, A is (m, n), B is (N, m), and systems have nothing of their own")

    def make(B: np.ndarray, A: np.ndarray) -> Batch:
        return nnls(A, B, device=device, threads=threads)

    return Batch(**traced(make, "x", CASES["nnls"], B, A))


@contextlib.contextmanager
def solver_for(
    A: np.ndarray, most: int, device: str, threads: int | None, each: bool = False
) -> Iterator["SystemSolver"]:
    """Yield a solver of batches of some ``most`` systems with the same matrices, with own weights if ``each``."""
    if A.ndim not in (2, 3) or 0 in A.shape:
        raise InputError(f"A must be (m, n), or (K, m, n), and not empty; it has shape {A.shape}")
    if not np.all(np.isfinite(A)):
        raise InputError("A holds values that are not finite")
    near, sizes = near_one(A)
    with (
        one_device(device, threads) as machine,
        contextlib.closing(groups_on(machine, threads, *block_for(most))) as groups,
    ):
        shares = A.ndim == 2 and most >= FEWEST_SHARING and not each
        yield SystemSolver(SystemEngine(groups, near, shares, each), sizes, machine.name)


class SystemSolver(NamedTuple):
    """Solver of batches; the matrices' columns are divided by 2 to the power of ``sizes``; ``name`` is the device's."""

    engine: SystemEngine
    sizes: np.ndarray
    name: str

    def __call__(self, B: np.ndarray, **own: np.ndarray) -> Batch:
        """Solve and certify a batch; B is (N, m), ``own`` has what `nnls` takes of it for each system."""
        _, m, n = self.engine.shape
        if B.ndim != 2 or B.shape[1] != m:
            raise InputError(f"A is {m} x {n}, but B has shape {B.shape}; a right-hand side is a row of {m}")
        weights = own.get("weights")
        B = B if weights is None else without_weight(B, weights)
        N, is_lost = len(B), ~np.isfinite(B).all(axis=1)
        B = np.where(is_lost[:, None], 0.0, B) if is_lost.any() else B
        of_system, sizes = self.matrices(N, own.pop("dictionary", None))
        answers: dict[str, Any] = {"x": np.zeros((N, n)), "steps": np.zeros(N, np.int32)}
        answers |= {name: np.zeros((N, 1)) for name in ("rmse", "kappa", "delta")}
        if N:
            right, size = near_one(B.T)
            right = right.T
            for name, values in own.items():
                of_system |= {name: of_each(name, values, (N, m if name == "weights" else n))}
            size_of_roots = np.zeros(N, int)
            if "weights" in of_system:
                roots, size_of_roots = near_one(np.sqrt(of_system.pop("weights")).T)
                of_system["roots"] = np.ascontiguousarray(roots.T)
                right = right * of_system["roots"]
            self.engine.solve(np.ascontiguousarray(right), of_system, answers)
            grow(answers, sizes, size, size_of_roots)
            is_lost |= False if weights is None else ~np.broadcast_to(weights.any(axis=-1), N)
            for name in ("x", "rmse", "kappa", "delta"):
                answers[name][is_lost] = np.nan
        return Batch(**{name: values if name == "x" else values.reshape(N) for name, values in answers.items()})

    def matrices(self, N: int, dictionary: np.ndarray | None) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Return ``which`` matrix each system has, if a dictionary says so, and the ``sizes`` of these matrices."""
        count = self.engine.shape[0]
        if dictionary is None:
            if count not in (1, N):
                raise InputError(f"A has {count} matrices, but B {N} rows: give a matrix each, or dictionary")
            return {}, self.sizes
        if dictionary.shape != (N,) or dictionary.dtype.kind not in "iu":
            raise InputError(f"dictionary must be {N} whole numbers, but is {dictionary.dtype} of {dictionary.shape}")
        if N and not 0 <= dictionary.min() <= dictionary.max() < count:
            raise InputError(f"dictionary has numbers that are not from 0 to {count - 1}, those of the matrices")
        sizes = self.sizes[dictionary] if self.sizes.ndim > 1 else self.sizes
        return {"which": np.ascontiguousarray(dictionary, np.int32)}, sizes


def without_weight(B: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return rows (N, m) with 0 for values that are not finite where weights (m,) or (N, m) are 0."""
    lost = ~np.isfinite(B)
    if not lost.any() or weights.shape not in (B.shape, B.shape[1:]):  # another shape is refused later
        return B
    return np.where(lost & (weights == 0), 0.0, B)


def refuse_nonfinite(name: str, values: np.ndarray) -> None:
    """Raise `InputError` where rows (N, k) hold values that are not finite."""
    if not np.all(np.isfinite(values)):
        row = int(np.argwhere(~np.isfinite(values))[0, 0])
        raise InputError(f"{name} holds values that are not finite, first in row {row}")


def of_each(name: str, values: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Return weights (N, m) as float64, or columns (N, n) as uint8, of each system; `InputError` if malformed."""
    if values.shape not in (shape, shape[1:]):
        raise InputError(f"{name} must be {shape} or {shape[1:]}, but has shape {values.shape}")
    if name == "allowed" and values.dtype != bool:
        raise InputError(f"allowed must be bool, but is {values.dtype}")
    values = np.broadcast_to(values, shape)
    refuse_nonfinite(name, values)
    if name != "weights":
        return np.ascontiguousarray(values > 0, np.uint8)
    if (values < 0).any():
        raise InputError(f"weights are negative, first in row {int(np.argwhere(values < 0)[0, 0])}")
    return np.asarray(values, np.float64)


def grow(answers: dict[str, np.ndarray], of_columns: np.ndarray, of_rows: np.ndarray, of_roots: np.ndarray) -> None:
    """Bring answers, in place, to the unit of A, B and weights, by `near_one`'s exponents (n,) or (N, n), (N,) each."""
    if not (of_columns.any() or of_rows.any() or of_roots.any()):
        return
    shifts = of_rows[:, None] - of_columns
    with np.errstate(over="ignore"):
        answers["x"][:] = np.ldexp(answers["x"], shifts)
        answers["rmse"][:] = np.ldexp(answers["rmse"], (of_rows + of_roots)[:, None])
        answers["delta"][:] = np.ldexp(answers["delta"], shifts.max(axis=1, keepdims=True))
    answers["delta"] += answers["x"].shape[1] * float(np.finfo(float).smallest_subnormal)
    beyond = ~np.isfinite(answers["x"]).all(axis=1)
    answers["kappa"][beyond], answers["delta"][beyond] = np.inf, np.inf


def toeplitz(pulse: np.ndarray, m: int) -> np.ndarray:
    """Return the convolution matrix (..., m, m) of a pulse (..., w): column j is the pulse shifted by j samples."""
    # Luo and Duraiswami 2011, eq. 6.2, for a pulse that begins at 0.
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
