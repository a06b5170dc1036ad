"""Options that commands share, and the log that -v, -q and --log-file steer."""

import logging
import os
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

from unmix.errors import printable
from unmix.io.opening import open_named

from .main import as_options, print_err

Command = TypeVar("Command", bound=Callable[..., Any])


def combine(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Several options as one decorator, in the order given."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def one_of(names: Iterable[str]) -> click.Choice:
    """Return a choice of names, in which case does not count."""
    return click.Choice(list(names), case_sensitive=False)


class Folder(click.Path):
    """A folder for outputs; ``-``, which elsewhere is stdout, is refused rather than made."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, file_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if str(value) == "-":
            self.fail("outputs are files in a folder, and cannot go to stdout; name a folder (./- if it is called so)")
        return super().convert(value, param, ctx)


opening = combine(
    click.option("--dataset", metavar="PATH[:yxb]", help="The cube in an HDF5 file of no known product, and its axes."),
    click.option("--wavelengths", metavar="FILE",
                 help="Wavelengths where the cube has none, or others: text or CSV, a band a line, wavelength and perhaps FWHM "
                 "(nm; all below 25 are µm), or what has an ENVI header; or, with --dataset, their path in the HDF5 file."),
)  # fmt: skip

reading = combine(
    click.option("--scale", type=float, metavar="F", help="Divide stored values by F, whatever the file says."),
    click.option("--nodata", type=float, metavar="V", help="The stored value that means no data."),
    click.option("--bands", default="good", metavar="WHICH", show_default=True,
                 help="good (by the file's own list), all, auto (good ones that are not dead, constant or out of physical "
                 "range (more than half of a sample below 0, or above 1.2 where most bands are not), or a list, from 1: 1-50,60."),
    click.option("--ignore-nm", metavar="A-B,...", help="Wavelengths to leave out, in nm: 1350-1420,1800-1950."),
    click.option("--lines", metavar="A:B", help="Lines to read: from A (from 0), without B."),
    click.option("--samples", metavar="A:B", help="Samples to read; the map information is shifted to fit."),
    click.option("--mask", metavar="FILE[:BAND]", help="A raster of the same size: pixels where it is 0 are left out."),
    opening,
)  # fmt: skip

extraction = combine(
    click.option("-n", "--count", metavar="N",
                 help="How many endmembers to extract; auto estimates it (HySime, at most 30; on real scenes often too "
                 "many).  [default: auto]"),
    click.option("--extract", type=str.lower, default="vca", metavar="NAME", show_default=True,
                 help="How to extract them: vca (random directions), spa (successive projections; nothing random)."),
    click.option("--seed", type=click.IntRange(0), default=0, metavar="S", help="Seed of the extraction.", show_default=True),
)  # fmt: skip

outputs = combine(
    click.option(
        "-o",
        "--out-dir",
        type=Folder(),
        metavar="DIR",
        help="Where outputs go.  [default: beside the cube]",
    ),
    click.option("--overwrite", is_flag=True, help="Replace outputs that exist."),
)

budget = combine(
    click.option("--memory", default="1G", metavar="SIZE", help="Bound on blocks in memory.", show_default=True),
    click.option("--threads", type=click.IntRange(1), metavar="K", help="CPU threads.  [default: all]"),
)

gpu_memory = click.option("--gpu-memory", default="1G", metavar="SIZE", show_default=True, help="Bound on GPU memory.")

logs = combine(
    click.option("-v", "--verbose", is_flag=True, help="Say more; show tracebacks."),
    click.option("-q", "--quiet", is_flag=True, help="Say errors only."),
    click.option("--log-file", type=click.Path(dir_okay=False), metavar="F", help="Also write the log to F."),
)


class LogLine(logging.Formatter):
    """`warning: text`, without the level for what is merely said."""

    def format(self, record: logging.LogRecord) -> str:
        level = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        return f"{level}{record.getMessage()}"


class StderrHandler(logging.Handler):
    """Writes to whatever stderr is at the time."""

    def emit(self, record: logging.LogRecord) -> None:
        print_err(self.format(record))


class DatedLine(logging.Formatter):
    """A line of the log file; one line, whatever is in it."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(as_options(super().format(record)))


class LogFileHandler(logging.FileHandler):
    """Writes to the log file; says once where that cannot be written, and goes on."""

    failed = False

    def _open(self) -> Any:
        return open_named(self.baseFilename, self.mode, encoding=self.encoding)

    def handleError(self, record: logging.LogRecord) -> None:
        if not self.failed:
            self.failed = True
            print_err(f"warning: --log-file {self.baseFilename}: {sys.exc_info()[1]}; lines are missing there")


def set_up_log(verbose: bool, quiet: bool, log_file: str | None) -> logging.Logger:
    """Point the package's log at stderr, and at a file where one is named."""
    log = logging.getLogger("unmix")
    log.setLevel(logging.DEBUG if verbose else logging.ERROR if quiet else logging.INFO)
    log.handlers = [StderrHandler()]
    log.handlers[0].setFormatter(LogLine())
    if log_file == "-":
        raise click.UsageError("--log-file -: the log is on stderr already; name a file")
    if log_file is not None:
        refuse_log_in_use(log_file)
        try:
            if os.path.isfile(log_file) and not is_log(log_file):
                raise click.UsageError(f"--log-file {log_file}: exists and is no log of ours; name another file")
            handler = LogFileHandler(log_file, encoding="utf-8")
        except OSError as error:
            raise click.UsageError(f"--log-file {log_file}: {error.strerror}") from None
        handler.setFormatter(DatedLine("%(asctime)s %(levelname)s %(message)s"))
        log.addHandler(handler)
    return log


def refuse_log_in_use(log_file: str) -> None:
    """`click.UsageError` where the log would go into a file that the command line names for something else, links counting."""
    from unmix.outputs.names import file_of, inode

    context = click.get_current_context(silent=True)
    for name, value in (context.params if context is not None else {}).items():
        for one in value if isinstance(value, list | tuple) else [value]:
            own = None if name == "log_file" or not isinstance(one, str | Path) else inode(file_of(one))
            if own is not None and own == inode(Path(log_file)):
                raise click.UsageError(
                    f"--log-file {log_file}: is {one}, which this command reads or writes; name another file"
                )


def is_log(path: str) -> bool:
    """Whether a file may be appended to: it is empty, or begins with a date as our logs do."""
    with open(path, "rb") as file:
        head = file.read(10)
    return not head or re.fullmatch(rb"20\d\d-\d\d-\d\d", head) is not None


def parse_count(text: str | None) -> int | str | None:
    """The value of --count."""
    if text is None or text == "auto":
        return text
    if not (text.isascii() and text.isdigit() and len(text) < 10) or int(text) < 1:
        raise click.UsageError(f"--count {text}: write auto or a number from 1")
    return int(text)


def parse_memory(text: str) -> int:
    """Bytes of --memory."""
    from unmix.blocks import parse_size

    return parse_size(text)


def open_for_reading(cube: Path, **reading: Any) -> tuple[Any, Any, Any]:
    """A cube with the bands and the nodata value that the reading options choose."""
    from unmix.scene import ReadOptions, open_scene

    return open_scene(cube, ReadOptions(**reading))
