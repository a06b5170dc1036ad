"""Options from a file: TOML, or the record of an earlier run, whose options are repeated."""

import difflib
import logging
import tomllib
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from unmix.errors import MethodError, OutputError
from unmix.io.opening import read_plain
from unmix.io.remote import leads_elsewhere
from unmix.settings import GONE

from .config import CONFIG, RECORD
from .main import COMMANDS
from .options import DECLARED, DEFAULTS

log = logging.getLogger("unmix")
# Options that a record may set: the ones its maps depend on. Where to write and how to compute are the reader's to
# choose, since a stranger who chose them could have, say, a log written over the files that a shell runs.
RECORDED = {name for name, one in DECLARED.items() if one.affects != "nothing"}


class Recorded(dict[str, Any]):
    """Options from the record of a run, which may be a stranger's; ``run`` is that record."""

    run: dict[str, Any]


def read(path: Path, command: str) -> dict[str, Any]:
    """Return the options in a TOML file, by their names there, or those of a run's record as `Recorded`."""
    # A table with the name of a command is for that command alone.
    try:
        content = read_plain(path)
    except OSError as error:
        raise OutputError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        text = content.decode("utf-8-sig")
        # By its name, too: TOML in a stranger's run.json would set what a record may not.
        is_record = text.lstrip().startswith("{") or path.suffix.lower() == ".json"
        if is_record:
            from unmix.outputs.names import parse_record  # TOML does without this import

            given = parse_record(text)
        else:
            given = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise MethodError(f"{path}: is neither TOML nor a run.json: {error}") from None
    if is_record:
        return options_of_record(given, path, command)
    tables = {name: given.pop(name) for name in list(given) if isinstance(given[name], dict)}
    for name in tables:
        if name not in COMMANDS:
            raise MethodError(f"{path}: [{name}] is no command; options of one command are in a table with its name")
    return given | tables.get(command, {})


def options_of_record(record: dict[str, Any], path: Path, command: str) -> Recorded:
    """Return the options of a run, from its record, for the same command."""
    options = record.get("options")
    if not isinstance(options, dict):
        raise MethodError(
            f"{path}: has no options that could be repeated; an older version wrote it, or another program"
        )
    if others := [name for name in options if name.replace("-", "_").lower() not in RECORDED | GONE.keys()]:
        raise MethodError(
            f"{path}: sets {', '.join(others)[:80]}, which no run records; remove it there, and give options of your "
            "own here"
        )
    options = Recorded(options)
    options.run = record
    made_by = "mesma" if options.get("method") == "mesma" else "run"
    if made_by != command:
        raise MethodError(f"{path}: is the record of unmix {made_by}")
    library = Path(str(options.get("endmembers") or ""))
    is_here = not leads_elsewhere(str(library)) and library.is_file()
    if is_here and library.stat().st_mtime > ended(record) + 1:  # records end in whole seconds
        log.warning(
            f"{path}: {library} was written after that run; the spectra that it used are in {copy_beside(path).name}"
        )
    for name in ("mask", "mask_out", "extract_mask", "noise"):
        if options.get(name) not in (None, "auto", "none") and "{" not in str(options[name]):
            log.warning(f"{path}: --{name.replace('_', '-')} is of that run's scene: {options[name]}")
    if command == "mesma":  # which has neither option
        options.pop("method"), options.pop("by", None)
    return options


def copy_beside(record: Path) -> Path:
    """Return where the run of a record wrote the spectra that it used."""
    return record.with_name(f"{record.name.removesuffix('run.json')}endmembers.csv")


def warn_of_changes(context: click.Context, report: dict[str, Any]) -> None:
    """Warn where a run of the record's scene found other contents under the names of the record's files."""
    # By their digests: a backup that was restored is older than the record.
    before, asked = context.meta[RECORD].run, report.get("asked") or {}
    was = before.get("asked")
    if before.get("identity") != report.get("identity") or not isinstance(was, dict):
        return
    if changed := [key for key in asked if asked[key] != was.get(key, asked[key]) and is_from_file(context, key)]:
        log.warning(
            f"{context.meta[CONFIG]}: `{changed[0]}` holds other values than in that run: these maps are not those of it"
        )


def ended(record: dict[str, Any]) -> float:
    """Return when a run ended, s since 1970; infinite where its record does not tell."""
    try:
        return datetime.fromisoformat(record["ended"]).timestamp()
    except (KeyError, TypeError, ValueError, OverflowError):
        return float("inf")


def is_from_file(context: click.Context, name: str) -> bool:
    """Return whether a parameter has its value from the file of options."""
    return context.get_parameter_source(name) is click.core.ParameterSource.DEFAULT_MAP


def take_copy(context: click.Context, settings: dict[str, Any]) -> None:
    """Replace a record's library that is gone by the spectra that the run wrote beside it, which are as it used them."""
    recorded, library = context.meta[RECORD], settings.get("endmembers")
    if library is None or not is_from_file(context, "endmembers"):
        return
    if str(library).startswith("(") or leads_elsewhere(library):  # a library in memory, or on a server
        return
    path = context.meta[CONFIG]
    copy = copy_beside(path)
    # The library's scale is that of shade's spectrum, too.
    has_both = recorded.get("shade") is not None and recorded.get("library_scale") is not None
    if Path(library).exists() or not copy.exists() or has_both:
        return
    names = ("select", "complete", "library_scale", "across_gaps")
    settings |= {"endmembers": copy} | {name: DEFAULTS[name] for name in names if is_from_file(context, name)}
    if is_from_file(context, "classes") and settings["classes"] != "name":
        settings["classes"] = "class"
    if (recorded.get("method") == "pcls" or recorded.get("shade")) and settings["select"] is None:
        from unmix.library import load

        settings["select"] = f"!{load(copy).names[-1]}"  # shade, which the run adds itself
    log.warning(f"{path}: {library} is gone; {copy} has its spectra as they were used")


def show(context: click.Context) -> None:
    """Log the options set by a record, which may be a stranger's; `MethodError` if one of them names a server."""
    taken = [
        (name, one)
        for name, value in context.params.items()
        if is_from_file(context, name)
        for one in (value if isinstance(value, list | tuple) else [value])
    ]
    for name, one in taken:
        if isinstance(one, str | Path) and leads_elsewhere(one):
            raise MethodError(
                f"{context.meta[CONFIG]}: `{name}` is {one}, and a server is not asked because of a record; give "
                f"`{name}` here"
            )
    if taken:
        log.info(f"{context.meta[CONFIG]}: sets " + ", ".join(f"`{name}` {one}" for name, one in taken))


def names_of(command: click.Command) -> dict[str, tuple[click.Option, str]]:
    """Return a command's options with their declared names, by long and parameter name, with underscores."""
    table = {}
    for one in command.params:
        if isinstance(one, click.Option) and one.expose_value and one.name is not None:
            for word in (*one.opts, one.name):
                if word.startswith("--") or word == one.name:
                    table[word.lstrip("-").replace("-", "_")] = one, word
    return table


def value_for(one: click.Option, word: str, value: Any, where: str) -> Any:
    """Return a value as the command line has it: text, or a bool for a flag; `MethodError` if it is neither."""
    if one.is_flag:
        if not isinstance(value, bool):
            raise MethodError(f"{where}: write true or false")
        return value is bool(one.flag_value) if word.startswith("--") else value
    parts = value if isinstance(value, list) and one.multiple else [value]
    for part in parts:
        if isinstance(part, bool) or not isinstance(part, str | int | float) or "\0" in str(part):
            raise MethodError(f"{where}: write text or a number" + (", or a list of texts" if one.multiple else ""))
    return [str(part) for part in parts] if one.multiple else str(value)


def take(context: click.Context, path: Path) -> None:
    """Make a file's options the defaults of this call; the command line and the environment come first."""
    context.meta[CONFIG] = path
    given = read(path, context.info_name or "")
    context.meta[RECORD] = given if isinstance(given, Recorded) else None
    known, settings = names_of(context.command), {}
    for name, value in given.items():
        key = name.replace("-", "_").lower()
        if key not in known:
            near = difflib.get_close_matches(key, list(known), 1)
            hint = f"; did you mean {near[0].replace('_', '-')}?" if near else ""
            raise MethodError(f"{path}: {name} is no option of {context.command_path}{hint}")
        one, word = known[key]
        if one.name in settings:
            raise MethodError(f"{path}: {name}: is given twice")
        settings[str(one.name)] = value_for(one, word, value, f"{path}: {name}")
    context.default_map = {**(context.default_map or {}), **settings}
