"""What `run` and `batch` share: the options of an unmixing, the list of scenes, and what became of each."""

import json
import logging
import os
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from unmix.errors import OutputError, UnmixError
from unmix.io.export import FORMATS
from unmix.methods import METHODS, SOLVERS

from . import options
from .main import NO_MEMORY

EVERY_SCENE_FAILED, SOME_FAILED, STDOUT_FAILED = 1, 4, 1

unmixing = options.combine(
    click.option(
        "--method",
        type=options.one_of(METHODS),
        default="fcls",
        show_default=True,
        help="The constraints: " + "; ".join(f"{m.name}: {m.summary}" for m in METHODS.values()) + ".",
    ),
    click.option(
        "--solver",
        type=options.one_of(SOLVERS),
        default=None,
        help="How: "
        + "; ".join(f"{s.name}: {s.summary}" for s in SOLVERS.values())
        + ".  [default: active-set, or direct without a search]",
    ),
    click.option(
        "-e",
        "--endmembers",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Spectra to use: CSV, ENVI or MATLAB library, text of the USGS or ECOSTRESS, or a folder of such.  [default: "
        "extracted from the cube]",
    ),
    click.option("--select", metavar="A,B*,...", help="Of these, the ones with such names or classes; !A leaves out."),
    options.extraction,
    options.outputs,
    click.option("--skip-existing", is_flag=True, help="Leave scenes alone that are finished, with the same options."),
    click.option(
        "--device",
        default="auto",
        metavar="NAME",
        show_default=True,
        help="auto (the first GPU, else the CPU), cpu, cuda, cuda:K, cuda:K,L or cuda:all.",
    ),
    options.budget,
    options.gpu_memory,
    click.option(
        "--streams", type=click.IntRange(1), default=4, metavar="K", show_default=True, help="Blocks in flight."
    ),
    click.option("--residual", is_flag=True, help="Also write the residual cube, y - E a."),
    click.option("--certificate", is_flag=True, help="Also write kappa, delta and the steps of each pixel."),
    click.option(
        "--max-delta",
        type=float,
        default=1e-4,
        metavar="D",
        show_default=True,
        help="Certified are abundances that are proved to be no further than this from the optimum; of others only the fit is.",
    ),
    click.option(
        "--top",
        type=click.IntRange(1),
        metavar="K",
        help="Write only the K largest abundances of each pixel, and whose they are: STEM_abundance and STEM_index.",
    ),
    click.option(
        "--ortho", is_flag=True, help="Also place the maps of a swath on the map, by its lookup table (EMIT)."
    ),
    click.option(
        "--format",
        type=options.one_of(FORMATS),
        default="envi",
        show_default=True,
        help="Of the maps: " + "; ".join(f"{f.name}: {f.summary}" for f in FORMATS.values()) + ".",
    ),
    options.reading,
)

scenes = options.combine(
    click.argument("cubes", nargs=-1, metavar="CUBE...", type=click.Path(path_type=Path)),
    click.option(
        "--list",
        "listed",
        type=click.Path(path_type=Path, allow_dash=True),
        metavar="FILE",
        help="More cubes, one a line, or with NUL between them (find -print0); - is stdin. One that is named twice counts once; of "
        "several, spectral libraries and outputs of unmix are left out. An empty list is no error.",
    ),
    click.option(
        "--shard",
        metavar="I/N",
        help="Only the I-th of every N cubes, I from 1: for array jobs, each with the same list.",
    ),
)

reporting = options.combine(
    click.option(
        "--uncertified",
        type=options.one_of(["fail", "ok"]),
        default="fail",
        show_default=True,
        help="Whether pixels that an exact solver left open make the exit code 1, or are only counted and named.",
    ),
    click.option("--json", "as_json", is_flag=True, help="A JSON line for each scene on stdout."),
    click.option(
        "--progress",
        "progress_kind",
        type=options.one_of(["auto", "bar", "json", "none"]),
        default="auto",
        show_default=True,
        help="A bar on a terminal, JSON lines, or nothing; on stderr.",
    ),
)  # fmt: skip


def chosen_scenes(
    cubes: tuple[Path, ...], listed: Path | None, shard: str | None, settings: dict[str, Any]
) -> tuple[Path, ...]:
    """Return the cubes of the command line and of the list, each once, or this shard's.

    A list without any is none of the user's faults: what searched for them found nothing to do.

    Raises
    ------
    click.UsageError
        Where none is named, or two of one stem are.
    """
    named = (*cubes, *read_list(listed)) if listed is not None else cubes
    if listed is None and not named:
        raise click.UsageError("name a CUBE, or a --list of some")
    turn, of = (1, 1) if shard is None else parse_shard(shard)
    many = listed is not None or len(named) > 1
    kept = leave_out(named, is_output, "output of unmix", "outputs of unmix") if many else named
    kept = unique_scenes(kept, settings["out_dir"], settings["dataset"], settings["wavelengths"])
    refuse_outputs_as_inputs(kept, settings["out_dir"])
    kept = kept[turn - 1 :: of]
    kept = leave_out(kept, is_library, "spectral library", "spectral libraries") if many else kept
    if not kept:
        source = f"--list {listed}" if listed is not None else "CUBE..."
        logging.getLogger("unmix").warning(
            f"{source}: no scene is named there{'' if of == 1 else ' for this shard'}; nothing is done"
        )
    return kept


def refuse_outputs_as_inputs(cubes: tuple[Path, ...], out_dir: Path | None) -> None:
    """`click.UsageError` where one scene is an output of another one: it would be replaced before it is read, or while it is."""
    from unmix.outputs.names import SUFFIXES

    writers = {(os.path.realpath(out_dir or cube.parent), cube.stem): cube for cube in cubes}
    for cube in cubes:
        stems = [cube.name.removesuffix(suffix) for suffix in SUFFIXES if cube.name.endswith(suffix)]
        for stem in stems:
            writer = writers.get((os.path.realpath(cube.parent), stem))
            if writer is not None:
                raise click.UsageError(
                    f"{cube}: is an output of {writer}, which this command writes; run them one by one, each with its -o"
                )


def parse_shard(shard: str) -> tuple[int, int]:
    """I and N of ``I/N``."""
    match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", shard, re.ASCII)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise click.UsageError(f"--shard {shard}: write I/N, I from 1 to N, such as 3/16 (sbatch --array=1-16)")
    return int(match[1]), int(match[2])


def leave_out(cubes: tuple[Path, ...], is_one: Callable[[Path], bool], one: str, some: str) -> tuple[Path, ...]:
    """Leave out what a search for cubes finds beside them, and say so."""
    others = [cube for cube in cubes if is_one(cube)]
    if others:
        shown = ", ".join(map(str, others[:3])) + (", …" if len(others) > 3 else "")
        what = f"1 {one} is" if len(others) == 1 else f"{len(others)} {some} are"
        logging.getLogger("unmix").info(f"{what} left out: {shown}")
    return tuple(cube for cube in cubes if cube not in set(others))


def is_library(path: Path) -> bool:
    """Whether that is a spectral library, by its header; of other endings than these nobody asks, for the time it would take."""
    if path.suffix.lower() not in (".hdr", ".sli", ".lib"):
        return False
    from unmix.library import is_envi_library

    return is_envi_library(path)


def is_output(path: Path) -> bool:
    """Whether that is an output of a run, finished or under way."""
    from unmix.outputs.completed import journal_of
    from unmix.outputs.names import SUFFIXES

    stems = [path.name.removesuffix(suffix) for suffix in SUFFIXES if path.name.endswith(suffix)]
    return any(
        os.path.exists(path.parent / f"{stem}_run.json") or os.path.exists(journal_of(path.parent, stem))
        for stem in stems
    )


def read_list(path: Path) -> list[Path]:
    """The cubes that a file names, or stdin: between NULs where there are any, else one a line."""
    if str(path) == "-" and sys.stdin is None:
        raise click.UsageError("--list -: stdin is closed")
    try:
        raw = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as error:
        raise click.UsageError(f"--list {path}: {error.strerror}") from None
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise click.UsageError(f"--list {path}: is UTF-16; write it as UTF-8")
    raw = raw.removeprefix(b"\xef\xbb\xbf")
    names = raw.split(b"\0") if b"\0" in raw else raw.splitlines()
    return [Path(os.fsdecode(name)) for name in names if name.strip()]


def unique_scenes(
    cubes: tuple[Path, ...], out_dir: Path | None, dataset: str | None, wavelengths: str | None
) -> tuple[Path, ...]:
    """Each scene once, however often and by whichever of its files it is named; inputs that do not open are left for later.

    Raises
    ------
    click.UsageError
        Where two scenes would write the same outputs.
    """
    from unmix import open_cube

    cubes = tuple({cube.absolute(): cube for cube in cubes}.values())
    # A stem begins as its file's name does: who shares that with nobody need not be opened.
    names = [(os.path.realpath(out_dir or cube.parent), cube.name.partition(".")[0]) for cube in cubes]
    alike = Counter(names)
    seen: dict[tuple[str, str], tuple[Path, str]] = {}
    kept = []
    for cube, name in zip(cubes, names):
        if alike[name] > 1:
            try:
                scene = open_cube(cube, dataset, wavelengths)
            except UnmixError:
                kept.append(cube)
                continue
            first, data = seen.setdefault((name[0], scene.stem), (cube, os.path.realpath(scene.path)))
            if data != os.path.realpath(scene.path):
                hint = "run them one by one, each with its own -o" if out_dir else "use -o, or run them one by one"
                raise click.UsageError(f"{first} and {cube} have one stem and would write the same outputs; {hint}")
            if first is not cube:
                continue
        kept.append(cube)
    return tuple(kept)


def result_line(cube: Path, result: dict[str, Any], out_dir: Path | None) -> str:
    """What became of a scene, in one line, and where its outputs are."""
    if result.get("skipped"):
        return f"{cube}: done already, skipped"
    if result.get("dry_run"):
        return f"{cube}: nothing was done (--dry-run)"
    pixels = result["pixels"]
    words = "infinite" if result["worst_kappa"] is None else f"{result['worst_kappa']:.1e}"
    proof = f"{pixels['certified']} of {pixels['solved']} pixels certified, worst κ {words}"
    if pixels["fit_certified"]:
        proof += f", {pixels['fit_certified']} only in their fit"
    place = (out_dir or cube.parent) / min(result["digests"]).replace("_abundance", "_*", 1).rpartition(".")[0]
    masked = pixels["masked"] + pixels["partly_nodata"]
    p = len(result["endmembers"]["names"])
    return (
        f"{cube}: {result['method']} with {p} endmember{'s' * (p != 1)} on {result['device']}: {proof}"
        + (f", {masked} masked" if masked else "")
        + f"; {fit_line(result['fit']['relative_rmse'])}"
        + f"; {result['seconds']['total']:.2f} s; {place}"
    )


def fit_line(relative: dict[str, float | None]) -> str:
    """How far the model is from the pixels, as shares of their lengths."""
    from unmix.outputs.judgement import percent

    shares = (percent(float("inf") if value is None else value) for value in relative.values())
    return "relative RMSE {} (95 %: {}, worst {})".format(*shares)


class Outcomes:
    """What became of each scene: a line of JSON on stdout, a sentence in the log, an exit code for all.

    Parameters
    ----------
    count : int
        Scenes in all.
    as_json : bool
        Whether each gets a line on stdout.
    out_dir : Path, optional
        Where outputs go.
    uncertified : {"fail", "ok"}
        Whether open pixels of an exact solver are a failure.
    """

    def __init__(self, count: int, as_json: bool, out_dir: Path | None, uncertified: str = "fail") -> None:
        self.count, self.as_json, self.out_dir, self.uncertified = count, as_json, out_dir, uncertified
        self.codes: list[int] = []
        self.counts = {"done": 0, "skipped": 0, "failed": 0}
        self.stdout_failed = False
        self.log = logging.getLogger("unmix")

    def finished(self, cube: Path, result: dict[str, Any]) -> None:
        """A scene is done, or was skipped."""
        self.counts["skipped" if result.get("skipped") else "done"] += 1
        is_open = result.get("exact", True) and not result.get("certified", True)
        self.codes.append(1 if is_open and self.uncertified == "fail" else 0)
        self.log.info(result_line(cube, result, self.out_dir))
        if self.as_json or result.get("dry_run"):
            self.write(cube, result)

    def failed(self, cube: Path, error: UnmixError | MemoryError) -> None:
        """A scene failed; raises the error again where it is the only one."""
        if isinstance(error, MemoryError):
            error = OutputError(f"{cube}: {NO_MEMORY}")
        if self.as_json:
            self.write(cube, {"input": {"path": str(cube)}, "error": str(error)})
        if self.count == 1:
            raise error
        named = cube.name.partition(".")[0] in str(error)
        self.log.error(str(error) if named else f"{cube}: {error}")
        self.codes.append(error.exit_code)
        self.counts["failed"] += 1

    def write(self, cube: Path, line: dict[str, Any]) -> None:
        """A line of JSON; where stdout is full the others go on, and the exit code tells. (One that was closed ends everything.)"""
        try:
            click.echo(json.dumps({"scene": str(cube)} | line))
        except BrokenPipeError:
            raise
        except OSError as error:
            if not self.stdout_failed:
                self.stdout_failed = True
                self.log.error(f"stdout: {error.strerror}; lines of JSON are missing there")

    def summary(self) -> int:
        """Say how many came to what; returns the exit code of all."""
        if self.count > 1:
            words = self.counts | {"not done": self.count - sum(self.counts.values())}
            self.log.info(
                f"{self.count} scenes: " + ", ".join(f"{count} {word}" for word, count in words.items() if count)
            )
        return exit_code_of(self.codes) or (STDOUT_FAILED if self.stdout_failed else 0)


def exit_code_of(codes: list[int]) -> int:
    """Return one exit code for many scenes: theirs where they have one, else whether some or all failed."""
    if len(set(codes)) <= 1:
        return codes[0] if codes else 0
    return SOME_FAILED if 0 in codes else EVERY_SCENE_FAILED
