"""Progress of scenes: bars on a terminal, a line of JSON each second for programs, nothing in cron jobs."""

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from unmix.errors import printable
from unmix.pipeline import JobProgress

from .main import ABOVE_BARS, print_json

Report = Callable[[JobProgress], None]


class Board:
    """Shows the progress of each scene and of all of them; any thread may report.

    Parameters
    ----------
    kind : {"auto", "bar", "json", "none"}
        "auto" is a bar if stderr is a terminal, else none.
    scenes : int
        Number of scenes.
    what : str
        The unit of progress: lines, or steps of a factorisation.
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
            self.shown = new_bars()
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
        """Print a line above the bars."""
        self.shown.console.print(line, markup=False, emoji=False, highlight=False, soft_wrap=True)

    def scene(self, path: Path) -> Report | None:
        """Return the function to call with each `Step` of a scene; None if nothing is shown."""
        if self.kind == "none":
            return None
        return lambda step: self.report(path, step)

    def report(self, path: Path, step: JobProgress) -> None:
        """Show the progress of a scene."""
        with self.lock:
            increase = step.done - self.last.get(path, step.first)
            self.last[path] = step.done
            self.pixels, self.bytes = self.pixels + increase * step.pixels, self.bytes + increase * step.bytes
            (self.update_bar if self.kind == "bar" else self.print_json)(path, step)

    def end(self, path: Path) -> None:
        """Count a scene that is done or has failed, and remove its bar."""
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
        """Return pixels and gigabytes per second of all scenes, since the start."""
        seconds = max(time.monotonic() - self.began, 1e-9)
        return {
            "pixels_per_second": round(self.pixels / seconds),
            "gigabytes_per_second": round(self.bytes / seconds / 1e9, 3),
        }

    def update_bar(self, path: Path, step: JobProgress) -> None:
        """Update the bar of a scene, or add it."""
        if path not in self.tasks:
            self.tasks[path] = self.shown.add_task(printable(path.name), total=step.total, rate=self.what)
        rates = self.rates()
        rate = (
            f"{self.what}  {rates['pixels_per_second'] / 1e6:.2f} Mpixel/s  {rates['gigabytes_per_second']:.2f} GB/s  "
            f"{step.device}"
        )
        self.shown.update(
            self.tasks[path], completed=step.done, total=step.total, rate=rate if step.pixels else self.what
        )

    def print_json(self, path: Path, step: JobProgress) -> None:
        """Print progress as JSON: at most one line per second for each scene, and always its last."""
        now = time.monotonic()
        if step.done < step.total and now - self.last_printed.get(path, 0.0) < 1:
            return
        self.last_printed[path] = now
        line: dict[str, Any] = {"scene": path.name, f"{self.what}_done": step.done, self.what: step.total}
        line |= {"scenes_done": self.ended, "scenes": self.scenes} if self.scenes > 1 else {}
        line |= {**self.rates(), "device": step.device} if step.pixels else {}
        with contextlib.suppress(OSError, ValueError):  # the reader of stderr is gone; the work goes on
            print_json(line, err=True)


def new_bars() -> Any:
    """Return the progress display of the terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    # The name of a scene may look like markup, such as [red] or [/].
    name, rate = (TextColumn(what, markup=False) for what in ("{task.description}", "{task.fields[rate]}"))
    columns = (name, BarColumn(), MofNCompleteColumn(), rate, TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)
