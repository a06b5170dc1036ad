"""Solve for the abundances of pixels that are in memory."""

import functools
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import CubeError, LibraryError, MethodError, say_once
from ..features.runs import searches
from ..io.fields import DTYPES
from ..library import Endmembers, Normalization
from ..methods import ModelChoice, choose, on_cpu, refuse_normalization
from ..problem import Problem, plan_problem
from ..settings import refuse_unknown
from .mixtures import Solution, numbered, solve_pixels
from .others.autograd import as_tensor, is_recorded, is_traced, traced, with_derivatives
from .others.gradient import CASES, Case
from .others.kinds import TORCH, OnGpu, as_kind, filled, kind_of_array, on_host
from .own import solve_own

# Pixels that are looked at to tell their unit; how many times as large as endmembers pixels of one unit may be.
LOOKED_AT, LARGEST_RATIO = 1000, 50.0
# The fraction of the golden ratio, whose multiples spread over an array of any shape and follow none of its columns.
GOLDEN = 0.6180339887498949
# Share of the pixels from which on one value below 0 in all bands, of so many at least, is fill.
LEAST_FILL, FEWEST_BANDS = 0.005, 4


def solve(
    Y: np.ndarray,
    E: np.ndarray,
    *,
    method: str = "fcls",
    solver: str | None = None,
    l1: float | None = None,
    normalize: str = "none",
    weights: np.ndarray | None = None,
    allowed: np.ndarray | None = None,
    start: np.ndarray | None = None,
    device: str | None = None,
    threads: int | None = None,
    **further: Any,
) -> Solution:
    """Solve for the abundances of every pixel.

    Parameters
    ----------
    Y : array-like of shape (..., L)
        Pixels, in any real type and unit. A pixel with a value that is not finite, or masked, has NaN as answers.
    E : array-like of shape (L, p)
        Endmembers, one per column, in the unit of Y.
    method : {"ucls", "scls", "nnls", "fcls", "pcls"}
        The constraints.
    solver : str, optional
        A key of `unmix.methods.SOLVERS`; default is the first of the method.
    l1 : float, optional
        For nnls: minimise ``½ |y − E a|² + λ Σa`` in place of the first term alone; ``l1`` is λ: the larger, the fewer
        endmembers and the smaller their abundances.
    normalize : {"none", "sum", "length", "max"}
        For nnls and pcls: return fractions w_j a_j / s in place of abundances a, with ``s = Σ w_k a_k``; w is 1 for
        "sum", the length of each endmember for "length", the 95th percentile of its values for "max". They do not
        depend on a pixel's brightness.
    weights : array-like of shape (L,) or (..., L), optional
        For nnls, fcls and pcls: minimise ``Σ w_b r_b²``, with weights of all pixels or of each, at least 0, such as
        1/σ²; ``rmse`` is of the bands as weighted, their residuals times √w. Bands of weight 0 may have no value.
    allowed : array-like of shape (p,) or (..., p), bool, optional
        For the same: the endmembers that a pixel may use; the certificate holds for the problem without the others.
    start : array-like of shape (p,) or (..., p), optional
        For the same: the endmembers that the search begins with: bool, or abundances of similar pixels: all endmembers
        above 0 are meant. It changes how long the search takes, and the answer where it is not unique.
    device : str, optional
        "cpu", "cuda", "cuda:K" or "auto"; default is the CPU, and for pixels on a GPU that GPU.
    threads : int, optional
        CPU threads; default is all.
    **further
        The option of one search that is a feature:

    Returns
    -------
    Solution
        Of arrays of Y's kind, where Y is: NumPy, CuPy, torch, JAX, or numba's for whatever else has
        ``__cuda_array_interface__``.

    Raises
    ------
    CubeError, LibraryError
        If shapes do not match, float64 would round the values, or the endmembers are collinear or not finite; if pixels
        are of a whole-number type and more than 50 times as large as the endmembers, as files store reflectance.
    MethodError, DeviceError
        If method, solver or device is unknown, do not fit together or are not available.

    Notes
    -----
    On a GPU a pixel starts from the support of the one before it within runs of 4 to 16: keep neighbouring pixels
    together in Y.

    Pixels that are on a GPU are solved there, in the caller's stream (torch's, CuPy's), and nothing is waited for; with
    weights, allowed endmembers or a start of their own by way of the host (`unmix.nnls` takes them where they are).
    Pixels that are not certified are not solved again in extended precision there, as those of the host are. E is best
    given as an array of the host.

    torch and JAX can differentiate the abundances by Y, E and (torch) the weights, once, where the optimum is unique
    and strictly complementary; other pixels add 0 to derivatives (``smooth`` of the answer).

    Examples
    --------
    >>> import numpy as np, unmix
    >>> E = np.array([[3.0, 3, 4], [0, 5, 7], [0, 2, 2], [4, 2, 0]])
    >>> unmix.solve(np.array([4.0, 8, 8, 2]), E, method="fcls").abundances.round(3)
    array([0.   , 0.222, 0.778])
    """
    refuse_unknown(further, [*(solve.__kwdefaults__ or {}), *searches()])
    given = {"weights": weights, "allowed": allowed, "start": start}
    own: dict[str, Any] = {name: values for name, values in given.items() if values is not None}
    choice = {
        "l1": l1,
        **further,
        "normalize": None if normalize == "none" else normalize,
    }
    if is_traced(Y, E, *own.values()):
        case = case_of(method, {**choice, **own})
        made = functools.partial(solve, method=method, solver=solver, device=device, threads=threads)
        found = traced(made, "abundances", case, Y, E)
        return Solution(**found, valid=found["kappa"] >= 0.0)
    if is_recorded(Y, E, weights):
        case, Y = case_of(method, choice), as_tensor(Y, E, weights)
        with TORCH.module.no_grad():
            known = solve(Y, E, method=method, solver=solver, device=device, threads=threads, **own)
        return with_derivatives(known, "abundances", case, Y, E, weights, allowed)
    kind = kind_of_array(Y)
    if isinstance(weights, np.ma.MaskedArray) and weights.ndim > 1:  # what is not known of a pixel leaves it out
        own["weights"], Y = np.ma.getdata(weights), kind.of_host(left_out(kind.host(Y), np.ma.getmaskarray(weights)), Y)
    gpu = kind.gpu(Y) if isinstance(kind, OnGpu) else None
    if gpu is not None and own:  # by way of the host; `unmix.nnls` takes them where they are
        device = device or f"cuda:{gpu}"
    elif isinstance(kind, OnGpu) and gpu is not None:
        for name, value in {**choice, "l1": None}.items():
            if value is not None:
                raise MethodError(f"`{name}` is for pixels of the host; copy them")
        return solve_there(Y, on_host(E), lambda E: planned(E, method, solver, l1), (method, solver, l1), kind, device)
    pixels = kind.host(Y)
    answer = solve_of_host(
        pixels,
        "int" in str(getattr(Y, "dtype", pixels.dtype)),  # masked ones are float on the host
        on_host(E),
        {name: on_host(values) for name, values in own.items()},
        method,
        solver,
        l1,
        {name: value for name, value in further.items() if value is not None},
        normalize,
        device or "cpu",
        threads,
    )
    return as_kind(answer, kind, Y)


_SEARCHES = "".join(f"    {name} : {one.argument}\n" for name, one in searches().items())
solve.__doc__ = (solve.__doc__ or "").replace("that is a feature:\n", "that is a feature:\n" + _SEARCHES)


def left_out(Y: np.ndarray, lost: np.ndarray) -> np.ndarray:
    """Return pixels (..., L) with NaN where a value is ``lost`` (..., L); unchanged where shapes differ."""
    if lost.shape != Y.shape:
        return Y
    return filled(np.ma.array(Y, mask=np.broadcast_to(lost.any(axis=-1, keepdims=True), Y.shape)))


def case_of(method: str, others: dict[str, Any]) -> Case:
    """Return the constraints of a method; `MethodError` where what else is asked for has no derivatives."""
    for name, value in others.items():
        if value is not None:
            raise MethodError(f"there are no derivatives with `{name}`; leave it out, or detach the arrays")
    if method not in CASES:
        raise MethodError(f"there are no derivatives of `method` {method}; use {', '.join(CASES)}")
    return CASES[method]


def solve_of_host(
    Y: np.ndarray,
    is_whole: bool,
    E: np.ndarray,
    own: dict[str, np.ndarray],
    method: str,
    solver: str | None,
    l1: float | None,
    further: dict[str, Any],
    normalize: str,
    device: str,
    threads: int | None,
) -> Solution:
    """Solve pixels (..., L) of the host, which are whole numbers or not; see `solve`."""
    # ``own`` has the weights, allowed columns and starts, if given.
    method_spec, _ = choose(method, solver)
    refuse_normalization(method_spec, normalize)
    Y, E = checked(Y, E, is_whole)
    if own:
        for name, value in (("l1", l1), *further.items(), ("solver", solver)):
            if value is not None:
                raise MethodError(f"`{name}` does not go with {next(iter(own))}; leave one of them out")
        own_answer = Solution(**solve_own(Y, E, method_spec, own, device, threads))
        return in_fractions(own_answer, Normalization.of(normalize, E))
    problem = planned(E, method, solver, l1)
    for name, value in further.items():
        if l1 is not None or len(further) > 1:
            raise MethodError(
                f"`{name}` does not go with `{'l1' if l1 is not None else [*further][-1]}`; leave one of them out"
            )
        problem, device = searches()[name].planned(problem, value), on_cpu(device, name)
    answer = solve_pixels(Y, problem, E.shape[1], device, threads)
    return in_fractions(answer, Normalization.of(normalize, E))


def refuse_numbers(Y: np.ndarray, E: np.ndarray, is_whole: bool) -> None:
    """Raise `CubeError` where pixels (..., L) are whole numbers as files store them, and spectra (L, p) reflectance.

    Warn of such numbers in a real type, as xarray decodes them, and of fill: one value below 0 in all bands.
    """
    if not Y.size:
        return
    number = Y.size // Y.shape[-1]
    places = (np.arange(min(LOOKED_AT, number)) * GOLDEN % 1 * number).astype(int)
    some = Y[np.unravel_index(places, Y.shape[:-1])].astype(float) if Y.ndim > 1 else Y[None].astype(float)
    is_fill = (some == some[:, :1]).all(axis=1) & (some[:, 0] < 0)
    if is_fill.mean() > LEAST_FILL and Y.shape[-1] >= FEWEST_BANDS:
        value = some[is_fill][0, 0]
        say_once(f"pixels hold {value:g} in every band: set them to NaN, so that they are left out", logging.WARNING)
    known = some[np.isfinite(some).all(axis=1)]
    if not len(known) or not (is_whole or np.all(known == np.rint(known))):
        return
    with np.errstate(over="ignore"):
        size, largest = np.median(np.sqrt(np.square(known).sum(axis=1))), np.sqrt(np.square(E).sum(axis=0).max())
    if size > LARGEST_RATIO * largest > 0:
        said = f"pixels are whole numbers, {size / largest:.2g} times as large as the endmembers: divide them by their scale"
        if is_whole:
            raise CubeError(f"{said}, or give them as float if that is meant")
        say_once(f"{said}, unless that is meant", logging.WARNING)


def planned(E: np.ndarray, method: str, solver: str | None, l1: float | None) -> Problem:
    """Return the problem of endmembers (L, p), and of a penalty if there is one."""
    problem = plan_problem(numbered(E), *choose(method, solver))
    return problem if l1 is None else problem.penalised(l1)


def solve_there(
    Y: Any, E: np.ndarray, plan: Callable[[np.ndarray], Problem], key: tuple[Any, ...], kind: OnGpu, device: str | None
) -> Solution:
    """Solve for pixels on a GPU; ``key`` says which problem it is that ``plan`` makes of E."""
    from .others import pixels

    if E.ndim != 2:
        checked(
            np.empty((0, 0)), E
        )  # raises `LibraryError`; the values are looked at once, where the problem is planned
    (L, p), whole = E.shape, (E.tobytes(), E.shape, E.dtype.str, *key)
    fields = pixels.solve_pixels_there(Y, L, p, kind, device, whole, lambda: plan(checked(np.empty((0, L)), E)[1]))
    return Solution(**fields)


def in_fractions(answer: Solution, normalization: Normalization | None) -> Solution:
    """Return an answer with fractions in place of abundances, their scale and δ; unchanged without a normalization."""
    if normalization is None:
        return answer
    fractions, scale, delta = normalization.replaced(answer.abundances, answer.delta, answer.valid, -1, np.nan)
    return replace(answer, abundances=fractions, delta=delta, scale=scale)


def mesma(
    Y: np.ndarray,
    E: np.ndarray,
    classes: Sequence[str],
    *,
    device: str | None = None,
    threads: int | None = None,
    **choice: Any,
) -> Solution:
    """Choose for every pixel the best model with at most one spectrum of each class.

    Parameters
    ----------
    Y : array-like of shape (..., L)
        Pixels, in any real type; the thresholds of ``choice`` are in its unit.
    E : array-like of shape (L, p)
        A library, one spectrum per column, in the unit of Y.
    classes : sequence of p str or numbers
        The class of each spectrum.
    device : str, optional
        "cpu", "cuda", "cuda:K" or "auto"; default is the CPU, and for pixels on a GPU that GPU.
    threads : int, optional
        CPU threads; default is all.
    **choice
        The fields of `unmix.methods.ModelChoice`, such as ``levels="2-4"`` or ``limits="viper"``.

    Returns
    -------
    Solution
        ``abundances`` are 0 but for the spectra of the chosen model; shade is one less their sum. ``kappa`` and
        ``delta`` prove the optimum of that model; ``delta`` is infinite where another model of the level fits as well.
        ``steps`` is the number of spectra, 0 where shade alone is best or no model is within the limits.

    Raises
    ------
    CubeError, LibraryError, MethodError
        As `solve`, and if there is not a class for every spectrum.

    Examples
    --------
    >>> import numpy as np, unmix
    >>> E = np.array([[0.1, 0.2, 0.5], [0.3, 0.2, 0.4], [0.2, 0.6, 0.1]])
    >>> unmix.mesma(np.array([0.3, 0.35, 0.15]), E, ["soil", "soil", "tree"]).abundances.round(3)
    array([0.5, 0. , 0.5])
    """
    method_spec, solver_spec = choose("mesma")
    kind, E, wanted, classes = kind_of_array(Y), on_host(E), ModelChoice(**choice), list(map(str, classes))
    if E.ndim == 2 and len(classes) != E.shape[1]:
        raise LibraryError(f"{len(classes)} classes for {E.shape[1]} spectra")

    def plan(E: np.ndarray) -> Problem:
        names = tuple(f"spectrum {j + 1}" for j in range(E.shape[1]))
        library = Endmembers(names, E, None, source="E", classes=tuple(classes))
        return plan_problem(library, method_spec, solver_spec, mesma=wanted)

    if isinstance(kind, OnGpu) and kind.gpu(Y) is not None:
        return solve_there(Y, E, plan, ("mesma", *classes, repr(wanted)), kind, device)
    pixels, E = checked(kind.host(Y), E)
    return as_kind(solve_pixels(pixels, plan(E), E.shape[1], device or "cpu", threads), kind, Y)


def checked(Y: np.ndarray, E: np.ndarray, is_whole: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return pixels in a type that is read, and endmembers (L, p) in float64; raise an error if they do not match."""
    Y, given_E = on_host(Y), on_host(E)
    E = np.ascontiguousarray(given_E, dtype=np.float64)
    if E.ndim != 2 or 0 in E.shape or not np.all(np.isfinite(E)):
        what = f"has shape {E.shape}" if E.ndim != 2 or 0 in E.shape else "holds NaN or infinity"
        raise LibraryError(f"E must be (L, p) of finite numbers, but {what}")
    if Y.ndim < 1 or Y.shape[-1] != E.shape[0]:
        raise CubeError(f"Y must be (..., {E.shape[0]}) for E of {E.shape[0]} bands, but has shape {Y.shape}")
    refuse_lost_digits(Y, given_E)
    refuse_numbers(Y, E, is_whole or Y.dtype.kind in "iu")
    return (Y if Y.dtype in DTYPES.values() else Y.astype(np.float64)), E


def refuse_lost_digits(Y: np.ndarray, E: np.ndarray) -> None:
    """Raise `CubeError` or `LibraryError` if float64 would round the values: κ and δ would not include that error."""
    for name, values, error in (("Y", Y, CubeError), ("E", E, LibraryError)):
        exact = values.dtype.itemsize < 8 or values.dtype == np.float64
        if exact or not values.size or values.dtype.kind not in "iuf":
            continue
        finite = values[np.isfinite(values)] if values.dtype.kind == "f" else values
        if np.any(finite.astype(np.float64).astype(values.dtype) != finite):
            raise error(f"{name} holds values of type {values.dtype} that float64 would round; round or rescale them")
