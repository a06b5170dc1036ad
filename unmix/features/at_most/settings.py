"""The option `at_most`."""

from dataclasses import dataclass
from functools import partial

from ...settings import setting

_of_model = partial(setting, group="Model")


@dataclass(frozen=True, kw_only=True)  # the order of the other options stays what it is
class AtMostSettings:
    """The options of `at_most`."""

    at_most: int | None = _of_model(
        None, "values",
        "For nnls: use at most K endmembers in a pixel, such that no exchange of one fits better. CPU only.",
        "K", kind="whole", least=1, methods=("nnls",), solvers=("active-set",),
        excludes=dict.fromkeys(("l1", "tv", "laplacian", "allowed", "likelihood"), "")
        | dict.fromkeys(("uncertainty", "monte_carlo"), "which takes the endmembers of a pixel for known")
        | {"ranges": "which is over all mixtures"},
    )  # fmt: skip
