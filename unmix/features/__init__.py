"""Capabilities beside the core: a folder each, with everything of its own.

The core asks the table here and names none elsewhere.
"""

import functools
import importlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

# The folders of the features, in the order in which they are asked. Without one of them all others work as before.
FOLDERS = (
    "rows",
    "at_most",
    "average",
    "missing",
    "uncertainty",
    "ranges",
    "grains",
    "images",
    "nmf",
    "bands",
    "systems",
    "emit",
    "stac",
    "plot",
    "viewer",
    "cluster",
    "xarray",
    "zonal",
    "series",
    "plots",
)


class Image(NamedTuple):
    """A map that a command other than a run writes, ``STEM_name``.

    Attributes
    ----------
    by : str
        The command.
    is_scene : bool
        Whether it holds spectra, or components of spectra, so that other commands take it for a scene.
    names_things : bool
        See `unmix.features.runs.Map`.
    has_unit : bool
        Whether values may be in a unit.
    """

    by: str
    is_scene: bool = False
    names_things: bool = False
    has_unit: bool = True


class Feature(NamedTuple):
    """Everything that the core knows of a feature; all but the name may be left out.

    Attributes
    ----------
    name : str
        Its folder; of a feature in runs also the option that asks for it, and its key in records and in the journal.
    commands : mapping
        Its commands, with the line that help shows; command NAME is ``command`` in its file ``command_NAME.py``.
    public : mapping
        Names that users import from `unmix`, with the file of each.
    images : mapping
        Maps that its commands write: rows of `unmix.settings.maps.images`.
    warms : mapping
        Runs that `unmix.commands.warm` makes, by the word that asks for each: ``(scene, library, device)`` to a report.
    documents : str
        Its file that reads documents in JSON: ``opened(document, part, open)`` returns the `unmix.io.cube.Cube` that
        one names, where ``part`` follows its name after ``#`` and ``open(path)`` opens a file; ``listed(path, content)`` the
        names of the scenes in one, as bytes; ``about(document, part)`` the ``stem`` and fields of one whose files may
        be missing; all None where it is of another kind.
    attach : callable, optional
        Called when `unmix` is imported, and at the first use of a public name.
    is_in_runs : bool
        Whether it has a part in runs: ``IN_RUNS`` in its file ``runs.py`` (`unmix.features.runs`).
    """

    name: str
    commands: Mapping[str, str] = {}
    public: Mapping[str, str] = {}
    images: Mapping[str, Image] = {}
    warms: Mapping[str, Callable[..., dict[str, Any]]] = {}
    documents: str = ""
    attach: Callable[[], None] | None = None
    is_in_runs: bool = False

    def module(self, file: str) -> str:
        """Return the full name of one of its files."""
        return f"{__name__}.{self.name}.{file}"


@functools.cache
def features() -> tuple[Feature, ...]:
    """Return all features; light, until they are used."""
    return tuple(importlib.import_module(f".{name}", __name__).FEATURE for name in FOLDERS)


def of_documents(ask: str, *given: Any) -> Any:
    """Return the first answer other than None of a feature's file ``documents`` to the question ``ask``, else None."""
    readers = (getattr(importlib.import_module(one.module(one.documents)), ask) for one in features() if one.documents)
    return next((answer for reader in readers if (answer := reader(*given)) is not None), None)


@functools.cache
def public() -> dict[str, str]:
    """Return the modules of all public names of features."""
    return {name: one.module(file) for one in features() for name, file in one.public.items()}
