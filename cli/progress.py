"""Progress of scenes: bars on a terminal, JSON lines a second for programs, nothing in cron."""

import contextlib
import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import click

from unmix.errors import printable
from unmix.pipeline import Step

from .main import ABOVE_BARS

Report = Callable[[Step], None]


class Board:
    """Shows how far each scene is, and how far all of them are; any thread may report.

    Parameters
    ----------
    kind : {"auto", "bar", "json", "none"}
        "auto" is a bar where stderr is a terminal, else none.
    scenes : int
        In all.
    what : str
        What a scene's steps count.
    """

    def __init__(self, kind: str, scenes: int = 1, what: str = "lines") -> None:
        self.kind, self.scenes, self.what, self.ended = kind, scenes, what, 0
        if kind == "auto":
            self.kind = "bar" if sys.stderr is not None and sys.stderr.isatty() else "none"
        self.lock = threading.Lock()
        self.began = time.monotonic()
        self.last_printed: dict[Path, float] = {}
        self.last: dict[Path, int] = {}
        self.pixels = self.bytes = 0
        self.shown: Any = None

    def __enter__(self) -> "Board":
        if self.kind == "bar":
            self.shown = new_bars(self.what)
            self.shown.start()
            ABOVE_BARS.append(self.print_above)
            self.all = self.shown.add_task("all", total=self.scenes, rate="scenes") if self.scenes > 1 else None
            self.tasks: dict[Path, Any] = {}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.shown is not None:
            ABOVE_BARS.remove(self.print_above)
            self.shown.stop()

    def print_above(self, line: str) -> None:
        """A line above the bars."""
        self.shown.console.print(line, markup=False, emoji=False, highlight=False, soft_wrap=True)

    def scene(self, path: Path) -> Report | None:
        """The function to call with a `Step` of that scene; None where nothing is shown."""
        if self.kind == "none":
            return None
        return lambda step: self.report(path, step)

    def report(self, path: Path, step: Step) -> None:
        """Show a step."""
        with self.lock:
            new = step.done - self.last.get(path, step.first)
            self.last[path] = step.done
            self.pixels, self.bytes = self.pixels + new * step.pixels, self.bytes + new * step.bytes
            (self.update_bar if self.kind == "bar" else self.print_json)(path, step)

    def end(self, path: Path) -> None:
        """That scene is done, or has failed."""
        with self.lock:
            self.ended += 1
            self.last.pop(path, None)
            self.last_printed.pop(path, None)
            if self.kind == "bar":
                task = self.tasks.pop(path, None)
                if task is not None and self.scenes > 1:
                    self.shown.remove_task(task)
                if self.all is not None:
                    self.shown.update(self.all, completed=self.ended)

    def rates(self) -> dict[str, float]:
        """Pixels and gigabytes a second, since the beginning, of all scenes."""
        seconds = max(time.monotonic() - self.began, 1e-9)
        return {
            "pixels_per_second": round(self.pixels / seconds),
            "gigabytes_per_second": round(self.bytes / seconds / 1e9, 3),
        }

    def update_bar(self, path: Path, step: Step) -> None:
        """A bar for each scene under way."""
        if path not in self.tasks:
            self.tasks[path] = self.shown.add_task(printable(path.name), total=step.total, rate=self.what)
        now = self.rates()
        rate = f"{self.what}  {now['pixels_per_second'] / 1e6:.2f} Mpixel/s  {now['gigabytes_per_second']:.2f} GB/s  {step.device}"
        self.shown.update(
            self.tasks[path], completed=step.done, total=step.total, rate=rate if step.pixels else self.what
        )

    def print_json(self, path: Path, step: Step) -> None:
        """A line of JSON, at most one a second for each scene, and its last."""
        now = time.monotonic()
        if step.done < step.total and now - self.last_printed.get(path, 0.0) < 1:
            return
        self.last_printed[path] = now
        line: dict[str, Any] = {"scene": path.name, f"{self.what}_done": step.done, self.what: step.total}
        line |= {"scenes_done": self.ended, "scenes": self.scenes} if self.scenes > 1 else {}
        line |= {**self.rates(), "device": step.device} if step.pixels else {}
        with contextlib.suppress(OSError, ValueError):  # who watched is gone; the work is not
            click.echo(json.dumps(line), err=True)


def new_bars(what: str) -> Any:
    """The terminal's bars."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    # A scene may be called [red] or [/], which is no markup.
    name, rate = (TextColumn(what, markup=False) for what in ("{task.description}", "{task.fields[rate]}"))
    columns = (name, BarColumn(), MofNCompleteColumn(), rate, TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)
