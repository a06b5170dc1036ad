"""The options of `monte_carlo`, and how they say what is drawn."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ...errors import MethodError
from ...methods import EXACT
from ...settings import for_a_feature, setting

# Most draws of spectra and noise: 10 000 give a standard deviation to 1 %.
MOST_DRAWS = 10_000


@for_a_feature
class DrawSettings:
    """The options of `monte_carlo`."""

    monte_carlo: int | None = setting(
        None,
        "values",
        "With `by` class: also write mean and standard deviation of each sum over N random draws of spectra and noise: "
        "STEM_montecarlo. CPU only.",
        "N",
        group="Outputs",
        kind="whole",
        least=2,
        before="count",
        noise="of bands",
        needs=("by class",),
        solvers=EXACT,
        excludes=dict.fromkeys(("allowed", "likelihood", "tv", "laplacian"), "")
        | {
            "l1": "whose abundances are too small, which deviations cannot tell",
            "albedo": "which changes the noise of bands",
        }
        | {"mesma": "which tries all models; use `uncertainty`, or `unmix run`"},
    )
    draw_spectra: int | None = setting(
        None,
        "values",
        "For `monte_carlo`: spectra of a draw, spread evenly over the classes.",
        "K",
        group="Outputs",
        kind="whole",
        least=1,
        before="count",
        noise="none",
        unset="all: noise alone varies",
        needs=("monte_carlo",),
    )


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

    def __post_init__(self) -> None:
        if self.draws > MOST_DRAWS:
            raise MethodError(f"`monte_carlo` {self.draws}: must be at most {MOST_DRAWS} draws")

    @classmethod
    def of(cls, options: Any) -> "DrawChoice":
        """Return what the options of a run ask for."""
        return cls(options.monte_carlo, options.draw_spectra, options.seed, options.noise != "none")


def faults_of_draws(options: Any) -> Iterator[str]:
    """Yield a message if noise is drawn that `tie` changes."""
    if DrawChoice.of(options).has_noise and options.reading.tie is not None:
        yield (
            "`tie`: the bands of a window share the noise of its first one; `monte_carlo` needs `draw_spectra` and "
            "`noise` none"
        )
