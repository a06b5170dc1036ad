"""The tables of methods and solvers, from which the choices of the command line, its help and tests are made."""

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from ..errors import MethodError
from ..settings import described
from ..settings.extraction import ExtractSettings
from ..settings.models import MOST_SPECTRA, ModelSettings
from .constraint import AT_MOST_ONE, FREE, NONNEGATIVE, SIMPLEX, SUM_TO_ONE, Constraint


@dataclass(frozen=True)
class Method:
    """A constraint on abundances, and the names of the solvers that support it; the first is the default.

    If ``is_by_models``, each pixel has the best of many models, each of a few endmembers, and `ModelChoice` says which.
    """

    name: str
    constraint: Constraint
    solvers: tuple[str, ...]
    is_by_models: bool = False


@dataclass(frozen=True)
class Solver:
    """An algorithm that finds abundances.

    ``source`` is the paper; ``exact`` tells that the result is the optimum. ``pixel`` names the entry of
    `unmix.solvers.pixels.tile.SEARCH` that is compiled for both CPU and CUDA. With ``any_rank`` endmembers may be
    collinear, or more than bands. With ``as_given`` the mean is not subtracted from endmembers under Σa = 1: the
    algorithm depends on where zero lies.
    """

    name: str
    summary: str
    source: str
    exact: bool
    pixel: str
    any_rank: bool = False
    as_given: bool = False


# Tolerance of MESMA's limits: rounding gives a pixel that is a spectrum of the library a shade of 0 or of -2e-16.
ALLOWANCE = 1e-9
LARGEST_THRESHOLD = 1e100  # its square is within float64's range
# Fields of `ModelChoice` that records omit at their defaults.
WHEN_SET = ("max_residual", "residual_bands", "class_sets")
# Divisors of abundances (`unmix.library.fractions`).
NORMALIZATIONS = ("none", "sum", "length", "max")


# Fields of `Extraction` for algorithms that exchange pixels.
OF_EXCHANGES = ("refine", "smooth", "outside")


@described
@dataclass(frozen=True)
class Extraction(ExtractSettings):
    """How endmembers are extracted."""

    def __post_init__(self) -> None:
        if self.extract is None:
            exchanges = any(getattr(self, name) != getattr(Extraction, name) for name in OF_EXCHANGES)
            object.__setattr__(self, "extract", "vca" if exchanges else "auto")


# VIPER's defaults (VIPER Tools 2.1), where others are not given.
LIKE: dict[str, dict[str, Any]] = {
    "viper": {"levels": "2-3", "limits": "viper", "fusion": 0.007, "fusion_rule": "preceding"}
}
# Most models that are tried where `levels` is not given.
MOST_BY_DEFAULT = 1_000_000


def counts_of_models(counts: Sequence[int], most: int) -> list[int]:
    """Return how many models of 1, 2, ... spectra, at most so many, classes of these sizes make."""
    of_size = [1, *[0] * min(most, MOST_SPECTRA, len(counts))]
    for count in counts:
        for k in range(len(of_size) - 1, 0, -1):
            of_size[k] += count * of_size[k - 1]
    return of_size[1:]


def classes_in_order(classes: Sequence[str]) -> list[str]:
    """Return the classes, each once, in the order of their lower-case names, which settles ties between models."""
    return sorted(set(classes), key=lambda name: (name.lower(), name))


@described
@dataclass(frozen=True)
class ModelChoice(ModelSettings):
    """How MESMA chooses among models, each of at most one spectrum of each class, and shade."""

    def __post_init__(self) -> None:
        if self.like is not None:
            if self.like not in LIKE:
                raise MethodError(f"`like` '{self.like}': there is {', '.join(LIKE)}")
            for name, value in LIKE[self.like].items():
                if getattr(self, name) == getattr(ModelSettings, name):
                    object.__setattr__(self, name, value)
        low, high = self.sizes
        if not 1 <= low <= high <= MOST_SPECTRA:
            raise MethodError(
                f"`levels` {self.levels}: write A-B, from 2 to {MOST_SPECTRA + 1} endmembers with shade, such as 2-3, or auto"
            )
        if self.class_sets is not None:  # the same sets are the same text
            sets = ["+".join(sorted(word.strip() for word in one.split("+"))) for one in self.class_sets.split(",")]
            object.__setattr__(self, "class_sets", ",".join(sorted(set(sets))))
        for name, known in (("limits", ("exact", "viper")), ("fusion_rule", ("kept", "preceding"))):
            if getattr(self, name) not in known:
                raise MethodError(f"`{name}` '{getattr(self, name)}': there is {' and '.join(known)}")
        defaults = {field.name: field.default for field in fields(self)}
        for name in ("min_fraction", "max_fraction", "min_shade", "max_shade", "max_residual", "residual_bands"):
            if self.limits == "exact" and getattr(self, name) != defaults[name]:
                raise MethodError(
                    f"`{name}` rejects models under `limits` viper; exact has fractions from 0 to a sum of 1"
                )
        thresholds = self.fusion or 0.0, 0.0 if self.max_rmse is None else self.max_rmse
        if not all(0 <= threshold < LARGEST_THRESHOLD for threshold in thresholds):
            raise MethodError(f"`fusion` and `max_rmse` must not be negative, nor {LARGEST_THRESHOLD:g} or more")
        if self.max_residual is not None and not 0 < self.max_residual < LARGEST_THRESHOLD:
            raise MethodError(f"`max_residual` must be above 0, and below {LARGEST_THRESHOLD:g}")
        if self.residual_bands < 1:
            raise MethodError(f"`residual_bands` {self.residual_bands}: must be at least 1")
        if self.max_residual is None and self.residual_bands != defaults["residual_bands"]:
            raise MethodError("`residual_bands` says over how many bands `max_residual` counts; give that")
        for least, most in (("min_fraction", "max_fraction"), ("min_shade", "max_shade")):
            if not getattr(self, least) <= getattr(self, most):
                raise MethodError(f"`{least}` {getattr(self, least):g} is above `{most}` {getattr(self, most):g}")

    def to_dict(self) -> dict[str, Any]:
        """Return the fields for a record, without those of `WHEN_SET` that have their defaults."""
        return {
            f.name: getattr(self, f.name)
            for f in fields(self)
            if f.name not in WHEN_SET or getattr(self, f.name) != f.default
        }

    def of_library(self, classes: Sequence[str], L: int) -> "ModelChoice":
        """Return this choice with the levels of a library, for the classes of all its spectra, in L bands."""
        if self.levels != "auto":
            return self
        if self.class_sets is not None:
            return replace(self, levels=f"2-{max(one.count('+') + 2 for one in self.class_sets.split(','))}")
        # With as many spectra as bands any pixel would fit.
        of_size = counts_of_models(list(Counter(classes).values()), max(3, L // 2))
        most = max(k for k in range(1, len(of_size) + 1) if k == 1 or sum(of_size[:k]) <= MOST_BY_DEFAULT)
        return replace(self, levels=f"2-{most + 1}")

    @property
    def is_in_reflectance(self) -> bool:
        """Whether a threshold is VIPER's own, for reflectance from 0 to 1."""
        return self.fusion == LIKE["viper"]["fusion"] or (self.limits == "viper" and self.max_rmse is None)

    def count_models(self, classes: Sequence[str]) -> dict[str, int]:
        """Return how many models of each level there are, for the classes of all spectra."""
        low, _ = self.sizes
        return {f"{k + 1} endmembers": n for k, n in enumerate(self.models_by_size(classes), 1) if k >= low}

    def models_by_size(self, classes: Sequence[str]) -> list[int]:
        """Return how many models of 1, 2, ... spectra there are, for the classes of all spectra."""
        counts, sets = Counter(classes), self.allowed_sets(classes)
        names, (_, high) = classes_in_order(classes), self.sizes
        if sets is None:
            return counts_of_models(list(counts.values()), high)
        return [
            sum(math.prod(counts[names[c]] for c in one) for one in sets if len(one) == k) for k in range(1, high + 1)
        ]

    def allowed_sets(self, classes: Sequence[str]) -> set[tuple[int, ...]] | None:
        """Return the sets of numbers of classes, in order, that `class_sets` allow; None for all."""
        if self.class_sets is None:
            return None
        known, (_, high) = classes_in_order(classes), self.sizes
        chosen = [sorted(map(known.index, self.set_of(text, known))) for text in self.class_sets.split(",")]
        if self.limits != "exact":
            return set(map(tuple, chosen))
        # A fraction may be zero.
        return {part for one in chosen for k in range(1, high + 1) for part in itertools.combinations(one, k)}

    def set_of(self, text: str, known: Sequence[str]) -> set[str]:
        """Return the classes of ``A+B``, out of the known classes; see `sets_of`."""
        by_name = {name.lower(): name for name in known} | {name: name for name in known}
        words = [word.strip() for word in text.split("+")]
        names = [by_name.get(word) or by_name.get(word.lower()) for word in words]
        if None in names:
            raise MethodError(
                f"`class_sets`: the library has no class '{words[names.index(None)]}'; it has {', '.join(known[:12])}"
            )
        found = {name for name in names if name is not None}
        low, high = self.sizes
        if not low <= len(found) <= high or len(found) != len(words):
            raise MethodError(
                f"`class_sets` {text}: `levels` {self.levels} allow sets of {low} to {high} classes, each named once"
            )
        return found

    @property
    def sizes(self) -> tuple[int, int]:
        """The fewest and the most spectra of a model, before a library is known; (0, 0) if ``levels`` is not ``A-B``."""
        if self.levels == "auto":
            return 1, MOST_SPECTRA
        low, _, high = self.levels.partition("-")
        parts = [low, high or low]
        return (
            (int(parts[0]) - 1, int(parts[1]) - 1)
            if all(part.isascii() and part.strip().isdigit() for part in parts)
            else (0, 0)
        )

    @property
    def largest_rmse(self) -> float:
        """``max_rmse``, or its default."""
        if self.max_rmse is not None:
            return self.max_rmse
        return 0.025 if self.limits == "viper" else float("inf")


SEARCHED = ("active-set", "inverse", "delete-only")

METHODS = {
    method.name: method
    for method in (
        Method("ucls", FREE, ("direct",)),
        Method("scls", SUM_TO_ONE, ("direct",)),
        Method("nnls", NONNEGATIVE, SEARCHED),
        Method("fcls", SIMPLEX, SEARCHED),
        # Not delete-only: it starts from all endmembers, and shade's spectrum is zero.
        Method("pcls", AT_MOST_ONE, ("active-set", "inverse")),
    )
}

# Not in METHODS: MESMA has its own command.
MESMA = Method("mesma", FREE, ("models",), is_by_models=True)
MODELS = Solver(
    "models", "all models, by tables of their Gram matrices", "Roberts et al. 1998", True, "mesma", any_rank=True
)

SOLVERS = {
    solver.name: solver
    for solver in (
        Solver(
            "direct",
            "least squares on all endmembers",
            "QR",
            True,
            "direct",
        ),
        Solver(
            "active-set",
            "Lawson-Hanson on a tableau, for any number and rank",
            "Lawson and Hanson 1974; updates: Li and Li, eqs. 4 and 6",
            True,
            "active_set",
            any_rank=True,
        ),
        Solver(
            "inverse",
            "Lawson-Hanson by updates of the inverse",
            "Li and Li, Algorithm 2; with the sum to one, from the best single endmember",
            True,
            "inverse",
        ),
        Solver(
            "delete-only",
            "only removes endmembers, so not exact",
            "Li and Li, Algorithm 3; Heinz and Chang 2001",
            False,
            "delete_only",
            as_given=True,
        ),
    )
}


def choose(method: str, solver: str | None = None) -> tuple[Method, Solver]:
    """Return a method and a solver that supports it, by default the method's; `MethodError` for unknown names."""
    if (method, solver) in (("mesma", None), ("mesma", "models")):
        return MESMA, MODELS
    if method not in METHODS:
        raise MethodError(f"unknown method '{method:.80}'; there are {', '.join(METHODS)}")
    row = METHODS[method]
    name = row.solvers[0] if solver is None else solver
    if name not in SOLVERS:
        raise MethodError(f"unknown solver '{name:.80}'; there are {', '.join(SOLVERS)}")
    if name not in row.solvers:
        raise MethodError(f"solver '{name}' does not serve method '{method}'; use {' or '.join(row.solvers)}")
    return row, SOLVERS[name]


# The methods under which abundances have bounds: they allow ranges, subsets of a library, and what pixels have of
# their own.
BOUNDED = tuple(name for name, one in METHODS.items() if one.constraint.has_bounds)
# Solvers whose answers are the optimum, MESMA's too.
EXACT = (*(one.name for one in SOLVERS.values() if one.exact), MODELS.name)
# The method of a run that none is given for.
WITHOUT_METHOD = "nnls"


def normalization_without_method(has_library: bool) -> str:
    """Return the `normalize` of a run without `method`, whose fractions do not depend on brightness."""
    # The brightness of a library is measured; an extracted spectrum is as bright as its pixels happen to be.
    return "sum" if has_library else "length"


def refuse_normalization(method: Method, normalize: str) -> None:
    """Raise `MethodError` where no fractions can be made of the abundances of a method."""
    if normalize not in NORMALIZATIONS:
        raise MethodError(f"`normalize` '{normalize}': there are {', '.join(NORMALIZATIONS)}")
    why = method.constraint.why_no_fractions
    if normalize != "none" and why is not None:
        raise MethodError(f"`normalize` is for `method` nnls and pcls; abundances of {method.name} {why}")


def on_cpu(device: str, name: str) -> str:
    """Return "cpu", the only device of the search ``name``; `MethodError` where a GPU is named."""
    if device not in ("auto", "cpu"):
        raise MethodError(f"`{name}` is solved on the CPU, not on {device}; leave out `device`, or name cpu")
    return "cpu"
