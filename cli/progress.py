"""Progress of a scene: a bar on a terminal, a JSON line a second for programs, nothing in cron."""

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator

import click

Report = Callable[[int, int], None]


@contextlib.contextmanager
def progress(kind: str, name: str, what: str = "lines") -> Iterator[Report | None]:
    """Yield the function to call with lines done and in all, or None.

    Parameters
    ----------
    kind : {"auto", "bar", "json", "none"}
        "auto" is a bar where stderr is a terminal, else none.
    name : str
        The scene.
    what : str
        What is counted.
    """
    if kind == "auto":
        kind = "bar" if sys.stderr is not None and sys.stderr.isatty() else "none"
    with {"bar": bar, "json": json_lines, "none": nothing}[kind](name, what) as report:
        yield report


@contextlib.contextmanager
def nothing(name: str, what: str) -> Iterator[None]:
    yield None


@contextlib.contextmanager
def json_lines(name: str, what: str) -> Iterator[Report]:
    said = 0.0

    def report(done: int, total: int) -> None:
        nonlocal said
        if done == total or time.monotonic() - said >= 1:
            said = time.monotonic()
            click.echo(json.dumps({"scene": name, f"{what}_done": done, what: total}), err=True)

    yield report


@contextlib.contextmanager
def bar(name: str, what: str) -> Iterator[Report]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn(what),
               TimeRemainingColumn())  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(name, total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)
