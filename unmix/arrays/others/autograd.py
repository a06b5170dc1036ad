"""Give abundances their derivatives, where torch or JAX asks for them."""

import functools
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from .gradient import Case, Operands, is_smooth, pull_back
from .kinds import JAX, TORCH, kind_of, on_host


def is_recorded(*arrays: Any) -> bool:
    """Return whether torch records what is done with some of these."""
    torch = sys.modules.get("torch")
    recorded = [one for one in arrays if kind_of(one) is TORCH and one.requires_grad]
    return bool(recorded) and torch is not None and bool(torch.is_grad_enabled())


def as_tensor(Y: Any, *others: Any) -> Any:
    """Return an array as a tensor of torch where one of some others is."""
    return Y if kind_of(Y) is TORCH else TORCH.of_host(on_host(Y), next(one for one in others if kind_of(one) is TORCH))


@functools.cache
def mixing_function(torch: Any) -> Any:
    """Return the function of torch that returns abundances and knows their derivatives."""

    class Mixing(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, case: Case, smooth: Any, Y: Any, E: Any, w: Any, a: Any) -> Any:
            ctx.case = case
            ctx.save_for_backward(smooth, Y, E, w, a)
            return a.view_as(a)

        @staticmethod
        @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
        def backward(ctx: Any, g: Any) -> Any:
            smooth, Y, E, w, known = ctx.saved_tensors
            g = torch.where(smooth[:, None], g, 0.0 * g)
            a = torch.where(
                smooth[:, None], known, 0.0 * known
            )  # a support may be singular where there is no derivative
            return None, None, *pull_back(ctx.case, Operands(torch, Y, E, w, a), g), None

    return Mixing


def with_derivatives(answer: Any, name: str, case: Case, Y: Any, E: Any, w: Any = None, allowed: Any = None) -> Any:
    """Return an answer, a dataclass, whose abundances, the field ``name``, torch can differentiate by Y (..., L), E and w.

    Its field ``smooth`` says which pixels have derivatives.
    """
    torch = TORCH.torch
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
    return any(kind_of(one) is JAX and isinstance(one, JAX.jax.core.Tracer) for one in arrays)


def traced(make: Callable[[np.ndarray, np.ndarray], Any], name: str, case: Case, Y: Any, E: Any) -> Any:
    """Return fields of the answer, a dataclass that ``make`` returns, as arrays of JAX that is tracing; the host computes them.

    Its abundances, the field ``name``, have derivatives by Y (..., L) and E, of the first order.
    """
    jax = JAX.jax
    jnp, real = jax.numpy, jax.numpy.result_type(float)
    shape, p = Y.shape[:-1], E.shape[-1]
    types = {name: ((*shape, p), real)} | dict.fromkeys(("rmse", "kappa", "delta"), (shape, real))
    types |= {"steps": (shape, np.int32)}

    def call(Y: Any, E: Any) -> tuple[np.ndarray, ...]:
        answer = make(np.asarray(Y, np.float64), np.asarray(E, np.float64))
        return tuple(np.asarray(getattr(answer, field), kind) for field, (_, kind) in types.items())

    @jax.custom_vjp  # type: ignore[untyped-decorator]
    def solve(Y: Any, E: Any) -> Any:
        shapes = tuple(jax.ShapeDtypeStruct(*one) for one in types.values())
        return jax.pure_callback(call, shapes, Y, E, vmap_method="sequential")

    def forward(Y: Any, E: Any) -> Any:
        answers = solve(Y, E)
        return answers, (Y, E, *answers[:4])

    def backward(saved: Any, given: Any) -> Any:
        Y, E, a, _, kappa, delta = saved
        flat = Y.reshape(-1, Y.shape[-1]).astype(real), E.astype(real), None
        one = Operands(jnp, *flat, a.reshape(-1, p))
        smooth = is_smooth(case, one, kappa.reshape(-1), delta.reshape(-1))[:, None]
        safe = one._replace(a=jnp.where(smooth, one.a, 0.0))
        dY, dE, _ = pull_back(case, safe, jnp.where(smooth, given[0].reshape(-1, p), 0.0))
        return dY.reshape(Y.shape).astype(Y.dtype), dE.astype(E.dtype)

    solve.defvjp(forward, backward)
    return dict(zip(types, solve(jnp.asarray(Y), jnp.asarray(E))))
