"""`unmix run`: endmembers, then certified abundances."""

import contextlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from unmix.errors import MethodError, OutputError, UnmixError
from unmix.io.export import FORMATS
from unmix.methods import METHODS, SOLVERS

from . import options
from .main import NO_MEMORY
from .progress import progress

EVERY_SCENE_FAILED, SOME_FAILED = 1, 4
# When the next scene's first bytes are asked for, and how many.
NEARLY, AHEAD = 0.8, 256 * 2**20


@click.command("run")
@click.argument("cubes", nargs=-1, metavar="CUBE...", type=click.Path(path_type=Path))
@click.option("--list", "listed", type=click.Path(path_type=Path, allow_dash=True), metavar="FILE",
              help="More cubes, one a line, or with NUL between them (find -print0); - is stdin.")  # fmt: skip
@click.option(
    "--method",
    type=click.Choice(list(METHODS)),
    default="fcls",
    show_default=True,
    help="The constraints: " + "; ".join(f"{m.name}: {m.summary}" for m in METHODS.values()) + ".",
)
@click.option(
    "--solver",
    type=click.Choice(list(SOLVERS)),
    default=None,
    help="How: "
    + "; ".join(f"{s.name}: {s.summary}" for s in SOLVERS.values())
    + ".  [default: active-set, or direct without a search]",
)
@click.option(
    "-e",
    "--endmembers",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Spectra to use: CSV, ENVI or MATLAB library, text of the USGS or ECOSTRESS, or a folder of such.  [default: "
    "extracted from the cube]",
)
@click.option("--select", metavar="A,B*,...", help="Of these, the ones with such names or classes; !A leaves out.")
@options.extraction
@options.outputs
@click.option("--skip-existing", is_flag=True, help="Leave scenes alone that are finished, with the same options.")
@click.option(
    "--device",
    default="auto",
    metavar="NAME",
    show_default=True,
    help="auto (the first GPU, else the CPU), cpu, cuda or cuda:K.",
)
@options.budget
@options.gpu_memory
@click.option("--streams", type=click.IntRange(1), default=4, metavar="K", show_default=True, help="Blocks in flight.")
@click.option("--residual", is_flag=True, help="Also write the residual cube, y - E a.")
@click.option("--certificate", is_flag=True, help="Also write kappa, delta and the steps of each pixel.")
@click.option(
    "--top", type=click.IntRange(1), metavar="K",
    help="Write only the K largest abundances of each pixel, and whose they are: STEM_abundance and STEM_index.",
)  # fmt: skip
@click.option("--ortho", is_flag=True, help="Also place the maps of a swath on the map, by its lookup table (EMIT).")
@click.option(
    "--format",
    type=click.Choice(list(FORMATS)),
    default="envi",
    show_default=True,
    help="Of the maps: " + "; ".join(f"{f.name}: {f.summary}" for f in FORMATS.values()) + ".",
)
@options.reading
@click.option("--json", "as_json", is_flag=True, help="A JSON line for each scene on stdout.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@click.option(
    "--progress",
    "progress_kind",
    type=click.Choice(["auto", "bar", "json", "none"]),
    default="auto",
    show_default=True,
    help="A bar on a terminal, JSON lines, or nothing; on stderr.",
)
@options.logs
def command(
    cubes: tuple[Path, ...],
    listed: Path | None,
    as_json: bool,
    progress_kind: str,
    count: str | None,
    verbose: bool,
    quiet: bool,
    log_file: str | None,
    **settings: Any,
) -> int:
    """Unmix scenes: endmembers (extracted, or -e FILE), then abundances, RMSE and a certificate for every pixel.

    Outputs stand beside the cube: STEM_abundance, STEM_rmse, STEM_endmembers and STEM_run.json, the last when all is
    done. Exit code 0 means that every pixel of an exact solver is certified. Library and cube must be in one unit:
    the scale factor and gains of the header are applied, or --scale instead.

    A run that was cut off (Ctrl-C, kill -9, a full disk, a power loss) goes on from what was flushed when the same command is
    given again. Of many cubes, one that fails does not stop the others (exit code 4):
    find /archive -name '*.hdr' -print0 | unmix run --list - --skip-existing
    """
    from unmix import run

    log = options.set_up_log(verbose, quiet, log_file)
    settings["count"] = options.number_or_auto(count)
    cubes = (*cubes, *read_list(listed)) if listed is not None else cubes
    if not cubes:
        raise click.UsageError("name a CUBE, or a --list of some")
    refuse_one_stem(cubes, settings["out_dir"], settings["dataset"], settings["wavelengths"])
    codes: list[int] = []
    words = {"done": 0, "skipped": 0, "failed": 0}
    for cube, following in zip(cubes, (*cubes[1:], None)):
        try:
            with progress(progress_kind, cube.name) as report:
                result = run(cube, progress=looking_ahead(report, following), command=sys.argv, **settings)
        except (UnmixError, MemoryError) as error:
            if isinstance(error, MemoryError):
                error = OutputError(f"{cube}: {NO_MEMORY}")
            if as_json:
                click.echo(json.dumps({"input": {"path": str(cube)}, "error": str(error)}))
            if len(cubes) == 1 or (isinstance(error, MethodError) and not codes):
                raise
            log.error(str(error))
            codes.append(error.exit_code)
            words["failed"] += 1
            continue
        words["skipped" if result.get("skipped") else "done"] += 1
        codes.append(0 if result.get("certified", True) or not result.get("exact", True) else 1)
        log.info(sentence(cube, result, settings["out_dir"]))
        if as_json or result.get("dry_run"):
            click.echo(json.dumps(result))
    if len(cubes) > 1:
        log.info(f"{len(cubes)} scenes: " + ", ".join(f"{count} {word}" for word, count in words.items() if count))
    if len(set(codes)) == 1:
        return codes[0]
    return SOME_FAILED if 0 in codes else EVERY_SCENE_FAILED


def read_list(path: Path) -> list[Path]:
    """The cubes that a file names, or stdin: between NULs where there are any, else one a line."""
    try:
        raw = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as error:
        raise click.UsageError(f"--list {path}: {error.strerror}") from None
    raw = raw.removeprefix(b"\xef\xbb\xbf")
    names = raw.split(b"\0") if b"\0" in raw else raw.splitlines()
    return [Path(os.fsdecode(name)) for name in names if name.strip()]


def looking_ahead(report: Callable[[int, int], None] | None, following: Path | None) -> Callable[[int, int], None]:
    """The report of a scene, which also lets the system read the first of the next one while the last of this one is written."""
    asked = False

    def both(done: int, total: int) -> None:
        nonlocal asked
        if following is not None and not asked and done >= NEARLY * total:
            asked = True
            will_need(following)
        if report is not None:
            report(done, total)

    return both


def will_need(cube: Path) -> None:
    """Ask the system to read the beginning of a cube's data ahead."""
    for path in (cube, *(cube.with_suffix(ending) for ending in (".img", ".dat", "") if cube.suffix.lower() == ".hdr")):
        with contextlib.suppress(OSError), open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, AHEAD, os.POSIX_FADV_WILLNEED)


def refuse_one_stem(
    cubes: tuple[Path, ...], out_dir: Path | None, dataset: str | None, wavelengths: str | None
) -> None:
    """Two inputs that would write the same outputs are a usage error; inputs that do not open are left for later."""
    from unmix import open_cube

    seen: dict[tuple[Path, str], Path] = {}
    for cube in cubes if len(cubes) > 1 else ():
        try:
            stem = open_cube(cube, dataset, wavelengths).stem
        except UnmixError:
            continue
        key = ((out_dir or cube.parent).resolve(), stem)
        if key in seen:
            hint = "run them one by one, each with its own -o" if out_dir else "use -o, or run them one by one"
            raise click.UsageError(f"{seen[key]} and {cube} have one stem and would write the same outputs; {hint}")
        seen[key] = cube


def sentence(cube: Path, result: dict[str, Any], out_dir: Path | None) -> str:
    """What became of a scene, in one line, and where its outputs are."""
    if result.get("skipped"):
        return f"{cube}: done already, skipped"
    if result.get("dry_run"):
        return f"{cube}: nothing was done (--dry-run)"
    pixels = result["pixels"]
    words = "infinite" if result["worst_kappa"] is None else f"{result['worst_kappa']:.1e}"
    proof = f"{pixels['certified']} of {pixels['solved']} pixels certified, worst κ {words}"
    place = (out_dir or cube.parent) / min(result["digests"]).replace("_abundance", "_*", 1).rpartition(".")[0]
    masked = pixels["masked"] + pixels["partly_nodata"]
    p = len(result["endmembers"]["names"])
    return (
        f"{cube}: {result['method']} with {p} endmembers on {result['device']}: {proof}"
        + (f", {masked} masked" if masked else "")
        + f"; {result['seconds']['total']:.2f} s; {place}"
    )
