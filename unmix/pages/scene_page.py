"""The page of a finished run: fit, pixels, pictures and histograms of its maps, the spectra, the record."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..errors import CubeError, LibraryError
from ..features.runs import in_runs, own_maps, searches
from ..io import Cube
from ..io.export.areas import areas_of_pixels
from ..io.fields import NODATA
from ..io.formats.header import geotransform
from ..library.fractions import DESCRIPTIONS
from ..outputs.names import normalize_of
from ..runs.files.finished import FinishedRun
from ..runs.record.fit import seconds_of
from ..runs.record.misfit import MOST_WORSE
from .parts import (
    MOST_SHOWN,
    bars,
    document,
    embedded,
    figure,
    legend,
    percent,
    ramps,
    residual_section,
    spectra_section,
    table,
    text,
)
from .pictures import MAGMA, VIRIDIS, MapView, picture, ramp, thin_bands, views_of
from .pixels import pixels_section

# Most maps, and the longest side of their pictures for up to that number; side of the picture of three maps: a page
# stays below 2 MB, even of noise, which cannot be compressed.
SIDES = ((4, 400), (9, 288), (16, 216), (48, 136))
PICTURE = 320
# The most standard deviations that are shown, those of the largest means; the longest side of their maps; the validity
# from which on its colour stays the same.
MOST_DEVIATIONS, SIGMA_SIDE, HIGHEST_VALIDITY = 9, 136, 5.0
# Maps that are shown at once; others are folded.
MOST_OPEN = 12
# Shares of a map's values, in percent, between which its colours are spread.
STRETCH = 2.0, 98.0
TRUST_LEAST = "Where this is bright, the spectra leave most, in the unit of the scene: trust the fractions there least."
# Relative RMSE of the median pixel up to which a fit is good, and fair.
GOOD, FAIR = 0.05, 0.1
# The share of pixels with a relative RMSE above `FAIR` that is said.
SOME_POOR = 0.02


# Whether maps may be used, by the colour of the bar.
USABLE = {
    " poor": "Do not use these maps as they are: input, fit, or what is missing, say why",
    " fair": "These maps may be used with care: fit, or what is missing, say where",
    "": "These maps may be used: noise explains what is left. Whether the spectra are those on the ground is not known",
}


def verdict(report: dict[str, Any]) -> str:
    """Return the first lines of the page: may the maps be used, and the questions of docs/right.md in their order."""
    fit = {name: float(one) for name, one in report.get("fit", {}).get("relative_rmse", {}).items() if one is not None}
    pixels, share = {name: int(count) for name, count in report["pixels"].items()}, poorly_fitted(report)
    missing, beside = report.get("missing"), report.get("misfit_over_noise")
    is_noise = bool(beside and beside["is_noise"])
    is_open = pixels.get("certified", pixels["solved"]) < pixels["solved"]
    is_clear = bool(missing and missing.get("is_clear", True))
    poor = is_open or is_clear or (not is_noise and (share > SOME_POOR or fit.get("median", 0.0) > FAIR))
    # Without a measure of noise nothing says that it explains what is left.
    fair = beside is None or not is_noise or bool(missing) or float(beside.get("worse") or 0.0) > MOST_WORSE
    colour = " poor" if poor else " fair" if fair else ""
    said = {
        "Input": text(input_in_words(report, pixels)),
        "Fit": fit_in_words(fit, share, beside) + mean_in_words(report) if len(fit) >= 3 else "not measured",
        "Missing": text(missing["said"]) if missing else nothing_missing(beside),
        "Certainty": text(
            "; ".join(report[name]["said"] for name in ("uncertainty", "ranges") if "said" in (report.get(name) or {}))
        )
        or "not estimated: <code>uncertainty</code> estimates it",
        "Ground": "not compared: <code>unmix compare</code> and <code>validate</code> do it",
    }
    rows = "".join(f"<dt>{question}</dt><dd>{answer}.</dd>" for question, answer in said.items())
    proof = "".join(f'<p class="quiet small">{one}</p>' for one in proof_in_words(report, pixels))
    warnings = "".join(f"<li>{text(warning)}</li>" for warning in report.get("warnings", []))
    return f'<div class="verdict{colour}"><p><strong>{USABLE[colour]}</strong>.</p><dl>{rows}</dl>{proof}</div>' + (
        f'<h2>Read before use</h2><ul class="warnings">{warnings}</ul>' if warnings else ""
    )


def nothing_missing(beside: dict[str, Any] | None) -> str:
    """Return what is said where no missing spectrum was found; ``beside``: see `unmix.runs.record.misfit`."""
    if beside is None:
        return "not looked for: noise was not measured, which takes neighbouring pixels, and more bands than spectra"
    return "nothing" if beside["is_noise"] else "no single spectrum was found that explains what is left"


def input_in_words(report: dict[str, Any], pixels: dict[str, int]) -> str:
    """Return how many pixels have values, and which are odd."""
    odd = (report["endmembers"].get("quality") or {}).get("odd")
    counts = (
        (pixels["solved"], "pixels solved"),
        (pixels.get("masked"), "masked"),
        (pixels.get("partly_nodata"), "with some bands missing"),
        (pixels.get("rescued"), "solved again in double-double"),
        (odd and odd["pixels"], "odd, left out where endmembers are extracted"),
    )
    said = ", ".join(f"{count} {what}" for count, what in counts if count or what == "pixels solved")
    empty = share_from(report, 1.0)
    return said + (f"; {percent(empty)} hold nothing of the library: is it fill?" if empty > SOME_POOR else "")


def proof_in_words(report: dict[str, Any], pixels: dict[str, int]) -> list[str]:
    """Return what was proved of the answers."""
    solved, certified = pixels["solved"], pixels.get("certified")
    searched = (one.best for name, one in searches().items() if name in report)
    best = next(searched, "each answer is the best that the model allows")
    proof = (
        []
        if certified is None
        else [
            f"{certified} of {solved} pixels certified: {best} (worst κ "
            f"{report.get('worst_kappa', 0):.1e}, worst δ {report.get('worst_delta') or 0:.1e}). Whether the model is "
            "right, the fit says.",
        ]
    )
    if "spatial" in report:
        proof.append(
            f"All abundances together are proved: their cost is at most {report['spatial']['gap']:.1e} of it above the "
            "least possible."
        )
    if pixels.get("fit_certified"):
        proof.append(f"{pixels['fit_certified']} pixels: only the fit is certified; other abundances may fit as well.")
    if pixels.get("failed"):
        proof.append(f'<span class="poor">{pixels["failed"]} not certified</span>')
    return proof


def poorly_fitted(report: dict[str, Any]) -> float:
    """Return the share of a run's pixels with relative RMSE above `FAIR`, without pixels that are merely dark."""
    return share_from(report, FAIR) * (1.0 - float(report.get("fit", {}).get("faint_part") or 0.0))


def share_from(report: dict[str, Any], least: float) -> float:
    """Return the share of a run's pixels with at least a relative RMSE; it is 1 where an answer is 0."""
    fit = report.get("fit", {})
    found = fit.get("relative_rmse_histogram") or {"counts": [], "begins": 1.0, "bins_an_octave": 1}
    counts = np.array(found["counts"], float)
    begins = float(found["begins"]) * 2.0 ** (np.arange(len(counts)) / float(found["bins_an_octave"]))
    return float(counts[begins >= least].sum() / max(1.0, counts.sum()))


def mean_in_words(report: dict[str, Any]) -> str:
    """Return the mean RMSE of a run, if it is known."""
    mean = report["fit"].get("mean_rmse")
    return "" if mean is None else f"; the mean RMSE is {float(mean):.3g}, in the unit of the scene"


def fit_in_words(fit: dict[str, float], share: float, beside: dict[str, Any] | None) -> str:
    """Return how well the endmembers explain the pixels, a ``share`` of them poorly, by misfit and noise."""
    median = fit["median"]
    word = "poorly" if median > FAIR else "fairly" if median > GOOD or beside is not None else "well"
    word += f", {percent(share)} of them poorly" if median <= FAIR and share > SOME_POOR else ""
    if beside is not None:
        is_within = beside["is_noise"] and float(beside.get("worse") or 0.0) <= MOST_WORSE
        word = "well, to within their noise" if is_within else f"{word}: the misfit is {beside['said']}"
    return (
        f"the endmembers explain the pixels {word}. Half of the pixels leave more than {percent(median)} of their "
        f"spectrum (relative RMSE), one in twenty more than {percent(fit['percentile_95'])}, the worst "
        f"{percent(fit['maximum'])}"
    )


def place_in_words(run: FinishedRun) -> str:
    """Return where and when the scene is from, as the header of its maps says; empty where it does not."""
    try:
        fields = run.open_stored("rmse").fields
    except CubeError:
        return ""
    parts, transform = [], geotransform(fields.get("map info", ""))
    if transform is not None:
        west, across, turn, north, other, down = transform
        words = [word.strip() for word in fields["map info"].strip("{} ").split(",")]
        unit = next((word.partition("=")[2] for word in words if word.lower().startswith("units")), "")
        zone = " ".join(words[7:9]) if words[0].upper() == "UTM" else ""
        size = f"{across:.6g}" if abs(across) == abs(down) else f"{across:.6g} × {abs(down):.6g}"
        parts.append(
            (
                f"pixels of {size} {unit.lower()}, upper left corner at {west:.10g}, {north:.10g} ({words[0]} {zone})"
            ).replace(" )", ")")
        )
        parts.append("turned against north" if turn or other else "north is up")
    if fields.get("acquisition time"):
        parts.append(f"acquired {fields['acquisition time']}")
    return ", ".join(map(text, parts))


def share_maps(run: FinishedRun) -> Iterator[tuple[str, list[MapView]]]:
    """Yield a heading and views for each kind of map with shares: sums by class, then abundances or fractions."""
    means_of = {"fraction": "classes", "abundance": "abundances"}
    of_each = DESCRIPTIONS.get(normalize_of(run.report), "abundances").capitalize()
    for name, heading in (("fraction", "Sums by class"), ("abundance", of_each)):
        if not run.has(name):
            continue
        cube, is_ranked = run.open(name), run.has("index") and name == "abundance"
        names = (
            [f"largest but {b}" if b else "largest" for b in range(cube.bands)]
            if is_ranked
            else run.band_names(name, cube.bands)
        )
        chosen, means = (
            list(range(cube.bands)),
            [float(one.get("mean") or 0.0) for one in run.report.get(means_of[name], [])],
        )
        if not is_ranked and len(means) >= cube.bands - 2:
            chosen.sort(key=lambda b: -(means[b] if b < len(means) else -np.inf))
        if len(chosen) > MOST_SHOWN:
            chosen = chosen[:MOST_SHOWN]
            heading += f": the {MOST_SHOWN} of {cube.bands} with the largest means"
        side = next(side for count, side in SIDES if len(chosen) <= count)
        ends = [stretch_of_map(values) for values in thin_bands(cube, chosen, side)]
        lows, highs = [low for low, _ in ends], [high for _, high in ends]
        has_sum = name == "abundance" and not is_ranked
        shown, areas = [names[b] for b in chosen], areas_of_pixels(cube)
        yield heading, views_of(cube, chosen, shown, side, lows, highs, summed=has_sum, areas=areas)


def stretch_of_map(values: np.ndarray) -> tuple[float, float]:
    """Return the ends of a map's colours, its percentiles `STRETCH`; 0 and 1 if these are equal or unknown."""
    known = values[np.isfinite(values) & (values != NODATA)]
    low, high = (float(one) for one in np.percentile(known, STRETCH)) if known.size else (0.0, 1.0)
    return (low, high) if high > low else (0.0, 1.0)


def picture_of(run: FinishedRun, most: int) -> bytes | None:
    """Return the picture of a run at a smaller size than its browse image; None where the run has none."""
    names, bands = run.report.get("browse"), []
    maps = [name for name in ("index", "fraction", "abundance") if run.has(name)]
    if "index" not in maps:
        if not names:
            return None
        name = "fraction" if "fraction" in maps else "abundance"
        all_names = run.band_names(name, run.open(name).bands)
        bands = [all_names.index(each) for each in names]
    return picture(lambda name, some: thin_bands(run.open(name), some, most), maps, bands)


def kept_maps(report: dict[str, Any]) -> str:
    """Return the headline's words on features."""
    return "".join(one.headline(report[name]) for name, one in in_runs().items() if isinstance(report.get(name), dict))


def sparse(report: dict[str, Any]) -> str:
    """Return the headline's words on a penalty on abundances."""
    if "spatial" in report:
        about = report["spatial"]
        return f", {text(about['prior'])} {about['lambda']:.4g}{' by auto' if 'rule' in about else ''}"
    about = report.get("l1")
    if not about:
        return ""
    return f", l1 {about['lambda']:.4g} ({about['above_1_percent']:.1f} above 1 % a pixel)"


def fit_section(run: FinishedRun, sums: MapView | None) -> str:
    """Return histograms of what tells of fit and proof."""
    report, charts = run.report, []
    for counted, what in (
        (report.get("fit", {}).get("relative_rmse_histogram"), "relative RMSE"),
        (report.get("kappa_histogram"), "κ"),
    ):
        if counted and counted["counts"]:
            low = float(np.log10(counted["begins"]))
            high = low + len(counted["counts"]) / counted["bins_an_octave"] * float(np.log10(2))
            charts.append(bars(counted["counts"], round(low, 2), round(high, 2), f"log₁₀ {what}"))
    steps = report.get("steps")  # a number of all pixels together, where the method has no steps of a pixel
    if isinstance(steps, dict) and steps:
        steps = {int(key): count for key, count in steps.items()}
        charts.append(bars([steps.get(k, 0) for k in range(max(steps) + 1)], 0, max(steps), "steps of the search"))
    if sums is not None and sums.counts.max() < sums.solved:
        charts.append(bars(sums.counts, sums.low, sums.high, "sum of the abundances"))
    return f'<h2>Fit and proof</h2><div class="charts">{"".join(charts)}</div>' if charts else ""


def rmse_figure(run: FinishedRun) -> str:
    """Return the map of RMSE."""
    top = float(run.report.get("fit", {}).get("maximum_rmse") or 0.0) or 1.0
    if not 0 < top < np.inf:
        raise ValueError(f"the largest RMSE is {top}")
    return common_figure(run, "rmse", "RMSE", top) + f'<p class="quiet small">{TRUST_LEAST}</p>'


def usual(values: np.ndarray, share: float, top: float) -> float:
    """Return the value that ``share`` percent of a map's values do not exceed; ``top`` where that is not above zero."""
    known = values[np.isfinite(values) & (values != NODATA)]
    high = float(np.percentile(known, share)) if known.size else top
    return high if high > 0 else top


def small_maps(
    cube: Cube, bands: Sequence[int], names: Sequence[str], colours: str = MAGMA, high: float | None = None
) -> str:
    """Return small maps of bands with one range of colours, from 0 to ``high``, else to the 98th percentile."""
    high = usual(thin_bands(cube, bands, SIGMA_SIDE), 98, 1.0) if high is None else high
    views = views_of(cube, bands, names, SIGMA_SIDE, 0.0, high)
    shown = "".join(figure(view, ramp(colours), f"mean {view.mean:.3g}") for view in views)
    return f'<div class="maps">{shown}</div>{legend(ramp(colours), "0", f"{high:.3g} and above")}'


def common_figure(run: FinishedRun, name: str, title: str, top: float) -> str:
    """Return a map of one band from 0 to the 99.5th percentile, or to ``top`` if no value is above 0."""
    cube, side, colours = run.open(name), SIDES[0][1], ramp(MAGMA)
    high = usual(thin_bands(cube, [0], side), 99.5, top)
    view = views_of(cube, [0], [title], side, 0.0, high)[0]
    return figure(view, colours, f"up to {view.largest:.3g}", (440, 80)) + legend(colours, "0", f"{view.high:.3g}")


def caption_of(view: MapView, has_area: bool) -> str:
    """Return the words below a map of shares, with their area where they have one and it is known."""
    odd = f'; <span class="poor">{view.odd} not finite</span>' * (view.odd > 0)
    area = f"; {view.held:,.4g} ha" if has_area and view.held is not None else ""
    return f"mean {view.mean:.3f}{area}; colours from {view.low:.2g} to {view.high:.2g}{odd}"


def how_much(views: list[MapView]) -> str:
    """Return a table of the means of maps, in per cent, and of their areas, where these are known."""
    area = ["hectares"] * all(view.held is not None for view in views)
    rows = [[text(view.name), f"{100 * view.mean:.2f}", *(f"{view.held:,.2f}" for _ in area)] for view in views]
    return f"<h2>How much of each</h2>{table(['', 'mean, %', *area], rows, 1)}" if rows else ""


def scene_page(run: FinishedRun) -> str:
    """Return the page of a finished run; `CubeError` where a map cannot be read."""
    report, colours = run.report, ramp(VIRIDIS)
    method = f"{report.get('method', '?')} ({report.get('solver', '?')})" if report.get("method") != "nmf" else "nmf"
    about = (
        f"{text(method)} with {len(report['endmembers']['names'])} endmembers{kept_maps(report)}{sparse(report)} on "
        f"{text(report.get('device', '?'))}, "
        f"{int(report['lines'])} lines of {int(report['samples'])} samples, {seconds_of(report):.3g} s"
        + (f", {text(report['ended'])[:16].replace('T', ' ')} UTC" if report.get("ended") else "")
    )
    place = place_in_words(run)
    browse = picture_of(run, PICTURE)
    colour_names = ("red", "green", "blue") if len(report.get("browse") or []) > 1 else ("bright",)
    shown = ", ".join(f"{colour} {text(name)}" for colour, name in zip(colour_names, report.get("browse") or []))
    caption = f"<figcaption>{shown}</figcaption>"
    picture = f'<figure><img src="{embedded(browse)}" alt="browse image">{caption}</figure>' if browse else ""
    sections, sums, amounts = [], None, ""
    # Not brightness, nor the largest of several.
    materials = {str(name) for name in report["endmembers"]["names"]}
    materials |= {str(one["name"]) for one in report.get("classes") or []}
    for heading, views in share_maps(run):
        if views[-1].name == "sum of the abundances":
            sums = views.pop()
        amounts = amounts or how_much([view for view in views if view.name in materials])
        figures = [figure(view, colours, caption_of(view, view.name in materials)) for view in views]
        folded = "".join(figures[MOST_OPEN:])
        more = (
            f'<details><summary>{len(figures) - MOST_OPEN} more</summary><div class="maps">{folded}</div></details>'
            if folded
            else ""
        )
        sections.append(
            f'<h2>{text(heading)}</h2><p class="quiet small">Largest mean first; colours of each between its own '
            "ends.</p>"
            f'<div class="maps">{"".join(figures[:MOST_OPEN])}</div>{more}'
        )
    if run.has("scale"):
        what = "The divisor of fractions: the brightness of a pixel beside that of the spectra."
        sections.append(
            f'<h2>Scale</h2><p class="quiet">{what}</p><div '
            f'class="top"><div>{common_figure(run, "scale", "scale", 1.0)}</div></div>'
        )
    try:
        spectra = pixels_section(run) + residual_section(run) + spectra_section(run)
    except (LibraryError, CubeError) as error:
        spectra = f'<p class="poor">{text(error)}</p>'
    command = " ".join(map(str, report.get("command") or []))
    record = json.dumps(
        {key: value for key, value in report.items() if key not in ("digests", "sizes")}, indent=1, ensure_ascii=False
    )
    body = "\n".join(
        [
            f"<h1>{text(run.stem.name)}</h1>",
            verdict(report),
            f'<p class="quiet">{about}{". " * bool(place)}{place}</p>',
            f'<div class="top">{picture}<div>{rmse_figure(run)}</div></div>',
            amounts,
            spectra,
            *sections,
            *(one.section(run) for name, one in in_runs().items() if isinstance(report.get(name), dict)),
            *(one.section(run) for name, one in own_maps().items() if run.has(name)),
            fit_section(run, sums),
            f"<h2>Record</h2><p class=quiet>unmix {text(report.get('unmix', ''))}</p>"
            + (f"<pre>{text(command)}</pre>" if command else ""),
            f"<details><summary>run.json</summary><pre>{lines_of(record)}</pre></details>",
        ]
    )
    return document(f"{text(run.stem.name)} – unmix", body + ramps(VIRIDIS, MAGMA), "values.js")


def lines_of(record: str) -> str:
    """Return text with its lines, each printable."""
    return "\n".join(text(line) for line in record.splitlines())
