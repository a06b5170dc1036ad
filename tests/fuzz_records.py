"""Edited records of runs, thousands of them, through every reader: ``python tests/fuzz_records.py COUNT [SEED]`` (`make
fuzz`).

A record is edited at one to three random places; half of the edits are given the right digest again, so that they get
further. Each reader has to take it, or to raise an `UnmixError` of one line. Everything else is a finding, printed with
the edit that led to it. Every fourth file is no record, but the journal of a run that was cut off, whose edited entries
get the right CRC-32 again.
"""

import contextlib
import copy
import functools
import io
import json
import random
import shutil
import sys
import tempfile
import traceback
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
# In place of any value; what JSON text can hold, whether or not Python would write it.
ODD: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    7,
    2**31,
    2**63,
    10**400,
    0.5,
    -0.0,
    float("inf"),
    float("-inf"),
    float("nan"),
    1e308,
    5e-324,
    "",
    "x",
    "\ud800",
    "\udcff",
    "a\0b",
    "../../etc/passwd",
    "µ",
    "9" * 5000,
    "envi",
    "nnls",
    "auto",
    [],
    {},
    [None],
    [[]],
    {"": None},
    [1, 2, 3],
    {"a": {"b": []}},
    "s3://",
    "http://x/?a",
    "-inf",
    "\n",
    [1e300] * 3,
    ["x"] * 1000,
)


# Options of the runs whose records are edited, without those that name the library.
WAYS: tuple[dict[str, Any], ...] = (
    {"certificate": True, "residual": True},
    {"count": 2, "top": 1, "seed": 3},
    {"by": "class", "classes": "name", "method": "mesma", "average": "likelihood"},
    {"method": "nnls", "l1": 0.01, "format": "hdf5", "quantize": 0.001},
)
LINES = 6


class Stop(BaseException):
    """The end of a run after its first block."""


def how(number: int, folder: Path) -> dict[str, Any]:
    """Return all options of a run."""
    library = {} if "count" in WAYS[number] else {"endmembers": folder / "e.csv"}
    return WAYS[number] | library | {"device": "cpu"}


def runs(folder: Path, numbers: Iterable[int] = range(len(WAYS))) -> list[Path]:
    """Write a few small runs, of the kinds of `WAYS` with these numbers, with a place on a map; return their stems.

    Beside each run, in ``cut``, is one that was stopped on its way.
    """
    from conftest import write_csv, write_cube

    import unmix
    from unmix.runs.files import journal

    rng = np.random.default_rng(1)
    waves, E = np.arange(8) * 100.0 + 500, rng.uniform(0.1, 0.9, (8, 3))
    fields = {
        "wavelength": waves,
        "map info": "{UTM, 1, 1, 5e5, 4e6, 30, 30, 11, North, WGS-84}",
        "acquisition time": "2026-01-02T03:04:05",
    }
    cube = write_cube(folder / "s.hdr", rng.dirichlet(np.ones(3), (LINES, 5)) @ E.T, "bil", **fields)
    write_csv(folder / "e.csv", E, waves)
    places = []
    for number in numbers:
        places.append(folder / str(len(places)))
        unmix.run(cube, out_dir=places[-1], **how(number, folder))
        seconds, journal.FLUSH_SECONDS = journal.FLUSH_SECONDS, 0.0
        try:
            unmix.run(cube, out_dir=places[-1] / "cut", progress=stop, **how(number, folder))
        except Stop:
            pass
        finally:
            journal.FLUSH_SECONDS = seconds
    return [place / "s" for place in places]


def stop(_: Any) -> None:
    """Stop a run, as its progress."""
    raise Stop


def readers(stem: Path, out: Path, run: Callable[..., Any]) -> dict[str, Callable[[], Any]]:
    """Return what reads records, by name; ``run`` makes the run of this record again."""
    from unmix_cli import status
    from unmix_cli.config_file import read

    import unmix
    from unmix.commands.verify import verify
    from unmix.outputs.atomic import replaceable
    from unmix.outputs.names import listed
    from unmix.runs.files.completed import CompletedRun
    from unmix.runs.files.finished import state_of_run

    scene, record = stem.parent.parent / "s.hdr", stem.with_name("s_run.json")
    return {
        "verify": lambda: verify(stem, everything=True),
        "report": lambda: unmix.report(stem, out / "r.html", overwrite=True),
        "folder page": lambda: unmix.report(stem.parent, out / "f.html", overwrite=True),
        "compare": lambda: unmix.compare(stem, stem),
        "status": lambda: state_of_run(stem),
        "names": lambda: listed(stem.parent, stem.name),
        "status by command": lambda: quiet(status.command, str(stem), "--json"),
        "export": lambda: unmix.export(stem, out / "e", format="envi", style=True, split=True, overwrite=True),
        "stac": lambda: unmix.stac(stem, overwrite=True),
        "config": lambda: read(record, "run"),
        "ours": lambda: replaceable(sorted(stem.parent.glob("s_*")), True, "`out_dir`"),
        "skipping": lambda: CompletedRun({"method": "nnls"}, {"data": {}}).is_there(stem.parent, stem.name),
        "a second run": lambda: unmix.run(scene, count=2, out_dir=stem.parent, skip_existing=True, device="cpu"),
        "the same run": lambda: run(scene, out_dir=stem.parent, skip_existing=True),
    }


def quiet(command: Any, *words: str) -> None:
    """Run a command of click without its output."""
    with contextlib.redirect_stdout(io.StringIO()):
        command.main(list(words), standalone_mode=False)


def readers_of_journal(stem: Path, run: Callable[..., Any]) -> dict[str, Callable[[], Any]]:
    """Return what reads journals, by name; ``run`` continues the run of this journal."""
    from unmix_cli import status

    from unmix.runs.files.finished import state_of_run

    scene = stem.parent.parent / "s.hdr"
    return {
        "status of a journal": lambda: state_of_run(stem),
        "status of a journal by command": lambda: quiet(status.command, str(stem)),
        "a continued run": lambda: run(scene, out_dir=stem.parent),
    }


def places(value: Any, path: tuple = ()) -> Iterator[tuple]:
    """Yield the places of all values within a record."""
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield (*path, key)
        yield from places(value[key], (*path, key))


def edited(record: dict[str, Any], draw: random.Random) -> tuple[str, str]:
    """Return the text of a record with some places changed, and what was changed."""
    from unmix.outputs.digests import record_digest

    record = copy.deepcopy(record)
    said = change(record, draw)
    if draw.random() < 0.5:
        with contextlib.suppress(Exception):
            record["digest"] = record_digest(record)
    text = text_of(record, draw)
    return (text if draw.random() < 0.98 else text[: draw.randrange(len(text))]), said


def edited_journal(entries: list[Any], draw: random.Random) -> tuple[str, str]:
    """Return the text of a journal with some places changed, each entry with its CRC-32, and what was changed."""
    record = {str(number): copy.deepcopy(entry) for number, entry in enumerate(entries)}
    said = change(record, draw)
    texts = [text_of(entry, draw).encode() for entry in record.values()]
    return "".join(f"{zlib.crc32(text):08x} {text.decode()}\n" for text in texts), said


def change(record: dict[str, Any], draw: random.Random) -> str:
    """Change one to three places of a record, and return what was changed."""
    said = []
    for _ in range(draw.choice((1, 1, 2, 3))):
        top = draw.choice(list(record))
        path = draw.choice([(top,), *((top, *inner) for inner in places(record[top]))])
        holder = record
        for key in path[:-1]:
            holder = holder[key]
        how, key = draw.choice(("odd", "odd", "odd", "gone", "twice", "other", "deep")), path[-1]
        said.append(f"{how} {'.'.join(map(str, path))}")
        if how == "odd":
            holder[key] = copy.deepcopy(draw.choice(ODD))
        elif how == "gone":
            del holder[key]
        elif how == "other":
            holder[key] = copy.deepcopy(record[draw.choice(list(record))])
        elif how == "deep":
            for _ in range(draw.choice((3, 40, 400))):
                holder[key] = draw.choice(([holder[key]], {"x": holder[key]}))
        elif isinstance(holder, list):
            holder.insert(0, copy.deepcopy(holder[key]))
        else:
            holder[f"{key}x"] = copy.deepcopy(holder[key])
        if not record:
            break
    return ", ".join(said)


def text_of(value: Any, draw: random.Random) -> str:
    """Return a value as JSON, with infinities as Python or another program would write them."""
    try:
        sys.set_int_max_str_digits(0)
        return json.dumps(value).replace("Infinity", draw.choice(("Infinity", "1e400")))
    finally:
        sys.set_int_max_str_digits(4300)


def check(write: Callable[[], Any], readers: dict[str, Callable[[], Any]]) -> Iterator[tuple[str, str]]:
    """Give a file to every reader; yield what became of it, the reader and "read", "refused" or a traceback."""
    import unmix

    for name, read in readers.items():
        write()
        try:
            read()
            end = "read"
        except unmix.UnmixError as error:
            end = "refused" if "\n" not in str(error) and 0 < len(str(error)) < 2000 else f"not one line: {error!r}"
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:
            end = traceback.format_exc()
        yield name, end


def fuzz(folder: Path, count: int, seed: int = 0, first: int = 0) -> tuple[Counter, list[str]]:
    """Edit so many records and journals and return what became of them, and the findings."""
    import logging

    import unmix

    stems, out, ends, findings = runs(folder), folder / "out", Counter(), []
    records = [json.loads(stem.with_name("s_run.json").read_text()) for stem in stems]
    journals = [stem.parent / "cut/s_run.journal.part" for stem in stems]
    entries = [[json.loads(line[9:]) for line in path.read_text().splitlines()] for path in journals]
    assert all("lines" in one[-1] for one in entries), entries
    out.mkdir()
    logging.disable(logging.CRITICAL)
    with contextlib.ExitStack() as stack, warnings.catch_warnings():
        stack.callback(logging.disable, logging.NOTSET)
        warnings.simplefilter("error", RuntimeWarning)  # which would reach a terminal
        for number in range(first, first + count):
            draw = random.Random(seed * 10**9 + number)
            which = draw.randrange(len(stems))
            stem, options = stems[which], how(which, folder)
            run = functools.partial(unmix.run, **options)
            if number % 4 == 3:
                text, said = edited_journal(entries[which], draw)
                some = readers_of_journal(folder / "again/s", run)

                def write(text: str = text, which: int = which) -> None:
                    shutil.rmtree(folder / "again", ignore_errors=True)
                    shutil.copytree(journals[which].parent, folder / "again")
                    (folder / "again/s_run.journal.part").write_text(text)
            else:
                text, said = edited(records[which], draw)
                some = readers(stem, out, run)

                def write(text: str = text, stem: Path = stem) -> None:
                    stem.with_name("s_run.json").write_text(text)

            for name, end in check(write, some):
                ends[name, end if end in ("read", "refused") else "finding"] += 1
                if end not in ("read", "refused"):
                    findings.append(f"file {number} of run {which} ({said}), {name}: {end}")
                    print(findings[-1], flush=True)
    return ends, findings


def main() -> None:
    """Edit records and journals as the command line says, and tell what became of them."""
    count, seed, first = (*map(int, sys.argv[1:4]), *(0, 0)[max(0, len(sys.argv) - 2) :])
    with tempfile.TemporaryDirectory() as scratch:
        found, wrong = fuzz(Path(scratch), count, seed, first)
    print(f"{count} records and journals: {len(wrong)} findings; {dict(sorted(found.items()))}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
