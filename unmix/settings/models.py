"""How MESMA chooses among models."""

from dataclasses import dataclass
from functools import partial

from . import setting

option = partial(setting, group="Model")


@dataclass(frozen=True)
class ModelSettings:
    """The options of `unmix.methods.ModelChoice`."""

    levels: str = option(
        "2-3", "values",
        "Endmembers of a model with shade, from 2 to 4: 2-4 tries all models of one to three classes and shade.",
        "A-B",
    )  # fmt: skip
    limits: str = option(
        "exact", "values",
        "exact: models are fitted with fractions that are not negative and sum to at most one, so that every pixel has a model; "
        "viper: models are fitted by least squares, and rejected beyond the following limits.",
        choices=("exact", "viper"),
    )  # fmt: skip
    fusion: float = option(
        0.007, "values",
        "Take a model of a higher level only if its RMSE is smaller by so much.",
        "RMSE", kind="number",
    )  # fmt: skip
    fusion_rule: str = option(
        "kept", "values",
        "Smaller than that of the last level that was kept, or of the preceding one, kept or not, as VIPER has it.",
        choices=("kept", "preceding"),
    )  # fmt: skip
    min_fraction: float = option(-0.05, "values", "For viper.", "F", kind="number")
    max_fraction: float = option(1.05, "values", "For viper.", "F", kind="number")
    min_shade: float = option(0.0, "values", "For viper.", "F", kind="number")
    max_shade: float = option(0.8, "values", "For viper.", "F", kind="number")
    max_rmse: float | None = option(
        None, "values",
        "Reject models with a larger RMSE.",
        "RMSE", kind="number", unset="0.025 for viper",
    )  # fmt: skip
    max_residual: float | None = option(
        None, "values",
        "For viper: reject models whose residual reaches R, either way, in `residual_bands` bands after each other.",
        "R", kind="number", unset="none",
    )  # fmt: skip
    residual_bands: int = option(7, "values", "Number of bands in use for `max_residual`.", "N", kind="whole")
    class_sets: str | None = option(
        None, "values",
        "Try only models of these sets of classes, of as many classes as `levels` allow; under exact also of their parts.",
        "A+B,...", unset="all",
    )  # fmt: skip
