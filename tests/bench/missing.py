"""What a library lacks: ``python tests/bench/missing.py [chosen | table | said] [DATA [SEED]]``.

Scenes of `accuracy.py` (three to six minerals of USGS's 498 spectra, brightness that varies by 30 %, spectra by 5 %, 35
dB; `patches`: 4 to 10 % from pixel to pixel), unmixed by fcls with all of their minerals but one: how often the
spectrum that is named first is the missing one, another one, and how often none is named. The same with nothing
missing, where nothing should be said. `chosen` takes the scenes on which the constants of
`unmix.features.missing.scene` were chosen; `table`, the default, others, drawn after that.

`said`: scenes of all families from SEED on, whose true spectra are the library, without and with a material that 5 to
30 % of the pixels hold (above 10 %), nothing named: how often something is said to be missing, and how often the page
has a green bar. A line for each scene; scenes with haze, which no material has, are counted apart.
"""

import logging
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import families
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from conftest import write_cube

import unmix
from unmix.library import Endmembers, load
from unmix.pages.scene_page import verdict

KINDS = {"soft": (families.soft, 30), "patches": (families.patches, 30)}
FIRST = {"chosen": 20_000, "table": 30_000}


def usgs(data: Path) -> Endmembers:
    """Return the USGS library on the bands of the scenes."""
    library = load(data / "libraries/USGS_1995_Library.mat")
    assert library.wavelengths is not None
    order = np.argsort(library.wavelengths)[::2]
    return replace(library, matrix=library.matrix[order], wavelengths=library.wavelengths[order], fwhm=None)


def scenes(
    kind: str, first: int, count: int, data: Path, library: Endmembers
) -> Iterator[tuple[np.ndarray, list[str], str]]:
    """Yield cubes, the names of their minerals, and which of these is left out."""
    unit = library.matrix / np.linalg.norm(library.matrix, axis=0)
    for seed in range(first, first + count):
        scene = KINDS[kind][0](seed, data)
        names = [library.names[j] for j in (unit.T @ scene.spectra).argmax(axis=0)]
        yield scene.cube, names, names[int(np.random.default_rng(seed).integers(len(names)))]


FAMILIES = {
    "soft": families.soft,
    "patches": families.patches,
    "flat": families.flat,
    "mixed": families.mixed,
    "level": lambda seed, data: families.mixed(seed, data, True),
}


def lacking(first: int, count: int, data: Path) -> Iterator[tuple[str, np.ndarray, np.ndarray, bool]]:
    """Yield names of scenes, cubes, spectra that are given, and whether one is left out; ``count`` seeds a family."""
    for family, draw in FAMILIES.items():
        for seed in range(first, first + count):
            scene = draw(seed, data)
            there = (scene.fractions > 0.1).mean(axis=(0, 1))
            some = np.flatnonzero((there > 0.05) & (there < 0.3))
            if len(some):
                gone = int(np.random.default_rng(seed).choice(some))
                kind = "haze" if family == "mixed" and "dark" in scene.name else family
                for lacks in (True, False):
                    E = np.delete(scene.spectra, gone, axis=1) if lacks else scene.spectra
                    yield f"{kind} {seed}", scene.cube, E, lacks


def print_said(data: Path, first: int) -> None:
    """Print what runs and their pages say of scenes with and without all their materials."""
    table: dict[tuple[bool, bool], Counter[str]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name, cube, E, lacks in lacking(first, 24, data):
            path = write_cube(Path(scratch) / "s.hdr", cube)
            library = Endmembers(tuple(f"material {j}" for j in range(E.shape[1])), E, None)
            report = unmix.run(path, endmembers=library, out_dir=scratch, overwrite=True)
            bar = verdict(report).split('"')[1].removeprefix("verdict").strip() or "green"
            found = report["missing"]
            word = "silent" if not found else "is" if found["is_clear"] else "may be"
            table.setdefault((name.startswith("haze"), lacks), Counter()).update([word, bar])
            over = report.get("misfit_over_noise", {}).get("over_noise")
            print(f"{name:14} {'one left out' if lacks else 'all':12} {word:7} {bar:6} {over}", flush=True)
    for (haze, lacks), n in sorted(table.items()):
        scenes = n["is"] + n["may be"] + n["silent"]
        print(
            f"{'haze, ' * haze}{'one left out' if lacks else 'all'}: {scenes} scenes, said {scenes - n['silent']} "
            f"({n['may be']} as may be), green {n['green']}"
        )


def main(which: str = "table", data: str = "", seed: str = "40000") -> None:
    logging.getLogger("unmix").setLevel(logging.ERROR)
    folder = Path(data or Path(__file__).parents[3] / "shared/data")
    if which == "said":
        return print_said(folder, int(seed))
    library = usgs(folder)
    waves = f"{{{','.join(map(str, library.wavelengths))}}}"
    print(
        "| scenes | | missing one first | among the first five | another first | none named |\n| --- | --- | --- | --- "
        "| --- | --- |"
    )
    with tempfile.TemporaryDirectory() as scratch:
        for kind, (_, count) in KINDS.items():
            said: dict[bool, list[str]] = {True: [], False: []}
            seconds = []
            for cube, names, gone in scenes(kind, FIRST[which], count, folder, library):
                path = write_cube(Path(scratch) / "s.hdr", cube, wavelength=waves, wavelength_units="Nanometers")
                for lacks in (True, False):
                    kept = library.take([library.names.index(name) for name in names if not (lacks and name == gone)])
                    began = time.perf_counter()
                    found = unmix.run(path, endmembers=kept, names=library, out_dir=scratch, overwrite=True)["missing"]
                    seconds.append(time.perf_counter() - began)
                    ranked = [one["name"] for one in found["candidates"]] if found else []
                    rank = "first" if ranked[:1] == [gone] else "among" if gone in ranked else "other"
                    said[lacks].append(rank if ranked else "unnamed" if found else "silent")
            for title, some in ((f"{kind}, the first ten", said[True][:10]), (f"{kind}, all {count}", said[True])):
                n = Counter(some)
                cells = n["first"], n["first"] + n["among"], n["among"] + n["other"], n["unnamed"] + n["silent"]
                print(f"| {title} | one left out | " + " | ".join(map(str, cells)) + " |")
            n = Counter(said[False])
            named = count - n["silent"] - n["unnamed"]
            print(
                f"| {kind}, all {count} | nothing left out | | | {named} | {n['silent']} silent, {n['unnamed']} "
                "unnamed |",
                flush=True,
            )
            print(f"<!-- {np.median(seconds):.2f} s a run in the median -->", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
