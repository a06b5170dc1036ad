"""Estimate the memory of a run before it begins, and find the limit of this process."""

import os
from pathlib import Path

from ...blocks import plan_blocks
from ...io import Cube, bytes_per_line, read_plain

# Memory of Python, its libraries and compiled code, beside the blocks: the peak of runs of small scenes was 196 MiB, of
# GeoTIFF 245.
BASELINE_BYTES = 200 * 2**20
# The most that inflating adds: runs of a TIFF of 922 MB took 97 to 163 MiB beside the blocks and that, of HDF5 and gzip
# 55 or none.
INFLATING_BYTES = 200 * 2**20
# Endmembers that are assumed where a run extracts them.
USUAL_COUNT = 10


def is_inflated(cube: Cube) -> bool:
    """Return whether a cube is inflated into a scratch file first."""
    return getattr(getattr(cube, "cube", cube), "scratch", None) is not None


def expected_memory(cube: Cube, count: int | None, memory: int) -> int:
    """Return the most bytes that a run of ``count`` endmembers takes; `MethodError` if ``memory`` is too small."""
    p = USUAL_COUNT if count is None else count
    line = 4 * (p + 1) * cube.samples + 21 * cube.samples + bytes_per_line(cube)
    plan = plan_blocks(cube.lines, line, memory, 4, chunk=min(cube.lines_together, cube.lines))
    return plan.slots * plan.lines_per_block * line + BASELINE_BYTES + INFLATING_BYTES * is_inflated(cube)


def group_limit() -> int | None:
    """Return the bytes that this process's control group, such as a container, may take; None without a limit."""
    try:
        return int(read_plain(Path("/sys/fs/cgroup/memory.max")))
    except (OSError, ValueError):  # "max"
        return None


def memory_of_machine() -> int:
    """Return the bytes of memory of this machine, or of the control group of this process if that may take less."""
    size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(size, group_limit() or size)


def is_beyond(size: int) -> bool:
    """Return whether a size is more than the limit."""
    return size > (group_limit() or size)


def said_of_memory(size: int) -> str:
    """Return an expected size in words, with the limit where it is beyond that."""
    beyond = f", more than the limit of {(group_limit() or 0) / 2**20:.0f} MiB" if is_beyond(size) else ""
    return f"at most about {size / 2**20:.0f} MiB of memory{beyond}"
