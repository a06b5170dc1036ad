"""`unmix env`: show versions, cores, memory and GPUs of this installation and this machine."""

import importlib.metadata
import importlib.util
import os
import platform
import sys
import tempfile
from typing import Any

import click

from unmix._version import build

from . import options

PACKAGES = [
    "numpy",
    "numba",
    "scipy",
    "h5py",
    "spectral",
    "click",
    "rich",
    "numba-cuda",
    "rasterio",
    "dask",
    "distributed",
]


@click.command("env")
@options.as_json
def command(as_json: bool) -> int:
    """Show versions, cores, memory, GPUs with their driver, and the folder of compiled code: the first
    thing a bug report needs.
    """
    facts = facts_of_this_machine()
    lines = options.named_rows({name: "none" if value is None else str(value) for name, value in facts.items()})
    options.show(facts, as_json, lines)
    return 0


def facts_of_this_machine() -> dict[str, Any]:
    """Return the facts about installation and machine, by name."""
    from unmix.blocks import cores
    from unmix.compiled.cache import cache_folder, common_folder, why_not_used

    facts: dict[str, Any] = {
        "unmix": build(),
        "python": f"{platform.python_version()} ({sys.executable})",
        "system": platform.platform(),
        "cores": cores(),
        "memory": memory(),
        "processor": processor(),
    }
    facts |= {name: version_of(name) for name in PACKAGES}
    facts |= gpus()
    facts["compiled code"] = str(cache_folder() or "no private folder: each run compiles again; set UNMIX_CACHE_DIR")
    elsewhere = {"also loaded from": common_folder(), "not used": why_not_used()}
    facts |= {name: str(value) for name, value in elsewhere.items() if value is not None}
    try:
        facts["temporary files"] = tempfile.gettempdir()
    except FileNotFoundError:
        facts["temporary files"] = "nowhere; set TMPDIR to a folder that can be written"
    return facts


def version_of(package: str) -> str | None:
    """Return the version of a package; None where it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def memory() -> str | None:
    """Return the machine's memory, and the limit of this process's control group, if it has one."""
    try:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None
    from unmix.runs.record.memory import group_limit

    limit = group_limit()
    return f"{size / 2**30:.1f} GiB" + ("" if limit is None else f", of which {limit / 2**30:.1f} GiB for this group")


def processor() -> str | None:
    """Return the processor's name, and the widest vectors that it has."""
    try:
        with open("/proc/cpuinfo") as file:
            lines = [line.partition(":")[2].strip() for line in file if line.startswith(("model name", "flags"))]
    except OSError:
        return platform.processor() or None
    flags = set(" ".join(lines[1:2]).split())
    vectors = next((name for name in ("avx512f", "avx2", "avx") if name in flags), None)
    return f"{lines[0]}{f' ({vectors})' if vectors else ''}" if lines else None


def gpus() -> dict[str, Any]:
    """Return the GPUs that the driver sees, and its version; or why they cannot be used."""
    from unmix.devices import count_gpus, why_no_gpu

    count = count_gpus()
    if not count:
        return {"GPUs": None}
    why = why_no_gpu()
    if why:
        return {"GPUs": f"{count}, which cannot be used: {why}"}
    from unmix.compiled.cuda import cuda

    names = []
    for gpu in cuda.gpus:
        name = gpu.name.decode() if isinstance(gpu.name, bytes) else gpu.name
        names.append(f"{name} ({'.'.join(map(str, gpu.compute_capability))})")
    return {"GPUs": ", ".join(names), "CUDA driver": driver_version()}


def driver_version() -> str | None:
    """Return the CUDA version of the driver; None if it does not answer."""
    import ctypes

    version = ctypes.c_int()
    try:
        if ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version)) != 0:
            return None
    except (OSError, AttributeError):
        return None
    return f"{version.value // 1000}.{version.value % 1000 // 10}"
