"""`unmix`: finds the command, and turns what goes wrong into one line and an exit code."""

import importlib
import logging
import signal
import sys
import traceback
from types import FrameType
from typing import Any, NoReturn

import click

from unmix import __version__
from unmix.errors import UnmixError

# Commands in the order of the help, with the line that stands there: a command's own file is imported when it runs.
COMMANDS = {
    "run": "Endmembers, then certified abundances; the main job.",
    "info": "What a cube is.",
    "count": "Estimate the number of endmembers.",
    "endmembers": "Extract endmembers to a library.",
    "verify": "Check a finished run against its cube.",
    "synth": "Make a synthetic scene with known truth.",
}


class Stopped(BaseException):
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
@click.version_option(__version__, prog_name="unmix")
def cli() -> None:
    """Hyperspectral unmixing that is exact and proves it, pixel by pixel.

    Begin with: unmix run cube.hdr --method fcls
    """


def stop(number: int, frame: FrameType | None) -> NoReturn:
    raise Stopped


def say(text: str) -> None:
    click.echo(f"unmix: {text}", err=True)


def main() -> None:
    """The entry point: exit codes are those of the errors, 130 for Ctrl-C, 143 for SIGTERM."""
    signal.signal(signal.SIGTERM, stop)
    try:
        sys.exit(cli.main(prog_name="unmix", standalone_mode=False))
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except UnmixError as error:
        if logging.getLogger("unmix").getEffectiveLevel() <= logging.DEBUG:
            traceback.print_exc()
        say(f"error: {error}")
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        say("stopped by Ctrl-C; no output was left under a final name")
        sys.exit(130)
    except Stopped:
        say("stopped by SIGTERM; no output was left under a final name")
        sys.exit(143)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except Exception as error:
        if logging.getLogger("unmix").getEffectiveLevel() <= logging.DEBUG:
            traceback.print_exc()
        say(f"error: this should not happen, please report it (-v shows where): {type(error).__name__}: {error}")
        sys.exit(1)


def show(value: Any) -> None:
    """Data goes to stdout."""
    click.echo(value)


if __name__ == "__main__":
    main()
