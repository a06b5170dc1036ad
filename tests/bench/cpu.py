"""This machine's CPU: solving, whole runs, start-up, memory. ``python tests/bench/cpu.py [DATA]`` (or ``make bench``).

Ratios of medians within one run; the machine, commit and date stand in the first line.
"""

import datetime
import os
import platform
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from common import seconds_of
from scipy.optimize import nnls
from timed import bench
from whole import write_cube

import unmix
from unmix.blocks import BlockPlan
from unmix.commands.synth import SyntheticScene, synthesise
from unmix.devices import Cpu, Line
from unmix.library import load
from unmix.methods import choose
from unmix.problem import plan_problem

DATA = Path(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("UNMIX_DATA", "../shared/data"))
PIXELS = 200_000


def solving() -> dict[int, float]:
    """Block in memory to answers in memory, beside scipy's nnls on one core (which gets its pixels in float64).

    Returns scipy's Mpixel/s by p.
    """
    scene = np.fromfile(DATA / "salinas_a/salinas_a.img", np.int16).reshape(-1, 224)
    samples, lines = 1000, PIXELS // 1000
    print(
        "| p | method | unmix, all cores | one core | scipy nnls, one core | ratio |\n| --- | --- | --- | --- | --- | "
        "--- |"
    )
    rates_of_scipy: dict[int, float] = {}
    for p in (3, 9, 15, 25):
        library = load(DATA / f"paper_endmembers/salinas_{p:02d}.csv")
        some = scene[::25].astype(float)
        scipy_rate = rates_of_scipy[p] = (
            len(some) / seconds_of(1, lambda y=some, e=library.matrix: [nnls(e, v) for v in y])[0] / 1e6
        )
        for method in ("nnls", "fcls"):
            rates = []
            for threads in (None, 1):
                method_spec, solver_spec = choose(method, None)
                problem = plan_problem(library, method_spec, solver_spec)
                machine = Cpu(threads)
                slot = machine.open(problem, Line(samples, samples * 448), BlockPlan(lines, lines, 1))[0]
                raw = slot.buffer.view(np.int16).reshape(lines, samples, 224)
                raw.reshape(-1, 224)[:] = scene[np.arange(PIXELS) % len(scene)]
                slot.hold(slice(0, lines), raw)

                def once(machine=machine, slot=slot):
                    machine.submit(slot)
                    machine.wait(slot)

                rates.append(PIXELS / seconds_of(5, once)[0] / 1e6)
                machine.close()
            print(
                f"| {p} | {method} | {rates[0]:.2f} Mpixel/s | {rates[1]:.2f} | {scipy_rate:.3f} | "
                f"{rates[0] / scipy_rate:.0f} |"
            )
    return rates_of_scipy


def whole(folder: Path, scipy_rates: dict[int, float]) -> None:
    """Whole runs, from a file in the page cache to maps on disk, beside the copy that bounds them and scipy's loop."""
    print(
        "\n| layout | p | copy | run | Mpixel/s | times scipy nnls, one core |\n| --- | --- | --- | --- | --- | --- |"
    )
    for interleave in ("bip", "bil", "bsq"):
        cube = write_cube(folder, interleave, 2_000_000)
        for p in (9, 25):
            (row,) = bench(cube, DATA / f"paper_endmembers/salinas_{p:02d}.csv", devices=["cpu"], out_dir=folder)
            rate = row["run"]["pixels_per_second"] / 1e6
            print(
                f"| {interleave} | {p} | {row['copy']['total']:.2f} s | {row['run']['total']:.2f} s | {rate:.2f} | "
                f"{rate / scipy_rates[p]:.0f} |"
            )


def start_up(folder: Path) -> None:
    """Whole processes: the help, and a second run of Jasper Ridge."""
    command = [sys.executable, "-m", "unmix_cli.main"]

    def cpu_seconds(arguments):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([*command, *arguments], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    print(f"\n`unmix --help`: {np.median([cpu_seconds(['--help']) for _ in range(5)]):.3f} s of CPU time")
    jasper = ["run", str(DATA / "jasper/jasper.hdr"), "-o", str(folder), "--overwrite", "--device", "cpu", "-q"]
    given = ["-e", str(DATA / "jasper/jasper_truth_endmembers.csv"), "--scale", "5000"]
    for name, arguments in (("endmembers extracted", jasper), ("endmembers given", jasper + given)):
        cpu_seconds(arguments)
        taken = seconds_of(5, subprocess.run, [*command, *arguments], check=True)[0]
        print(f"`unmix run` of Jasper Ridge, second time, {name}: {taken:.2f} s of wall time")


def memory(folder: Path) -> None:
    """Peak resident memory of a run of a 2 GB cube at --memory 256M."""
    synthesise(folder / "big.hdr", SyntheticScene(4600, 1000, 224, 9), memory=2**28)
    script = (
        "import sys, unmix\n"
        "unmix.run(sys.argv[1], memory='256M', device='cpu', count=9, out_dir=sys.argv[2])\n"
        # Not ru_maxrss: that begins with the peak of the process which started this one.
        "print(int(open('/proc/self/status').read().split('VmHWM:')[1].split()[0]) // 1024)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder / "big.hdr"), str(folder / "o")],
        capture_output=True,
        text=True,
        check=True,
    )
    print(f"\nPeak resident memory, cube of 2.06 GB, endmembers extracted, `--memory 256M`: {done.stdout.strip()} MiB")


def main() -> None:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    model = next(
        (
            line.split(":")[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        "",
    )
    print(
        f"unmix {unmix.__version__}, commit {commit}, {datetime.date.today()}, {model or platform.machine()}, "
        f"{len(os.sched_getaffinity(0))} cores\n"
    )
    rates = solving()
    with tempfile.TemporaryDirectory() as folder:
        whole(Path(folder), rates)
        start_up(Path(folder))
        memory(Path(folder))


if __name__ == "__main__":
    main()
