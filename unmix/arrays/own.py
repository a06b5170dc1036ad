"""Solve pixels that have weights, allowed endmembers or a start of their own."""

import contextlib
from typing import Any

import numpy as np

from ..devices import one_device
from ..errors import CubeError, MethodError
from ..methods import BOUNDED, Method
from ..solvers.nnls.systems import SystemEngine, block_for, near_one
from .groups import groups_on
from .nnls import nnls, of_each, refuse_nonfinite, without_weight

# Numbers of the matrices that are made at a time, one for each pixel whose abundances sum to one.
MOST_NUMBERS = 2**23


def solve_own(
    Y: np.ndarray, E: np.ndarray, method: Method, own: dict[str, np.ndarray], device: str, threads: int | None
) -> dict[str, np.ndarray]:
    """Return the fields of `unmix.Solution` for pixels (..., L) with weights, columns or starts, of each or of all."""
    if method.name not in BOUNDED:
        raise MethodError(f"{next(iter(own))} is for `method` {', '.join(BOUNDED)}, not {method.name}")
    shape, (L, p) = Y.shape[:-1], E.shape
    pixels = Y.reshape(-1, L).astype(np.float64)
    rows = {name: as_rows(name, values, shape) for name, values in own.items()}
    weights = rows.get("weights")
    pixels = pixels if weights is None else without_weight(pixels, weights)
    valid = np.asarray(np.isfinite(pixels).all(axis=1))
    if weights is not None:  # of pixels that are left out they may be anything
        refuse_nonfinite("weights", np.where(valid[:, None] | (weights.ndim == 1), weights, 1.0))
        valid &= weights.any(axis=-1)
    rows = {name: values if values.ndim == 1 else values[valid] for name, values in rows.items()}
    has_shade = method.constraint.has_shade
    if has_shade:
        E = np.column_stack([E, np.zeros(L)])
        rows |= {name: with_last(rows[name], name == "allowed") for name in ("allowed", "start") if name in rows}
    found = solve_each(pixels[valid], E, method.constraint.sum_to_one or has_shade, rows, device, threads)
    found["abundances"] = found["abundances"][:, :p]
    answers: dict[str, Any] = {"valid": valid.reshape(shape)}
    for name, values in found.items():
        blank = np.nan if values.dtype.kind == "f" else -1
        whole = np.full((len(pixels), *values.shape[1:]), blank, values.dtype)
        whole[valid] = values
        answers[name] = whole.reshape((*shape, *values.shape[1:]))
    return answers


def with_last(values: np.ndarray, last: bool) -> np.ndarray:
    """Return rows (..., p) with one more number, for shade."""
    return np.concatenate([values, np.full((*values.shape[:-1], 1), last, values.dtype)], axis=-1)


def as_rows(name: str, values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return ``values`` with a row for each pixel of ``shape``, or as the one row (k,) that all pixels share."""
    if values.ndim == 1 and len(shape):
        return values
    if values.ndim == 0 or values.shape[:-1] != shape:
        raise CubeError(f"{name} must have a row for each pixel, {(*shape, '...')}, but has shape {values.shape}")
    return values.reshape(-1, values.shape[-1])


def solve_each(
    Y: np.ndarray, E: np.ndarray, has_sum: bool, own: dict[str, np.ndarray], device: str, threads: int | None
) -> dict[str, np.ndarray]:
    """Return abundances (n, p), ``rmse``, ``kappa``, ``delta``, ``steps`` (n,) of pixels (n, L) under a ≥ 0."""
    if has_sum:
        return on_simplex(Y, E, own, device, threads)
    batch = nnls(E, Y, device=device, threads=threads, **own)
    return {"abundances": batch.x, "rmse": batch.rmse, "kappa": batch.kappa, "delta": batch.delta, "steps": batch.steps}


def on_simplex(
    Y: np.ndarray, E: np.ndarray, own: dict[str, np.ndarray], device: str, threads: int | None
) -> dict[str, np.ndarray]:
    """Return the answers of `solve_each` where abundances sum to one."""
    # The point of the hull of e_j − y nearest to 0 gives them, up to a factor: an NNLS with a matrix for each pixel
    # (Lawson and Hanson 1974, chapter 23).
    n, (L, p) = len(Y), E.shape
    roots, exponents = np.ones((n, L)), np.zeros(n, int)
    if "weights" in own:
        near, exponents = near_one(np.sqrt(of_each("weights", own["weights"], (n, L))).T)
        roots = np.ascontiguousarray(near.T)
    columns: dict[str, Any] = {name: of_each(name, own[name], (n, p)) for name in ("allowed", "start") if name in own}
    if "allowed" in columns and not columns["allowed"].any(axis=1).all():
        raise MethodError("allowed leaves a pixel no endmember, but its abundances are to sum to one")
    answers: dict[str, Any] = {"x": np.zeros((n, p)), "steps": np.zeros(n, np.int32)}
    answers |= {name: np.zeros((n, 1)) for name in ("rmse", "kappa", "delta")}
    with (
        one_device(device, threads) as machine,
        contextlib.closing(groups_on(machine, threads, *block_for(n))) as groups,
    ):
        together = max(1, MOST_NUMBERS // ((L + 1) * p))
        for begin in range(0, n, together):
            part = slice(begin, begin + together)
            A = np.ones((len(Y[part]), L + 1, p))
            np.subtract(E, Y[part, :, None], out=A[:, :L])
            A[:, :L] *= roots[part, :, None]
            size = np.maximum(np.abs(A[:, :L]).max(axis=(1, 2)), 1e-300)
            A[:, :L] /= size[:, None, None]
            B = np.zeros((len(A), L + 1))
            B[:, L] = 1.0
            own_of_part = {name: values[part] for name, values in columns.items()}
            shares = {name: values[part] for name, values in answers.items()}
            SystemEngine(groups, A, False, True).search(B, own_of_part, shares)
        answers["x"] /= answers["x"].sum(axis=1, keepdims=True)
        SystemEngine(groups, E, False, True).certify_sum(Y * roots, columns | {"roots": roots}, answers)
    answers["rmse"] = np.ldexp(answers["rmse"], exponents[:, None])
    planes = {name: answers[name][:, 0] for name in ("rmse", "kappa", "delta")}
    return {"abundances": answers["x"], "steps": answers["steps"], **planes}
