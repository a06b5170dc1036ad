"""Solve batches of non-negative least squares problems that are on a GPU."""

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from ...compiled.cuda import cuda
from ...compiled.thread_groups import CudaGroups
from ...errors import InputError
from ...solvers.nnls.systems import FEWEST_SHARING, SystemEngine, block_for, near_one
from .held import Held, Shape, gpu_for, held, on
from .kernels import prepare_kernel
from .kinds import ANY_ON_GPU, Argument, OnGpu, kind_of_array, numbas, on_host

REAL, FLAGS, WHOLE = (
    frozenset({"float64", "float32"}),
    frozenset({"bool", "uint8"}),
    frozenset({"int8", "uint8", "int16", "uint16", "int32", "uint32", "int64"}),
)
# The types that are taken as they are.
TYPES = {
    "A": frozenset({"float64"}),
    "B": REAL,
    "weights": REAL,
    "allowed": FLAGS,
    "start": REAL | FLAGS,
    "dictionary": WHOLE,
}


def solve_systems_there(A: Any, B: Any, own: dict[str, Any], kind: OnGpu, device: str | None) -> dict[str, Any]:
    """Enqueue right-hand sides (N, m) on a GPU; return the fields of `unmix.nnls.Batch` in arrays of their kind."""
    index = gpu_for(kind, B, device)
    A = A if hasattr(A, "shape") else np.asarray(A, np.float64)
    A = A[0] if len(A.shape) == 3 and A.shape[0] == 1 else A
    with on(index) as gpu:
        stream = kind.stream(index)
        # A matrix of all systems is prepared on the host, once for calls that come again.
        shared = None if len(A.shape) == 3 else np.ascontiguousarray(on_host(A), np.float64)
        arguments = {"B": systems_on_gpu("B", B)} | {name: systems_on_gpu(name, values) for name, values in own.items()}
        if shared is None:
            arguments["A"] = systems_on_gpu("A", A)
        # Copies from the host, and conversions, are in the default stream, for which others may not wait.
        if stream:
            cuda.default_stream().synchronize()
        refuse_shapes(tuple(A.shape), arguments)
        N, n = arguments["B"].shape[0], int(tuple(A.shape)[-1])
        key: Hashable = (
            "systems",
            index,
            stream,
            None if shared is None else shared.tobytes(),
            tuple(A.shape),
            *((name, one.shape, one.kind) for name, one in arguments.items()),
        )
        matrix = numbas(arguments["A"].array) if shared is None else shared
        solver = held(gpu, key, lambda: hold_systems(matrix, N, n, arguments, stream))
        return solver(arguments, kind, index)


def systems_on_gpu(name: str, values: Any) -> Argument:
    """Return an array on the GPU, of a type that kernels take."""
    owner = kind_of_array(values)
    if isinstance(owner, OnGpu) and owner.gpu(values) is not None:
        return owner.argument(values, TYPES[name])
    values = np.ascontiguousarray(owner.host(values), None if name in ("allowed", "dictionary") else np.float64)
    return ANY_ON_GPU.argument(cuda.to_device(values), TYPES[name])


def refuse_shapes(of_A: tuple[int, ...], arguments: Mapping[str, Argument]) -> None:
    """Raise `InputError` where shapes or types do not match."""
    if len(of_A) not in (2, 3) or 0 in of_A:
        raise InputError(f"A must be (m, n), or (K, m, n), and not empty; it has shape {of_A}")
    m, n = of_A[-2:]
    shape = arguments["B"].shape
    if len(shape) != 2 or shape[1] != m:
        raise InputError(f"A is {m} x {n}, but B has shape {shape}; a right-hand side is a row of {m}")
    for name, width in (("weights", m), ("allowed", n), ("start", n)):
        if name in arguments and arguments[name].shape not in ((shape[0], width), (width,)):
            raise InputError(f"{name} must be {(shape[0], width)} or {(width,)}, but has shape {arguments[name].shape}")
    if "allowed" in arguments and arguments["allowed"].kind not in FLAGS:
        raise InputError(f"allowed must be bool, but is {arguments['allowed'].kind}")
    if "dictionary" in arguments:
        numbers = arguments["dictionary"]
        if numbers.shape != (shape[0],) or numbers.kind not in WHOLE:
            raise InputError(f"dictionary must be {shape[0]} whole numbers, but is {numbers.kind} of {numbers.shape}")
    elif len(of_A) == 3 and of_A[0] not in (1, shape[0]):
        raise InputError(f"A has {of_A[0]} matrices, but B {shape[0]} rows: give a matrix each, or dictionary")


def hold_systems(A: Any, N: int, n: int, given: Mapping[str, Argument], stream: int) -> Held:
    """Return a solver for N systems with matrices A, of all on the host or of each on the GPU."""
    each = bool({"weights", "allowed"} & set(given))
    groups = CudaGroups(*block_for(N))
    if isinstance(A, np.ndarray):
        if not np.isfinite(A).all():
            raise InputError("A holds values that are not finite")
        if near_one(A)[1].any():
            raise InputError(
                "A has columns above 2**64 or below 2**-64; scale them, or solve arrays of the host, which are scaled"
            )
    engine = SystemEngine(groups, A, N >= FEWEST_SHARING and not each and isinstance(A, np.ndarray), each)
    K, m, _ = engine.shape
    none, flags = cuda.to_device(np.zeros((1, 0))), cuda.to_device(np.zeros((1, 0), np.uint8))
    numbers = cuda.to_device(np.zeros(0, np.int32))
    right, which = cuda.device_array((N, m)), cuda.device_array(N, np.int32)
    roots = cuda.device_array((N, m)) if "weights" in given else none
    allowed, start = (cuda.device_array((N, n), np.uint8) if name in given else flags for name in ("allowed", "start"))
    rest, on_host = engine.matrix[1:], isinstance(A, np.ndarray)
    rows = engine.matrix[0] if on_host else None
    engine.matrix = ()

    def enqueue(arguments: Mapping[str, Any], answers: Mapping[str, Any], stream: Any) -> None:
        of_rows = {
            name: arguments[name].reshape((-1, width)) if name in arguments else empty
            for name, width, empty in (("weights", m, none), ("allowed", n, flags), ("start", n, flags))
        }
        prepare_kernel()[min(max(1, N), 4096), 128, stream](
            arguments["B"],
            *of_rows.values(),
            arguments.get("dictionary", numbers),
            K,
            right,
            roots,
            allowed,
            start,
            which,
        )
        groups.stream = stream
        matrix = (rows if rows is not None else arguments["A"], *rest)
        columns = (answers[name].reshape((N, 1)) for name in ("rmse", "kappa", "delta"))
        engine.enqueue(matrix, (which, roots, allowed, start, right, answers["x"], *columns, answers["steps"]), N)

    answers = {"x": Shape((N, n), "float64")} | {name: Shape((N,), "float64") for name in ("rmse", "kappa", "delta")}
    taken = {name: Shape(one.shape, one.kind) for name, one in given.items()}
    return Held(enqueue, taken, answers | {"steps": Shape((N,), "int32")}, stream)
