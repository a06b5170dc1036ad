"""Numbers that the pages that promise say are constants of the code: where one of both changes, so must the other."""

from importlib import import_module
from math import exp, log10, sqrt
from pathlib import Path

import pytest

PAGES = [Path(__file__).parents[2] / f"docs/{page}.md" for page in ("security", "reliability", "methods")]
WORDS = {3: "three", 4: "four", 5: "five", 6: "six", 8: "eight"}


def as_said(value):
    """A number as the page writes it: 1e-8 and 1e4 as powers, 16 384 with a space, others as Python does."""
    power = round(log10(abs(value)))
    if abs(power) > 3 and abs(value / 10.0**power - 1) < 1e-9:
        return f"1e{power}"
    return f"{value:_}".replace("_", " ") if isinstance(value, int) and value >= 10_000 else f"{value:g}"


def percent(*shares):
    return [100 * share for share in shares]


def in_words(*numbers):
    return [WORDS[number] for number in numbers]


# A phrase of a page; the module below `unmix`, and the names whose values fill it; and what is made of these, where
# they differ.
NUMBERS = [
    (
        "Bodies of requests have at most {} KiB, messages of the page {} MiB",
        "features.viewer.serve",
        "LARGEST_BODY LARGEST_MESSAGE",
        lambda body, message: [body / 2**10, message / 2**20],
    ),
    (
        "every {} MiB or {} s;",
        "runs.files.journal",
        "FLUSH_BYTES FLUSH_SECONDS",
        lambda size, time: [size / 2**20, time],
    ),
    (
        "a data file up to {} MiB, of a larger one by its size and {} blocks of {} KiB",
        "io.identity",
        "SMALL_FILE BLOCKS BLOCK_BYTES",
        lambda most, count, size: [most / 2**20, count, size / 2**10],
    ),
    (
        "renewed twice a minute; another host takes over a lock that was not renewed for {} minutes",
        "outputs.lock",
        "BEAT STALE",
        lambda beat, stale: ["ten" if (beat, stale) == (30.0, 600.0) else "?"],
    ),
    ("where cond(E) ≤ {}; else", "problem", "PLANNED_UP_TO"),
    ("more endmembers than bands and cond(E) above {} (for", "problem", "WORST_CONDITION"),
    ("and {} times the duality gap over ½s²", "certificate", "GAP_WEIGHT"),
    ("κ ≤ {} and δ ≤ {} (`--max-delta`)", "certificate", "CERTIFIED MOST_DELTA"),
    ("nothing fits better by more than {} of ½s²", "certificate", "CERTIFIED GAP_WEIGHT", lambda k, w: [k / w]),
    ("{} is added to ‖v + ρ‖² against underflow", "certificate", "UNDERFLOW"),
    ("lengths between {} and {}.", "problem.factors", "SHORTEST LONGEST"),
    ("a pixel with δ above {}, or κ above {} for", "certificate", "FARTHEST CERTIFIED"),
    ("`ε = (L + {})u` of a spectrum's length", "certificate", "ROUNDINGS_OF_SPECTRA"),
    ("δ is still above {}, or κ above {}, is", "certificate", "FARTHEST CERTIFIED"),
    ("`|y − E a|` is below {} of |y|", "exact_mixtures", "NO_NOISE"),
    ("out of the endmembers' hull by {} of its length", "exact_mixtures", "MOVED"),
    ("`e_jᵀc ≤ {} |e_j||c|`", "exact_mixtures", "ALONG"),
    ("the support and the {} to", "solvers.pixels.working_set", "CANDIDATES"),
    ("to {} columns with the largest duals", "solvers.pixels.cuda_many.search", "CANDIDATES"),
    ("A working set has at most {} spectra", "solvers.pixels.working_set", "MOST_MEMBERS"),
    ("lowers the squared misfit by more than {} of ‖y‖²", "features.at_most.search", "LEAST_FALL"),
    ("no dual is above {} of ‖e‖‖y‖", "features.at_most.search", "LEAST_DUAL"),
    ("is below {} of its own does not join them", "features.at_most.search", "TOO_NEAR"),
    ("The support grows to 2K + {} by", "features.at_most.search", "GROWN"),
    ("an even sample of at most {} pixels", "features.rows.windows", "SAMPLE_PIXELS"),
    ("a row must lower it by {} such", "features.rows.search", "DEVIATIONS"),
    (
        "of the sample holds at less than {} σ² each",
        "features.rows.search",
        "DEVIATIONS",
        lambda d: [round(d * sqrt(6000) / 6, -1)],
    ),
    ("What a row below {} σ² a pixel gains", "features.rows.search", "CLEAR_GAIN"),
    ("Means of {0} × {0} pixels", "features.rows.windows", "SIDE"),
    (
        "is within {} %, or {} deviations",
        "features.rows.choice",
        "WHITE WHITE_DEVIATIONS",
        lambda w, d: percent(w) + in_words(d),
    ),
    ("up to {} of a spectrum's length", "features.rows.subsets", "MOST_WRONG"),
    ("Unless a row explains {} of what they do", "features.rows.search", "SHARE"),
    ("(beyond noise, {} deviations)", "features.rows.search", "SIZE_DEVIATIONS", in_words),
    ("on windows of {0} × {0} pixels", "runs.penalties.neighbours", "WINDOW"),
    (
        "at random by {} of the noise",
        "runs.penalties.neighbours",
        "PROBE",
        lambda share: ["a tenth"] if share == 0.1 else [],
    ),
    ("λ falls by factors of {} ({}) until", "runs.penalties.neighbours", "RATIO", lambda r: [r["tv"], r["laplacian"]]),
    ("about {} bytes of memory a pixel", "arrays.spatial", "ARRAYS", lambda n: [round(8 * n, -2)]),
    ("(or of {} of `½ Σ‖y‖²`", "arrays.spatial", "SMALLEST_COST"),
    ("w the {}th percentile of the absolute", "library.fractions", "MAXIMUM"),
    ("where the optimum is within {} of 0", "certificate", "DARK"),
    ("Where each abundance exceeds {} deviations", "features.ranges.calibration", "SURE", in_words),
    ("Residuals of {} of a pixel's length always fit", "features.ranges.limit", "ALWAYS_FITS"),
    ("within {} rad of dependence", "solvers.pixels.mesma.tables", "TOO_ALIKE", lambda square: [sqrt(square)]),
    ("more than fit {} GiB", "solvers.pixels.mesma.tables", "MOST_BYTES", lambda n: [n / 2**30]),
    ("deviations above 0, above level 4 by {};", "solvers.pixels.mesma.search", "NOISE_GAIN_OF_MANY"),
    ("where it lowers χ² by {}, so", "solvers.pixels.mesma.search", "NOISE_GAIN"),
    ("the evidence of {} pixels", "features.average.likely", "SAMPLE_PIXELS"),
    (
        "more than {} models a pixel takes no more of a set once {} share the weight",
        "features.average.models",
        "MANY_MODELS ENOUGH_MODELS",
        lambda many, enough: [f"{many // 1000} 000", enough],
    ),
    ("a squared error within {} |y|² of the best", "solvers.pixels.mesma.search", "SAME_ERROR"),
    (
        "held within {} to {}; a model",
        "library.prune",
        "square",
        lambda f: [f"−{-f.__defaults__[0]}", f.__defaults__[1]],
    ),
    ("the RMSE is at most {}.", "library.prune", "square", lambda f: [f.__defaults__[2]]),
    ("the median relative RMSE is above {} %", "summary", "POOR", lambda share: percent(float(share))),
    ("95th percentile above {} %, or more than {} % of the", "runs.record.judgement", "POOR_PART SOME_POOR", percent),
    ("an RMSE of at most {} times the noise", "runs.record.misfit", "FAINT"),
    (
        "median is at most {}, and at most {} % of the pixels exceed",
        "runs.record.misfit",
        "EXPLAINED MOST_ABOVE",
        lambda n, share: [n, *percent(share)],
    ),
    ("if fewer than {} % have a direction", "features.missing.scene", "SHARED_PART", percent),
    ("of up to {}.", "features.missing.scene", "MOST_DIRECTIONS", lambda n: ["five"] if n == 5 else []),
    ("off one by more than {} in the median", "runs.record.judgement", "LEAST_LEVEL"),
    ("differ by more than {} times in nine", "runs.record.judgement", "VARIES"),
    ("alone makes up more than {} % of the pixels", "runs.record.judgement", "MANY_OUTSIDE", percent),
    (
        "fewer than {} % of the pixels (up to {} spectra)",
        "runs.record.judgement",
        "UNUSED LARGEST_LIBRARY_JUDGED",
        lambda share, n: [*percent(share), n],
    ),
    ("more than {} times the residual of its neighbours", "runs.record.bands", "STANDS_OUT"),
    ("or it is above {}; cond(E)", "endmembers.counts", "MOST_ENDMEMBERS_COUNTED"),
    ("cond(E) is above {}; a spectrum", "problem", "WARN_CONDITION"),
    ("a spectrum is below {} of the median length", "problem.factors", "NEARLY_BLACK"),
    ("on up to {} pixels:", "runs.stream", "MOST_WHOLE"),
    ("found with it in {} rounds", "features.missing.scene", "ROUNDS", in_words),
    ("beyond the point where {} % as many", "features.missing.scene", "MOST_FALSE_PART", percent),
    (
        "The {} worst pixels are solved exactly (nnls) with each of the {} candidates",
        "features.missing.scene",
        "MOST_WORST MOST_CANDIDATES",
    ),
    (
        "if at least {} % of the pixels have the direction (or {} %, clearly)",
        "features.missing.scene",
        "LEAST_PART RAREST_PART",
        percent,
    ),
    ("more than {} endmembers, or too few bands", "runs.look", "MOST_ENDMEMBERS"),
    ("whose variance is below {} of all", "features.images.detect", "LEAST_VARIANCE"),
    ("touching pixels above {} deviations", "features.images.detect", "DEVIATIONS", in_words),
    ("({} pairs a band;", "endmembers.statistics", "PAIRS_A_BAND"),
    ("with a ridge of {} of the mean power", "endmembers.counts", "REGRESSION_RIDGE"),
    ("the least `2 log mean distance + {} Σ (1 − f_j)`", "endmembers.auto.choice", "PRICE_OF_LONELY_EDGE"),
    (
        "lowers the distance by {}.",
        "endmembers.auto.choice",
        "PRICE_OF_LONELY_EDGE",
        lambda price: ["a third"] if abs(exp(-price / 2) - 2 / 3) < 0.01 else [],
    ),
    (
        "the fraction of edge j that {} % of the pixels",
        "endmembers.auto.smallest",
        "NEAREST",
        lambda q: [round(100 - 100 * q)],
    ),
    ("{} (`cone` + `hysime-spatial`) + {} log m + {}, rounded", "endmembers.counts", "PER_DIMENSION PER_MISFIT MORE"),
    ("to the cone, at least {}.", "endmembers.counts", "LEAST_MISFIT"),
    ("within a factor of {}, else with the smaller", "endmembers.counts", "AGREE"),
    ("At most {}, never more than bands", "endmembers.counts", "MOST_ENDMEMBERS_COUNTED"),
    ("above {} endmembers also from VCA's with {} seeds", "endmembers.nfindr", "ONE_START RESTARTS", in_words),
    ("nearly so for {}, less", "endmembers.sisal", "OUTSIDE"),
    ("until the smoothing is {}:", "endmembers.sisal", "LAST"),
    (
        "amplification^{1} / (least share + {2})^{0}",
        "endmembers.auto.choice",
        "POWER_OF_LEAST_SHARE POWER_OF_AMPLIFICATION SMALLEST_SHARE",
    ),
    ("by a value at most {} times as large", "endmembers.auto.choice", "AS_WELL"),
    ("At most {} pixels from all over the scene", "endmembers.directions", "MOST_PIXELS"),
    ("+ {} log √det(WᵀW + {})`", "endmembers.auto.smallest", "PRICE RIDGE"),
    ("the least value plus {} Σ (1 − f_j)", "endmembers.auto.smallest", "PRICE_OF_LONELY_EDGE"),
    ("and of {} random parts", "endmembers.auto.corners", "PARTS", in_words),
    ("with at least {} % of its edge", "endmembers.auto.corners", "NEAR_PURE", percent),
    ("a fraction of at least {} % of it", "endmembers.auto.means", "NEAR_PURE", percent),
    ("of the same sample, {} times over", "endmembers.auto.means", "ROUNDS", in_words),
    ("A scene is flat if it is at most {} times that", "endmembers.plane", "FLAT"),
    ("the means of the {} and {} purest", "endmembers.auto.choice", "PUREST", lambda purest: [purest[1], purest[0]]),
    ("are those under which {} pixels at most", "endmembers.directions", "MOST_PIXELS"),
    ("a fraction a deviation above {}, and", "endmembers.auto.choice", "MOST_BLUR"),
    ("(sizes within a factor of {})", "endmembers.passes", "OTHER_UNIT"),
    (
        "is less than {} of the material's angle",
        "endmembers.bundles",
        "FOUND",
        lambda share: ["half"] if share == 0.5 else ["?"],
    ),
    ("more than {} deviations of that noise", "endmembers.quality", "DEVIATIONS", in_words),
    (
        "projected once more where more than {} % of it goes",
        "solvers.nnls.lawson_hanson_qr",
        "ONCE_MORE",
        lambda q: [round(100 - 100 * q)],
    ),
    ("that depends on the others to {} does not enter", "solvers.nnls.lawson_hanson_qr", "DEPENDENT_COLUMN"),
    ("depends on more than {} columns", "certificate", "MOST_COLUMNS"),
    ("abundances of P are above {} of the largest", "arrays.others.gradient", "LEAST_SHARE"),
    ("Pixels are done where that is {} of their counts", "arrays.counts", "GAP"),
    ("Entries below {} of the largest are set to zero", "solvers.nnqp.updates", "VANISHED"),
    ("while it changes, at most {} times", "features.systems.nnqp", "MOST_TRIES"),
    ("(by eigenvalues up to n = {}, else", "features.systems.nnqp", "MOST_EIGEN"),
    ("verified at {} of |Q||d|", "arrays.supports", "FLAT"),
    ("the next pivot is below {} of a band's squared length", "features.bands.projections", "DEPENDENT_BAND"),
]


@pytest.mark.parametrize(("phrase", "module", "names", "made"), [(*row, None)[:4] for row in NUMBERS])
def test_numbers_of_the_page_are_those_of_the_code(phrase, module, names, made):
    code = import_module(f"unmix.{module}")
    values = [getattr(code, name) for name in names.split()]
    values = values if made is None else made(*values)
    said = phrase.format(*(value if isinstance(value, str) else as_said(value) for value in values))
    assert any(said in page.read_text(encoding="utf-8") for page in PAGES), said
