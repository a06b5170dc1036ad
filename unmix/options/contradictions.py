"""Refuse options that contradict each other, a function for each subject."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..errors import MethodError
from ..io.remote import is_remote
from ..methods import (
    CHOSEN_BY,
    LARGEST_THRESHOLD,
    OF_EXCHANGES,
    Extraction,
    refuse_at_most,
    refuse_normalization,
    refuse_penalty,
)
from ..settings import settings_of
from ..settings.run import RunSettings

if TYPE_CHECKING:
    from . import Options

# Options of the extraction of endmembers that a library makes void.
OF_EXTRACTION = (*OF_EXCHANGES, "outliers")


def refuse_contradictions(options: "Options") -> None:
    """Raise `MethodError` where a number is out of range, or two options contradict each other."""
    for refuse in (
        refuse_run,
        refuse_endmembers,
        refuse_names,
        refuse_sums,
        refuse_fractions,
        refuse_noise,
        refuse_draws,
        refuse_models,
        refuse_ties,
        refuse_sparse,
        refuse_rows,
        refuse_many,
        refuse_pictures,
    ):
        refuse(options)


# The largest step of abundances that leaves anything of them.
LARGEST_STEP = 0.1


def refuse_run(options: "Options") -> None:
    """Refuse numbers that no run can have."""
    if options.quantize is not None and not 0 < options.quantize <= LARGEST_STEP:
        raise MethodError(
            f"`quantize` {options.quantize:g}: must be above 0 and at most {LARGEST_STEP:g}, such as 1e-4"
        )
    if options.quantize is not None and options.l21 is not None:
        raise MethodError("`quantize` does not go with `l21`, whose proof needs the abundances as they are")
    if options.top is not None and options.top < 1:
        raise MethodError(f"`top` {options.top}: must be at least 1")
    if not 0 < options.max_delta < float("inf"):
        raise MethodError(f"`max_delta` {options.max_delta}: must be a number above 0")
    if options.streams < 1 or (options.threads is not None and options.threads < 1):
        raise MethodError("`streams` and `threads` must be at least 1")
    if options.overwrite and options.skip_existing:
        raise MethodError("`overwrite` and `skip_existing` contradict each other")
    if options.work_dir is not None and (options.out_dir is None or not is_remote(options.out_dir)):
        raise MethodError("`work_dir` is for an `out_dir` in an object store: s3://bucket/prefix")


def refuse_endmembers(options: "Options") -> None:
    """Refuse options of an extraction with a library, and those of a library without one."""
    if options.endmembers is not None and options.count is not None:
        raise MethodError(
            "`count` is for extracted endmembers; of `endmembers` all spectra are used, or those that `select` chooses"
        )
    for name in OF_EXTRACTION:
        if options.endmembers is not None and getattr(options, name) != getattr(Extraction, name):
            raise MethodError(f"`{name}` is for endmembers that are extracted")
    if options.endmembers is not None and options.reading.extract_mask is not None:
        raise MethodError("`extract_mask` is for endmembers that are extracted; `mask` leaves pixels out of all")
    if options.endmembers is None:
        refuse_without_library(vars(options))
    if options.library_scale is not None and not 1e-30 < options.library_scale < 1e30:
        raise MethodError(f"`library_scale` {options.library_scale:g}: must be above 0, and between 1e-30 and 1e30")
    if options.shade is not None and not options.method_spec.has_shade and options.choice is None:
        raise MethodError(f"`shade`: method '{options.method}' has none; use `method` pcls")


def refuse_without_library(given: Mapping[str, Any]) -> None:
    """Raise if one of these options, by name, needs a library."""
    for name, one in settings_of(RunSettings).items():
        if one.is_of_library and given.get(name) not in (None, False):
            raise MethodError(f"`{name}` {one.is_of_library} a library; give one with `endmembers`")


def refuse_names(options: "Options") -> None:
    """Raise if `names` is combined with an option that does not look for missing spectra."""
    if options.names is not None and (options.choice or options.l1 is not None or options.l21 is not None):
        raise MethodError("`names` is for mixtures without a penalty: not for mesma, `l1` and `l21`")


def refuse_sums(options: "Options") -> None:
    """Raise if `by` is unknown, or an option that needs sums by class comes without it."""
    if options.by not in (None, "class"):
        raise MethodError(f"`by` '{options.by}': there is only class")
    if options.shade_normalize and options.by is None:
        raise MethodError("`shade_normalize` is for sums by class; add `by` class")
    if options.class_map and options.by is None:
        raise MethodError("`class_map` compares sums by class; add `by` class")


def refuse_fractions(options: "Options") -> None:
    """Raise if `normalize` is combined with a method that sums to one, or would divide twice."""
    refuse_normalization(options.method_spec, str(options.normalize))
    if options.normalize == "none":
        return
    if options.shade_normalize:
        raise MethodError(
            "`shade_normalize` divides sums by class by their sum, and with `normalize` they are sums of fractions: leave one out"
        )
    if options.l21 is not None:
        raise MethodError("`normalize` does not go with `l21`, whose proof needs the abundances as they are")


def refuse_noise(options: "Options") -> None:
    """Raise if `noise` is given and nothing uses it, or an option that needs noise comes without it."""
    chooses = isinstance(options.l1, str) or isinstance(options.l21, str)
    uses = options.uncertainty or options.monte_carlo or options.weights == "noise" or chooses
    if options.noise != "auto" and not uses:
        raise MethodError(
            "`noise` is for standard deviations; add `uncertainty`, `monte_carlo`, `weights` noise, or let `l1` or `l21` be chosen"
        )
    if options.weights == "noise" and options.noise in ("auto", "none"):
        raise MethodError("`weights` noise needs the noise of the bands; name a file with `noise`")
    if options.weights is not None and options.choice is not None:
        raise MethodError("`weights`: not for mesma, whose thresholds are in the unit of the bands")
    if options.noise == "none" and (options.uncertainty or options.draw_spectra is None):
        raise MethodError("`noise` none: nothing would vary; it is for `monte_carlo` with `draw_spectra`")


def refuse_draws(options: "Options") -> None:
    """Raise if `monte_carlo` or `draw_spectra` are invalid, or combined with an option that rules them out."""
    if options.draw_spectra is not None and options.monte_carlo is None:
        raise MethodError("`draw_spectra` is the size of a draw; add `monte_carlo`")
    if options.monte_carlo is not None and not options.solver_spec.exact:
        raise MethodError(
            f"`monte_carlo`: solver '{options.solver_spec.name}' is not exact, and draws are; use another one"
        )
    if options.monte_carlo is not None and options.by is None:
        raise MethodError("`monte_carlo` is for sums by class; add `by` class")
    if options.monte_carlo and options.choice is not None:
        raise MethodError("`monte_carlo`: not for mesma, which tries all models; use `uncertainty`, or `unmix run`")
    _ = options.draw_choice  # raises if a number is out of range


def refuse_models(options: "Options") -> None:
    """Raise if an option is given that MESMA ignores, or MESMA's options elsewhere."""
    if options.noise != "auto" and options.choice is not None:
        raise MethodError("`noise`: not for mesma, whose `uncertainty` is that of the choice; use `unmix run`")
    if options.within is not None and not (options.uncertainty and options.choice is not None):
        raise MethodError("`within` says which models the `uncertainty` of mesma is over; add that")
    if math.isnan(options.rmse_within):
        raise MethodError(
            f"`within` {options.within!r}: must be an RMSE that is not negative, nor {LARGEST_THRESHOLD:g} or more, or all"
        )


def refuse_ties(options: "Options") -> None:
    """Raise if `tie` is combined with an option that needs the bands as they are."""
    if options.reading.tie is None:
        return
    if options.endmembers is None:
        raise MethodError(
            "`tie` is for a library: give one with `endmembers`; extract endmembers from bands as they are"
        )
    of_bands = options.uncertainty and options.choice is None
    has_noise = of_bands or (options.draw_choice is not None and options.draw_choice.has_noise)
    if has_noise or options.noise not in ("auto", "none"):
        raise MethodError(
            "`tie`: the bands of a window share the noise of its first one; `uncertainty` and `noise` are for bands as they are "
            "(`monte_carlo` with `draw_spectra` and `noise` none is not)"
        )


def refuse_sparse(options: "Options") -> None:
    """Raise if `l1` is invalid, or combined with an option that ignores it."""
    if options.l1_weights is not None and options.l1 is None:
        raise MethodError("`l1_weights` are the weights of `l1`, which is not given")
    if options.l1 is None:
        return
    if isinstance(options.l1, str) and options.l1 not in CHOSEN_BY:
        raise MethodError(f"`l1` '{options.l1}': must be a number, or {' or '.join(CHOSEN_BY)}")
    refuse_penalty(options.method_spec, options.solver_spec, 0.0 if isinstance(options.l1, str) else options.l1)
    if options.uncertainty or options.monte_carlo:
        raise MethodError(
            "`l1` makes abundances too small, which standard deviations do not tell; leave out `uncertainty` and `monte_carlo`"
        )


def refuse_rows(options: "Options") -> None:
    """Raise if `l21` is invalid, or combined with an option that ignores it."""
    if options.l21 is None:
        return
    if isinstance(options.l21, str) and options.l21 != "auto":
        raise MethodError(f"`l21` '{options.l21}': must be a number, or auto")
    if not isinstance(options.l21, str) and not 0 < options.l21 < LARGEST_THRESHOLD:
        raise MethodError(f"`l21` {options.l21:g}: must be above 0, and below {LARGEST_THRESHOLD:g}")
    if options.method != "nnls" or options.solver_spec.name != "active-set":
        raise MethodError(
            f"`l21` is for `method` nnls and `solver` active-set, not {options.method} {options.solver or ''}".rstrip()
        )
    if options.endmembers is None:
        raise MethodError("`l21` chooses from a library; give one with `endmembers`")
    others = {
        "l1": options.l1, "weights": options.weights, "uncertainty": options.uncertainty or None,
        "monte_carlo": options.monte_carlo,
    }  # fmt: skip
    for name, value in others.items():
        if value is not None:
            raise MethodError(f"`l21` does not go with `{name}`; leave one of them out")


def refuse_many(options: "Options") -> None:
    """Raise if `at_most` is invalid, or combined with an option that ignores the choice of endmembers."""
    if options.at_most is None:
        return
    if options.choice is not None:
        raise MethodError("`at_most`: not for mesma, whose `levels` say how many endmembers a model has")
    refuse_at_most(options.method_spec, options.solver_spec, options.at_most)
    for name in ("l1", "l21"):
        if getattr(options, name) is not None:
            raise MethodError(f"`at_most` does not go with `{name}`; leave one of them out")
    if options.uncertainty or options.monte_carlo:
        raise MethodError(
            "`at_most` chooses the endmembers of each pixel, and standard deviations would take them for known; leave out "
            "`uncertainty` and `monte_carlo`"
        )


def refuse_pictures(options: "Options") -> None:
    """Raise if `rgb` is given without the browse image, or with `top`."""
    if options.rgb is not None and not options.browse:
        raise MethodError("`rgb` chooses the colours of the browse image, which is not to be written")
    if options.rgb is not None and options.top is not None:
        raise MethodError("`rgb`: with `top` each pixel shows its largest abundance in that endmember's colour")
