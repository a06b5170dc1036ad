"""All options of a run in one class, which `unmix.run`, `unmix.batch` and their workers share."""

import math
import os
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ..blocks import parse_size
from ..errors import MethodError
from ..features.runs import asked, in_runs, own_maps
from ..io.export import OutputFormat, require
from ..io.remote import absolute
from ..library import ClassSums, Endmembers, Normalization, load_for, of_frame, table_of_classes
from ..methods import (
    LARGEST_THRESHOLD,
    OF_EXCHANGES,
    WITHOUT_METHOD,
    Extraction,
    Method,
    ModelChoice,
    Solver,
    choose,
    normalization_without_method,
    on_cpu,
)
from ..scene import ReadOptions, absolute_name, name_for
from ..settings import UnknownOptionError, described, names_where, refuse_unknown, settings_of
from ..settings.maps import MAPS
from ..settings.run import RunSettings
from .contradictions import WHOLE_SCENE, refuse_contradictions

# Options that every request has; it has others only where they are not at their defaults.
ALWAYS_REQUESTED = (
    "method",
    "solver",
    "endmembers",
    "count",
    "extract",
    "seed",
    "residual",
    "certificate",
    "format",
    "ortho",
    "top",
    "max_delta",
)
# Keys that `request` omits at their defaults; a record without one was made with the default.
WHEN_SET = (
    *(
        name
        for name, one in settings_of(RunSettings).items()
        if one.affects != "nothing" and name not in ALWAYS_REQUESTED
    ),
    "choice",
    "free",
    *(key for one in in_runs().values() for key in one.request),
)
# Options that a request has in another form than they are given.
IN_ANOTHER_FORM = (
    "by",
    "shade_normalize",
    "l1",
    "tv",
    "laplacian",
    "within",
    "refine",
    "tag",
    *(name for one in in_runs().values() if one.request for name in settings_of(one.settings)),
)
# Options that a request has as they are given, where they are not at their defaults: all others that affect outputs.
AS_GIVEN = tuple(
    name
    for name, one in settings_of(RunSettings).items()
    if one.affects in ("values", "outputs") and name not in ALWAYS_REQUESTED + IN_ANOTHER_FORM
)
# Defaults of these options where a method is given.
WITH_METHOD = {"normalize": "none", "extract": "vca"}
# Options of a run without a method where the brightness of the scene's materials does not vary.
METHOD_OF_AREAS: dict[str, Any] = {"method": "fcls", "normalize": "none"}
# Options of the extraction that a library makes void, but for `count`, `extract` and `seed`.
OF_EXTRACTION = (*OF_EXCHANGES, "outliers")
# Recorded as the path of a library that is passed as an object.
IN_MEMORY = "(a library in memory: name it)"
# Most letters of a tag's text: HDF5 allows 64 KiB, and headers are read by people.
LONGEST_TAG = 1000
# Options that do not affect the maps; `mesma` and `reading` are recorded separately.
NOT_RECORDED = (*names_where(RunSettings, affects="nothing"), "mesma", "reading", "left_open")


@described
@dataclass(frozen=True)
class Options(RunSettings):
    """How scenes are to be unmixed.

    Attributes
    ----------
    mesma : ModelChoice, optional
        How models are chosen; None for every method but "mesma".
    reading : ReadOptions
        How the scene is read.
    left_open : frozenset of str
        Which of ``method``, ``normalize`` and ``extract`` were not given; copies of these options keep it.

    Raises
    ------
    MethodError
        If a value is unknown or invalid, or options contradict each other.
    """

    mesma: ModelChoice | None = None
    reading: ReadOptions = field(default_factory=ReadOptions)
    left_open: frozenset[str] = field(default=frozenset(), repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "max_delta", float(self.max_delta))
        self.choose_answer()
        choose(str(self.method), self.solver)
        if self.method == "mesma":
            self.refuse_for_models()
        elif self.mesma:
            raise MethodError(f"`{'`, `'.join(vars(self.mesma))}`: only for models; use `unmix mesma`")
        object.__setattr__(self, "format", require(self.format).name)
        object.__setattr__(self, "tag", (self.tag,) if isinstance(self.tag, str) else tuple(self.tag))
        refuse_contradictions(self)
        for name, one in asked(self).items():
            if one.search is not None:
                object.__setattr__(self, "device", on_cpu(self.device, name))
        _ = self.tags
        parse_size(str(self.memory)), parse_size(str(self.gpu_memory))

    def choose_answer(self) -> None:
        """Set ``method``, ``normalize`` and ``extract`` where they are not given; `left_open` has their names."""
        names = ("method", *WITH_METHOD)
        open_now = [name for name in names if getattr(self, name) is None]
        object.__setattr__(self, "left_open", self.left_open | set(open_now))
        chosen: dict[str, Any] = dict(WITH_METHOD)
        if self.method is None:
            has_library = self.endmembers is not None
            chosen["method"] = WITHOUT_METHOD
            if not has_library:
                chosen["extract"] = self.extraction.extract
            if not self.of_whole_scene and not self.shade_normalize:  # neither goes with fractions
                chosen["normalize"] = normalization_without_method(has_library)
        for name in open_now:
            object.__setattr__(self, name, chosen[name])

    @property
    def of_whole_scene(self) -> bool:
        """Whether the abundances of all pixels are found, and proved, together."""
        return any(getattr(self, name) is not None for name in WHOLE_SCENE)

    @property
    def is_open(self) -> bool:
        """Whether the brightness of the scene's materials decides on the method, which `decided` does."""
        without = (WITHOUT_METHOD, normalization_without_method(False), "auto")
        is_chosen = self.endmembers is None and (self.method, self.normalize, self.extract) == without
        return is_chosen and {"method", "normalize"} <= self.left_open

    def decided(self, is_flat: bool) -> "Options":
        """Return the options with the method for a scene whose brightness varies or, if ``is_flat``, does not.

        In a flat scene extracted spectra are as bright as its materials. The method is fcls then; where
        options need nnls, its abundances are divided by their sum.
        """
        if not self.is_open:
            return self
        given = [name for name in settings_of(RunSettings) if name not in self.left_open and not self.is_default(name)]
        asks_nnls = "solver" in given or any(
            "fcls" not in (settings_of(RunSettings)[name].methods or ("fcls",)) for name in given
        )
        flat: dict[str, Any] = {"normalize": "sum"} if asks_nnls else METHOD_OF_AREAS
        return replace(self, left_open=frozenset(), **flat if is_flat else {})

    @property
    def rmse_within(self) -> float:
        """``within`` as a number, infinite for all; 0 where it is not given."""
        if self.within is None:
            return 0.0
        if self.within == "all":
            return math.inf
        is_number = isinstance(self.within, int | float | str) and not isinstance(self.within, bool)
        try:
            number = float(self.within) if is_number and "_" not in str(self.within) else math.nan
        except ValueError:
            return math.nan
        return number if 0 <= number < LARGEST_THRESHOLD else math.nan

    @property
    def tags(self) -> dict[str, str]:
        """Return ``tag`` as header fields ``tag KEY``, which no program takes for its own, or raise `MethodError`."""
        tags: dict[str, str] = {}
        for text in self.tag:
            key, equals, value = (" ".join(part.split()) for part in text.partition("="))
            key = f"tag {' '.join(key.lower().replace('_', ' ').split())}"
            is_name = key.isascii() and key[4:5].isalpha() and key.replace(" ", "").isalnum()
            is_text = 0 < len(value) <= LONGEST_TAG and value.isprintable() and not set(value) & set("{},")
            if not equals or not is_name or not is_text:
                raise MethodError(
                    f"`tag` '{text[:80]}': write KEY=VALUE: letters, digits and spaces, and a text of at most "
                    f"{LONGEST_TAG} letters "
                    "without commas and braces"
                )
            if key in tags:
                raise MethodError(f"`tag` '{text[:80]}': is given twice")
            tags[key] = value
        return tags

    def library_of(self, scene: Any) -> Endmembers:
        """Return the spectra of the library, brought to the bands in use of a scene."""
        assert self.endmembers is not None
        how = self.classes, self.library_scale, self.select, self.complete, self.across_gaps
        return load_for(self.endmembers, scene, *how)

    @property
    def extraction(self) -> Extraction:
        """How endmembers are extracted."""
        given = {name: getattr(self, name) for name in ("extract", "seed", *OF_EXTRACTION)}
        return Extraction("auto" if self.count is None else self.count, **given)

    def refuse_for_models(self) -> None:
        """Raise `MethodError` where options do not go with MESMA, and set the options that it needs."""
        if self.endmembers is None:
            raise MethodError("mesma needs a library with classes; give one with `endmembers`")
        object.__setattr__(self, "by", "class")
        object.__setattr__(self, "mesma", self.mesma or ModelChoice())

    @classmethod
    def of(cls, **words: Any) -> "Options":
        """Make options from keywords of `Options`, `ReadOptions` and, for MESMA, `ModelChoice`.

        Raise `unmix.settings.UnknownOptionError`, which is a `TypeError`, for an unknown one.
        """
        names = {field.name for field in fields(cls)} - {"reading", "mesma", "left_open"}
        of_models = {field.name for field in fields(ModelChoice)} if words.get("method") == "mesma" else set()
        for word in set(words) & {one.name for one in fields(ModelChoice)} - of_models:
            raise UnknownOptionError(f"'{word}' is an option of `method` mesma")
        refuse_unknown(words, [*names, "mesma", *of_models, *(one.name for one in fields(ReadOptions))])
        rest = {name: value for name, value in words.items() if name not in names}
        chosen = ModelChoice(**{name: rest.pop(name) for name in of_models & set(rest)}) if of_models else None
        own = {name: value for name, value in words.items() if name in names}
        chosen = rest.pop("mesma", chosen)
        if hasattr(own.get("endmembers"), "columns"):
            own["endmembers"] = of_frame(own["endmembers"])
        return cls(**own, reading=ReadOptions(**rest), mesma=chosen)

    @property
    def method_spec(self) -> Method:
        """The method's entry in the table of methods."""
        return choose(str(self.method), self.solver)[0]

    @property
    def solver_spec(self) -> Solver:
        """The solver's entry in the table of solvers."""
        return choose(str(self.method), self.solver)[1]

    @property
    def needs_float64(self) -> bool:
        """Whether maps are made of the float64 abundances, on the host."""
        return bool(self.derived) or self.of_whole_scene

    @property
    def derived(self) -> tuple[str, ...]:
        """The maps of `unmix.maps.derived` that are written."""
        return tuple(name for name, one in MAPS.items() if one.is_derived and one.is_wanted(self))

    @property
    def form(self) -> OutputFormat:
        """The entry in the table of output formats."""
        return require(self.format)

    @property
    def budget(self) -> int:
        """``memory`` in bytes."""
        return parse_size(str(self.memory))

    @property
    def gpu_budget(self) -> int:
        """``gpu_memory`` in bytes."""
        return parse_size(str(self.gpu_memory))

    def for_scene(self, path: str | os.PathLike[str]) -> "Options":
        """Return the options with the names of one scene's masks, noise and other cubes; see `unmix.scene.name_for`."""
        given = {name: getattr(self, name) for name in names_where(RunSettings, is_of_scene=True)}
        named: dict[str, Any] = {name: name_for(text, path) for name, text in given.items() if isinstance(text, str)}
        reading = self.reading.for_scene(path)
        is_same = reading == self.reading and all(given[name] == text for name, text in named.items())
        return self if is_same else replace(self, **named, reading=reading)

    def is_default(self, name: str) -> bool:
        """Return whether an option is at its default, or at the default of a run with a method."""
        default = getattr(Options, name)
        return getattr(self, name) in (default, WITH_METHOD.get(name, default))

    def repeatable(self) -> dict[str, Any]:
        """Return the options that differ from the defaults, with absolute paths: all that the same maps of a scene
        need.

        Where to write and how to compute are left out. A library that was handed over in memory is `IN_MEMORY`, which
        is no file.
        """
        own = {
            f.name: getattr(self, f.name)
            for f in fields(self)
            if f.name not in NOT_RECORDED and not self.is_default(f.name)
        }
        for name in self.left_open if self.is_open else ():
            own.pop(name, None)
        for name, one in settings_of(RunSettings).items():
            if one.is_path and own.get(name) is not None and own[name] not in one.choices:
                own[name] = absolute_name(own[name]) if isinstance(own[name], str | os.PathLike) else IN_MEMORY
        file, column = ("", "") if self.classes is None else table_of_classes(self.classes)
        if file:
            own["classes"] = absolute(file) + (f":{column}" if column else "")
        own |= self.mesma.to_dict() if self.mesma else {}
        own |= self.reading.to_dict()
        plain = {
            name: list(value) if isinstance(value, tuple) else value for name, value in own.items() if value is not None
        }
        return {
            name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in plain.items()
        }

    def request(self, library: Endmembers | None, device: str) -> dict[str, Any]:
        """Return everything that outputs depend on, for ``run.json`` and the journal; ``device`` is the device in use.

        A mask is part of the input, and identified by its content (`unmix.io.identity`), not by its name.
        """
        return {
            "method": self.method_spec.name,
            "solver": self.solver_spec.name,
            "endmembers": None if library is None else library.digest(),
            "count": self.count,
            "extract": self.extract if library is None else None,
            "seed": self.seed if library is None else None,
            "residual": self.residual,
            "certificate": self.certificate,
            "format": self.format,
            "ortho": self.ortho,
            "top": self.top,
            "max_delta": self.max_delta,
            "device": device.partition(":")[0],
            "reading": {name: value for name, value in self.reading.to_dict().items() if "mask" not in name},
        } | (
            {f.name: getattr(self, f.name) for f in fields(self) if f.name in AS_GIVEN and not self.is_default(f.name)}
            | ({} if self.by is None else {"by": self.by, "shade_normalize": self.shade_normalize})
            | ({"choice": self.mesma.to_dict()} if self.mesma else {})
            | ({"within": str(self.rmse_within)} if self.within is not None else {})
            | ({"refine": True} if self.refine and library is None and self.extract == "vca" else {})
            | ({"tag": list(self.tag)} if self.tag else {})
            | ({"colors": list(library.colors)} if self.class_map and library is not None and library.colors else {})
            | {key: made(self) for one in asked(self).values() for key, made in one.request.items()}
        )

    def sums(self, endmembers: Endmembers, normalization: Normalization | None = None) -> ClassSums | None:
        """Return how abundances or fractions are summed by class, if they are; `LibraryError` without classes."""
        if self.by is None:
            return None
        return ClassSums.of(endmembers, self.shade_normalize, bool(self.mesma)).weighted(normalization)

    def maps(self, L: int, p: int) -> dict[str, int]:
        """Return the maps written beside `derived`, with each one's number of bands, for L bands and p endmembers."""
        return {
            name: one.count(self, L, p) for name, one in MAPS.items() if one.count is not None and one.is_wanted(self)
        }
