"""The parts of features in runs: options, maps and searches, imported when a command first asks for them."""

import functools
import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from . import features


def no_entry(*_: Any) -> str:
    """Return no text."""
    return ""


class OwnSearch(NamedTuple):
    """A search that finds the abundances of pixels in place of the solver's, on the CPU, and certifies them itself.

    Attributes
    ----------
    planned : callable
        ``planned(problem, value)`` returns a problem with this search, of its option's value; `MethodError` if that is
        impossible.
    file : str
        The file that has ``tile_solver(ops)``, as in `unmix.solvers.pixels.tile.SEARCH`, and ``new_work(L, p, plan)``,
        which allocates its scratch.
    argument : str
        The text on its argument in the docstring of `unmix.solve`.
    best : str
        What reports say is proved of each answer.
    price : callable
        ``price(value, summary)`` returns advice where the search may make the fit worse, or "".
    """

    planned: Callable[[Any, Any], Any]
    file: str
    argument: str
    best: str
    price: Callable[[Any, Any], str]


@dataclass(frozen=True)
class Map:
    """A map, ``STEM_name``.

    Attributes
    ----------
    is_wanted : callable
        Whether a run writes it, from its `unmix.options.Options`.
    count : callable or None
        The number of its bands, from the options, L bands in use and p endmembers. None for a map that
        `unmix.maps.derived` makes of abundances, which says itself how many it has.
    holds : str
        Text of its header; ``{what}`` stands for abundances or fractions, ``{by}`` for version and method. Derived maps
        have their own.
    bands : tuple of str
        Names of its bands, where these do not depend on the scene.
    has_unit : bool
        Whether values are in a unit, or else plain numbers.
    is_share : bool
        Whether its bands are shares from 0 to 1: two runs are compared by it, and programs show it with the colours of
        shares.
    can_be_quantized : bool
        Whether it has bands enough to be worth it, and values of a size that is known before the run.
    may_be_negative : bool
        Whether values below 0 are usual.
    is_of_classes : bool
        Whether it holds numbers of classes, as bytes; 0 is no data.
    names_things : bool
        Whether its values are numbers of things, which have no means.
    """

    is_wanted: Callable[[Any], bool]
    count: Callable[[Any, int, int], int] | None = None
    holds: str = ""
    bands: tuple[str, ...] = ()
    has_unit: bool = True
    is_share: bool = False
    can_be_quantized: bool = False
    may_be_negative: bool = False
    is_of_classes: bool = False
    names_things: bool = False

    @property
    def is_derived(self) -> bool:
        """Whether it is made of abundances (`unmix.maps.derived`), not by the solver."""
        return self.count is None


class OwnMap(NamedTuple):
    """A map of a feature that runs write, made of the float64 abundances of some lines.

    Attributes
    ----------
    row : Map
    made : callable
        ``made(given)`` returns a `unmix.maps.derived.DerivedMap`, of a `unmix.maps.derived.table.GivenLines`.
    section : callable
        ``section(run)`` returns HTML for a report.
    of_noise : callable
        ``of_noise(options)`` returns words for what it holds, such as "ranges", if that is made from noise, else "".
    is_deviation : bool
        Whether it has the standard deviations of abundances, or of their sums.
    bounds : callable
        ``bounds(asked)`` returns the name of the map whose values it bounds, by a run's request, or "" for none.
    """

    row: Map
    made: Callable[[Any], Any]
    section: Callable[[Any], str] = no_entry
    of_noise: Callable[[Any], str] = no_entry
    is_deviation: bool = False
    bounds: Callable[[dict[str, Any]], str] = no_entry


class InRuns(NamedTuple):
    """The part in runs of a feature that options of `unmix.run` ask for.

    Attributes
    ----------
    settings : type
        A dataclass that declares the options (`unmix.settings.setting`); their defaults ask for nothing.
    begin : callable
        ``begin(options)`` returns what it does in the run of one scene, a `Part`.
    headline, section : callable
        ``headline(entry)`` returns, of its entry in a run's record, words for the first line of a report;
        ``section(run)`` HTML for the page of a run that has such an entry.
    search : OwnSearch, optional
    faults : callable
        ``faults(options)`` yields messages on options that do not go together, beside what `settings` says.
    request : mapping of str to callable
        Values on which outputs depend: each is made from the options, and replaces options as they are given.
    uses_seed : bool
        Whether `seed` is the seed of its random numbers.
    maps : mapping of str to OwnMap
    is_always : bool
        Whether it has a part in all runs.
    for_models : mapping of str to mapping
        Its options that `unmix mesma` has, too, with their ``help`` and ``type`` there.
    """

    settings: type
    begin: Callable[[Any], "Part"]
    headline: Callable[[dict[str, Any]], str] = no_entry
    section: Callable[[Any], str] = no_entry
    search: OwnSearch | None = None
    faults: Callable[[Any], Iterable[str]] = no_entry
    request: Mapping[str, Callable[[Any], Any]] = {}
    uses_seed: bool = False
    maps: Mapping[str, OwnMap] = {}
    is_always: bool = False
    for_models: Mapping[str, Mapping[str, Any]] = {}


class Part:
    """What a feature does in the run of one scene."""

    # Whether it keeps only some of the endmembers, and what a dry run then logs after its name.
    keeps, before = False, ""

    def __init__(self, options: Any) -> None:
        self.options = options

    def keep(self, library: Any, problem: Any, cube: Any, options: Any) -> int:
        """Choose endmembers of ``problem``'s, unless an earlier run has; return how often the file was read."""
        raise NotImplementedError

    def kept(self, library: Any) -> Any:
        """Return the endmembers that are kept."""
        raise NotImplementedError

    def read(self, scene: Any, library: Any) -> None:
        """Read files beside the scene; ``library`` is the one given, or None. `UnmixError` where one cannot be read."""

    def request(self) -> dict[str, Any]:
        """Return what outputs depend on of the files that `read` reads, by their options, as JSON."""
        return {}

    def look(self, sample: Any, look: Any, scene: Any, library: Any, steps: Any = ()) -> None:
        """Look at a sample and its `Look` after all pixels are solved; ``steps`` tell how bands were changed."""

    @property
    def lacking(self) -> float:
        """The fraction of the sample's pixels that have a spectrum in common which the endmembers lack."""
        return 0.0

    @property
    def said(self) -> str:
        """A warning about the sample, or ""."""
        return ""

    def judge(
        self, problem: Any, maps: Any, lacks: Any, said: Any, summary: Any
    ) -> tuple[dict[str, Any], list[tuple[int, str]]]:
        """Return entries in a run's record on the effects of noise, and sentences to log, with their levels."""
        # maps are bands of the maps made from noise, lacks the shares of the solved pixels without them, said the text
        # about these; the summary counts the pixels.
        return {}, []

    def of_maps(self, derived: Any, rasters: Any, path: Any) -> dict[str, Any]:
        """Return entries in a run's record of what its maps say, and log it; ``path`` is the scene's."""
        return {}

    def plan(self, problem: Any) -> Any:
        """Return the problem as it is solved; `MethodError` if that is impossible."""
        return problem

    def state(self) -> dict[str, Any]:
        """Return what a resumed run takes over, as JSON."""
        return {}

    def resume(self, state: dict[str, Any]) -> None:
        """Take over what an earlier run chose, from its `state`."""

    def entry(self, summary: Any) -> dict[str, Any]:
        """Return its entries in a run's record; ``summary`` is the summary of all pixels."""
        return {}


@functools.cache
def in_runs() -> dict[str, InRuns]:
    """Return what features do in runs, by the option that asks for each."""
    return {one.name: importlib.import_module(one.module("runs")).IN_RUNS for one in features() if one.is_in_runs}


def asked(options: Any) -> dict[str, InRuns]:
    """Return the features in runs that options ask for."""
    return {
        name: one for name, one in in_runs().items() if one.is_always or getattr(options, name) not in (None, False)
    }


@functools.cache
def own_maps() -> dict[str, OwnMap]:
    """Return the maps of features, by name."""
    return {name: one for feature in in_runs().values() for name, one in feature.maps.items()}


@functools.cache
def searches() -> dict[str, OwnSearch]:
    """Return the searches of features, by the option that asks for each."""
    return {name: one.search for name, one in in_runs().items() if one.search is not None}


def search_file(name: str) -> Any:
    """Return the module of a feature's search."""
    return importlib.import_module(f".{name}.{searches()[name].file}", __package__)
