"""Options that commands share, and the log that -v, -q and --log-file control."""

import functools
import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import click

from unmix.errors import MethodError, as_options, printable
from unmix.errors import aligned as aligned
from unmix.io import is_remote, located, open_named, open_plain
from unmix.io.export import ALIASES
from unmix.methods import METHODS, SOLVERS, WITHOUT_METHOD
from unmix.settings import Setting, settings_of
from unmix.settings.models import ModelSettings
from unmix.settings.reading import ReadSettings
from unmix.settings.run import RunSettings

from .main import print_err, print_json, print_out

Command = TypeVar("Command", bound=Callable[..., Any])
# All options that a run may have, and their defaults.
DECLARING = (RunSettings, ReadSettings, ModelSettings)
DECLARED = settings_of(*DECLARING)
DEFAULTS = {one.name: one.default for each in DECLARING for one in fields(each)}


def combine(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Combine several options into one decorator, in the order given."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


class Once(click.Option):
    """An option whose last value counts; where it was given others, a line says so."""

    @property
    def is_single(self) -> bool:
        """Whether it takes values and only one of them counts."""
        return not (self.multiple or self.is_flag or self.count)

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        if not self.is_single:
            return super().add_to_parser(parser, ctx)
        parser.add_option(obj=self, opts=self.opts, dest=self.name, action="append", nargs=self.nargs)

    def consume_value(self, ctx: click.Context, opts: Any) -> Any:
        given = opts.get(self.name)
        if self.is_single and isinstance(given, list):
            if len(set(map(str, given))) > 1:
                print_err(f"warning: {self.opts[-1]} is given {len(given)} times: the last counts, {given[-1]}")
            opts = {**opts, self.name: given[-1]}
        return super().consume_value(ctx, opts)


def value(words: str, help: str, **how: Any) -> Callable[[Command], Command]:
    """Return an option with a value, and its default in the help; a tuple as ``type`` lists words in any case."""
    # ``words`` are the names of the option, and of the parameter if it differs, separated by blanks: ``-o --out``.
    if isinstance(how.get("type"), tuple):
        how["type"] = one_of(how["type"])
    return click.option(*words.split(), help=help, show_default=how.get("default") is not None, cls=Once, **how)


def flag(words: str, help: str) -> Callable[[Command], Command]:
    """Return an option without a value; ``words`` are as of `value`."""
    return click.option(*words.split(), is_flag=True, help=help)


def show(found: Any, as_json: bool, lines: Iterable[str]) -> None:
    """Print the result of a command: as a line of JSON, or as lines for people."""
    if as_json:
        print_json(found)
        return
    for line in lines:
        print_out(line)


def named_rows(facts: dict[str, str]) -> list[str]:
    """Return a line for each fact, with its name before it."""
    width = max(map(len, facts), default=0)
    return [f"{name.replace('_', ' '):{width}}  {fact}" for name, fact in facts.items()]


def one_of(names: Iterable[str]) -> click.Choice:
    """Return an option type that accepts one of the names, in any case."""
    return click.Choice(list(names), case_sensitive=False)


class FormatName(click.Choice):
    """The name of an output format, in any case, or the name of GDAL's driver for it."""

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
                f"{located(value)}: must be a file or folder of this machine: only maps of unmix run, batch and mesma "
                "are "
                "uploaded, and finished runs are read after they have been downloaded"
            )
        return super().convert(value, param, ctx)


class NumberOr(click.ParamType):
    """A number, or one of some words; with ``least``, a whole number no less."""

    name = "number"

    def __init__(self, words: Sequence[str], least: int | None = None) -> None:
        self.words, self.least = words, least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float | str:
        if str(value).lower() in self.words:
            return str(value).lower()
        if self.least is not None:
            text = str(value)
            if text.isascii() and text.isdigit() and len(text) < 10 and int(text) >= self.least:
                return int(text)
            self.fail(f"'{value}' is no whole number from {self.least} on, nor {' or '.join(self.words)}", param, ctx)
        try:
            return float(value)
        except ValueError:
            self.fail(f"'{value}' is no number, nor {' or '.join(self.words)}", param, ctx)


def option(name: str, **other: Any) -> Callable[[Command], Command]:
    """Return the option that `unmix.settings` declares by this name; ``other`` replaces arguments of `click.option`."""
    one, default = DECLARED[name], DEFAULTS[name]
    is_off, flag = bool(one.switch) and "/" not in one.switch, one.switch or name
    long = "/".join("--" + word.replace("_", "-") for word in flag.split("/"))
    words = [word for word in (one.short, long, name if is_off else "") if word]
    unset = f"  [default: {one.unset}]" if one.unset else ""
    how: dict[str, Any] = {"help": as_options(one.help + unset)}
    if isinstance(default, bool):
        how |= {"default": default} if one.switch else {}
        how |= {} if "/" in one.switch else {"is_flag": True}
        how |= {"flag_value": False} if is_off else {}
    elif default == ():
        how |= {"multiple": True, "metavar": one.metavar}
    else:
        how |= {"type": type_of(one), "default": default, "metavar": one.metavar}
        how |= {"show_default": default is not None and not one.unset}
    if other.get("required"):  # a default, even None, would stand for what is not given
        how = {name: one for name, one in how.items() if name not in ("default", "show_default")}
    return click.option(*words, cls=Once, **how | other)


def declared(*names: str) -> Callable[[Command], Command]:
    """Combine the options that `unmix.settings` declares by these names."""
    return combine(*map(option, names))


def type_of(one: Setting) -> Any:
    """Return the type of a setting, for click."""
    if one.kind == "number":
        return NumberOr(one.choices) if one.choices else float
    if one.kind == "whole":
        if one.choices:
            return NumberOr(one.choices, one.least)
        return int if one.least is None else click.IntRange(one.least, None if one.most is None else int(one.most))
    if one.choices and not one.is_path:
        return FormatName(one.choices) if "geotiff" in one.choices else one_of(one.choices)
    kinds = {"word": str.lower, "input": Input(), "folder": Folder(), "local folder": Local(file_okay=False)}
    return kinds.get(one.kind, str)


def parse_count(text: str) -> int | str:
    """Return the value of --count."""
    if text == "auto":
        return text
    if not (text.isascii() and text.isdigit() and len(text) < 10) or int(text) < 1:
        raise click.UsageError(f"--count {text}: write auto or a number from 1")
    return int(text)


cube = click.argument("cube", type=Input())
maps = click.argument("maps", nargs=-1, required=True, metavar="MAPS...", type=Local())
cube_of_run = value(
    "--cube",
    "The scene of a run, where it has moved, or is on a server.  [default: its path in the run]",
    type=Input(),
    metavar="FILE",
)
opening = declared("dataset", "wavelengths")
reading = combine(
    declared(
        "preset",
        "scale",
        "offset",
        "nodata",
        "valid_max",
        "bands",
        "ignore_nm",
        "only_nm",
        "lines",
        "samples",
        "bbox",
        "mask",
        "mask_out",
    ),
    opening,
)
count = option("count", type=parse_count)
extraction = combine(count, declared("extract", "refine", "smooth", "outliers", "outside", "seed"))
outputs = declared("out_dir", "overwrite")
budget = declared("memory", "threads")
overwrite, across_gaps, gpu_memory = map(option, ("overwrite", "across_gaps", "gpu_memory"))
device_as_for_run = option("device", help="Where to compute, as for run.")
the_library = option("endmembers", required=True, help="The library.")
overwrite_page = flag("--overwrite", "Replace the file of -o, if unmix wrote it; a page is replaced anyway.")
as_json = flag("--json as_json", "Print results on stdout as lines of JSON.")
progress = functools.partial(value, "--progress progress_kind", type=("auto", "bar", "json", "none"), default="auto")

method_as_for_run = combine(
    value("--method", "Constraints on abundances, as for run.", type=tuple(METHODS), default=WITHOUT_METHOD),
    value("--solver", "Algorithm, as for run.", type=tuple(SOLVERS)),
)
method_left_open = combine(
    value("--method", "Constraints on abundances.  [default: those of a run without it]", type=tuple(METHODS)),
    value("--solver", "Algorithm, as for run.", type=tuple(SOLVERS)),
)
log_options = combine(
    flag("-v --verbose", "Log details, and show tracebacks of errors."),
    flag("-q --quiet", "Log errors only."),
    value("--log-file", "Also append the log to FILE.", type=Local(dir_okay=False, path_type=None), metavar="FILE"),
)


def logs(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of the log to a command, and set up the log by them before the command begins."""

    @functools.wraps(command)
    def with_log(*, verbose: bool, quiet: bool, log_file: str | None, **given: Any) -> Any:
        set_up_log(verbose, quiet, log_file)
        return command(**given)

    return log_options(with_log)


of_images = combine(outputs, budget, reading, logs)


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
    # Handlers choose which records are shown; the logger passes all, since run.json has the warnings of a quiet run
    # too.
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
                    f"--log-file {log_file}: exists and is no log of ours (its first line has no date); name another "
                    "file"
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
                    f"--log-file {log_file}: is the same file as {argument}, which this command reads or writes; name "
                    "another"
                )


def is_log(path: str) -> bool:
    """Return whether the log may be appended to a file: it is empty, or begins with a date as our logs do."""
    with open_plain(path) as file:
        head = file.read(10)
    return not head or re.fullmatch(rb"20\d\d-\d\d-\d\d", head) is not None


def open_for_reading(cube: Path, **reading: Any) -> Any:
    """Open a cube with the reading options; return an `unmix.io.Scene`."""
    from unmix.scene import ReadOptions, open_scene

    return open_scene(cube, ReadOptions(**reading))
