"""Options from a file: TOML, or the record of an earlier run, whose options are repeated."""

import difflib
import json
import tomllib
from pathlib import Path
from typing import Any

import click

from unmix.errors import MethodError, OutputError


def read(path: Path, command: str) -> dict[str, Any]:
    """Return the options in a file, by parameter.

    Parameters
    ----------
    path : Path
        TOML: ``name = value`` a line, with the options' long names; a table with the name of a command is for that one alone. Or a
        ``STEM_run.json``, whose ``options`` are taken.
    command : str
        The command that they are for.

    Raises
    ------
    OutputError
        Where the file cannot be read.
    MethodError
        Where it is neither, or a value is neither text nor a number, true or false, or a list of texts.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise OutputError(f"{path}: cannot be read: {error.strerror}") from None
    is_record = content.lstrip().startswith(b"{")
    try:
        given = json.loads(content) if is_record else tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise MethodError(f"{path}: is neither TOML nor a run.json: {error}") from None
    if is_record:
        if not isinstance(given.get("options"), dict):
            raise MethodError(
                f"{path}: has no options that could be repeated; an older version wrote it, or another program"
            )
        return settings_of(given["options"], path)
    tables = {name: given.pop(name) for name in list(given) if isinstance(given[name], dict)}
    return settings_of(given | tables.get(command, {}), path)


def settings_of(given: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return options by parameter name, with dashes as underscores; `MethodError` where a value is of no type that options have."""
    for name, value in given.items():
        single = value if isinstance(value, list) else [value]
        if not all(isinstance(one, str | int | float | bool) for one in single):
            raise MethodError(f"{path}: {name}: write text, a number, true or false, or a list of texts")
    return {name.replace("-", "_"): value for name, value in given.items()}


def take(context: click.Context, _: click.Parameter, path: Path | None) -> None:
    """Make the options in a file the defaults of this call; those of the command line and the environment come first."""
    if path is None or context.resilient_parsing:
        return
    known = {
        option.name: option
        for option in context.command.params
        if isinstance(option, click.Option) and option.expose_value
    }
    settings = read(path, context.info_name or "")
    for name in settings:
        if name not in known:
            near = difflib.get_close_matches(name, [each for each in known if each], 1)
            hint = f"; did you mean {near[0].replace('_', '-')}?" if near else ""
            raise MethodError(f"{path}: {name.replace('_', '-')} is no option of {context.command_path}{hint}")
    context.default_map = {**(context.default_map or {}), **settings}


option = click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    is_eager=True,
    expose_value=False,
    callback=take,
    help='Take options from a file: TOML (method = "nnls"), or the run.json of an earlier run, to repeat it on another scene or '
    "with another version. The command line comes first, then variables such as UNMIX_RUN_METHOD, then the file.",
)
