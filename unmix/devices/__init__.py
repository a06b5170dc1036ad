"""The devices that solve blocks: `Cpu`, `Cuda` and `Several` GPUs, behind one interface.

Give each process of a host a GPU of its own: the first that no other process has claimed.

The rule of `auto`: whether a GPU saves a job more time than its start costs.

A job on a GPU begins with a CUDA context and the loading of kernels, whatever its size; what it saves grows with the
pixels, and with fewer cores. Scenes of one command share the start. The rule knows the fast searches alone: every other
job goes to the GPU, as it may take a CPU hours. It looks at the command, the scene and this machine alone, so that the
same command takes the same device when it goes on after an interruption.

Solve blocks on several GPUs of one host, in turn, between one reader and one writer.
"""

import contextlib
import ctypes
import fcntl
import functools
import importlib.util
import logging
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

from ..blocks import BlockPlan, cores
from ..errors import DeviceError, MethodError, OutputError, say_once
from ..io.opening import open_there
from ..later import later
from ..problem import Problem
from .cpu import Cpu
from .slots import Device, Line, Slot, simulated

if TYPE_CHECKING:
    from .cuda import Cuda

gpu = later(__package__, "cuda:Cuda")
HELD: list[IO[str]] = []  # locked until the process ends


@functools.cache
def claim_gpu(count: int) -> int:
    """Return the index of a GPU that no other process of this user here has claimed; if there is none, one to share."""
    for index in range(count):
        with contextlib.suppress(OSError, OutputError), contextlib.ExitStack() as unless_locked:
            # By UUID: two jobs of a cluster may each see another GPU as number 0.
            path = Path(tempfile.gettempdir()) / f"unmix-{os.getuid()}-{uuid_of(index)}.claim"
            file = unless_locked.enter_context(open_there(path, "a"))
            if os.fstat(file.fileno()).st_uid != os.geteuid():
                continue  # another user's file, who may keep it locked forever
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            HELD.append(file)
            unless_locked.pop_all()
            return index
    return os.getpid() % count


def uuid_of(index: int) -> str:
    """Return the UUID of a GPU, or its index as text if the driver gives none."""
    if simulated():
        return f"simulated{index}"
    driver = ctypes.CDLL("libcuda.so.1")
    device, uuid = ctypes.c_int(), (ctypes.c_ubyte * 16)()
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), index) or driver.cuDeviceGetUuid(uuid, device):
        return str(index)
    return bytes(uuid).hex()


# Seconds that a GPU takes and a CPU does not: to start a process, and then for each scene. (H100, 16 cores, 2
# million pixels x 224 bands with given endmembers: a process takes 1.4 s on the GPU and 0.8 to 1.1 on its host, whose
# solving and writing take 0.45 s more; of 100 x 100 pixels 0.93 and 0.57 s; the context takes 0.25 s.)
START, OF_A_SCENE = 0.9, 0.1
# Seconds of one core that a GPU saves: a pixel and band that is solved and written (the same runs), and a product of
# two of a pixel's bands where endmembers are extracted (by vca, on an H200 2.5 to 3.2 s and 3.8 to 3.9 on its host; by
# defaults 3.4 to 3.6 and 3.5 to 3.9). Per endmember the search takes more: the time of 9 is the unit.
OF_A_BAND, OF_A_PRODUCT, USUAL_COUNT = 1.6e-8, 1.7e-10, 9
# Endmembers up to which pixels are solved by the fast searches.
MOST_FAST = 32


class Job(NamedTuple):
    """The size and kind of a job, before it begins.

    Attributes
    ----------
    pixels, bands : int
        Of a scene.
    endmembers : int, optional
        None where their number is not known yet.
    extracts : bool
        Whether they are extracted from the scene.
    is_plain : bool
        Whether pixels are solved by the fast searches, for nothing but their abundances.
    """

    pixels: int
    bands: int
    endmembers: int | None
    extracts: bool
    is_plain: bool

    def saved(self, threads: int) -> float:
        """Return the seconds that a started GPU saves beside ``threads`` threads; infinite where no rule is known."""
        p = USUAL_COUNT if self.endmembers is None else self.endmembers
        if not self.is_plain or p > MOST_FAST:
            return float("inf")
        of_a_pixel = OF_A_BAND * self.bands * (1.0 + p / USUAL_COUNT) / 2.0
        of_a_pixel += OF_A_PRODUCT * self.bands**2 * self.extracts
        return max(0.0, self.pixels * of_a_pixel / threads - OF_A_SCENE)


class Several:
    """GPUs behind one `Device`: slot k belongs to GPU k modulo their number, and blocks stay in order.

    A pixel's answer depends only on the pixel and its line, so the outputs are byte for byte those of one GPU.

    Parameters
    ----------
    gpus : sequence of Cuda
    """

    def __init__(self, gpus: Sequence["Cuda"]) -> None:
        self.gpus = gpus
        self.name = "cuda:" + ",".join(gpu.name.removeprefix("cuda:") for gpu in gpus)
        self.owner: dict[int, Cuda] = {}

    @property
    def count(self) -> int:
        return len(self.gpus)

    @property
    def solves(self) -> bool:
        return all(gpu.solves for gpu in self.gpus)

    @solves.setter
    def solves(self, value: bool) -> None:
        for gpu in self.gpus:
            gpu.solves = value

    def path(self, problem: Problem, samples: int) -> str:
        """Return how pixels are searched."""
        return self.gpus[0].path(problem, samples)

    def share(self, block_plan: BlockPlan) -> BlockPlan:
        """Return the plan of the first GPU, which has the most slots."""
        return replace(block_plan, slots=-(-block_plan.slots // self.count))

    def fit(self, problem: Problem, line: Line, block_plan: BlockPlan, memory: int) -> BlockPlan:
        """Return a plan that fits ``memory`` bytes of each GPU."""
        part = self.share(block_plan)
        fitting = self.gpus[0].fit(problem, line, part, memory)
        return (
            block_plan if fitting == part else replace(fitting, slots=min(block_plan.slots, fitting.slots * self.count))
        )

    def open(self, problem: Problem, line: Line, block_plan: BlockPlan) -> list[Slot]:
        self.close()
        slots_of_gpu = [gpu.open(problem, line, self.share(block_plan)) for gpu in self.gpus[: block_plan.slots]]
        slots = [slot for turn in zip(*slots_of_gpu) for slot in turn][: block_plan.slots]
        self.owner = {id(slot): gpu for gpu, gpu_slots in zip(self.gpus, slots_of_gpu) for slot in gpu_slots}
        return slots

    def submit(self, slot: Slot) -> None:
        self.owner[id(slot)].submit(slot)

    def wait(self, slot: Slot) -> None:
        self.owner[id(slot)].wait(slot)

    def stages(self) -> dict[str, float]:
        """Return the seconds of copying and solving of the busiest GPU: they work in parallel."""
        each = [gpu.stages() for gpu in self.gpus if gpu.device_slots]
        return {stage: max(spent[stage] for spent in each) for stage in (each[0] if each else ())}

    def close(self) -> None:
        for gpu in self.gpus:
            gpu.close()


log = logging.getLogger("unmix")
# Scenes of this process, which share the start of a GPU.
SCENES = [1]


def count_gpus() -> int:
    """Return how many CUDA GPUs the driver sees, without importing Numba's CUDA target, which takes a second."""
    if simulated():
        return 1
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int()
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value


def choose_device(name: str, threads: int | None = None, work: Job | None = None) -> Device:
    """Return the device ``name``; for ``auto`` the first GPU, or the CPU if there is none or ``work`` does not pay."""
    if kind_of(name) == "cpu":
        if name == "auto":
            say_once(f"device: the CPU ({why_no_gpu()})")
        return Cpu(threads)
    if name == "auto":
        if work is not None and (why := why_not_worth(work, threads)):
            say_once(f"device: the CPU ({why})")
            return Cpu(threads)
        try:
            return gpu(0)
        except DeviceError as error:
            say_once(f"device: the CPU ({error})")
            return Cpu(threads)
    devices = [gpu(index) for index in gpus_named(name) or range(count_gpus())]
    return devices[0] if len(devices) == 1 else Several(devices)


def expect_scenes(count: int) -> None:
    """Say how many scenes this process will solve: together they may be worth a GPU's start."""
    SCENES[0] = max(1, count)


def why_not_worth(work: Job, threads: int | None) -> str:
    """Return why the start of a GPU does not pay; an empty text where it does. The simulator has no start."""
    saved = SCENES[0] * work.saved(threads or cores())
    pays = saved > START or simulated()
    log.debug(
        f"device: a GPU saves {saved:.2g} s, its start takes {START:g} s: {'a GPU' if pays else 'the CPU'} is used"
    )
    return "" if pays else "a GPU would take longer to start than it saves; `device` cuda takes it all the same"


def kind_of(name: str) -> str:
    """Return "cpu" or "cuda", which `choose_device` would try, without using a GPU; raise the same errors."""
    if name in ("cpu", "auto"):
        return "cpu" if name == "cpu" or why_no_gpu() else "cuda"
    wanted, gpus = gpus_named(name), count_gpus()
    if gpus == 0 or max(wanted, default=0) >= gpus:
        raise DeviceError(f"{name}: {'no CUDA GPU' if gpus == 0 else f'only {gpus} GPUs'} here; use `device` cpu")
    if not importlib.util.find_spec("numba_cuda"):
        raise DeviceError(f"{name}: numba-cuda is not installed; pip install 'unmix[cuda12]' or 'unmix[cuda13]'")
    return "cuda"


def why_no_gpu() -> str:
    """Return why ``auto`` means the CPU; an empty text where it means a GPU."""
    if not count_gpus():
        return "no CUDA GPU found"
    missing = not importlib.util.find_spec("numba_cuda")
    return "numba-cuda is not installed for the GPU: pip install 'unmix[cuda12]' or 'unmix[cuda13]'" if missing else ""


def gpus_named(name: str) -> list[int]:
    """Return the indices of the GPUs in ``cuda``, ``cuda:K`` or ``cuda:K,L``; an empty list for ``cuda:all``."""
    kind, colon, which = name.partition(":")
    words = which.split(",") if colon else ["0"]
    if kind != "cuda" or not (which == "all" or all(re.fullmatch("[0-9]{1,3}", word) for word in words)):
        raise MethodError(f"unknown device '{name}'; use auto, cpu, cuda, cuda:K, cuda:K,L or cuda:all")
    wanted = [] if which == "all" else [int(word) for word in words]
    if len(set(wanted)) < len(wanted):
        raise MethodError(f"`device` {name}: names a GPU twice; name each once")
    return wanted


@contextlib.contextmanager
def one_device(name: str, threads: int | None = None) -> Iterator[Device]:
    """Yield the device ``name``; a GPU is this thread's current CUDA device until the end."""
    device = choose_device(name, threads)
    try:
        if isinstance(device, Several):
            raise MethodError(f"`device` {name}: this works on one GPU; name one, such as cuda:0")
        with getattr(device, "gpu", contextlib.nullcontext()):
            yield device
    finally:
        device.close()
