"""`warm`: compile what runs will need, so that a thousand of them do not begin with it."""

import contextlib
import itertools
import logging
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays.pixels import solve
from ..compiled.cache import WATCH, cache_folder, common_folder, why_not_used
from ..devices.cpu import Cpu
from ..errors import OutputError
from ..features import features
from ..features.runs import in_runs
from ..methods import METHODS
from ..runs import run
from .extract import extract
from .synth import SyntheticScene, synthesise

log = logging.getLogger("unmix")
# Size of a scene that is solved at once, but by all the code that a large one takes; its bands are more than its
# endmembers.
LINES, SAMPLES = 4, 40
EXTRACTED = 4
# Seconds of compiling below which a case counts as there before.
WAS_THERE = 0.1


@dataclass(frozen=True)
class Warmed:
    """A case that was compiled: seconds are those of compiling, 0 where the code was there.

    ``method`` is "extract" for what extracts the endmembers of such scenes, always on the CPU.
    """

    method: str
    dtype: str
    interleave: str
    count: int
    device: str
    seconds: float


def warm(
    methods: Sequence[str] = ("fractions", "fcls", "nnls"),
    dtypes: Sequence[str] = ("int16", "float32"),
    interleaves: Sequence[str] = ("bil", "bip", "bsq"),
    counts: Sequence[int] = (5,),
    device: str = "auto",
) -> Iterator[Warmed]:
    """Compile for every combination by a run of a small synthetic scene each; yield a `Warmed` after each."""
    # Of ``counts``, on a GPU each has code of its own; on a CPU one up to 16, 32, 48 and 64 each, and one above, are
    # enough.
    if cache_folder() is None:
        raise OutputError(
            "there is no private folder for compiled code, so nothing would be kept; set UNMIX_CACHE_DIR to one"
        )
    elsewhere = why_not_used()
    if elsewhere is not None:
        raise OutputError(f"{elsewhere}, so the code would be kept in {cache_folder()}; name that folder, or none")
    lost_before, compiled_before = len(WATCH.lost), WATCH.seconds
    with tempfile.TemporaryDirectory(prefix="unmix-") as folder, compiling_all():
        for dtype, interleave, count in itertools.product(dtypes, interleaves, counts):
            path = Path(folder) / "warm.hdr"
            synthesise(
                path,
                SyntheticScene(LINES, SAMPLES, count + 10, count, dtype=dtype, interleave=interleave),
                overwrite=True,
            )
            library = path.with_name("warm_truth_endmembers.csv")
            for method in methods:
                with timed_compilation(f"{method}, {dtype}, {interleave}") as seconds:
                    report = WARMED[method](path, library, device)
                yield Warmed(method, dtype, interleave, count, report["device"], *seconds)
            if count == counts[0]:  # the code is one for all numbers
                with timed_compilation(f"extraction, {dtype}, {interleave}") as seconds:
                    for how in ("auto", "cone", "sisal", "vca"):
                        extract(path, count=EXTRACTED, extract=how)
                    solve(np.eye(3), np.eye(3), method="nnls")  # by which features look at some pixels
                yield Warmed("extract", dtype, interleave, EXTRACTED, "cpu", *seconds)
    lost = WATCH.lost[lost_before:]
    common = common_folder()
    if common is not None and WATCH.seconds > compiled_before + WAS_THERE:
        raise OutputError(
            f"UNMIX_CACHE_DIR={common}: this user cannot write there, so what was compiled is kept in {cache_folder()}"
        )
    if lost:
        raise OutputError(f"{lost[0]}: {len(lost)} pieces of compiled code are not kept; runs will compile them again")


@contextlib.contextmanager
def compiling_all() -> Iterator[None]:
    """Let a CPU compile the searches that only some pixels need, too."""
    Cpu.compiles_all = True
    try:
        yield
    finally:
        Cpu.compiles_all = False


@contextlib.contextmanager
def timed_compilation(what: str) -> Iterator[list[float]]:
    """Yield a list that holds the seconds of compiling at the end."""
    before, began, seconds = WATCH.seconds, time.perf_counter(), list[float]()
    yield seconds
    seconds.append(WATCH.seconds - before)
    log.debug(f"{what}: {time.perf_counter() - began:.1f} s in all")


def unmixed(path: Path, library: Path, device: str, method: str | None = None, **options: Any) -> dict[str, Any]:
    """Unmix the small scene; return the report."""
    return run(path, endmembers=library, method=method, device=device, overwrite=True, browse=False, **options)


def modelled(path: Path, library: Path, device: str) -> dict[str, Any]:
    """Choose models of the small scene, each spectrum a class, without and with features; return the report."""
    unmixed(path, library, device, "mesma", classes="name")
    flags = (name for one in in_runs().values() for name in one.for_models if getattr(one.settings, name) is False)
    return unmixed(path, library, device, "mesma", classes="name", **dict.fromkeys(flags, True))


# Functions that `warm` runs, by method.
WARMED: dict[str, Callable[[Path, Path, str], dict[str, Any]]] = {
    **{name: partial(unmixed, method=name) for name in METHODS},
    "fractions": unmixed,
    "mesma": modelled,
    **{word: run for feature in features() for word, run in feature.warms.items()},
}
