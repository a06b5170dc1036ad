"""Options that commands share, and the log that -v, -q and --log-file control."""

import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from unmix.errors import MethodError, printable
from unmix.io.export import ALIASES
from unmix.io.opening import open_named
from unmix.io.remote import is_remote, located
from unmix.methods import METHODS, SOLVERS, WITHOUT_METHOD

from .main import as_options, print_err

Command = TypeVar("Command", bound=Callable[..., Any])


def combine(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Combine several options into one decorator, in the order given."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


across_gaps = click.option(
    "--across-gaps",
    is_flag=True,
    help="Resample the library by straight lines across gaps in its channels.  [default: a band in a gap is an error]",
)


def one_of(names: Iterable[str]) -> click.Choice:
    """Return an option type that accepts one of the names, in any case."""
    return click.Choice(list(names), case_sensitive=False)


class FormatName(click.Choice):
    """The name of an output format, in any case, or that of GDAL's driver for it."""

    def __init__(self, names: Iterable[str]) -> None:
        super().__init__(list(names), case_sensitive=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(ALIASES.get(str(value).lower(), value), param, ctx)


class Folder(click.Path):
    """A folder for outputs; ``-``, which often means stdout, is refused instead of created."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, file_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if str(value) == "-":
            self.fail("outputs are files, and cannot be written to stdout; name a folder (./- for one with that name)")
        if is_remote(value):
            return located(value)
        return super().convert(value, param, ctx)


class Input(click.Path):
    """A file that is read, or the URL of one."""

    def __init__(self, **how: Any) -> None:
        super().__init__(path_type=Path, **how)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return located(value) if is_remote(value) else super().convert(value, param, ctx)


class Local(click.Path):
    """A file or folder of this machine; URLs are refused."""

    def __init__(self, **how: Any) -> None:
        super().__init__(**{"path_type": Path} | how)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if is_remote(value):
            raise MethodError(
                f"{located(value)}: must be a file or folder of this machine: only maps of unmix run, batch and mesma are "
                "uploaded, and finished runs are read after they have been downloaded"
            )
        return super().convert(value, param, ctx)


class NumberOr(click.ParamType):
    """A number, or one of some words."""

    name = "number"

    def __init__(self, words: Sequence[str]) -> None:
        self.words = words

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float | str:
        if str(value).lower() in self.words:
            return str(value).lower()
        try:
            return float(value)
        except ValueError:
            self.fail(f"'{value}' is no number, nor {' or '.join(self.words)}", param, ctx)


opening = combine(
    click.option("--dataset", metavar="PATH[:yxb]",
                 help="Path of the cube in an HDF5 file that is not of a known product, and the order of its axes."),
    click.option("--wavelengths", metavar="FILE",
                 help="Use these wavelengths instead of the cube's: a text or CSV file with a line for each band, wavelength and "
                 "optionally FWHM (nm; µm if all are below 25), or a file with an ENVI header; or, with --dataset, their path in the "
                 "HDF5 file."),
)  # fmt: skip

reading = combine(
    click.option("--scale", type=float, metavar="F",
                 help="Divide stored values by F, instead of applying the scale factor, gains and offsets in the file."),
    click.option("--nodata", type=float, metavar="V", help="Stored value that means no data; replaces the one in the file."),
    click.option("--bands", default="good", metavar="WHICH", show_default=True,
                 help="Bands to use: good (by the bad band list in the file), all, auto (the good ones that are not dead, constant "
                 "or out of physical range: more than half of a sample below 0, or above 1.2 where most bands are not), or a list "
                 "from 1: 1-50,60."),
    click.option("--ignore-nm", metavar="A-B,...",
                 help="Leave out bands with wavelengths in these ranges, in nm: 1350-1420,1800-1950; water is 1310-1490,1770-2050."),
    click.option("--lines", metavar="A:B", help="Read only lines A to B, counted from 0, B excluded."),
    click.option("--samples", metavar="A:B",
                 help="Read only samples A to B, counted like lines; map information is shifted accordingly."),
    click.option("--bbox", metavar="W,S,E,N",
                 help="Read only the part that has all pixels whose centres are in this box, in the units of the map: of a swath with "
                 "a lookup table (EMIT), too."),
    click.option("--mask", metavar="FILE[:BAND]",
                 help="Leave out pixels where this raster of the same size is 0 or nodata; BAND is a number from 1, or a name."),
    click.option("--mask-out", metavar="FILE[:BAND]", multiple=True,
                 help="Leave out pixels where this raster is not 0, as masks of EMIT and isofit flag them: "
                 "--mask-out 'mask.nc:Cloud flag'. May be given several times. {stem} and {dir} stand for each scene's own: "
                 "'{dir}/{stem:RFL=MASK}.nc:Cloud flag' has MASK in place of RFL."),
    opening,
)  # fmt: skip

extraction = combine(
    click.option("-n", "--count", metavar="N",
                 help="Number of endmembers to extract; auto estimates it (at most 30; see unmix count)."
                 "  [default: auto]"),
    click.option("--extract", type=str.lower, default=None, metavar="NAME",
                 help="Algorithm that extracts endmembers: vca (random directions), spa or atgp (successive projections, not random), "
                 "nfindr (the largest simplex; random above six), sisal (the smallest around the pixels, where none is pure) or cone "
                 "(the smallest cone around their directions, whatever their brightness; each spectrum a mean of near-pure pixels).  "
                 "[default: cone; vca with options of exchanges, or of run with --method]"),
    click.option("--refine/--no-refine", default=True,
                 help="Exchange vca's pixels for others as long as that enlarges their simplex, as nfindr does.  [default: refine]"),
    click.option("--smooth", type=click.IntRange(min=0), default=0, metavar="K",
                 help="Take the mean of the K pixels nearest to each corner of the simplex in place of the pixel at the corner."),
    click.option("--restarts", type=click.IntRange(0, 1000), metavar="R",
                 help="Begin exchanges from R more sets of pixels, and take the largest simplex.  [default: 0; of nfindr 3 above six]"),
    click.option("--outliers", type=float, metavar="T",
                 help="Extract from no pixel that is T times as far from all others as these are on average (RX detector): 10 "
                 "finds hot pixels; rare materials are far, too."),
    click.option("--outside", type=float, metavar="SHARE",
                 help="For sisal: how many coordinates may be below 0, for each pixel; few for a simplex around all.  [default: 0.3]"),
    click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=0, metavar="S", show_default=True,
                 help="Seed of what is random: the directions of vca, and the draws of --monte-carlo where there are any."),
)  # fmt: skip

outputs = combine(
    click.option(
        "-o",
        "--out-dir",
        type=Folder(),
        metavar="DIR",
        help="Folder for outputs; run, batch and mesma also upload to s3://BUCKET/PREFIX.  [default: the folder of the cube]",
    ),
    click.option("--overwrite", is_flag=True, help="Replace outputs that exist, if unmix wrote them."),
)

budget = combine(
    click.option(
        "--memory",
        default="1G",
        metavar="SIZE",
        help="Bound on the memory for blocks, such as 256M or 2G.",
        show_default=True,
    ),
    click.option("--threads", type=click.IntRange(1), metavar="K", help="Number of CPU threads.  [default: all cores]"),
)

method_as_for_run = combine(
    click.option("--method", type=one_of(METHODS), default=WITHOUT_METHOD, show_default=True,
                 help="The constraints on abundances, as for run."),
    click.option("--solver", type=one_of(SOLVERS), default=None, help="The algorithm, as for run."),
)  # fmt: skip

gpu_memory = click.option(
    "--gpu-memory", default="1G", metavar="SIZE", show_default=True, help="Bound on the memory for blocks on each GPU."
)

logs = combine(
    click.option("-v", "--verbose", is_flag=True, help="Log details, and show tracebacks of errors."),
    click.option("-q", "--quiet", is_flag=True, help="Log errors only."),
    click.option(
        "--log-file", type=Local(dir_okay=False, path_type=None), metavar="FILE", help="Also append the log to FILE."
    ),
)


class LogLine(logging.Formatter):
    """Formats a record as ``warning: text``; without the level if it is only information."""

    def format(self, record: logging.LogRecord) -> str:
        level = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        return f"{level}{record.getMessage()}"


class StderrHandler(logging.Handler):
    """Writes to stderr, above the progress bars if there are any."""

    def emit(self, record: logging.LogRecord) -> None:
        print_err(self.format(record))


class DatedLine(logging.Formatter):
    """Formats a record as one printable line of the log file."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(as_options(super().format(record)))


class LogFileHandler(logging.FileHandler):
    """Writes to the log file; if that fails, warns once and goes on."""

    failed = False

    def _open(self) -> Any:
        return open_named(self.baseFilename, self.mode, encoding=self.encoding)

    def handleError(self, record: logging.LogRecord) -> None:
        if not self.failed:
            self.failed = True
            print_err(f"warning: --log-file {self.baseFilename}: {sys.exc_info()[1]}; lines are missing from it")


def set_up_log(verbose: bool, quiet: bool, log_file: str | None) -> logging.Logger:
    """Send the package's log to stderr, and to a file if one is named; return the logger."""
    log = logging.getLogger("unmix")
    log.setLevel(logging.DEBUG if verbose else logging.INFO)
    # What is shown is the handlers' business: run.json has the warnings of a quiet run too.
    shown = logging.ERROR if quiet else logging.NOTSET
    log.handlers = [StderrHandler(shown)]
    log.handlers[0].setFormatter(LogLine())
    if log_file == "-":
        raise click.UsageError("--log-file -: the log goes to stderr anyway; name a file")
    if log_file is not None:
        refuse_log_in_use(log_file)
        try:
            if os.path.isfile(log_file) and not is_log(log_file):
                raise click.UsageError(
                    f"--log-file {log_file}: exists and is no log of ours (its first line has no date); name another file"
                )
            handler = LogFileHandler(log_file, encoding="utf-8")
        except OSError as error:
            raise click.UsageError(f"--log-file {log_file}: {error.strerror}") from None
        handler.setLevel(shown)
        handler.setFormatter(DatedLine("%(asctime)s %(levelname)s %(message)s"))
        log.addHandler(handler)
    return log


def refuse_log_in_use(log_file: str) -> None:
    """Raise `click.UsageError` if the log file is also another argument of the command, directly or through a link."""
    from unmix.outputs.names import file_of, inode

    context = click.get_current_context(silent=True)
    for name, value in (context.params if context is not None else {}).items():
        for argument in value if isinstance(value, list | tuple) else [value]:
            argument_inode = (
                None if name == "log_file" or not isinstance(argument, str | Path) else inode(file_of(argument))
            )
            if argument_inode is not None and argument_inode == inode(Path(log_file)):
                raise click.UsageError(
                    f"--log-file {log_file}: is the same file as {argument}, which this command reads or writes; name another"
                )


def is_log(path: str) -> bool:
    """Return whether the log may be appended to a file: it is empty, or begins with a date as our logs do."""
    with open(path, "rb") as file:
        head = file.read(10)
    return not head or re.fullmatch(rb"20\d\d-\d\d-\d\d", head) is not None


def parse_count(text: str | None) -> int | str | None:
    """Return the value of --count."""
    if text is None or text == "auto":
        return text
    if not (text.isascii() and text.isdigit() and len(text) < 10) or int(text) < 1:
        raise click.UsageError(f"--count {text}: write auto or a number from 1")
    return int(text)


def parse_memory(text: str) -> int:
    """Return the value of --memory in bytes."""
    from unmix.blocks import parse_size

    return parse_size(text)


def open_for_reading(cube: Path, **reading: Any) -> tuple[Any, Any, Any]:
    """Open a cube; return it, and the bands and nodata value that the reading options choose."""
    from unmix.scene import ReadOptions, open_scene

    return open_scene(cube, ReadOptions(**reading))
