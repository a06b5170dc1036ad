"""The arrays of others: how each kind is read, where it is, and how answers of the same kind are made.

Nothing here imports CuPy, torch or JAX: who passes their arrays has imported them.
"""

import functools
import math
import os
import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple

import numpy as np

from ...errors import DeviceError, InputError, MethodError
from ...io.fields import DTYPES

# Types of pixels that the kernels read; others are converted to float64.
READ = frozenset(kind.name for kind in DTYPES.values())


class ArrayKind:
    """NumPy's arrays, and what NumPy makes arrays of; the base of the other kinds."""

    name = "numpy"

    def gpu(self, array: Any) -> int | None:
        """Return the number of the GPU that holds an array; None where it is in the memory of the host."""
        return None

    def host(self, array: Any) -> np.ndarray:
        """Return an array of the host with the same values, NaN where it is masked."""
        return filled(array)

    def of_host(self, values: np.ndarray, like: Any) -> Any:
        """Return values of the host as an array of this kind, where ``like`` is."""
        return values


class Argument(NamedTuple):
    """An array on a GPU in C order, with what is asked of it at every call."""

    array: Any  # the caller's, or a copy, which has ``__cuda_array_interface__``
    address: int
    shape: tuple[int, ...]
    kind: str  # the name of its type
    size: int  # in bytes


class BufferPart(NamedTuple):
    """An array in a buffer: its name, the byte at which it begins, its shape and the name of its type."""

    name: str
    begin: int
    shape: tuple[int, ...]
    kind: str


class OnGpu(ArrayKind):
    """Arrays that may be on a GPU; by default of numba-cuda and of others with ``__cuda_array_interface__`` alone."""

    name = "numba"

    @functools.cached_property
    def module(self) -> Any:
        """Return the library's module, which the caller has imported."""
        return sys.modules[self.name]

    def gpu(self, array: Any) -> int | None:
        return 0 if is_simulated(array) else gpu_of_address(int(array.__cuda_array_interface__["data"][0]))

    def stream(self, index: int) -> int:
        """Return the stream in which the caller works on a GPU."""
        return 0

    def argument(self, array: Any, kinds: frozenset[str]) -> Argument:
        """Return an array in C order, of one of some types or of float64, copied on its GPU if need be."""
        from .kernels import converted

        here = numbas(array)
        here = here if here.dtype.name in kinds and here.is_c_contiguous() else converted(here)
        address = 0 if is_simulated(here) else int(here.__cuda_array_interface__["data"][0])
        return Argument(here, address, tuple(here.shape), here.dtype.name, here.size * here.dtype.itemsize)

    def allocate(self, count: int, index: int) -> Any:
        """Return ``count`` bytes of a GPU's memory."""
        return numba_cuda().device_array(count, np.uint8)

    def parts(self, buffer: Any, parts: Sequence[BufferPart]) -> dict[str, Any]:
        """Return the arrays in such memory, by name."""
        return {one.name: part_of_buffer(buffer, one) for one in parts}

    def address(self, buffer: Any) -> int:
        """Return where such memory is."""
        return int(buffer.__cuda_array_interface__["data"][0])

    def finish(self, answers: dict[str, Any], stream: Any) -> dict[str, Any]:
        """Return answers for the caller, who may use them in the stream."""
        return answers

    def host(self, array: Any) -> np.ndarray:
        return np.asarray(numbas(array).copy_to_host())

    def of_host(self, values: np.ndarray, like: Any) -> Any:
        return numba_cuda().to_device(values)


class Torch(OnGpu):
    """Tensors of torch, on the CPU or a GPU."""

    name = "torch"

    @functools.cached_property
    def names(self) -> dict[Any, str]:
        """Return the name of each type that NumPy has, too."""
        names = (*READ, "bool", "float16", "int8")
        return {getattr(self.module, name): name for name in names if hasattr(self.module, name)}

    def gpu(self, array: Any) -> int | None:
        if array.device.type not in ("cpu", "cuda"):
            raise DeviceError(f"a tensor is on {array.device}; unmix takes tensors of the CPU and of NVIDIA's GPUs")
        return array.device.index if array.device.type == "cuda" else None

    def stream(self, index: int) -> int:
        return int(self.module.cuda.current_stream(index).cuda_stream)

    def argument(self, array: Any, kinds: frozenset[str]) -> Argument:
        kind = self.names.get(array.dtype, "")
        array = array.detach()
        array = (array if kind in kinds else array.to(self.module.float64)).contiguous()
        kind = kind if kind in kinds else "float64"
        return Argument(array, array.data_ptr(), tuple(array.shape), kind, array.nbytes)

    def allocate(self, count: int, index: int) -> Any:
        return self.module.empty(count, dtype=self.module.uint8, device=f"cuda:{index}")

    def parts(self, buffer: Any, parts: Sequence[BufferPart]) -> dict[str, Any]:
        typed = {kind: buffer.view(getattr(self.module, kind)) for kind in {one.kind for one in parts}}
        return {
            one.name: typed[one.kind].as_strided(
                one.shape, in_order(one.shape), one.begin // np.dtype(one.kind).itemsize
            )
            for one in parts
        }

    def address(self, buffer: Any) -> int:
        return int(buffer.data_ptr())

    def host(self, array: Any) -> np.ndarray:
        known = array.detach() if array.dtype in self.names else array.detach().double()  # NumPy has no bfloat16
        return np.asarray(known.cpu().numpy())

    def of_host(self, values: np.ndarray, like: Any) -> Any:
        return self.module.from_numpy(np.asarray(values, order="C")).to(like.device)


class CuPy(OnGpu):
    """Arrays of CuPy."""

    name = "cupy"

    def gpu(self, array: Any) -> int | None:
        return int(array.device.id)

    def stream(self, index: int) -> int:
        return int(self.module.cuda.get_current_stream(index).ptr)

    def argument(self, array: Any, kinds: frozenset[str]) -> Argument:
        array = self.module.ascontiguousarray(array, None if array.dtype.name in kinds else np.float64)
        return Argument(array, array.data.ptr, array.shape, array.dtype.name, array.nbytes)

    def allocate(self, count: int, index: int) -> Any:
        return self.module.empty(count, np.uint8)

    def parts(self, buffer: Any, parts: Sequence[BufferPart]) -> dict[str, Any]:
        return {one.name: self.module.ndarray(one.shape, one.kind, buffer.data + one.begin) for one in parts}

    def address(self, buffer: Any) -> int:
        return int(buffer.data.ptr)

    def host(self, array: Any) -> np.ndarray:
        return np.asarray(array.get())

    def of_host(self, values: np.ndarray, like: Any) -> Any:
        return self.module.asarray(values)


class Jax(OnGpu):
    """Arrays of JAX, float32 unless JAX is set to more; answers are copied, as JAX ignores the streams of others."""

    name = "jax"

    def gpu(self, array: Any) -> int | None:
        self.refuse_traced(array)
        devices = array.devices()
        if len(devices) > 1:
            raise InputError(f"an array of JAX is spread over {len(devices)} devices; solve the part of each")
        (device,) = devices
        return int(device.local_hardware_id) if device.platform in ("gpu", "cuda") else None

    def argument(self, array: Any, kinds: frozenset[str]) -> Argument:
        return super().argument(array.block_until_ready(), kinds)

    def finish(self, answers: dict[str, Any], stream: Any) -> dict[str, Any]:
        stream.synchronize()
        real = np.dtype(self.module.numpy.result_type(float))
        if real != np.float64:
            answers = narrowed_fields({name: OnGpu.host(self, values) for name, values in answers.items()}, real)
        made = {name: self.module.numpy.array(values, copy=True) for name, values in answers.items()}
        self.module.block_until_ready(list(made.values()))
        return made

    def refuse_traced(self, array: Any) -> None:
        """Raise `MethodError` for an array that has no values yet."""
        if isinstance(array, self.module.core.Tracer):
            raise MethodError(
                "JAX traces this array; unmix.solve and unmix.nnls of pixels and matrices alone can be traced"
            )

    def host(self, array: Any) -> np.ndarray:
        self.refuse_traced(array)
        return np.asarray(array)

    def of_host(self, values: np.ndarray, like: Any) -> Any:
        return self.module.device_put(values, next(iter(like.devices())))


NUMPY, TORCH, JAX, ANY_ON_GPU = ArrayKind(), Torch(), Jax(), OnGpu()
# By the package of an array's type.
KINDS: dict[str, ArrayKind] = {"torch": TORCH, "cupy": CuPy(), "jax": JAX, "jaxlib": JAX}


def numba_cuda() -> Any:
    """Return numba's module."""
    from ...compiled.cuda import cuda

    return cuda


def numbas(array: Any) -> Any:
    """Return an array on a GPU as numba's, in the same memory."""
    return array if is_simulated(array) else numba_cuda().as_cuda_array(array, sync=False)


def is_simulated(array: Any) -> bool:
    """Return whether it is an array of Numba's CUDA simulator, which is no real GPU's."""
    return type(array).__name__ == "FakeCUDAArray"


def gpu_of_address(address: int) -> int:
    """Return the number of the GPU that holds an address."""
    from cuda.bindings import driver

    status, index = driver.cuPointerGetAttribute(
        driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address
    )
    if status != driver.CUresult.CUDA_SUCCESS:
        raise DeviceError(f"an array is at no address of a GPU: {status.name}")
    return int(index)


def kind_of_array(array: Any) -> ArrayKind:
    """Return the kind of an array; `InputError` if it is on a GPU and DLPack is the only way to it."""
    known = KINDS.get(type(array).__module__.partition(".")[0])
    if known is not None:
        return known
    if isinstance(array, np.ndarray) or not (
        hasattr(array, "__dlpack__") or hasattr(array, "__cuda_array_interface__") or is_simulated(array)
    ):
        return NUMPY
    if hasattr(array, "__cuda_array_interface__") or is_simulated(array):
        return ANY_ON_GPU
    if array.__dlpack_device__()[0] == 1:  # the CPU
        return NUMPY
    raise InputError(
        f"an array of {type(array).__module__} is on a GPU without __cuda_array_interface__; pass it by "
        "torch.from_dlpack or cupy's"
    )


def filled(array: Any) -> np.ndarray:
    """Return a user's array as NumPy's, with NaN where it is masked; `InputError` if it holds no real numbers."""
    if isinstance(array, str | os.PathLike):
        raise InputError(
            f"{os.fspath(array)}: is a name, and no array; unmix.load_library and unmix.open_cube read files"
        )
    if hasattr(array, "matrix"):  # a library, whose deleted values are NaN
        array = np.where(array.valid, array.matrix, np.nan)
    if isinstance(array, list | tuple) and any(isinstance(one, np.ma.MaskedArray) for one in array):
        array = np.ma.array(array)  # np.asarray would drop the masks
    if np.ma.is_masked(array):
        if array.dtype.kind not in "iuf":
            raise InputError(f"a masked array is of {array.dtype}, which has no NaN; fill it")
        # A long double holds whole numbers of 64 bits, so that numbers that float64 would round are still found.
        real = array.dtype if array.dtype.kind == "f" else np.longdouble if array.dtype.itemsize > 4 else np.float64
        return np.asarray(array.astype(real).filled(np.nan))
    try:
        values = np.asarray(array)
        values = values.astype(np.float64) if values.dtype.kind == "O" else values
    except (TypeError, ValueError) as error:
        raise InputError(f"a {type(array).__name__} is no array of numbers: {error}") from None
    if values.dtype.kind not in "biuf":
        raise InputError(f"an array is of {values.dtype}; arrays of real numbers are taken")
    return values


def on_host(array: Any) -> np.ndarray:
    """Return an array of any kind as one of the host."""
    return kind_of_array(array).host(array)


def as_kind(answer: Any, kind: ArrayKind, like: Any) -> Any:
    """Return a dataclass of the host's arrays with arrays of a kind."""
    if kind is NUMPY:
        return answer
    answer = narrowed(answer, np.dtype(JAX.module.numpy.result_type(float))) if kind is JAX else answer
    values = {one.name: getattr(answer, one.name) for one in fields(answer)}
    arrays = {name: np.asarray(a) for name, a in values.items() if isinstance(a, np.ndarray | np.generic)}
    return replace(answer, **{name: kind.of_host(a, like) for name, a in arrays.items()})


def narrowed(answer: Any, real: np.dtype) -> Any:
    """Return a dataclass of host arrays, whose first field has abundances, in another type; see `narrowed_fields`."""
    if real == np.float64:
        return answer
    values = {one.name: getattr(answer, one.name) for one in fields(answer)}
    return replace(answer, **narrowed_fields(values, real))


def narrowed_fields(values: dict[str, Any], real: np.dtype) -> dict[str, Any]:
    """Return an answer's fields in a type of fewer digits; δ grows by the rounding of the first, the abundances."""
    name = next(iter(values))
    with np.errstate(over="ignore", invalid="ignore"):
        few = {
            field: a.astype(real) if isinstance(a, np.ndarray) and a.dtype == np.float64 else a
            for field, a in values.items()
        }
        if "delta" in values and isinstance(values["delta"], np.ndarray | np.generic):
            lost = np.sqrt(np.square(few[name].astype(np.float64) - values[name]).sum(axis=-1))
            is_held = np.isfinite(few[name]).all(axis=-1)
            delta = np.where(is_held, values["delta"] + lost, np.inf)
            solved = np.asarray(values["delta"]) >= 0.0
            few["delta"] = np.where(solved, np.nextafter(delta.astype(real), np.inf, dtype=real), few["delta"])
            few["kappa"] = np.where(is_held, few["kappa"], np.inf).astype(real)  # not held: not certified
    return few


def layout(shapes: Sequence[tuple[str, tuple[int, ...], str]]) -> tuple[list[BufferPart], int]:
    """Return arrays as parts of a buffer, each beginning at a multiple of 256 bytes, and the buffer's size."""
    parts, end = [], 0
    for name, shape, kind in shapes:
        parts.append(BufferPart(name, end, shape, kind))
        end += -(-math.prod(shape) * np.dtype(kind).itemsize // 256) * 256
    return parts, end


def part_of_buffer(buffer: Any, part: BufferPart) -> Any:
    """Return an array in a buffer of numba's."""
    stop = part.begin + math.prod(part.shape) * np.dtype(part.kind).itemsize
    return buffer[part.begin : stop].view(np.dtype(part.kind)).reshape(part.shape)


def in_order(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of an array in C order, in elements."""
    return tuple(math.prod(shape[k + 1 :]) for k in range(len(shape)))
