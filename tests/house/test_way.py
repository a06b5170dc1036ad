"""The way of a cube from `unmix.run` to the read of its first block is short."""

import itertools
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sources import statements

import unmix

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "unmix"
# Most changes of file between callers and called, from `unmix.run` to the read of the first block that is solved.
MOST_CHANGES = 30


def chain_of(frame):
    """The files of this package whose functions are being called, the first caller first."""
    files = []
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(PACKAGE):
            files.append(path.relative_to(PACKAGE).as_posix())
        frame = frame.f_back
    return files[::-1]


def way_of(run, monkeypatch):
    """The files on the call path of the first block's read in a pipeline; what a thread does was called by who submitted it."""
    found, callers, submit = [], {}, ThreadPoolExecutor.submit

    def noted(pool, function, *arguments, **named):
        above = [*callers.get(threading.get_ident(), []), *chain_of(sys._getframe(1))]

        def called(*arguments, **named):
            callers[threading.get_ident()] = above
            return function(*arguments, **named)

        return submit(pool, called, *arguments, **named)

    def watch(frame, event, _):
        if event == "call" and frame.f_code.co_name == "read_parts" and not found:
            files = [*callers.get(threading.get_ident(), []), *chain_of(frame)]
            if "pipeline.py" in files:
                found.extend(files)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", noted)
    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        run()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return found


def test_the_way_to_the_first_block_is_short(tmp_path, monkeypatch):
    files = way_of(
        lambda: unmix.run(
            ROOT / "data/demo.hdr", endmembers=ROOT / "data/demo_truth_endmembers.csv", out_dir=tmp_path, device="cpu"
        ),
        monkeypatch,
    )
    assert "runs/scene_run.py" in files and files[-1] == "io/read.py"
    assert sum(one != other for one, other in itertools.pairwise(files)) <= MOST_CHANGES, files


# Most modules of ours that the main job imports, and most statements in them: the way of a cube is read in them.
MOST_MODULES, MOST_STATEMENTS = 175, 13_742
COUNTED = """
import sys
from unmix_cli.main import main
try:
    main()
except SystemExit as end:
    assert not end.code
finally:
    print(*(module.__file__ for name, module in sys.modules.items() if name.split(".")[0] in ("unmix", "unmix_cli")), sep="\\n")
"""


def test_the_main_job_imports_few_modules(tmp_path):
    words = ["run", str(ROOT / "data/demo.hdr"), "--method", "fcls", "--extract", "vca", "-n", "3", "-o", str(tmp_path)]
    done = subprocess.run([sys.executable, "-c", COUNTED, *words, "--device", "cpu"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    files = [Path(line) for line in done.stdout.splitlines() if line.endswith(".py")]
    assert 50 < len(files) <= MOST_MODULES
    assert sum(map(statements, files)) <= MOST_STATEMENTS
