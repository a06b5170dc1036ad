"""Refuse options that contradict each other, a function for each subject."""

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import MethodError
from ..features import asked, in_runs
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
from ..methods.fit_limit import METHODS_WITH_RANGES
from ..scene.albedo import geometry_of
from ..settings import settings_of
from ..settings.run import RunSettings

if TYPE_CHECKING:
    from . import Options

# Options of the extraction of endmembers that a library makes void.
OF_EXTRACTION = (*OF_EXCHANGES, "outliers")


def refuse_contradictions(options: "Options") -> None:
    """Raise `MethodError` where a number is out of range, or two options contradict each other."""
    for faults_of in (*FAULTS, *(one.faults for one in in_runs().values())):
        for fault in faults_of(options):
            raise MethodError(fault)


# Largest quantization step: ten levels between 0 and 1.
LARGEST_STEP = 0.1


def faults_of_run(options: "Options") -> Iterator[str]:
    """Yield a message if a number is out of range, or options of outputs contradict each other."""
    if options.quantize is not None and not 0 < options.quantize <= LARGEST_STEP:
        yield f"`quantize` {options.quantize:g}: must be above 0 and at most {LARGEST_STEP:g}, such as 1e-4"
    for name in WHOLE_SCENE:
        if options.quantize is not None and getattr(options, name) is not None:
            yield f"`quantize` does not go with `{name}`, whose proof needs the abundances as they are"
    if options.top is not None and options.top < 1:
        yield f"`top` {options.top}: must be at least 1"
    if not 0 < options.max_delta < float("inf"):
        yield f"`max_delta` {options.max_delta}: must be a number above 0"
    if options.streams < 1 or (options.threads is not None and options.threads < 1):
        yield "`streams` and `threads` must be at least 1"
    if options.overwrite and options.skip_existing:
        yield "`overwrite` and `skip_existing` contradict each other"
    if options.work_dir is not None and (options.out_dir is None or not is_remote(options.out_dir)):
        yield "`work_dir` is for an `out_dir` in an object store: s3://bucket/prefix"


def faults_of_endmembers(options: "Options") -> Iterator[str]:
    """Yield a message if an option of extractions comes with a library, or one of libraries without."""
    if options.endmembers is not None and options.count is not None:
        yield "`count` is for extracted endmembers; of `endmembers` all spectra are used, or those that `select` chooses"
    for name in OF_EXTRACTION:
        if options.endmembers is not None and getattr(options, name) != getattr(Extraction, name):
            yield f"`{name}` is for endmembers that are extracted"
    if options.endmembers is not None and options.reading.extract_mask is not None:
        yield "`extract_mask` is for endmembers that are extracted; `mask` leaves pixels out of all"
    if options.endmembers is None:
        refuse_without_library(vars(options))
    if options.library_scale is not None and not 1e-30 < options.library_scale < 1e30:
        yield f"`library_scale` {options.library_scale:g}: must be above 0, and between 1e-30 and 1e30"
    if options.shade is not None and not options.method_spec.constraint.has_shade and not options.mesma:
        yield f"`shade`: method '{options.method}' has none; use `method` pcls"
    if options.names is not None and (options.mesma or options.l1 is not None or options.of_whole_scene):
        yield "`names` is for mixtures without a penalty: not for mesma, `l1`, `tv` and `laplacian`"


def refuse_without_library(given: Mapping[str, Any]) -> None:
    """Raise if one of these options, by name, needs a library."""
    for name, one in settings_of(RunSettings).items():
        if one.is_of_library and given.get(name) not in (None, False):
            raise MethodError(f"`{name}` {one.is_of_library} a library; give one with `endmembers`")


def faults_of_sums(options: "Options") -> Iterator[str]:
    """Yield a message if `by` is unknown, or an option that needs sums by class comes without it."""
    if options.by not in (None, "class"):
        yield f"`by` '{options.by}': there is only class"
    if options.shade_normalize and options.by is None:
        yield "`shade_normalize` is for sums by class; add `by` class"
    if options.class_map and options.by is None:
        yield "`class_map` compares sums by class; add `by` class"


def faults_of_fractions(options: "Options") -> Iterator[str]:
    """Yield a message if `normalize` is combined with a method that sums to one, or would divide twice."""
    refuse_normalization(options.method_spec, str(options.normalize))
    if options.normalize == "none":
        return
    if options.shade_normalize:
        yield "`shade_normalize` divides sums by class by their sum, and with `normalize` they are sums of fractions: leave one out"
    for name in WHOLE_SCENE:
        if getattr(options, name) is not None:
            yield f"`normalize` does not go with `{name}`, whose proof needs the abundances as they are"


def faults_of_noise(options: "Options") -> Iterator[str]:
    """Yield a message if `noise` is given and nothing uses it, or an option that needs noise comes without it."""
    chooses = any(isinstance(getattr(options, name), str) for name in ("l1", *WHOLE_SCENE)) or bool(asked(options))
    uses = options.uncertainty or options.confidence or options.monte_carlo or options.weights == "noise" or chooses
    if options.noise != "auto" and not uses:
        yield (
            "`noise` is for standard deviations and ranges; add `uncertainty`, `confidence`, `monte_carlo`, `weights` noise, or let "
            "`l1`, `tv` or `laplacian` be chosen"
        )
    if options.weights == "noise" and options.noise in ("auto", "none"):
        yield "`weights` noise needs the noise of the bands; name a file with `noise`"
    if options.noise == "none" and (options.uncertainty or options.confidence or options.draw_spectra is None):
        yield "`noise` none: nothing would vary; it is for `monte_carlo` with `draw_spectra`"


def faults_of_draws(options: "Options") -> Iterator[str]:
    """Yield a message if `monte_carlo` or `draw_spectra` are invalid, or combined with an option that rules them out."""
    if options.draw_spectra is not None and options.monte_carlo is None:
        yield "`draw_spectra` is the size of a draw; add `monte_carlo`"
    if options.monte_carlo is not None and not options.solver_spec.exact:
        yield f"`monte_carlo`: solver '{options.solver_spec.name}' is not exact, and draws are; use another one"
    if options.monte_carlo is not None and options.by is None:
        yield "`monte_carlo` is for sums by class; add `by` class"
    _ = options.draw_choice  # which refuses numbers out of range


# Options under which the abundances of all pixels are found, and proved, together; the methods that `tv` and `laplacian` go with.
WHOLE_SCENE, WITH_NEIGHBOURS = ("tv", "laplacian"), ("nnls", "fcls", "pcls")
# Options that MESMA ignores, and why.
NOT_FOR_MESMA = {
    "weights": "whose thresholds are in the unit of the bands",
    "monte_carlo": "which tries all models; use `uncertainty`, or `unmix run`",
    "noise": "whose `uncertainty` is that of the choice; use `unmix run`",
    "confidence": "whose models err by their library more than by noise; say with `within` which mixtures `ranges` are over",
    "simultaneous": "whose `ranges` are over the mixtures that `within` allows",
    "at_most": "whose `levels` say how many endmembers a model has",
    "allowed": "which tries all models",
    "likelihood": "whose thresholds are RMSE",
}


def faults_of_models(options: "Options") -> Iterator[str]:
    """Yield a message if an option is given that MESMA ignores, or MESMA's options elsewhere."""
    for name, why in NOT_FOR_MESMA.items():
        if options.mesma and not options.is_default(name):
            yield f"`{name}`: not for mesma, {why}"
    if options.within is not None and not (options.ranges or (options.uncertainty and options.mesma)):
        yield "`within` says which mixtures `ranges`, or models the `uncertainty` of mesma, are over; add one of these"
    if math.isnan(options.rmse_within):
        yield f"`within` {options.within!r}: must be an RMSE that is not negative, nor {LARGEST_THRESHOLD:g} or more, or all"


def faults_of_ranges(options: "Options") -> Iterator[str]:
    """Yield a message if `ranges` lacks a limit, is combined with an option that rules it out, or its options come without it."""
    if options.ranges is None:
        for name in ("confidence", "simultaneous"):
            if not options.is_default(name):
                yield f"`{name}` is for `ranges`; add that"
        return
    if options.ranges not in ("class", "each"):
        yield f"`ranges` '{options.ranges}': must be class or each"
    has_ranges = options.method in METHODS_WITH_RANGES or options.mesma
    if not has_ranges or not options.solver_spec.exact:
        asked = f"{options.method} {options.solver or ''}".rstrip()
        yield f"`ranges` is for exact solvers of {', '.join(METHODS_WITH_RANGES)}, and mesma, not {asked}"
    for name in ("l1", *WHOLE_SCENE, "at_most"):
        if getattr(options, name) is not None:
            yield f"`ranges` is over all mixtures, and `{name}` leaves some out; leave one of the two out"
    if options.mesma and options.mesma.limits != "exact":
        yield "`ranges` are over mixtures, and `limits` viper are of models; leave one of the two out"
    if options.mesma and options.ranges == "each":
        yield "`ranges` each: the maps of mesma are of classes; use `ranges` class"
    if options.mesma and options.within is None and options.mesma.fusion == 0:
        yield "`ranges` of mesma are within half of `fusion`, which is 0, unless `within` says more; give that"
    _ = options.fit_limit  # which refuses numbers out of range
    if options.simultaneous and options.noise == "auto":
        yield "`simultaneous` needs the noise of the bands: that of a residual fits it always; name a file with `noise`"


def faults_of_changes(options: "Options") -> Iterator[str]:
    """Yield a message if `tie` or `albedo` is combined with an option that needs the bands as they are."""
    reading = options.reading
    if options.grains is not None and reading.albedo is None:
        yield "`grains` are of intimate mixtures, whose albedo is unmixed; add `albedo`"
    if reading.albedo is not None:
        geometry_of(reading.albedo)
        if reading.tie is not None:
            yield "`albedo` and `tie` both change the bands; leave one of them out"
        if options.mesma:
            yield "`albedo` is for abundances of mixtures, and not for mesma"
        needs_noise = {
            "uncertainty": options.uncertainty, "confidence": options.confidence, "monte_carlo": options.monte_carlo,
            "noise": options.noise not in ("auto", "none"), "likelihood": options.likelihood != "gaussian",
        }  # fmt: skip
        for name, is_set in needs_noise.items():
            if is_set:
                yield f"`{name}` is for the noise of bands as they are, which `albedo` changes; leave one of the two out"
    if reading.tie is None:
        return
    if options.endmembers is None:
        yield "`tie` is for a library: give one with `endmembers`; extract endmembers from bands as they are"
    of_bands = (options.uncertainty or options.confidence is not None) and not options.mesma
    has_noise = of_bands or (options.draw_choice is not None and options.draw_choice.has_noise)
    if has_noise or options.noise not in ("auto", "none"):
        yield (
            "`tie`: the bands of a window share the noise of its first one; `uncertainty`, `confidence` and `noise` are for bands as "
            "they are "
            "(`monte_carlo` with `draw_spectra` and `noise` none is not)"
        )


def faults_of_sparse(options: "Options") -> Iterator[str]:
    """Yield a message if `l1` is invalid, or combined with an option that ignores it."""
    if options.l1_weights is not None and options.l1 is None:
        yield "`l1_weights` are the weights of `l1`, which is not given"
    if options.l1 is None:
        return
    if isinstance(options.l1, str) and options.l1 not in CHOSEN_BY:
        yield f"`l1` '{options.l1}': must be a number, or {' or '.join(CHOSEN_BY)}"
    refuse_penalty(options.method_spec, options.solver_spec, 0.0 if isinstance(options.l1, str) else options.l1)
    if options.uncertainty or options.monte_carlo:
        yield "`l1` makes abundances too small, which standard deviations do not tell; leave out `uncertainty` and `monte_carlo`"


def faults_of_neighbours(options: "Options") -> Iterator[str]:
    """Yield a message if `tv`, `laplacian` or `edges` is invalid, or combined with an option that ignores it."""
    given = [name for name in ("tv", "laplacian") if getattr(options, name) is not None]
    if options.edges is not None and not given:
        yield "`edges` says where differences cost less; add `tv` or `laplacian`"
    if options.edges not in (None, "guided"):
        yield f"`edges` '{options.edges}': there is only guided"
    if not given:
        return
    if len(given) > 1:
        yield "`laplacian` does not go with `tv`; leave one of them out"
    name, weight = given[0], getattr(options, given[0])
    if isinstance(weight, str) and weight != "auto":
        yield f"`{name}` '{weight}': must be a number, or auto"
    if not isinstance(weight, str) and not 0 < weight < LARGEST_THRESHOLD:
        yield f"`{name}` {weight:g}: must be above 0, and below {LARGEST_THRESHOLD:g}"
    if options.method not in WITH_NEIGHBOURS or options.solver_spec.name != "active-set":
        asked = f"{options.method} {options.solver or ''}".rstrip()
        yield f"`{name}` is for `method` {', '.join(WITH_NEIGHBOURS)}, without `solver`, not {asked}"
    if isinstance(options.l1, str):
        yield f"`l1` {options.l1} is chosen for pixels alone; give a number beside `{name}`"
    if options.certificate:
        yield f"`certificate` is of each pixel, and with `{name}` all are proved together: run.json has the duality gap"
    for other in ("top", "weights", "allowed", "uncertainty", "monte_carlo"):
        if getattr(options, other):
            yield f"`{name}` does not go with `{other}`; leave one of them out"
    if options.likelihood != "gaussian":
        yield f"`{name}` does not go with `likelihood` {options.likelihood}; leave one of them out"


def faults_of_many(options: "Options") -> Iterator[str]:
    """Yield a message if `at_most` is invalid, or combined with an option that ignores it."""
    if options.at_most is None:
        return
    refuse_at_most(options.method_spec, options.solver_spec, options.at_most)
    for name in ("l1", *WHOLE_SCENE):
        if getattr(options, name) is not None:
            yield f"`at_most` does not go with `{name}`; leave one of them out"
    if options.uncertainty or options.monte_carlo:
        yield (
            "`at_most` chooses the endmembers of each pixel, and standard deviations would take them for known; leave out "
            "`uncertainty` and `monte_carlo`"
        )


def faults_of_pictures(options: "Options") -> Iterator[str]:
    """Yield a message if `rgb` is given without the browse image, or with `top`."""
    if options.rgb is not None and not options.browse:
        yield "`rgb` chooses the colours of the browse image, which is not to be written"
    if options.rgb is not None and options.top is not None:
        yield "`rgb`: with `top` each pixel shows its largest abundance in that endmember's colour"


def faults_of_counts(options: "Options") -> Iterator[str]:
    """Yield a message if `likelihood` is unknown, or its options come without it; `unmix.runs.inputs.refuse_own` has the rest."""
    if options.likelihood not in ("gaussian", "poisson"):
        yield f"`likelihood` '{options.likelihood}': must be gaussian or poisson"
    if options.background is not None and options.likelihood != "poisson":
        yield "`background` is for `likelihood` poisson; add that"
    if options.likelihood == "poisson" and "method" in options.left_open:
        yield "`likelihood` poisson is for `method` nnls; add that"
    elif options.likelihood == "poisson" and options.method != "nnls":
        yield f"`likelihood` poisson is for `method` nnls, not {options.method}"


# In this order.
FAULTS = (
    faults_of_run, faults_of_endmembers, faults_of_sums, faults_of_fractions, faults_of_noise, faults_of_draws,
    faults_of_models, faults_of_ranges, faults_of_changes, faults_of_sparse, faults_of_neighbours,
    faults_of_many, faults_of_counts, faults_of_pictures,
)  # fmt: skip
