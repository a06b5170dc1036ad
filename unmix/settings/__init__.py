"""Declare all options of a run: the command line, `Options`, records and their documentation are made from these."""

import difflib
import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from math import inf
from numbers import Integral
from typing import Any, Literal, TypeVar

from ..errors import MethodError

# Parameters of most functions beside the options of how a scene is read, which a mistyped one may mean.
OF_ALL_COMMANDS = ("out_dir", "count", "format", "overwrite", "memory", "threads")

_FEW = "is no more: `rows` auto keeps the few spectra that a scene needs, `at_most` K the best few of each pixel"
# Options, values of options and commands that there were, and what serves in their place.
GONE = {
    "l21": _FEW,
    "l1 auto": _FEW,
    "l1 discrepancy": _FEW,
    "l1_weights": "is no more: `l1` costs the same for each endmember",
    "monte_carlo": "is `average` plain now, with as many `draws`",
    "edges": "is no more: unmix.spatial takes weights of differences (`tv` and `laplacian` cost the same everywhere)",
    "allowed": "is no more: unmix.solve takes the allowed endmembers of each pixel",
    "regression": "is no more: the regression that is left has the same errors to 1e-8",
    "rule cob": "is no more: its counts are in `json` (models_in_class); `rule` ies chooses as many as classify best",
    "restarts": "is no more: above six endmembers `extract` nfindr begins from four sets of pixels",
    "solver qr": "is no more: `solver` active-set has the same optimum; unmix solve and unmix.nnls solve by QR",
    "solver multiplicative": "is no more: `solver` active-set is exact; unmix nnqp and unmix.nnqp have the updates",
    "criterion stable": "is no more: `criterion` all shows the others",
    "like dc1": "is no more: tests/squares.py of the sources has it",
    "like dc2": "is no more: tests/squares.py of the sources has it",
    "dates": "is no more: search for items of these dates, as with pystac-client, and save what it finds",
    "clouds": "is no more: search for items with less `eo:cloud_cover`, as with pystac-client, and save what it finds",
    "unit": "is no more: a worker takes a scene at a time; cut a huge one by `lines`",
    "unmix bench": "is no more: run.json has the seconds of each stage",
    "unmix superpixels": "is no more: docs/recipes.md has it in lines of Python with scikit-image",
    "unmix path": "is no more: unmix run with some `l1` shows the same",
}

Class = TypeVar("Class", bound=type)
# The effect of another value of an option: "values", other maps; "outputs", other files, forms, or ways to find
# endmembers; "contents", another file or another part of it; "nothing", the same maps, made elsewhere or otherwise.
Effect = Literal["values", "outputs", "contents", "nothing"]
# The kind of value: text, one word in any case, a number, the path or URL of a file that is read, or a folder.
Kind = Literal["text", "word", "number", "whole", "input", "folder", "local folder"]


@dataclass(frozen=True)
class Setting:
    """An option, but for its name, type and default, which are those of the field that it belongs to.

    Attributes
    ----------
    affects : {"values", "outputs", "contents", "nothing"}
        The effect of changing the option.
    help : str
        Its help; other options are written as parameters, `max_delta`.
    metavar : str, optional
        The placeholder of its value in help.
    kind : str
        The kind of value that it takes; a bool is always a flag.
    choices : tuple of str
        The words that it takes, alone or, for a number, beside numbers.
    least, most : number, optional
        The least and the largest number.
    above, below : float
        Numbers between which it lies.
    needs : tuple of str
        Options; one of them must be given with it: ``name``, or ``name value``.
    excludes : mapping of str to str
        Options that it does not go with, as ``name`` or ``name value``, or ``mesma``; and why, as the end of a
        sentence, or "".
    methods, solvers : tuple of str
        The methods and the solvers that it is for; empty for all.
    noise : {"", "of bands", "of pixels", "none"}
        Whether `noise` is used, of an option with words where it is one of these: a number for each band, or also for
        each pixel; or whether there may be none with it.
    short : str
        Its one letter on the command line.
    switch : str
        Its word there where that is not its name, or, with /, those for True and False.
    unset : str
        The effect of not giving it, for help.
    is_path : bool
        Whether a value that is none of the choices names a file.
    is_of_scene : bool
        Whether that file may belong to one scene alone, so that {stem} and {dir} in its name stand for the scene's.
    is_of_library : str
        For options that need a library: its effect on that, for messages.
    group : str
        The heading that it has in help.
    is_first : bool
        Whether help shows it first.
    before : str
        The option of the core that help shows it before, where it is of a feature.
    """

    affects: Effect
    help: str
    metavar: str | None = None
    kind: Kind = "text"
    choices: tuple[str, ...] = ()
    least: int | None = None
    most: float | None = None
    above: float = -inf
    below: float = inf
    needs: tuple[str, ...] = ()
    excludes: Mapping[str, str] = field(default_factory=dict)
    methods: tuple[str, ...] = ()
    solvers: tuple[str, ...] = ()
    noise: Literal["", "of bands", "of pixels", "none"] = ""
    short: str = ""
    switch: str = ""
    unset: str = ""
    is_path: bool = False
    is_of_scene: bool = False
    is_of_library: str = ""
    group: str = ""
    is_first: bool = False
    before: str = ""

    @property
    def values(self) -> str:
        """The values that it takes, in words."""
        low = f"at least {self.least}" if self.above == -inf else f"above {self.above:g}"
        high = f" and below {self.below:g}" if self.below < inf else ""
        bounds = low + (high if self.most is None else f" and at most {self.most:g}")
        numbers = {"number": (bounds,), "whole": (f"a whole number, {bounds}",)}
        return ", or ".join([*numbers.get(self.kind, ()), *self.choices])

    def takes(self, value: Any) -> bool:
        """Return whether a value is one of its choices, or a number within its bounds, where it has such."""
        if self.choices and not self.is_path and (isinstance(value, str) or self.kind == "text"):
            return value in self.choices
        if self.least is None and self.above == -inf:
            return True
        is_whole = isinstance(value, Integral) and not isinstance(value, bool)
        if isinstance(value, str) or (self.kind == "whole" and not is_whole):
            return False
        least, most = -inf if self.least is None else self.least, inf if self.most is None else self.most
        return bool(least <= value <= most and self.above < value < self.below)

    def uses_noise(self, value: Any) -> bool:
        """Return whether noise is used where it has a value that is not its default."""
        return bool(self.noise) and (not self.choices or self.kind == "whole" or value in self.choices)

    def faults(self, name: str, value: Any, method: str, solver: str) -> Iterator[str]:
        """Yield a message where it does not take a value, or is not for a method or solver; ``name`` is its own."""
        if not self.takes(value):
            given = f"{value:g}" if isinstance(value, float) else repr(value)[:80]
            gone = GONE.get(f"{name} {value}")
            yield f"`{name}` {value} {gone}" if gone else f"`{name}` {given}: must be {self.values}"
        for what, one, known in (("method", method, self.methods), ("solver", solver, self.solvers)):
            if known and one not in known:
                yield f"`{name}` is for `{what}` {', '.join(known)}, not {one}"


# Decorates the class of a feature's options: those of the core keep their order before them, and no object of it is
# made.
for_a_feature = dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)


def setting(default: Any, affects: Effect, help: str, metavar: str | None = None, **facts: Any) -> Any:
    """Return a field of a dataclass that declares an option; ``facts`` are those of `Setting`."""
    return field(default=default, metadata={"setting": Setting(affects, help, metavar, **facts)})


def same(declared: type, name: str, *default: Any) -> Any:
    """Return a field that declares the same option as another class, with another default if one is given."""
    one = next(one for one in fields(declared) if one.name == name)
    return field(default=(*default, one.default)[0], metadata=one.metadata)


def settings_of(*classes: type) -> dict[str, Setting]:
    """Return the options that dataclasses declare, by name; those of the first count."""
    declared = [one for each in reversed(classes) for one in fields(each) if "setting" in one.metadata]
    return {one.name: one.metadata["setting"] for one in declared}


def names_where(declared: type, **facts: Any) -> tuple[str, ...]:
    """Return the names of the options that a class declares with these facts."""
    return tuple(
        name
        for name, one in settings_of(declared).items()
        if all(getattr(one, fact) == value for fact, value in facts.items())
    )


def described(declared: Class) -> Class:
    """Add a class's declared options to its docstring as ``Attributes``; refuse unknown keywords by their names."""
    lines = []
    for one in fields(declared):
        if (what := one.metadata.get("setting")) is not None:
            kind = one.type if isinstance(one.type, str) else re.sub(r"<class '(.*)'>", r"\1", str(one.type))
            until = f" Default: {what.unset}." if what.unset else ""
            lines += [f"    {one.name} : {kind}", f"        {what.help}{until}"]
    head, raises, rest = (declared.__doc__ or "").partition("\n    Raises\n")
    own = "" if "Attributes\n" in head else "\n    Attributes\n    ----------\n"
    declared.__doc__ = head.rstrip() + "\n" + own + "\n".join(lines) + "\n" + raises + rest
    make, known = declared.__init__, [one.name for one in fields(declared)]  # type: ignore[misc]

    @functools.wraps(make)
    def checked(self: Any, *given: Any, **words: Any) -> None:
        refuse_unknown(words, known)
        make(self, *given, **words)

    declared.__init__ = checked  # type: ignore[misc]
    return declared


class UnknownOptionError(MethodError, TypeError):
    """A keyword is no option: a `TypeError`, as Python has it, that says which option is nearest."""


def refuse_unknown(words: Iterable[str], known: Sequence[str]) -> None:
    """Raise `UnknownOptionError` where a keyword is none of the known ones."""
    for word in words:
        if word in GONE:
            raise UnknownOptionError(f"`{word}` {GONE[word]}")
        if word not in known:
            every = [*OF_ALL_COMMANDS, *known]
            near = [one for one in every if one.startswith(word)] or difflib.get_close_matches(word, every, 1, 0.5)
            raise UnknownOptionError(f"'{word[:40]}' is no option" + (f"; there is `{near[0]}`" if near else " here"))
