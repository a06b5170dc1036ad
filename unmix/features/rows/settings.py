"""The options of `rows`, and what they do not go with."""

from ...methods import BOUNDED
from ...settings import for_a_feature, setting


@for_a_feature
class RowsSettings:
    """The options of `rows`."""

    rows: int | str | None = setting(
        None,
        "values",
        "For nnls, fcls and pcls: solve all pixels with the few spectra of the library that the scene needs: K, or as "
        "many as are "
        "each worth more than the noise (auto). No exchange of one of them for another fits a sample of the pixels "
        "better but, with "
        "auto, by larger errors of spectra.",
        "K",
        group="Model",
        kind="whole",
        choices=("auto",),
        least=1,
        before="likelihood",
        noise="of bands",
        is_of_library="chooses spectra of",
        methods=BOUNDED,
        solvers=("active-set",),
        excludes=dict.fromkeys(("l1", "at_most", "likelihood"), ""),
    )
    seconds: float | None = setting(
        None,
        "values",
        "For `rows`: search so long for a proof that no other subset of the library fits better; how much better one "
        "may be is said.",
        "S",
        group="Model",
        kind="number",
        above=0,
        before="likelihood",
        needs=("rows",),
    )
