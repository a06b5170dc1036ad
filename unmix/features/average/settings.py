"""The options of `average`, and how they say what is drawn."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ...methods import EXACT
from ...settings import for_a_feature, setting

# Methods whose abundances have a volume, over which a model's evidence is.
AVERAGED = ("fcls", "pcls")


@for_a_feature
class AverageSettings:
    """The options of `average`."""

    average: str | None = setting(
        None,
        "values",
        "With `by` class: also write mean and standard deviation of each sum, STEM_average: over all models of one "
        "spectrum of each class, weighted by their likelihood (for fcls and pcls); or plain, over `draws` of spectra "
        "and noise, as EMIT does (CPU only).",
        group="Outputs",
        choices=("likelihood", "plain"),
        before="count",
        noise="of bands",
        needs=("by class", "mesma"),
        solvers=(*EXACT, "models"),
        excludes=dict.fromkeys(("likelihood", "tv", "laplacian"), "")
        | {
            "l1": "whose abundances are too small, which deviations cannot tell",
            **dict.fromkeys(("albedo", "free"), "which changes the noise of bands"),
        },
    )
    draws: int = setting(
        20,
        "values",
        "For `average` plain: draws of spectra and noise.",
        "N",
        group="Outputs",
        kind="whole",
        least=2,
        most=10_000,  # which give a standard deviation to 1 %
        before="count",
        needs=("average plain",),
    )
    draw_spectra: int | None = setting(
        None,
        "values",
        "For `average` plain: spectra of a draw, spread evenly over the classes.",
        "K",
        group="Outputs",
        kind="whole",
        least=1,
        before="count",
        noise="none",
        unset="all: noise alone varies",
        needs=("average plain",),
    )


def names_of_averages(sums: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the bands of a map of averages, from the names of the sums."""
    return tuple(f"{what} of {name}" for what in ("mean", "deviation") for name in sums)


@dataclass(frozen=True)
class DrawChoice:
    """How spectra and noise are drawn at random.

    Attributes
    ----------
    draws : int
    spectra : int, optional
        Spectra of a draw, as even over the classes as can be; default is all, so that noise alone varies.
    seed : int
    has_noise : bool
    """

    draws: int
    spectra: int | None
    seed: int
    has_noise: bool

    @classmethod
    def of(cls, options: Any) -> "DrawChoice":
        """Return what the options of a run ask for."""
        return cls(options.draws, options.draw_spectra, options.seed, options.noise != "none")


def faults_of_average(options: Any) -> Iterator[str]:
    """Yield a message if an average is of another problem than these models, or noise is drawn that `tie` changes."""
    if options.average == "plain":
        if options.mesma:
            yield "`average` plain: the models of mesma are averaged by their likelihood, or use `unmix run`"
        if DrawChoice.of(options).has_noise and options.reading.tie is not None:
            yield (
                "`tie`: the bands of a window share the noise of its first one; `average` plain needs `draw_spectra` "
                "and `noise` none"
            )
        return
    if options.mesma and options.mesma.limits != "exact":
        yield "`average` is over mixtures, and `limits` viper are of models; leave one of the two out"
    if not options.mesma and str(options.method) not in AVERAGED:
        yield f"`average` likelihood is for `method` {', '.join(AVERAGED)}, whose sums are bounded, or `average` plain"
    if options.shade_normalize or options.normalize != "none":
        yield "`average` likelihood is of sums as they are, without `shade_normalize` or `normalize`"
