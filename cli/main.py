"""`unmix`: finds the command, and reports errors as one line and an exit code."""

import contextlib
import importlib
import logging
import os
import re
import resource
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import click

from unmix._version import build
from unmix.errors import MethodError, UnmixError, as_options, printable
from unmix.features import features

from . import start

# Raised by click from 8.2 on where a group is given no command; before, it prints its help by itself.
NoArguments: Any = getattr(click.exceptions, "NoArgsIsHelpError", start.Stopped)

# Commands in the order of the help, with the line shown there, and their files, which are imported when they run;
# features add theirs.
COMMANDS = {
    "run": "Unmix scenes: endmembers, then certified abundances.",
    "mesma": "Choose for each pixel the best model of a spectrum a class (MESMA).",
    "info": "Show what a cube's headers say.",
    "check": "Check before a run: units, library, bands, a sample of pixels.",
    "count": "Estimate the number of endmembers.",
    "library": "Build, inspect, convert, prune and resample spectral libraries.",
    "endmembers": "Extract endmembers to a library.",
    "export": "Write the maps of finished runs in another format.",
    "report": "Write an HTML page about a run or a folder of runs.",
    "compare": "Compare two runs, or a run and a truth.",
    "status": "Show which runs are done, running, interrupted or damaged.",
    "verify": "Check the outputs of a run against its cube.",
    "warm": "Compile what runs will need.",
    "env": "Show versions, memory, GPUs and folders, for a bug report.",
    "synth": "Make a synthetic scene with known truth.",
}
FILES = {name: f"unmix_cli.{name}" for name in COMMANDS}
for feature in features():
    COMMANDS |= feature.commands
    FILES |= {name: feature.module(f"command_{name}") for name in feature.commands}

# Functions that print a line to stderr above the progress bars, while bars are shown.
ABOVE_BARS: list[Callable[[str], None]] = []
# Bytes of a stack: with 96 KiB code was compiled into a SIGSEGV, with 128 not; below 80 Python itself does not begin.
SMALLEST_STACK = 256 * 2**10
UNREAD = re.compile("Environment variable '(.*?)' is defined but its associated value '(.*?)' could not be parsed")
NO_MEMORY = "not enough memory; lower --memory or --threads, or check whether the file is damaged"


class Commands(click.Group):
    """A group whose commands are imported one at a time."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            from unmix.settings import GONE  # not imported for a command that there is

            if gone := GONE.get(f"unmix {name}"):
                raise click.UsageError(f"unmix {name} {as_options(gone)}")
            return None
        command: click.Command = importlib.import_module(FILES[name]).command
        # Commands without options of the log write their warnings as the others do.
        importlib.import_module(".options", __package__).set_up_log(False, False, None)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "UNMIX"})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    allow_from_autoenv=False,
    callback=lambda *arguments: show_version(*arguments),
    help="Show the version and exit.",
)
def cli() -> None:
    """Hyperspectral unmixing that is exact and proves it, pixel by pixel.

    Begin with: unmix run cube.hdr
    """
    refuse_environment()


def refuse_environment() -> None:
    """Raise `MethodError` for limits and environment variables with which compiled code would crash or fail."""
    limit = resource.getrlimit(resource.RLIMIT_STACK)[0]
    if 0 <= limit < SMALLEST_STACK:
        raise MethodError(
            f"the stack is limited to {limit // 2**10} KiB (ulimit -s), in which code cannot be compiled: ulimit -s "
            "8192"
        )
    given = os.environ.get("NUMBA_NUM_THREADS", "1")
    if not given.isdecimal() or int(given) == 0:
        raise MethodError(
            f"NUMBA_NUM_THREADS is '{given}' in the environment, but has to be a number from 1 on: unset it"
        )
    if any(name.startswith("NUMBA_") for name in os.environ):
        with warnings.catch_warnings(record=True) as said:  # Numba warns with the traceback of its own reading
            warnings.simplefilter("always")
            from numba.core import config
        for unread in filter(None, (UNREAD.match(str(one.message)) for one in said)):
            raise MethodError(f"{unread[1]} is '{unread[2]}' in the environment, which Numba cannot read: unset it")
        refuse_features(str(getattr(config, "CPU_FEATURES", None) or ""))


def refuse_features(wanted: str) -> None:
    """Raise `MethodError` for features of processors that LLVM does not know, for which it ends the process."""
    from llvmlite.binding import get_host_cpu_features

    known = get_host_cpu_features()
    for word in filter(None, wanted.split(",")):
        if word[0] not in "+-" or word[1:] not in known:
            raise MethodError(
                f"NUMBA_CPU_FEATURES names '{word}' in the environment, which LLVM does not know: unset it"
            )


def show_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    """Print the version and build, for which all sources are read, and exit."""
    if wanted and not context.resilient_parsing:
        click.echo(f"unmix, version {build()}")
        context.exit()


def said_of_gone(error: click.ClickException, said: str) -> str:
    """Return what serves in place of an option, or of its value, that there was; else the message as it is."""
    from unmix.settings import GONE  # what help does without is not imported before it is shown

    if isinstance(error, click.NoSuchOption):
        gone = GONE.get(error.option_name.lstrip("-").replace("-", "_"))
        return f"{error.option_name} {as_options(gone)}" if gone else said
    if isinstance(error, click.BadParameter) and error.param is not None:
        for name, value in (key.split(" ") for key in GONE if key.startswith(f"{error.param.name} ")):
            if f"'{value}'" in said:
                return f"{error.param.opts[0]} {value} {as_options(GONE[f'{name} {value}'])}"
    return said


def print_out(text: str) -> None:
    """Print one line for people on stdout with unprintable characters escaped; JSON and numbers stay as they are."""
    click.echo(printable(as_options(text)))


def print_json(value: Any, err: bool = False) -> None:
    """Print a value as a line of JSON, which has no infinity and no NaN: null stands for both."""
    import json  # not for every `--help`

    from unmix.outputs.json_text import finite

    click.echo(json.dumps(finite(value), allow_nan=False), err=err)


def print_err(text: str) -> None:
    """Print one line on stderr, with unprintable characters escaped: names and headers may hold control characters."""
    shown = printable(as_options(text))
    line = f"unmix: {shown if len(shown) < 2000 else shown[:2000] + '…'}"
    with contextlib.suppress(OSError, ValueError):
        ABOVE_BARS[-1](line) if ABOVE_BARS else click.echo(line, err=True)


def report_error(text: str) -> None:
    """Print an error as one line on stderr and to the log file; with -v also its traceback."""
    log = logging.getLogger("unmix")
    if log.getEffectiveLevel() <= logging.DEBUG and log.handlers and sys.stderr is not None:
        click.echo("\n".join(map(printable, traceback.format_exc().splitlines())), err=True)
    for handler in log.handlers:
        if isinstance(handler, logging.FileHandler):
            handler.emit(log.makeRecord("unmix", logging.ERROR, "", 0, text, (), None))
    print_err(f"error: {text}")


def unexpected(error: BaseException | None) -> str:
    """Return the words for an error that no input should be able to cause."""
    return f"this should not happen, please report it (-v shows where): {type(error).__name__}: {error}"


def is_of_stdout(error: OSError) -> bool:
    """Return whether an error was raised where click prints."""
    return any(frame.name == click.echo.__name__ for frame in traceback.extract_tb(error.__traceback__))


def release_locks() -> None:
    """Release the locks of outputs, where any was taken."""
    if "unmix.outputs.lock" in sys.modules:
        sys.modules["unmix.outputs.lock"].release_all()


def main() -> None:
    """Run the command line and exit with the code of the error, 128 + the number of a signal that stopped it."""
    open_closed_streams()
    start.handle_signals()
    number, code = None, 1
    try:
        try:
            start.begin_work()
            code = cli.main(prog_name="unmix", standalone_mode=False)
        finally:
            number = start.end_work()
            if number is not None:  # even if the signal led to another error
                raise start.Stopped
    except start.Stopped:
        number = start.end_work()
    except NoArguments as error:
        click.echo(error.format_message())
        code = 0
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else "unmix"
        said = " ".join(error.format_message().split()).rstrip(".")
        said = said_of_gone(error, said)
        report_error(f"{said}; see {path} --help")
        code = error.exit_code
    except UnmixError as error:
        report_error(str(error))
        code = error.exit_code
    except (KeyboardInterrupt, click.Abort) as stop:
        # click turns any EOFError into Abort; one from a truncated file is an error, not a Ctrl-D.
        if isinstance(stop.__cause__, EOFError):
            report_error(unexpected(stop.__cause__))
        else:
            number = signal.SIGINT
    except BrokenPipeError:
        pass
    except OSError as error:
        place = error.filename or ("stdout" if is_of_stdout(error) else "an open file (-v shows which)")
        report_error(f"{place}: {error.strerror or error}")
    except MemoryError:
        report_error(NO_MEMORY)
    except Exception as error:
        report_error(unexpected(error))
    if number is not None:
        release_locks()
        print_err(start.message(number))
        code = 128 + number
    if not flush_stream("stdout") and code == 0:
        code = 1
    flush_stream("stderr")
    if code:
        sys.exit(code)


def program() -> None:
    """Run `main` and end the process at once."""
    code = 0
    try:
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    if "unmix.blocks" in sys.modules:
        sys.modules["unmix.blocks"].end_pools()
    others = [thread for thread in threading.enumerate() if not thread.daemon and thread is not threading.main_thread()]
    processes = sys.modules.get("multiprocessing.process")
    if others or "distributed" in sys.modules or (processes is not None and processes.active_children()):
        sys.exit(code)
    # Python's own end takes 0.13 s on a CPU and 0.3 s with a GPU; all outputs are on disk and have their names.
    logging.shutdown()
    os._exit(code)


def open_closed_streams() -> None:
    """Open closed standard streams (``>&-``), so that no file of ours gets their number and writing to stdout fails."""
    try:
        while (descriptor := os.open(os.devnull, os.O_RDONLY)) <= 2:
            pass
        os.close(descriptor)
    except OSError:  # no descriptor is left, or there is no /dev/null
        return
    # `click.echo` would drop its text silently.
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - lives as long as the process


def flush_stream(name: str) -> bool:
    """Flush a standard stream, or drop it: Python's second try at exit would change the exit code to 120."""
    try:
        getattr(sys, name).flush()
    except AttributeError:
        return True  # the stream is closed
    except (OSError, ValueError):
        setattr(sys, name, None)
        return False
    return True


if __name__ == "__main__":
    program()
