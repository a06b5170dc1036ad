"""Capabilities beside the core: a folder each, with everything of its own. The core asks the table here and names none elsewhere."""

import functools
import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

# The folders of the features, in the order in which they are asked. Without one of them all others work as before.
FOLDERS = ("rows",)


@dataclass(frozen=True)
class Feature:
    """What the core asks of a feature; what it does not say, it leaves as it is.

    Attributes
    ----------
    name : str
        The option that asks for it, its key in records, and in the journal.
    settings : type
        A dataclass that declares its options (`unmix.settings.setting`); their defaults ask for nothing.
    faults : callable
        ``faults(options)`` yields messages on options that are invalid, or do not go together.
    begin : callable
        ``begin(options)`` returns what it does in the run of one scene, a `Part`.
    headline, section : callable
        ``headline(entry)`` and ``section(entry)`` return, of its entry in a run's record, words for the first line of a report, and
        HTML for its page.
    check : callable
        ``check(solved, everything)`` returns faults of a finished run, and what was found right in words.
    """

    name: str
    settings: type
    faults: Callable[[Any], Iterator[str]]
    begin: Callable[[Any], "Part"]
    headline: Callable[[dict[str, Any]], str]
    section: Callable[[dict[str, Any]], str]
    check: Callable[[Any, bool], tuple[list[str], str]]

    def is_asked(self, options: Any) -> bool:
        """Return whether options ask for it."""
        return getattr(options, self.name) is not None


class Part:
    """What a feature does in the run of one scene."""

    # Said where a run is only planned.
    before = ""

    def keep(self, library: Any, problem: Any, cube: Any, options: Any) -> int:
        """Choose endmembers of those that were given or extracted, unless an earlier run has; return how often the file was read.

        ``problem`` is planned with all of them.
        """
        raise NotImplementedError

    def kept(self, library: Any) -> Any:
        """Return the endmembers that are kept."""
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        """Return what a resumed run takes over, as JSON."""
        raise NotImplementedError

    def resume(self, state: dict[str, Any]) -> None:
        """Take over what an earlier run chose, from its `state`."""
        raise NotImplementedError

    def entry(self) -> dict[str, Any]:
        """Return its entry in a run's record."""
        raise NotImplementedError


@functools.cache
def features() -> tuple[Feature, ...]:
    """Return all features; light, until they are used."""
    return tuple(importlib.import_module(f".{name}", __name__).FEATURE for name in FOLDERS)


def asked(options: Any) -> tuple[Feature, ...]:
    """Return the features that options ask for."""
    return tuple(one for one in features() if one.is_asked(options))
