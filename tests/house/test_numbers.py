"""Numbers that the pages that promise say are constants of the code: where one of both changes, so must the other."""

from importlib import import_module
from math import log10, sqrt
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
    ("the support and the {} to", "solvers.pixels.working_set", "CANDIDATES"),
    ("to {} columns with the largest duals", "solvers.pixels.cuda_many.search", "CANDIDATES"),
    ("A working set has at most {} spectra", "solvers.pixels.working_set", "MOST_MEMBERS"),
    ("lowers the squared misfit by more than {} of ‖y‖²", "features.at_most.search", "LEAST_FALL"),
    ("no dual is above {} of ‖e‖‖y‖", "features.at_most.search", "LEAST_DUAL"),
    ("an even sample of at most {} pixels", "features.rows.windows", "SAMPLE_PIXELS"),
    ("a row must lower it by {} such", "features.rows.search", "DEVIATIONS"),
    (
        "of the sample holds at less than {} σ² each",
        "features.rows.search",
        "DEVIATIONS",
        lambda d: [round(d * sqrt(6000) / 6, -1)],
    ),
    ("up to {} of a spectrum's length", "features.rows.subsets", "MOST_WRONG"),
    (
        "at random by {} of the noise",
        "runs.penalties.neighbours",
        "PROBE",
        lambda share: ["a tenth"] if share == 0.1 else [],
    ),
    ("about {} bytes of memory a pixel", "arrays.spatial", "ARRAYS", lambda n: [round(8 * n, -2)]),
    ("w the {}th percentile of the absolute", "library.fractions", "MAXIMUM"),
    ("within {} rad of dependence", "solvers.pixels.mesma.tables", "TOO_ALIKE", lambda square: [sqrt(square)]),
    ("more than fit {} GiB", "solvers.pixels.mesma.tables", "MOST_BYTES", lambda n: [n / 2**30]),
    ("deviations above 0, above level 4 by {};", "solvers.pixels.mesma.search", "NOISE_GAIN_OF_MANY"),
    ("where it lowers χ² by {}, so", "solvers.pixels.mesma.search", "NOISE_GAIN"),
    ("a squared error within {} |y|² of the best", "solvers.pixels.mesma.search", "SAME_ERROR"),
    ("the median relative RMSE is above {} %", "summary", "POOR", lambda share: percent(float(share))),
    ("95th percentile above {} %, or more than {} % of the", "runs.record.judgement", "POOR_PART SOME_POOR", percent),
    ("an RMSE of at most {} times the noise", "runs.record.misfit", "FAINT"),
    (
        "median is at most {}, and at most {} % of the pixels exceed",
        "runs.record.misfit",
        "EXPLAINED MOST_ABOVE",
        lambda n, share: [n, *percent(share)],
    ),
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
    ("beyond the point where {} % as many", "features.missing.scene", "MOST_FALSE_PART", percent),
    (
        "if at least {} % of the pixels have the direction (or {} %, clearly)",
        "features.missing.scene",
        "LEAST_PART RAREST_PART",
        percent,
    ),
    ("more than {} endmembers, or too few bands", "runs.look", "MOST_ENDMEMBERS"),
    ("with a ridge of {} of the mean power", "endmembers.counts", "REGRESSION_RIDGE"),
    ("the least `2 log mean distance + {} Σ (1 − f_j)`", "endmembers.auto.choice", "PRICE_OF_LONELY_EDGE"),
    (
        "the fraction of edge j that {} % of the pixels",
        "endmembers.auto.smallest",
        "NEAREST",
        lambda q: [round(100 - 100 * q)],
    ),
    ("{} (`cone` + `hysime-spatial`) + {} log m + {}, rounded", "endmembers.counts", "PER_DIMENSION PER_MISFIT MORE"),
    ("to the cone, at least {}.", "endmembers.counts", "LEAST_MISFIT"),
    ("At most {}, never more than bands", "endmembers.counts", "MOST_ENDMEMBERS_COUNTED"),
    ("nearly so for {}, less", "endmembers.sisal", "OUTSIDE"),
    ("by a value at most {} times as large", "endmembers.auto.choice", "AS_WELL"),
    ("with at most {} pixels divided", "endmembers.directions", "MOST_PIXELS"),
    ("+ {} log √det(WᵀW + {})`", "endmembers.auto.smallest", "PRICE RIDGE"),
    ("is at most {} times what the p strongest", "endmembers.plane", "FLAT"),
    ("the noise, {} pixels of the scene say", "features.average.likely", "SAMPLE_PIXELS"),
    (
        "the {} worst pixels are solved exactly (nnls) with each of the {} nearest",
        "features.missing.scene",
        "MOST_WORST MOST_CANDIDATES",
    ),
    ("with at least {} % of its edge", "endmembers.auto.corners", "NEAR_PURE", percent),
    ("a fraction of at least {} % of it", "endmembers.auto.means", "NEAR_PURE", percent),
    ("are those under which {} pixels at most", "endmembers.directions", "MOST_PIXELS"),
    ("a fraction a deviation above {}, and", "endmembers.auto.choice", "MOST_BLUR"),
    ("(sizes within a factor of {})", "endmembers.passes", "OTHER_UNIT"),
    ("more than {} deviations of that noise", "endmembers.quality", "DEVIATIONS", in_words),
    ("depends on more than {} columns", "certificate", "MOST_COLUMNS"),
    ("abundances of P are above {} of the largest", "arrays.others.gradient", "LEAST_SHARE"),
]


@pytest.mark.parametrize(("phrase", "module", "names", "made"), [(*row, None)[:4] for row in NUMBERS])
def test_numbers_of_the_page_are_those_of_the_code(phrase, module, names, made):
    code = import_module(f"unmix.{module}")
    values = [getattr(code, name) for name in names.split()]
    values = values if made is None else made(*values)
    said = phrase.format(*(value if isinstance(value, str) else as_said(value) for value in values))
    assert any(said in page.read_text(encoding="utf-8") for page in PAGES), said
