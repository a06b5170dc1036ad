"""How MESMA chooses among models."""

from dataclasses import dataclass
from functools import partial

from . import setting

option = partial(setting, group="Model")
# Most spectra of a model, beside shade.
MOST_SPECTRA = 8


@dataclass(frozen=True)
class ModelSettings:
    """The options of `unmix.methods.ModelChoice`."""

    like: str | None = option(
        None,
        "values",
        "viper: the defaults of VIPER: `levels` 2-3, `limits` viper, `fusion` 0.007, `fusion_rule` preceding.",
        choices=("viper",),
    )
    levels: str = option(
        "auto",
        "values",
        "Endmembers of a model with shade: 2-4 tries all models of one to three classes and shade, at most "
        f"{MOST_SPECTRA + 1}. auto: of all classes, at most a million models.",
        "A-B",
    )
    limits: str = option(
        "exact",
        "values",
        "exact: fit fractions that are not negative and sum to at most one, so that every pixel has a model; viper: "
        "fit by least "
        "squares, and reject models beyond the limits below.",
        choices=("exact", "viper"),
    )
    fusion: float | None = option(
        None,
        "values",
        "Take a model of a higher level only if its RMSE is lower by this much.",
        "RMSE",
        kind="number",
        unset="by two deviations of noise, which the least residual of the pixel shows",
    )
    fusion_rule: str = option(
        "kept",
        "values",
        "Lower than that of the last level kept, or of the preceding one, kept or not, as in VIPER.",
        choices=("kept", "preceding"),
    )
    min_fraction: float = option(-0.05, "values", "For viper: least fraction.", "F", kind="number")
    max_fraction: float = option(1.05, "values", "For viper: largest fraction.", "F", kind="number")
    min_shade: float = option(0.0, "values", "For viper: least shade.", "F", kind="number")
    max_shade: float = option(0.8, "values", "For viper: largest shade.", "F", kind="number")
    max_rmse: float | None = option(
        None,
        "values",
        "Reject models with a larger RMSE.",
        "RMSE",
        kind="number",
        unset="0.025 for viper",
    )
    max_residual: float | None = option(
        None,
        "values",
        "For viper: reject models whose residual reaches R, either way, in `residual_bands` consecutive bands.",
        "R",
        kind="number",
        unset="none",
    )
    residual_bands: int = option(7, "values", "Bands for `max_residual`.", "N", kind="whole")
    class_sets: str | None = option(
        None,
        "values",
        "Try only models of these sets of classes, of sizes that `levels` allows; under exact also of their parts.",
        "A+B,...",
        unset="all",
    )
