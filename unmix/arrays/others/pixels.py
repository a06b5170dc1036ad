"""Solve for the abundances of pixels on a GPU."""

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ...compiled.cuda import cuda
from ...devices import Line
from ...devices.cuda import Cuda
from ...errors import CubeError
from ...problem import Problem
from .held import Held, Shape, gpu_for, held, on
from .kernels import give_kernel, launched
from .kinds import READ, OnGpu

# Most pixels that kernels take at a time; those of libraries with more than `LARGE` spectra need more scratch.
MOST_PIXELS, MOST_OF_LARGE, LARGE = 2**22, 2**17, 32


def solve_pixels_there(
    Y: Any, L: int, p: int, kind: OnGpu, device: str | None, key: Hashable, plan: Callable[[], Problem]
) -> dict[str, Any]:
    """Enqueue pixels (..., L) on a GPU; return the fields of `unmix.Solution`. ``key`` identifies the problem."""
    whole = tuple(Y.shape)
    if not whole or whole[-1] != L:
        raise CubeError(f"Y must be (..., {L}) for E of {L} bands, but has shape {whole}")
    index = gpu_for(kind, Y, device)
    with on(index) as gpu:
        pixels, stream = kind.argument(Y, READ), kind.stream(index)
        solver = held(
            gpu,
            (key, index, stream, whole, pixels.kind),
            lambda: hold_pixels(gpu, plan(), p, whole, pixels.kind, stream),
        )
        return solver({"Y": pixels}, kind, index)


def hold_pixels(gpu: Cuda, problem: Problem, p: int, whole: tuple[int, ...], kind: str, stream: int) -> Held:
    """Return a solver of a problem for pixels of a shape and type."""
    shape, L = whole[:-1], whole[-1]
    N = math.prod(shape)
    times = -(-N // (MOST_PIXELS if problem.E.shape[1] <= LARGE else MOST_OF_LARGE))
    most = -(-N // max(1, times))  # so that no small rest is left
    solver = gpu.solver_for(problem, max(1, most))(problem, max(1, most))
    line = Line(most, most * L * np.dtype(kind).itemsize, real=np.float64, dtype=np.dtype(kind))
    flat = {name: cuda.device_array(math.prod(one), type_) for name, (type_, one) in line.results(1, problem).items()}

    def enqueue(arguments: Mapping[str, Any], answers: Mapping[str, Any], stream: Any) -> None:
        pixels = arguments["Y"].reshape(N * L)
        rows = [values.reshape((N, p) if name == "abundances" else N) for name, values in answers.items()]
        for first in range(0, N, max(1, most)):
            n = min(most, N - first)
            shapes = replace(line, samples=n).results(1, problem)
            results = {name: flat[name][: math.prod(one)].reshape(one) for name, (_, one) in shapes.items()}
            solver.launch(pixels[first * L : (first + n) * L].reshape((1, n, L)), results, stream)
            found = (results[name] for name in ("abundance", "rmse", "kappa", "delta", "steps", "state"))
            launched(give_kernel(), stream)(*found, *(values[first : first + n] for values in rows))

    answers = {"abundances": Shape((*shape, p), "float64")} | {
        name: Shape(shape, "float64") for name in ("rmse", "kappa", "delta")
    }
    answers |= {"steps": Shape(shape, "int32"), "valid": Shape(shape, "bool")}
    return Held(enqueue, {"Y": Shape(whole, kind)}, answers, stream)
