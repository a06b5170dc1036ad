"""Edited records of runs, thousands of them, through every reader: ``python tests/fuzz_records.py COUNT [SEED]`` (`make fuzz`).

A record is edited at one to three random places; half of the edits are given the right digest again, so that they get further. Each
reader has to take it, or to raise an `UnmixError` of one line. Everything else is a finding, printed with the edit that led to it.
"""

import contextlib
import copy
import json
import random
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
# In place of any value; what JSON text can hold, whether or not Python would write it.
ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 7, 2**31, 2**63, 10**400, 0.5, -0.0, float("inf"), float("-inf"), float("nan"), 1e308, 5e-324, "", "x",
    "\ud800", "\udcff", "a\0b", "../../etc/passwd", "µ", "9" * 5000, "envi", "nnls", "auto", [], {}, [None], [[]], {"": None},
    [1, 2, 3],
    {"a": {"b": []}}, "s3://", "http://x/?a", "-inf", "\n", [1e300] * 3, ["x"] * 1000,
)  # fmt: skip


def runs(folder: Path) -> list[Path]:
    """Write a few small runs of different kinds, with a place on a map; return their stems."""
    from conftest import write_csv, write_cube

    import unmix

    rng = np.random.default_rng(1)
    waves, E = np.arange(8) * 100.0 + 500, rng.uniform(0.1, 0.9, (8, 3))
    fields = {"wavelength": "{" + ", ".join(map(str, waves)) + "}", "map info": "{UTM, 1, 1, 5e5, 4e6, 30, 30, 11, North, WGS-84}",
              "acquisition time": "2026-01-02T03:04:05"}  # fmt: skip
    cube = write_cube(folder / "s.hdr", rng.dirichlet(np.ones(3), (6, 5)) @ E.T, "bil", **fields)
    library = write_csv(folder / "e.csv", E, waves)
    ways: list[dict[str, Any]] = [
        {"endmembers": library, "certificate": True, "residual": True}, {"count": 2, "top": 1, "seed": 3},
        {"endmembers": library, "by": "class", "classes": "name", "method": "mesma", "uncertainty": True},
        {"endmembers": library, "method": "nnls", "l1": 0.01, "format": "hdf5", "quantize": 0.001},
    ]  # fmt: skip
    for k, how in enumerate(ways):
        unmix.run(cube, out_dir=folder / str(k), device="cpu", **how)
    return [folder / str(k) / "s" for k in range(len(ways))]


def readers(stem: Path, out: Path) -> dict[str, Callable[[], Any]]:
    """Return what reads records, by name."""
    from unmix_cli.config import read

    import unmix
    from unmix.jobs.verify import verify
    from unmix.outputs.names import listed
    from unmix.outputs.run_files.completed import CompletedRun
    from unmix.outputs.run_files.finished import state_of

    return {
        "verify": lambda: verify(stem, everything=True), "report": lambda: unmix.report(stem, out / "r.html", overwrite=True),
        "folder page": lambda: unmix.report(stem.parent, out / "f.html", overwrite=True),
        "compare": lambda: unmix.compare(stem, stem), "status": lambda: state_of(stem), "names": lambda: listed(stem.parent, stem.name),
        "export": lambda: unmix.export(stem, out / "e", format="envi", style=True, split=True, overwrite=True),
        "stac": lambda: unmix.stac(stem, overwrite=True), "config": lambda: read(stem.with_name("s_run.json"), "run"),
        "skipping": lambda: CompletedRun({"method": "nnls"}, {"data": {}}).is_there(stem.parent, stem.name),
        "a second run": lambda: unmix.run(stem.parent.parent / "s.hdr", count=2, out_dir=stem.parent, skip_existing=True, device="cpu"),
    }  # fmt: skip


def places(value: Any, path: tuple = ()) -> Iterator[tuple]:
    """Yield the places of all values within a record."""
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield (*path, key)
        yield from places(value[key], (*path, key))


def edited(record: dict[str, Any], draw: random.Random) -> tuple[str, str]:
    """Return the text of a record with some places changed, and what was changed."""
    from unmix.outputs.digests import record_digest

    record, said = copy.deepcopy(record), []
    for _ in range(draw.choice((1, 1, 2, 3))):
        top = draw.choice(list(record))
        path = draw.choice([(top,), *((top, *inner) for inner in places(record[top]))])
        holder = record
        for key in path[:-1]:
            holder = holder[key]
        how, key = draw.choice(("odd", "odd", "odd", "gone", "twice", "other", "deep")), path[-1]
        said.append(f"{how} {'.'.join(map(str, path))}")
        if how == "odd":
            holder[key] = draw.choice(ODD)
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
            holder[f"{key}x"] = holder[key]
        if not record:
            break
    if draw.random() < 0.5:
        with contextlib.suppress(Exception):
            record["digest"] = record_digest(record)
    try:
        sys.set_int_max_str_digits(0)
        text = json.dumps(record).replace("Infinity", draw.choice(("Infinity", "1e400")))
    finally:
        sys.set_int_max_str_digits(4300)
    return (text if draw.random() < 0.98 else text[: draw.randrange(len(text))]), ", ".join(said)


def check(stem: Path, text: str, out: Path) -> Iterator[tuple[str, str]]:
    """Give a record to every reader; yield what became of it, the reader and "read", "refused" or a traceback."""
    import unmix

    path = stem.with_name("s_run.json")
    for name, read in readers(stem, out).items():
        path.write_text(text)
        try:
            read()
            end = "read"
        except unmix.UnmixError as error:
            end = "refused" if "\n" not in str(error) and 0 < len(str(error)) < 2000 else f"not one line: {error!r}"
        except BaseException:
            end = traceback.format_exc()
        yield name, end


def fuzz(folder: Path, count: int, seed: int = 0, first: int = 0) -> tuple[Counter, list[str]]:
    """Edit so many records and return what became of them, and the findings."""
    import logging

    stems, out, ends, findings = runs(folder), folder / "out", Counter(), []
    records = [json.loads(stem.with_name("s_run.json").read_text()) for stem in stems]
    out.mkdir()
    logging.disable(logging.CRITICAL)
    try:
        for number in range(first, first + count):
            draw = random.Random(seed * 10**9 + number)
            which = draw.randrange(len(stems))
            text, said = edited(records[which], draw)
            for name, end in check(stems[which], text, out):
                ends[name, end if end in ("read", "refused") else "finding"] += 1
                if end not in ("read", "refused"):
                    findings.append(f"record {number} of run {which} ({said}), {name}: {end}")
    finally:
        logging.disable(logging.NOTSET)
    return ends, findings


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        found, wrong = fuzz(Path(scratch), int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    print(*wrong, sep="\n")
    print(f"{sys.argv[1]} records: {len(wrong)} findings; {dict(sorted(found.items()))}")
    sys.exit(1 if wrong else 0)
