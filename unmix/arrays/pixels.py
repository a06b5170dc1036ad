"""Solve for the abundances of pixels that are in memory."""

from dataclasses import dataclass

import numpy as np

from ..blocks import BlockPlan
from ..devices import Line, Slot, choose_device
from ..errors import CubeError, LibraryError
from ..io.cube import Bands
from ..io.fields import DTYPES
from ..library import Endmembers
from ..methods import choose
from ..pipeline import Seconds, stream
from ..problem import plan_problem
from ..rescue import rescue

PIXELS_PER_BLOCK = 16384


@dataclass(frozen=True)
class Solution:
    """Abundances and their certificate.

    Attributes
    ----------
    abundances : array (..., p), float64
        For pcls what they lack to a sum of one is shade.
    rmse : array (...), float64
        ``sqrt(|y − E a|² / L)``.
    kappa, delta : arrays (...), float64
        See `unmix.certificate`; a pixel is certified up to κ = 1e-10, and no abundance is further than δ from the optimum.
    steps : array (...), int32
        Columns that entered or left.
    valid : array (...), bool
        False where a pixel had a NaN or infinite band; its results are −9999.
    """

    abundances: np.ndarray
    rmse: np.ndarray
    kappa: np.ndarray
    delta: np.ndarray
    steps: np.ndarray
    valid: np.ndarray


def solve(
    Y: np.ndarray,
    E: np.ndarray,
    *,
    method: str = "fcls",
    solver: str | None = None,
    device: str = "cpu",
    threads: int | None = None,
) -> Solution:
    """Solve for the abundances of every pixel.

    Parameters
    ----------
    Y : array-like of shape (..., L)
        Pixels, in any real type and unit.
    E : array-like of shape (L, p)
        Endmembers, one per column, in the unit of Y.
    method : {"ucls", "scls", "nnls", "fcls", "pcls"}
        The constraints.
    solver : str, optional
        A key of `unmix.methods.SOLVERS`; default is the method's own.
    device : str
        "cpu", "cuda", "cuda:K" or "auto".
    threads : int, optional
        CPU threads; default is all.

    Returns
    -------
    Solution

    Raises
    ------
    CubeError, LibraryError
        If shapes do not match, float64 would round the values, or the endmembers are collinear or not finite.
    MethodError, DeviceError
        If method, solver or device is unknown, do not fit together or are not available.

    Notes
    -----
    On a GPU a pixel starts from the support of the one before it within runs of 4 to 16: keep neighbouring pixels together in Y.

    Examples
    --------
    >>> import numpy as np, unmix
    >>> E = np.array([[3.0, 3, 4], [0, 5, 7], [0, 2, 2], [4, 2, 0]])
    >>> unmix.solve(np.array([4.0, 8, 8, 2]), E, method="fcls").abundances.round(3)
    array([0.   , 0.222, 0.778])
    """
    method_spec, solver_spec = choose(method, solver)
    given_E, E = E, np.ascontiguousarray(E, dtype=np.float64)
    Y = np.asarray(Y)
    if E.ndim != 2 or 0 in E.shape or not np.all(np.isfinite(E)):
        raise LibraryError(f"E must be (L, p) of finite numbers, but has shape {E.shape}")
    if Y.ndim < 1 or Y.shape[-1] != E.shape[0]:
        raise CubeError(f"Y must be (..., {E.shape[0]}) for E of {E.shape[0]} bands, but has shape {Y.shape}")
    refuse_lost_digits(Y, np.asarray(given_E))
    if Y.dtype not in DTYPES.values():
        Y = Y.astype(np.float64)
    L, p = E.shape
    pixels = Y.reshape(-1, L)
    bands = Bands(np.arange(L), np.ones(L), np.zeros(L))
    names = tuple(f"endmember {j + 1}" for j in range(p))
    problem = plan_problem(Endmembers(names, E, None, source="E"), method_spec, solver_spec, bands, None, "bip")
    chunk = min(max(1, len(pixels)), PIXELS_PER_BLOCK)
    line = Line(chunk, chunk * L * Y.dtype.itemsize, real=np.float64, dtype=Y.dtype)
    answers: dict[str, np.ndarray] = {
        "abundance": np.empty((len(pixels), problem.E.shape[1])),
        "rmse": np.empty(len(pixels)),
        "kappa": np.empty(len(pixels)),
        "delta": np.empty(len(pixels)),
        "steps": np.empty(len(pixels), np.int32),
        "state": np.empty(len(pixels), np.uint8),
    }

    def read(slot: Slot, which: slice) -> None:
        part = pixels[which.start * chunk : (which.start + 1) * chunk]
        raw = slot.buffer.view(Y.dtype).reshape(1, chunk, L)
        raw[0, : len(part)] = part
        raw[0, len(part) :] = 0
        slot.hold(which, raw)

    def finish(slot: Slot) -> None:
        assert slot.results is not None and slot.raw is not None
        if solver_spec.exact:
            rescue(problem, slot.raw, slot.results)
        first = slot.lines.start * chunk
        for name, values in answers.items():
            part = values[first : first + chunk]
            part[:] = slot.results[name][0].T[: len(part)]

    machine = choose_device(device, threads)
    try:
        block_plan = BlockPlan(-(-len(pixels) // chunk), 1, 2)
        slots = machine.open(problem, line, block_plan)
        stream(block_plan, slots, read, machine, finish, Seconds())
    finally:
        machine.close()
    shape = Y.shape[:-1]
    return Solution(
        answers["abundance"][:, :p].reshape(*shape, p),
        answers["rmse"].reshape(shape),
        answers["kappa"].reshape(shape),
        answers["delta"].reshape(shape),
        answers["steps"].reshape(shape),
        answers["state"].reshape(shape) == 0,
    )


def refuse_lost_digits(Y: np.ndarray, E: np.ndarray) -> None:
    """Raise `CubeError` or `LibraryError` if float64 would round the values: κ and δ would not include that error."""
    for name, values, error in (("Y", Y, CubeError), ("E", E, LibraryError)):
        exact = values.dtype.itemsize < 8 or values.dtype == np.float64
        if exact or not values.size or values.dtype.kind not in "iuf":
            continue
        finite = values[np.isfinite(values)] if values.dtype.kind == "f" else values
        if np.any(finite.astype(np.float64).astype(values.dtype) != finite):
            raise error(f"{name} holds values of type {values.dtype} that float64 would round; round or rescale them")
