"""Give abundances their derivatives, where torch or JAX asks for them."""

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ...errors import InputError
from .gradient import Case, Operands, is_smooth, pull_back
from .kinds import JAX, TORCH, kind_of_array, narrowed, on_host


def is_recorded(*arrays: Any) -> bool:
    """Return whether torch records what is done with some of these."""
    recorded = any(kind_of_array(one) is TORCH and one.requires_grad for one in arrays)
    return recorded and bool(TORCH.module.is_grad_enabled())


def as_tensor(Y: Any, *others: Any) -> Any:
    """Return an array as a tensor of torch where one of some others is."""
    return (
        Y
        if kind_of_array(Y) is TORCH
        else TORCH.of_host(on_host(Y), next(one for one in others if kind_of_array(one) is TORCH))
    )


def smooth_part(given: Operands, g: Any, smooth: Any) -> tuple[Operands, Any]:
    """Return a problem and a loss' derivatives (N, p) with pixels that are not smooth neutralised, so none is NaN."""
    xp, rows = given.xp, smooth[:, None]
    zero, one = xp.zeros_like, xp.ones_like
    w = None if given.w is None else xp.where(rows, given.w, one(given.w))
    Y, a = (xp.where(rows, values, zero(values)) for values in (given.Y, given.a))
    return given._replace(Y=Y, w=w, a=a), xp.where(rows, g, zero(g))


@functools.cache
def mixing_function(torch: Any) -> Any:
    """Return the function of torch that returns abundances and knows their derivatives."""

    class Mixing(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, case: Case, smooth: Any, Y: Any, E: Any, w: Any, a: Any) -> Any:
            ctx.case = case
            ctx.save_for_backward(smooth, Y, E, w, a)
            return a.clone()

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, g: Any) -> Any:
            smooth, Y, E, w, known = ctx.saved_tensors
            return None, None, *pull_back(ctx.case, *smooth_part(Operands(torch, Y, E, w, known), g, smooth)), None

    return Mixing


def with_derivatives(answer: Any, name: str, case: Case, Y: Any, E: Any, w: Any = None, allowed: Any = None) -> Any:
    """Return an answer whose abundances, the field ``name``, torch can differentiate by Y (..., L), E and w."""
    torch = TORCH.module
    a = getattr(answer, name)
    shape = a.shape[:-1]

    def real(values: Any) -> Any:
        return torch.as_tensor(values, device=a.device).to(torch.float64)

    pixels, E = real(Y).reshape(-1, Y.shape[-1]), real(E)
    E = E[0] if E.ndim == 3 and len(E) == 1 else E
    w = None if w is None else real(w).expand(*shape, pixels.shape[1]).reshape(pixels.shape)
    rows = a.reshape(-1, a.shape[-1])
    if allowed is not None:
        allowed = torch.as_tensor(allowed, device=a.device).expand(a.shape).reshape(rows.shape)
    with torch.no_grad():
        smooth = is_smooth(
            case, Operands(torch, pixels, E, w, rows, allowed), answer.kappa.reshape(-1), answer.delta.reshape(-1)
        )
    made = mixing_function(torch).apply(case, smooth, pixels, E, w, rows)
    return replace(answer, smooth=smooth.reshape(shape), **{name: made.reshape(a.shape)})


def is_traced(*arrays: Any) -> bool:
    """Return whether some of these have no values yet, since JAX traces a function."""
    return any(kind_of_array(one) is JAX and isinstance(one, JAX.module.core.Tracer) for one in arrays)


def traced(make: Callable[[np.ndarray, np.ndarray], Any], name: str, case: Case, Y: Any, E: Any) -> Any:
    """Return an answer's fields while JAX traces; the host computes them, with derivatives by Y (..., L) and E."""
    jax = JAX.module
    Y, E, real = jax.numpy.asarray(Y), jax.numpy.asarray(E), jax.numpy.result_type(float)
    if E.ndim != 2 or Y.ndim < 1 or Y.shape[-1] != E.shape[0]:
        raise InputError(
            f"pixels must be (..., L), and endmembers (L, p); while JAX traces they have shapes {Y.shape} and {E.shape}"
        )
    shape, p = Y.shape[:-1], E.shape[-1]
    types = {name: ((*shape, p), real)} | dict.fromkeys(("rmse", "kappa", "delta"), (shape, real))
    types |= {"steps": (shape, np.int32)}

    def answers(Y: Any, E: Any) -> tuple[np.ndarray, ...]:
        known = narrowed(make(np.asarray(Y, np.float64), np.asarray(E, np.float64)), np.dtype(real))
        return tuple(np.asarray(getattr(known, field), kind) for field, (_, kind) in types.items())

    # In float64, as the answers are, whatever JAX is set to; of the first order.
    def derivatives(Y: Any, E: Any, g: Any) -> tuple[np.ndarray, np.ndarray]:
        pixels, matrix = np.asarray(Y, np.float64), np.asarray(E, np.float64)
        known = make(pixels, matrix)
        given = Operands(np, pixels.reshape(-1, len(matrix)), matrix, None, getattr(known, name).reshape(-1, p))
        with np.errstate(invalid="ignore"):
            smooth = is_smooth(case, given, known.kappa.reshape(-1), known.delta.reshape(-1))
        dY, dE, _ = pull_back(case, *smooth_part(given, np.asarray(g, np.float64).reshape(-1, p), smooth))
        return dY.reshape(Y.shape).astype(Y.dtype), dE.astype(E.dtype)

    @jax.custom_vjp
    def solve(Y: Any, E: Any) -> Any:
        shapes = tuple(jax.ShapeDtypeStruct(*one) for one in types.values())
        return jax.pure_callback(answers, shapes, Y, E, vmap_method="sequential")

    def forward(Y: Any, E: Any) -> Any:
        return solve(Y, E), (Y, E)

    def backward(saved: Any, given: Any) -> Any:
        shapes = tuple(jax.ShapeDtypeStruct(one.shape, one.dtype) for one in saved)
        return jax.pure_callback(derivatives, shapes, *saved, given[0], vmap_method="sequential")

    solve.defvjp(forward, backward)
    return dict(zip(types, solve(Y.astype(real), E.astype(real))))
