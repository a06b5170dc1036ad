"""How long a process takes to unmix a small scene: ``python tests/bench/startup.py cpu|cuda [RUNS]``.

It makes a scene of 100 x 100 pixels, runs ``unmix run`` on it twice to fill the cache of compiled code, then times
whole processes, and shows where one of them was, every 50 ms: the line of this package that the main thread was in, and
the library's that it had called.
"""

import collections
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Seconds between samples, and of a line of the profile.
EACH, LINE = 0.002, 0.05


def command(folder: Path, device: str) -> list[str]:
    """Return the arguments of the run."""
    return [
        "run",
        str(folder / "s.hdr"),
        "-e",
        str(folder / "s_truth_endmembers.csv"),
        "--device",
        device,
        "-o",
        str(folder / "out"),
        "--overwrite",
        "--quiet",
        "--no-browse",
    ]


def profile(words: list[str]) -> None:
    """Run a command in this process, and print where its main thread was."""
    began, main_thread, samples = time.perf_counter(), threading.main_thread().ident, []
    done = threading.Event()

    def sample() -> None:
        while not done.wait(EACH):
            frame, names = sys._current_frames().get(main_thread), []
            while frame is not None:
                names.append((frame.f_code.co_filename, frame.f_code.co_name, frame.f_lineno))
                frame = frame.f_back
            samples.append((time.perf_counter() - began, names))

    sys.setswitchinterval(EACH / 2)
    sampler = threading.Thread(target=sample, daemon=True)
    sampler.start()
    from unmix_cli.main import main

    sys.argv = ["unmix", *words]
    try:
        main()
    except SystemExit as end:
        assert not end.code, end.code
    done.set()
    sampler.join()
    lines: dict[int, collections.Counter[str]] = {}
    for at, names in samples:
        own = next(
            (
                f"{Path(file).relative_to(ROOT)}:{line}"
                for file, _, line in names
                if file.startswith(str(ROOT / "unmix"))
            ),
            "",
        )
        other = next(
            (f"{file.split('site-packages/')[1]} {name}" for file, name, _ in names if "site-packages/" in file), ""
        )
        lines.setdefault(int(at / LINE), collections.Counter())[f"{own} {other}".strip()] += 1
    for number, counts in lines.items():
        print(
            f"{round(number * LINE * 1000):5d} ms  " + "; ".join(f"{name} ({n})" for name, n in counts.most_common(3))
        )


def main() -> None:
    """Print the median of whole processes, and the profile of one."""
    if sys.argv[1] == "profile":
        profile(sys.argv[2:])
        return
    device, runs = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 11
    start = [sys.executable, "-c", "from unmix_cli.main import program; program()"]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH", ""), str(ROOT)]))
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = ["synth", str(folder / "s.hdr"), "--lines", "100", "--samples", "100"]
        subprocess.run([*start, *made], check=True, env=environment)
        words, seconds = command(folder, device), []
        for _ in range(2 + runs):
            began = time.perf_counter()
            subprocess.run([*start, *words], check=True, env=environment, capture_output=True)
            seconds.append(time.perf_counter() - began)
        for what, code in (("python", "pass"), ("numpy", "import numpy"), ("numba", "import numba")):
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True, env=environment)
            print(f"{what}: {time.perf_counter() - began:.2f} s")
        print(
            f"first: {seconds[0]:.2f} s; {runs} more: median {statistics.median(seconds[2:]):.2f}, least "
            f"{min(seconds[2:]):.2f} s"
        )
        subprocess.run([sys.executable, __file__, "profile", *words], check=True, env=environment)


if __name__ == "__main__":
    main()
