"""Code that `run` and `batch` share: options, the list of scenes, and the report of each scene's outcome."""

import contextlib
import itertools
import logging
import os
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import click

from unmix.errors import CubeError, MethodError, UnmixError
from unmix.io.opening import read_plain
from unmix.io.remote import document_of, exists, is_remote, located

from . import options
from .config import CONFIG, show_recorded
from .main import print_err
from .outcomes import exit_code_of, place_of

cubes = click.argument("cubes", nargs=-1, metavar="CUBE...", type=options.Input())
list_of_cubes = partial(options.value, "--list listed", type=options.Input(allow_dash=True), metavar="FILE")
# Documents that are read at a time, to learn the names of their scenes: a server answers each after a while.
AT_ONCE = 8
scenes = options.combine(
    cubes,
    list_of_cubes(
        "Read names of cubes from FILE (- is stdin), one a line or separated by NUL (find -print0). Duplicates, and "
        "of several cubes spectral libraries and maps of unmix that hold no spectra, are left out. An empty list is no "
        "error. FILE "
        "may be a STAC catalogue, collection or search."
    ),
    options.value(
        "--shard",
        "Process only the I-th of every N cubes, I from 1, as one of N array jobs.",
        metavar="I/N",
    ),
)
jobs = options.value(
    "--jobs",
    "Unmix N scenes at a time, each in a process of its own with a share of the cores and, of several GPUs, with one "
    "of them; each "
    "takes --memory and 0.2 GB. Maps are the same bytes.",
    type=click.IntRange(1),
    default=1,
    metavar="N",
)
reporting = options.combine(
    options.value(
        "--uncertified",
        "Exit code when an exact solver leaves pixels uncertified: 1 (fail) or 0 (ok).",
        type=("fail", "ok"),
        default="fail",
    ),
    options.value(
        "--failed",
        "Write a table of the scenes that failed, and why, to FILE; with none if all are done.",
        type=options.Local(),
        metavar="FILE",
    ),
    options.as_json,
    options.progress("Show progress on stderr: auto (a bar on a terminal, else nothing), bar, json (lines) or none."),
)


def refuse_cubes_of_one(cubes: tuple[Path, ...], settings: dict[str, Any]) -> None:
    """Raise `click.UsageError` if a cube with numbers for each pixel of one scene is given for several scenes."""
    if len(cubes) < 2:
        return
    from unmix.maps.derived.noise import is_text

    for option, one in of_scenes().items():
        given = str(settings.get(option) or "")
        if given and given not in one.choices and "{" not in given and not is_text(given):
            raise click.UsageError(
                f"--{option} {given}: holds numbers for each pixel of one scene, but {len(cubes)} scenes are given; "
                "name one for each "
                "with {stem}"
            )


def of_scenes() -> dict[str, Any]:
    """Return the options that may name a cube of one scene, and their declarations."""
    from unmix.settings import settings_of
    from unmix.settings.run import RunSettings

    return {name: one for name, one in settings_of(RunSettings).items() if one.is_of_scene}


def chosen_scenes(
    cubes: tuple[Path, ...], listed: Path | None, shard: str | None, settings: dict[str, Any]
) -> tuple[Path, ...]:
    """Return the cubes of the command line and the list, each once, or the shard's share of them."""
    # An empty list is no error: the search that made it found nothing to do.
    show_recorded(click.get_current_context())
    named = (*cubes, *read_list(listed)) if listed is not None else cubes
    if listed is None and not named:
        raise click.UsageError("give at least one CUBE, or a --list of cubes")
    shard_number, shards = (1, 1) if shard is None else parse_shard(shard)
    named = tuple(scene for cube in named for scene in of_each_date(cube, settings["dataset"]))
    several = listed is not None or len(named) > 1
    kept = leave_out(named, is_output, "output of unmix", "outputs of unmix") if several else named
    kept = unique_scenes(kept, settings["out_dir"], settings["dataset"], settings["wavelengths"])
    refuse_outputs_as_inputs(kept, settings["out_dir"], files_beside(kept, listed, settings))
    refuse_cubes_of_one(kept, settings)
    kept = kept[shard_number - 1 :: shards]
    kept = leave_out(kept, is_library, "spectral library", "spectral libraries") if several else kept
    if not kept:
        source = f"--list {listed}" if listed is not None else "CUBE..."
        logging.getLogger("unmix").warning(
            f"{source}: no scene is named{'' if shards == 1 else ' for this shard'}; there is nothing to do"
        )
    return kept


def scenes_in(cube: Path, dataset: str | None) -> tuple[list[Path], list[str]]:
    """Return a file's scene, or a scene for each of its times, and these times; no times of a single scene."""
    if dataset is not None or cube.suffix.lower() not in (".nc", ".nc4", ".h5", ".he5", ".hdf5"):
        return [cube], []
    from unmix.io.formats.products import dates_in

    dates = dates_in(cube)
    return [Path(f"{cube}#{date}") for date in dates] or [cube], dates


def of_each_date(cube: Path, dataset: str | None) -> list[Path]:
    """Return the scenes of a file, and say where there are several."""
    scenes, dates = scenes_in(cube, dataset)
    if dates:
        logging.getLogger("unmix").info(f"{cube}: has {len(dates)} times; each is a scene")
    return scenes


def files_beside(cubes: tuple[Path, ...], listed: Path | None, settings: dict[str, Any]) -> list[tuple[str, Path]]:
    """Return the files read beside scenes and library, each with its option: list, configuration, scenes' masks."""
    from unmix.outputs.names import RECORD, file_of
    from unmix.scene import name_for

    # The record of a run that is repeated is left out: the same run's record may replace it.
    config = click.get_current_context().meta.get(CONFIG)
    files = [("--list", listed), ("--config", None if config is None or config.name.endswith(RECORD) else config)]
    for option in ("mask", "mask_out", "extract_mask", *of_scenes()):
        given = settings.get(option)
        texts = [given] if isinstance(given, str) else given or ()
        for text, cube in itertools.product([text for text in map(str, texts) if "{" in text], cubes):
            with contextlib.suppress(
                MethodError, CubeError
            ):  # the name cannot be filled in for this scene; opening it says why
                files.append((f"--{option.replace('_', '-')}", file_of(name_for(text, cube))))
    return [(option, path) for option, path in files if path is not None]


def refuse_outputs_as_inputs(
    cubes: tuple[Path, ...], out_dir: Path | None, others: list[tuple[str, Path]], suffixes: Sequence[str] = ()
) -> None:
    """Raise `click.UsageError` if a scene or another file is an output of a scene, which would replace it."""
    writers = {(os.path.realpath(place_of(out_dir, cube)), cube.stem): cube for cube in cubes}
    for option, path in (*(("", cube) for cube in cubes), *others):
        for stem in stems_of(path, suffixes):
            writer = writers.get((os.path.realpath(path.parent), stem))
            if writer is not None:
                advice = (
                    f"give the file of {option} another name" if option else "run them one by one, each with its own -o"
                )
                raise click.UsageError(
                    f"{path}: has the name of an output of {writer}, which this command would replace; {advice}"
                )


def stems_of(path: Path, suffixes: Sequence[str] = ()) -> list[str]:
    """Return the stems of scenes with an output of this name; ``suffixes`` are by default those of a run's outputs."""
    from unmix.outputs.names import SUFFIXES

    return [path.name.removesuffix(suffix) for suffix in suffixes or SUFFIXES if path.name.endswith(suffix)]


def map_endings() -> list[str]:
    """Return the endings of files of maps, of all formats."""
    from unmix.io.export import FORMATS

    return list({ending: None for form in FORMATS.values() for ending in form.endings})


def parse_shard(shard: str) -> tuple[int, int]:
    """Return I and N of ``I/N``."""
    match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", shard, re.ASCII)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise click.UsageError(f"--shard {shard}: write I/N, I from 1 to N, such as 3/16 (sbatch --array=1-16)")
    return int(match[1]), int(match[2])


def leave_out(
    cubes: tuple[Path, ...], recognise: Callable[[Path], bool], singular: str, plural: str
) -> tuple[Path, ...]:
    """Return the cubes that ``recognise`` does not match, and log which it matches."""
    others = [cube for cube in cubes if recognise(cube)]
    if others:
        shown = ", ".join(map(str, others[:3])) + (", …" if len(others) > 3 else "")
        number = f"1 {singular} is" if len(others) == 1 else f"{len(others)} {plural} are"
        logging.getLogger("unmix").info(f"{number} left out: {shown}")
    left_out = set(others)
    return tuple(cube for cube in cubes if cube not in left_out)


def is_library(path: Path) -> bool:
    """Return whether a path is an ENVI spectral library; only files with its usual endings are opened, to save time."""
    if path.suffix.lower() not in (".hdr", ".sli", ".lib"):
        return False
    from unmix.library import is_envi_library

    return is_envi_library(path)


def is_output(path: Path) -> bool:
    """Return whether a path is an output of a run, finished or not, or a map that is no scene."""
    from unmix.outputs.atomic import is_by_unmix
    from unmix.runs.files.completed import journal_of
    from unmix.settings.maps import images

    ends = (f"_{name}{ending}" for name, one in images().items() if not one.is_scene for ending in map_endings())
    if any(map(path.name.endswith, ends)) and is_by_unmix(path):
        return True
    files = ((path.parent / f"{stem}_run.json", journal_of(path.parent, stem)) for stem in stems_of(path))
    return any(map(exists, itertools.chain.from_iterable(files)))


def read_list(path: Path) -> list[Path]:
    """Read cubes' names from a file or stdin, separated by NUL if any, else by lines; or a catalogue's items."""
    if str(path) == "-" and sys.stdin is None:
        raise click.UsageError("--list -: stdin is closed")
    try:
        raw = sys.stdin.buffer.read() if str(path) == "-" else read_plain(path)
    except (OSError, CubeError) as error:
        raise click.UsageError(f"--list {path}: {getattr(error, 'strerror', None) or error}") from None
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\0" in raw[:2]:
        raise click.UsageError(f"--list {path}: is UTF-16; write it as UTF-8")
    raw = raw.removeprefix(b"\xef\xbb\xbf")
    if raw.lstrip()[:1] == b"{":
        from unmix.features import of_documents

        if str(path) == "-":
            raise click.UsageError("--list -: is JSON, which items are named in; save it in a file")
        listed = of_documents("listed", path, raw)
        if listed is None:
            raise click.UsageError(f"--list {path}: is JSON, but no list of scenes; write a name in each line")
        return [located(name) for name in listed]
    names = raw.split(b"\0") if b"\0" in raw else raw.splitlines()
    texts = dict.fromkeys(os.fsdecode(name) for name in names if name.strip())  # each is looked at on the disk
    return [located(text.strip() if is_remote(text) else text) for text in texts]


def unique_scenes(
    cubes: tuple[Path, ...], out_dir: Path | None, dataset: str | None, wavelengths: str | None
) -> tuple[Path, ...]:
    """Return each scene once, also if its other file is named; `click.UsageError` if two have the same outputs."""
    from unmix import open_cube

    cubes = tuple({cube.absolute(): cube for cube in cubes}.values())
    with ThreadPoolExecutor(AT_ONCE) as pool:
        items = list(pool.map(stem_named_in, cubes))
    # A stem starts with the file name up to its first dot: a cube that shares that with no other need not be opened.
    names = [
        (os.path.realpath(place_of(out_dir, cube)), same_name(stem or cube.name.rpartition("#")[2]).partition(".")[0])
        for cube, stem in zip(cubes, items)
    ]
    name_counts = Counter(names)
    seen: dict[tuple[str, str], tuple[Path, str]] = {}
    kept = []
    for cube, name, stem in zip(cubes, names, items):
        if name_counts[name] > 1:
            try:
                scene = None if stem else open_cube(cube, dataset, wavelengths)
            except UnmixError:
                kept.append(cube)
                continue
            own = os.path.realpath(cube if scene is None else scene.path)
            key = name[0], same_name(stem if scene is None else scene.stem)
            first, data = seen.setdefault(key, (cube, own))
            if data != own:
                hint = "run them one by one, each with its own -o" if out_dir else "use -o, or run them one by one"
                raise click.UsageError(
                    f"{first} and {cube} have one stem, so they would write the same outputs; {hint}"
                )
            if first is not cube:
                continue
        kept.append(cube)
    return tuple(kept)


def stem_named_in(cube: Path) -> str:
    """Return the stem of the scene that a document names, empty for other files and where it cannot be read."""
    from unmix.features import of_documents

    document = document_of(cube)
    with contextlib.suppress(UnmixError):
        return str((of_documents("about", *document) or {}).get("stem", "")) if document else ""
    return ""


def same_name(name: str) -> str:
    """Return the common form of a file's names: accents may be one letter or two; on macOS capitals are ignored."""
    composed = unicodedata.normalize("NFC", name)
    return composed.casefold() if sys.platform == "darwin" else composed


def refuse_one_stem(runs: Sequence[Path]) -> None:
    """Raise `click.UsageError` where two runs of other folders, which are written to one, have the same stem."""
    seen: dict[str, Path] = {}
    for run in runs:
        first = seen.setdefault(same_name(run.name), run)
        if os.path.realpath(first.parent) != os.path.realpath(run.parent):
            raise click.UsageError(
                f"{first} and {run} have one stem, so they would write the same outputs; write {{dir}} in -o, for "
                "their folders"
            )


def for_each(paths: Sequence[Path], do: Callable[[int, Path], None]) -> int:
    """Call ``do`` with number, from 0, and path of each file; log each failure and return the exit code."""
    codes: list[int] = []
    for number, path in enumerate(paths):
        try:
            do(number, path)
        except UnmixError as error:
            if len(paths) == 1:
                raise
            codes.append(error.exit_code)
            about = "" if str(path) in str(error) else f"{path}: "
            print_err(f"error: {about}{error}")
        else:
            codes.append(0)
    return exit_code_of(codes)
