"""What Numba's CUDA simulator lacks for the fast path: warps, matrix products, and loads from addresses.

`install` adds them to the simulator (``NUMBA_ENABLE_CUDASIM=1``), for the tests alone. Threads of a block run one at a
time, and each hands over to another only where it waits: 32 Python threads that the interpreter switches between as it
likes take milliseconds for every barrier, these take 0.3. The order in which they go on is drawn anew at every barrier,
so a barrier that is missing shows as a wrong result. A lane that does not come to an operation of its warp, or comes to
another one, and a load from outside of every array, or from an address that is not aligned, raise.
"""

import ctypes
import random
import struct
import sys
import threading
import weakref

import numpy as np

from unmix.compiled.cuda import ALL_LANES

WARP = 32
ARRAYS = weakref.WeakValueDictionary()  # whose address was asked for, by where they begin


class Stopped(Exception):
    """Another thread of the block failed."""


class Group:
    """Threads that wait for each other: a block or a warp."""

    def __init__(self, threads):
        self.threads = threads  # still running, for a block; all of them, for a warp
        self.waiting, self.values, self.places, self.results = [], {}, set(), None


class Thread(threading.Thread):
    """A thread of a block; the simulator asks the present one for its indices and its barrier."""

    def __init__(self, block, index, number, call):
        super().__init__(daemon=True)
        self.block, self.blockIdx, self.threadIdx, self.thread_id, self.call = block, block.index, index, number, call
        self.blockDim = block.dim
        self.turn = threading.Lock()
        self.turn.acquire()

    def run(self):
        self.turn.acquire()
        try:
            if self.block.error is None:
                with np.errstate(all="ignore"):  # a GPU says nothing either
                    self.call()
        except Stopped:
            pass
        except BaseException as error:
            error.add_note(f"thread {self.thread_id} of block {self.blockIdx}")
            self.block.stop(error)
        self.block.leave(self)

    def syncthreads(self):
        self.block.meet(self, self.block.all, "syncthreads")


class Block:
    """Runs the threads of a block; in place of the simulator's `BlockManager`, with its interface."""

    def __init__(self, function, grid_dim, block_dim, debug):
        from numba.cuda.simulator.kernelapi import Dim3

        self.function, self.make_index, self.dim = function, Dim3, Dim3(*block_dim)

    def run(self, grid_point, *args):
        self.index, self.error, self.random = self.make_index(*grid_point), None, random.Random(str(grid_point))
        indices = [(x, y, z) for z in range(self.dim.z) for y in range(self.dim.y) for x in range(self.dim.x)]
        threads = [
            Thread(self, self.make_index(*index), number, lambda: self.function(*args))
            for number, index in enumerate(indices)
        ]
        self.all = Group(len(threads))
        self.warps = [Group(WARP) for _ in range(-(-len(threads) // WARP))]
        self.ready = self.random.sample(threads, len(threads))
        self.ended = threading.Lock()
        self.ended.acquire()
        for thread in threads:
            thread.start()
        self.hand_over()
        self.ended.acquire()
        for thread in threads:
            thread.join()
        if self.error is not None:
            raise self.error

    def hand_over(self):
        """Let the next thread run; there is one, or all have ended, or they wait for each other in vain."""
        if not self.ready and self.all.threads:
            self.stop(RuntimeError(f"block {self.index}: threads wait for some that ended or that wait elsewhere"))
        (self.ready.pop().turn if self.ready else self.ended).release()

    def stop(self, error):
        """End all threads that wait."""
        self.error = self.error or error
        for group in (self.all, *self.warps):
            self.release(group)

    def release(self, group):
        """Let those that wait go on, in any order."""
        self.ready += self.random.sample(group.waiting, len(group.waiting))
        group.waiting = []

    def leave(self, thread):
        """A thread has ended."""
        self.all.threads -= 1
        if self.all.waiting and len(self.all.waiting) == self.all.threads:
            self.release(self.all)
        self.hand_over()

    def meet(self, thread, group, place, value=None, operation=None):
        """Wait for the group; returns the thread's part of what ``operation`` makes of all values, in order."""
        group.waiting.append(thread)
        group.values[thread.thread_id % WARP] = value
        group.places.add(place)
        if len(group.waiting) == group.threads:
            if len(group.places) > 1:
                raise RuntimeError(f"lanes of a warp meet at different operations: {sorted(map(str, group.places))}")
            if operation is not None:
                group.results = operation([group.values[lane] for lane in range(WARP)])
            group.places = set()
            self.release(group)
        self.hand_over()
        thread.turn.acquire()
        if self.error is not None:
            raise Stopped
        return None if operation is None else group.results[thread.thread_id % WARP]


def by_warp(operation, value=None, depth=2):
    """The lane's part of what a function makes of the values of the 32 lanes; ``depth`` frames up is who called for it."""
    thread, caller = threading.current_thread(), sys._getframe(depth)
    place = caller.f_code.co_filename, caller.f_lineno, caller.f_lasti
    return thread.block.meet(thread, thread.block.warps[thread.thread_id // WARP], place, value, operation)


def syncwarp(self, mask=ALL_LANES):
    """`cuda.syncwarp`."""
    assert mask == ALL_LANES
    by_warp(None)


def shfl_sync(self, mask, value, source):
    """`cuda.shfl_sync`."""
    assert mask == ALL_LANES
    return by_warp(lambda lanes: [lanes[lane[1] % WARP][0] for lane in lanes], (value, source))


def shfl_xor_sync(self, mask, value, flip):
    """`cuda.shfl_xor_sync`."""
    assert mask == ALL_LANES
    return by_warp(lambda lanes: [lanes[n ^ lane[1]][0] for n, lane in enumerate(lanes)], (value, flip))


def any_sync(self, mask, value):
    """`cuda.any_sync`."""
    assert mask == ALL_LANES
    return by_warp(lambda lanes: [any(lanes)] * WARP, bool(value))


def ballot_sync(self, mask, value):
    """`cuda.ballot_sync`."""
    assert mask == ALL_LANES
    return by_warp(lambda lanes: [sum(1 << n for n, lane in enumerate(lanes) if lane)] * WARP, bool(value))


class Libdevice:
    """The functions of ``cuda.libdevice`` that the fast path calls."""

    @staticmethod
    def hiloint2double(high, low):
        """A float64 from the bits of its halves."""
        return np.float64(struct.unpack("<d", struct.pack("<II", int(low) & 0xFFFFFFFF, int(high) & 0xFFFFFFFF))[0])

    @staticmethod
    def double2hiint(value):
        """The upper half of a float64's bits, signed."""
        return np.int32(struct.unpack("<ii", struct.pack("<d", value))[1])


def product_of_lanes(lanes):
    """C + A B from the fragments of all lanes, in the PTX ISA's layout of mma.m16n8k4 or m8n8k4 for .f64."""
    parts = np.array(lanes, float).reshape(8, 4, -1)  # g, q, operand
    n = parts.shape[2] // 3  # blocks of eight rows: 2 of 7 operands, 1 of 4
    A, B, C = parts[:, :, :n], parts[:, :, n].T, parts[:, :, n + 1 :].reshape(8, 4, n, 2)
    out = np.empty_like(C)
    for block in range(n):
        total = C[:, :, block].reshape(8, 8)
        for k in range(4):
            total = total + A[:, k, block, None] * B[k]
        out[:, :, block] = total.reshape(8, 4, 2)
    return out.reshape(WARP, 2 * n)


def multiply_matrices(a0, a1, b, c0, c1, c2, c3):
    """`unmix.compiled.ptx.multiply_matrices`."""
    return tuple(by_warp(product_of_lanes, (a0, a1, b, c0, c1, c2, c3)))


def multiply_twice(a0, a1, a2, a3, b0, b1, c0, c1, c2, c3):
    """`unmix.compiled.ptx.multiply_twice`."""
    return multiply_matrices(a2, a3, b1, *multiply_matrices(a0, a1, b0, c0, c1, c2, c3))


def multiply_half(a, b, c0, c1):
    """`unmix.compiled.ptx.multiply_half`."""
    return tuple(by_warp(product_of_lanes, (a, b, c0, c1)))


def load(kind, count, address):
    """Numbers from an address, which the size of all of them divides."""
    address, size = int(address), np.dtype(kind).itemsize * count
    if address % size:
        raise RuntimeError(f"{size} bytes from an address that {size} does not divide")
    if not any(begin <= address and address + size <= begin + array.nbytes for begin, array in ARRAYS.items()):
        raise RuntimeError("a load from outside of every array")
    return tuple(np.frombuffer(ctypes.string_at(address, size), kind))


def load_words(address):
    """`unmix.compiled.ptx.load_words`."""
    return load(np.uint32, 4, address)


def load_pair(address):
    """`unmix.compiled.ptx.load_pair`."""
    return load(np.float64, 2, address)


def load_double(address):
    """`unmix.compiled.ptx.load_double`."""
    return load(np.float64, 1, address)[0]


def rough_reciprocal(x):
    """`unmix.compiled.ptx.rough_reciprocal`: from the upper half of x, the lower half of the result is zero; no denormals."""
    upper = Libdevice.hiloint2double(Libdevice.double2hiint(x), 0)
    if abs(upper) < sys.float_info.min:
        return np.copysign(np.inf, upper)
    result = Libdevice.hiloint2double(Libdevice.double2hiint(np.float64(1.0) / upper), 0)
    return np.copysign(0.0, upper) if abs(result) < sys.float_info.min else result


def largest_of_warp(value):
    """`unmix.compiled.ptx.largest_of_warp`."""
    return by_warp(lambda lanes: [np.int32(max(lanes))] * WARP, int(value))


def array_interface(self):
    """Address, shape and type of a simulated device's array; its address may be loaded from hereafter."""
    whole = self._ary
    while isinstance(whole.base, np.ndarray):
        whole = whole.base
    ARRAYS[whole.ctypes.data] = whole
    return self._ary.__array_interface__


def cast_with_wrap(self, value):
    """An integer of a Numba type, which wraps around as on a GPU where Python's would raise."""
    kind = np.dtype(self.name)
    if isinstance(value, int):
        return np.array(value & (2 ** (8 * kind.itemsize) - 1), np.uint64).astype(kind)[()]
    return kind.type(value)


def install():
    """Put all of it into the simulator and in place of `unmix.compiled.ptx`; before the fast path is imported."""
    from numba import int32
    from numba.cuda.simulator import kernel, kernelapi
    from numba.cuda.simulator.cudadrv.devicearray import FakeCUDAArray

    from unmix.compiled import ptx

    assert "unmix.solvers.pixels.cuda_fast.projection" not in sys.modules
    kernel.BlockManager = Block
    for function in (syncwarp, shfl_sync, shfl_xor_sync, any_sync, ballot_sync):
        setattr(kernelapi.FakeCUDAModule, function.__name__, function)
    kernelapi.FakeCUDAModule.libdevice = Libdevice
    FakeCUDAArray.__cuda_array_interface__ = property(array_interface)
    type(int32).cast_python_value = cast_with_wrap
    cases = [multiply_matrices, multiply_twice, multiply_half, load_words, load_pair, load_double, rough_reciprocal]
    cases += [largest_of_warp]
    for function in cases:
        setattr(ptx, function.__name__, function)
