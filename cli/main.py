"""`unmix`: finds the command, and turns what goes wrong into one line and an exit code."""

import contextlib
import importlib
import logging
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

import click

from unmix._version import build
from unmix.errors import UnmixError, printable

# Commands in the order of the help, with the line that stands there: a command's own file is imported when it runs.
COMMANDS = {
    "run": "Endmembers, then certified abundances; the main job.",
    "batch": "Many scenes over many machines.",
    "info": "What a cube is.",
    "check": "Would this run be sound? Headers and a sample of pixels.",
    "count": "Estimate the number of endmembers.",
    "library": "Spectral libraries: look, convert, resample.",
    "endmembers": "Extract endmembers to a library.",
    "nmf": "Endmembers and abundances found together, by factorisation.",
    "bands": "Choose bands: the least collinear ones, or those that predict a target.",
    "solve": "Non-negative least squares and quadratic programmes of any size.",
    "verify": "Check a finished run against its cube.",
    "bench": "Time a scene beside the copy that bounds it.",
    "synth": "Make a synthetic scene with known truth.",
}


# Who writes a line to stderr while bars are shown there.
ABOVE_BARS: list[Callable[[str], None]] = []
PARAMETER = re.compile("`([a-z][a-z_]*)`")
NO_MEMORY = "not enough memory; lower --memory or --threads, or is the file damaged?"


class Terminated(BaseException):
    """SIGTERM, as an exception, so that everything is put away on the way out."""


class Commands(click.Group):
    """A group whose commands are imported one at a time."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        return importlib.import_module(f".{name}", __package__).command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=lambda *given: show_version(*given),
              help="Show the version and exit.")  # fmt: skip
def cli() -> None:
    """Hyperspectral unmixing that is exact and proves it, pixel by pixel.

    Begin with: unmix run cube.hdr --method fcls
    """


def show_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    """Say which build this is: the sources are read for that only when it is asked."""
    if wanted and not context.resilient_parsing:
        click.echo(f"unmix, version {build()}")
        context.exit()


def stop_on_signal(number: int, frame: FrameType | None) -> NoReturn:
    """The first signal stops; further ones may not disturb the putting away."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt if number == signal.SIGINT else Terminated


def as_options(text: str) -> str:
    """Write what the package calls `` `max_delta` ``, a parameter, as the option that it is here: ``--max-delta``."""
    return PARAMETER.sub(lambda name: "--" + name[1].replace("_", "-"), text)


def print_out(text: str) -> None:
    """One line on stdout for people, whatever is in it; JSON and numbers, which programs read, need no such care."""
    click.echo(printable(as_options(text)))


def print_err(text: str) -> None:
    """One line on stderr, whatever is in it: names and headers may hold line breaks and control characters."""
    shown = printable(as_options(text))
    line = f"unmix: {shown if len(shown) < 2000 else shown[:2000] + '…'}"
    with contextlib.suppress(OSError, ValueError):
        ABOVE_BARS[-1](line) if ABOVE_BARS else click.echo(line, err=True)


def report_error(error: Exception, text: str) -> None:
    """An error's one line to stderr and to the log file; its traceback with -v."""
    log = logging.getLogger("unmix")
    if log.getEffectiveLevel() <= logging.DEBUG and log.handlers and sys.stderr is not None:
        click.echo("\n".join(map(printable, traceback.format_exc().splitlines())), err=True)
    for handler in log.handlers:
        if isinstance(handler, logging.FileHandler):
            handler.emit(log.makeRecord("unmix", logging.ERROR, "", 0, text, (), None))
    print_err(f"error: {text}")


def main() -> None:
    """The entry point: exit codes are those of the errors, 130 for Ctrl-C, 143 for SIGTERM."""
    open_closed_streams()
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, stop_on_signal)
    try:
        code = cli.main(prog_name="unmix", standalone_mode=False)
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else "unmix"
        report_error(error, f"{error.format_message().rstrip('.')}; see {path} --help")
        code = error.exit_code
    except UnmixError as error:
        report_error(error, str(error))
        code = error.exit_code
    except (KeyboardInterrupt, click.Abort):
        print_err("stopped by Ctrl-C; what was not finished left nothing under a final name")
        code = 130
    except Terminated:
        print_err("stopped by SIGTERM; what was not finished left nothing under a final name")
        code = 143
    except BrokenPipeError:
        code = 1
    except OSError as error:
        report_error(error, f"{error.filename or 'stdout'}: {error.strerror}")
        code = 1
    except MemoryError as error:
        report_error(error, NO_MEMORY)
        code = 1
    except Exception as error:
        report_error(error, f"this should not happen, please report it (-v shows where): {type(error).__name__}: {error}")
        code = 1
    if not flush_stream("stdout") and code == 0:
        code = 1
    flush_stream("stderr")
    if code:
        sys.exit(code)


def open_closed_streams() -> None:
    """Open what was closed (``>&-``) for nothing to be lost in silence: no file of ours gets its number, and writing to stdout fails.

    Python's stdout is None then, to which `click.echo` writes nothing and says nothing.
    """
    try:
        while (descriptor := os.open(os.devnull, os.O_RDONLY)) <= 2:
            pass
        os.close(descriptor)
    except OSError:  # no descriptor is left, or no /dev/null
        return
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - lives as long as the process


def flush_stream(name: str) -> bool:
    """Flush a standard stream; where that fails, keep Python from trying again on its way out, and returning 120."""
    try:
        getattr(sys, name).flush()
    except AttributeError:
        return True  # there is none
    except (OSError, ValueError):
        setattr(sys, name, None)
        return False
    return True


if __name__ == "__main__":
    main()
