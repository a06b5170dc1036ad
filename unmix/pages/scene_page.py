"""The page of a finished run: the verdict, pictures and histograms of its maps, the spectra, the record."""

import base64
import json
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import CubeError, LibraryError, printable
from ..io.fields import NODATA
from ..io.formats.written_by import PAGE_HEAD
from ..library.fractions import DESCRIPTIONS
from ..outputs.run_record import normalize_of
from ..runs.files.finished import FinishedRun, seconds_of
from .browse import picture
from .charts import bars, lines
from .colours import MAGMA, VIRIDIS, hex_of, ramp
from .png import png
from .views import View, thin_bands, views_of

# Most maps, and the longest side of their pictures for up to that number; side of the picture of three maps: a page stays below 2 MB,
# even of noise, which cannot be compressed.
SIDES = ((4, 400), (9, 288), (16, 216), (48, 136))
PICTURE = 320
# Columns of the table of endmembers; the last three only for extracted ones.
COLUMNS = (
    "endmember", "class", "pixel", "mean", "largest", "above 1 %", "nearest other", "leads in", "pixels beyond the facet opposite",
)  # fmt: skip
# The most standard deviations that are shown, those of the largest means; the longest side of their maps; the validity from which on
# its colour stays the same.
MOST_DEVIATIONS, SIGMA_SIDE, HIGHEST_VALIDITY = 9, 136, 5.0
# The most endmembers or classes whose maps are shown: those with the largest means.
MOST_SHOWN = 48


def text(value: Any) -> str:
    """Return any value as text of a page: nothing in it is markup, and no character is unprintable."""
    return escape(printable(str(value)))


def percent(share: float) -> str:
    """Return a share in percent, with two digits that count."""
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:.1f} %"


def part(name: str) -> str:
    """Return the text of a file of this package."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def document(title: str, body: str, script: str = "") -> str:
    """Return a page that needs no other file, and may load none; ``script`` names a file of this package."""
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'" + (
        "; script-src 'unsafe-inline'" if script else ""
    )
    return (
        f'{PAGE_HEAD}<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<title>{title}</title><style>{part('page.css')}</style></head>\n<body>\n{body}\n"
        + (f"<script>{part(script)}</script>" if script else "")
        + "</body></html>\n"
    )


def embedded(image: bytes) -> str:
    """Return an image as an address that holds it."""
    return "data:image/png;base64," + base64.b64encode(image).decode()


def coloured(view: View, colours: np.ndarray) -> bytes:
    """Return a view as an image, in 255 colours between its ends and clear where there is no value."""
    with np.errstate(invalid="ignore"):
        shares = np.clip((view.picture - view.low) / (view.high - view.low), 0, 1)
    return png(np.where(np.isnan(shares), 255, np.round(254 * np.nan_to_num(shares))).astype(np.uint8), colours)


def figure(view: View, colours: np.ndarray, caption: str, size: tuple[int, int] = (240, 64)) -> str:
    """Return a map with its histogram, of that size."""
    name = text(view.name)
    return (
        f'<figure><img src="{embedded(coloured(view, colours))}" alt="map of {name}"><figcaption><b>{name}</b> {caption}</figcaption>'
        f"{bars(view.counts, view.low, view.high, '', size)}</figure>"
    )


def legend(colours: np.ndarray, low: str, high: str) -> str:
    """Return a bar with the colours of maps and what its ends are."""
    stops = ",".join("#" + bytes(colours[k, :3]).hex() for k in range(0, 255, 254 // 8))
    return (
        f'<div class="ramp" style="background:linear-gradient(90deg,{stops})"></div><div class="ends"><span>{low}</span>'
        f"<span>{high}</span></div>"
    )


def verdict(report: dict[str, Any]) -> str:
    """Return the first lines of the page: what was proved, and how well the model fits."""
    pixels = {name: int(count) for name, count in report["pixels"].items()}
    fit = {name: float(share) for name, share in report.get("fit", {}).get("relative_rmse", {}).items()}
    solved, certified = pixels["solved"], pixels.get("certified")
    parts = []
    poor = (certified is not None and certified < solved) or bool(report.get("warnings"))
    if certified is not None:
        parts.append(f"<strong>{certified} of {solved} pixels certified</strong>")
        parts.append(f"worst κ {report.get('worst_kappa', 0):.1e}, worst δ {report.get('worst_delta') or 0:.1e}")
    else:
        parts.append(f"<strong>{solved} pixels solved</strong>")
    if pixels.get("fit_certified"):
        parts.append(f"{pixels['fit_certified']} pixels: only the fit is certified")
    if pixels.get("failed"):
        parts.append(f'<span class="poor">{pixels["failed"]} not certified</span>')
    for kind, what in (
        ("masked", "masked"),
        ("partly_nodata", "with some bands missing"),
        ("rescued", "solved again in double-double"),
    ):
        if pixels.get(kind):
            parts.append(f"{pixels[kind]} {what}")
    if fit:
        parts.append(
            f"relative RMSE {percent(fit['median'])} in the median pixel, {percent(fit['percentile_95'])} at the 95th percentile, "
            f"{percent(fit['maximum'])} at worst"
        )
    warnings = "".join(f"<li>{text(warning)}</li>" for warning in report.get("warnings", []))
    return f'<div class="verdict{" poor" * poor}"><p>{"</p><p>".join(parts)}</p></div>' + (
        f'<h2>Read before use</h2><ul class="warnings">{warnings}</ul>' if warnings else ""
    )


def share_maps(run: FinishedRun) -> Iterator[tuple[str, list[View]]]:
    """Yield a heading and views for each kind of map with shares: sums by class, then abundances or fractions."""
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
        chosen = list(range(cube.bands))
        if len(chosen) > MOST_SHOWN:
            means = [float(one.get("mean", 0.0)) for one in run.report.get("abundances", [])]
            ranked = sorted(chosen, key=lambda b: -(means[b] if b < len(means) else 0.0))
            chosen = sorted(ranked[:MOST_SHOWN])
            heading += f": the {MOST_SHOWN} of {cube.bands} with the largest means"
        side = next(side for count, side in SIDES if len(chosen) <= count)
        views = views_of(cube, chosen, [names[b] for b in chosen], side, summed=name == "abundance" and not is_ranked)
        yield heading, views


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


def spectra_section(run: FinishedRun) -> str:
    """Return the endmembers' spectra with gaps at bands that are not in use, and where each is from."""
    library, used = run.endmembers(), np.asarray(run.report.get("bands_used", []))
    shown = list(range(len(library.names)))[:MOST_SHOWN]
    colours = [hex_of(j + 1) for j in shown]
    chart = chart_of(run, library.matrix[:, shown], [library.names[j] for j in shown], colours)
    pixels = run.report.get("endmembers", {}).get("pixels") or [None] * len(library.names)
    by_name = {one.get("name"): one for one in run.report.get("abundances", [])}
    quality = run.report.get("endmembers", {}).get("quality") or {}
    rows = []
    for j in shown:
        numbers = cover(by_name.get(library.names[j], {})) + alike(quality, library.names, j)
        place = f"line {int(pixels[j][0])}, sample {int(pixels[j][1])}" if pixels[j] else ""
        kind = library.classes[j] if library.classes else ""
        rows.append([keys([colours[j]], [library.names[j]]), text(kind), place, *numbers])
    left_out = len(library.names) - len(shown)
    more = f"<p>{left_out} more are in STEM_endmembers.csv.</p>" if left_out > 0 else ""
    source = text(run.report.get("endmembers", {}).get("source", ""))
    return (
        f"<h2>Endmembers</h2>{chart}<p class=quiet>{source}; {len(used)} bands in use{left_by(quality)}</p>"
        f"{table(COLUMNS if quality else COLUMNS[:6], rows, 3)}{more}"
    )


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], words: int) -> str:
    """Return a table of cells that are text of a page: those of the first columns are ``words``, the others numbers."""

    def row(cells: Sequence[str], tag: str) -> str:
        return "".join(f"<{tag}{' class=number' * (k >= words)}>{cell}</{tag[:2]}>" for k, cell in enumerate(cells))

    body = "".join(f"<tr>{row(cells, 'td')}</tr>" for cells in rows)
    head = row(columns, 'th scope="col"')
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def keys(colours: Sequence[str], names: Sequence[str]) -> str:
    """Return the legend of the lines' colours."""
    return " ".join(f'<span class="key" style="color:{c}"></span>{text(name)}' for c, name in zip(colours, names))


def chart_of(
    run: FinishedRun, values: np.ndarray, names: Sequence[str], colours: Sequence[str], what: str = "spectra of the endmembers",
) -> str:  # fmt: skip
    """Return values of the bands in use (L, p) as lines, cut at bands that are not."""
    count, waves = len(values), run.endmembers().wavelengths
    if waves is not None and len(waves) != count:
        waves = None
    at = np.arange(1.0, count + 1) if waves is None else waves
    spacing = float(np.median(np.abs(np.diff(at)))) if count > 1 else 1.0
    axis = "band" if waves is None else "wavelength (nm)"
    return lines(at, values, names, colours, axis, 2.5 * spacing, what)


def residual_section(run: FinishedRun) -> str:
    """Return the residual of each band: the root mean square and the mean of ``y − E a`` over the pixels looked at."""
    found = run.report.get("residual_by_band")
    if not found or not found["rms"]:
        return ""
    values = np.column_stack([found["rms"], found["mean"], np.zeros(len(found["rms"]))])
    colours, names = [hex_of(1), hex_of(2), "#888888"], ["root mean square", "mean", "0"]
    chart = chart_of(run, values, names, colours, "residual of each band")
    said = f"{keys(colours, names[:2])} of y − E a, over {found['pixels']} pixels"
    return f"<h2>Residual of each band</h2>{chart}<p class=quiet>{said}</p>"


def missing_section(run: FinishedRun) -> str:
    """Return the section on a missing spectrum: in words, the mean of the pixels that have it, its residual, and their places."""
    found = run.report.get("missing")
    if not found or not found["spectrum"]:
        return ""
    values = np.column_stack([found["spectrum"], found["unexplained"]])
    colours, names = [hex_of(1), hex_of(2)], ("mean of these pixels", "its residual")
    chart = chart_of(run, values, names, colours, "spectrum that is missing")
    rows = [(text(one["name"]), percent(one["misfit"])) for one in found.get("candidates", [])]
    candidates = table(("spectrum", "median misfit with it"), rows, 1) if rows else ""
    return (
        f"<h2>What is missing</h2><p>{text(found['said'])}</p>{chart}<p class=quiet>{keys(colours, names)} by the endmembers, at unit "
        f"length</p>{bars(found['of_lines'], 0, int(run.report['lines']), 'lines of these pixels')}{candidates}"
    )


def alike(quality: dict[str, Any], names: Sequence[str], j: int) -> list[str]:
    """Return an extracted endmember's cells: the nearest other one, and the shares of pixels that it leads and beyond its facet."""
    if not quality or j >= len(quality["each"]):
        return [""] * (len(COLUMNS) - 6) if quality else []
    one = quality["each"][j]
    near = "" if one["nearest"] is None else f"{one['angle']:.2f}° {text(names[int(one['nearest'])])}"
    return [near, *("" if one.get(key) is None else percent(one[key]) for key in ("leads", "beyond"))]


def sparse(report: dict[str, Any]) -> str:
    """Return the headline's words on a penalty on abundances, or on a bound on the endmembers of a pixel."""
    if "at_most" in report:
        pixels = report["at_most"]["pixels"]
        mean = sum(k * n for k, n in enumerate(pixels)) / max(1, sum(pixels))
        return f", at most {report['at_most']['most']} endmembers a pixel ({mean:.1f} on average)"
    about = report.get("l1") or report.get("l21")
    if not about:
        return ""
    rule = f" by {text(about['rule'])} from noise of {about['noise']:.3g} a band" if "rule" in about else ""
    if "kept" in about:
        return f", l21 {about['lambda']:.4g}{rule} ({about['kept']} of {about['of']} endmembers)"
    return f", l1 {about['lambda']:.4g}{rule} ({about['above_1_percent']:.1f} above 1 % a pixel)"


def left_by(quality: dict[str, Any]) -> str:
    """Return words on the residual of a scene for its extracted endmembers."""
    if quality.get("unexplained") is None:
        return ""
    return (
        f"; the components they span leave {quality['unexplained']:.2g} times the noise of neighbouring pixels; "
        f"{percent(quality['outside'])} of the pixels are outside of their simplex by more than that"
    )


def cover(one: dict[str, Any]) -> list[str]:
    """Return mean, largest abundance and share of pixels above 1 %, as far as they are known."""
    forms = {"mean": "{:.3f}".format, "maximum": "{:.3f}".format, "share_above_1_percent": percent}
    return ["" if one.get(key) is None else form(one[key]) for key, form in forms.items()]


def fit_section(run: FinishedRun, sums: View | None) -> str:
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


def uncertainty_section(run: FinishedRun) -> str:
    """Return the section on standard deviations: words, the map of their validity, and maps for the largest sums or abundances."""
    trust = run.report.get("uncertainty")
    if not isinstance(trust, dict) or not run.has("sigma"):
        return ""
    cube, colours = run.open("sigma"), ramp(MAGMA)
    of, by = ("fraction", "classes") if run.has("fraction") else ("abundance", "abundances")
    names = [*run.band_names(of, cube.bands - 1), "validity"]
    means = [float(one.get("mean") or 0.0) for one in run.report.get(by, [])]
    chosen = sorted(sorted(range(min(len(means), cube.bands - 1)), key=lambda b: -means[b])[:MOST_DEVIATIONS])
    high = usual(thin_bands(cube, chosen, SIGMA_SIDE), 98, 1.0)
    validity = views_of(cube, [cube.bands - 1], names[-1:], SIDES[2][1], 0.0, HIGHEST_VALIDITY)[0]
    views = views_of(cube, chosen, [f"σ of {names[b]}" for b in chosen], SIGMA_SIDE, 0.0, high)
    shown = "".join(figure(view, colours, f"mean {view.mean:.3g}") for view in views)
    return (
        f'<h2>Uncertainty</h2><p>{text(trust.get("said", ""))}</p><div class="maps">{figure(validity, ramp(VIRIDIS), "")}</div>'
        f'{legend(ramp(VIRIDIS), "0", f"{HIGHEST_VALIDITY:g} and above")}<div class="maps">{shown}</div>'
        f"{legend(colours, '0', f'{high:.3g} and above')}"
    )


def ranges_section(run: FinishedRun) -> str:
    """Return the section on proved ranges: words, and maps of the ends of the largest sums or abundances."""
    found = run.report.get("ranges")
    if not isinstance(found, dict) or not run.has("range"):
        return ""
    cube, colours = run.open("range"), ramp(VIRIDIS)
    names = [str(one["name"]) for one in found["each"]][: cube.bands // 2]
    means = {
        str(one.get("name")): float(one.get("mean") or 0.0)
        for by in ("abundances", "classes")
        for one in run.report.get(by, [])
    }
    size = [means.get(name, 0.0) for name in names]
    chosen = sorted(sorted(range(len(size)), key=lambda c: -size[c])[:MOST_DEVIATIONS])
    bands = [2 * c + end for c in chosen for end in (0, 1)]
    views = views_of(cube, bands, [f"{names[b // 2]} {('lower', 'upper')[b % 2]}" for b in bands], SIGMA_SIDE, 0.0, 1.0)
    shown = "".join(figure(view, colours, f"mean {view.mean:.3g}") for view in views)
    return (
        f'<h2>Ranges</h2><p>{text(found.get("said", ""))}</p><div class="maps">{shown}</div>'
        f"{legend(colours, '0', '1 and above')}"
    )


def rmse_figure(run: FinishedRun) -> str:
    """Return the map of RMSE."""
    top = float(run.report.get("fit", {}).get("maximum_rmse") or 0.0) or 1.0
    if not 0 < top < np.inf:
        raise ValueError(f"the largest RMSE is {top}")
    return common_figure(run, "rmse", "RMSE", top)


def usual(values: np.ndarray, share: float, top: float) -> float:
    """Return the value that ``share`` percent of those of a map do not exceed; ``top`` where that is not above zero."""
    known = values[np.isfinite(values) & (values != NODATA)]
    high = float(np.percentile(known, share)) if known.size else top
    return high if high > 0 else top


def common_figure(run: FinishedRun, name: str, title: str, top: float) -> str:
    """Return a map of one band, from zero to the largest value that is not rare; to ``top`` where none is above zero."""
    cube, side, colours = run.open(name), SIDES[0][1], ramp(MAGMA)
    high = usual(thin_bands(cube, [0], side), 99.5, top)
    view = views_of(cube, [0], [title], side, 0.0, high)[0]
    return figure(view, colours, f"up to {view.largest:.3g}", (560, 80)) + legend(colours, "0", f"{view.high:.3g}")


def scene_page(run: FinishedRun) -> str:
    """Return the page of a finished run; `CubeError` where a map cannot be read."""
    report, colours = run.report, ramp(VIRIDIS)
    method = f"{report.get('method', '?')} ({report.get('solver', '?')})" if report.get("method") != "nmf" else "nmf"
    about = (
        f"{text(method)} with {len(report['endmembers']['names'])} endmembers{sparse(report)} on {text(report.get('device', '?'))}, "
        f"{int(report['lines'])} lines of {int(report['samples'])} samples, {seconds_of(report):.3g} s"
    )
    browse = picture_of(run, PICTURE)
    colour_names = ("red", "green", "blue") if len(report.get("browse") or []) > 1 else ("bright",)
    shown = ", ".join(f"{colour} {text(name)}" for colour, name in zip(colour_names, report.get("browse") or []))
    caption = f"<figcaption>{shown}</figcaption>"
    picture = f'<figure><img src="{embedded(browse)}" alt="browse image">{caption}</figure>' if browse else ""
    sections, sums = [], None
    for heading, views in share_maps(run):
        if views[-1].name == "sum of the abundances":
            sums = views.pop()
        shown = "".join(
            figure(
                view,
                colours,
                f"mean {view.mean:.3f}" + f'; <span class="poor">{view.odd} not finite</span>' * (view.odd > 0),
            )
            for view in views
        )
        sections.append(f'<h2>{text(heading)}</h2>{legend(colours, "0", "1")}<div class="maps">{shown}</div>')
    if run.has("scale"):
        what = "The divisor of fractions: the brightness of a pixel beside that of the spectra."
        sections.append(f'<h2>Scale</h2><p class="quiet">{what}</p>{common_figure(run, "scale", "scale", 1.0)}')
    try:
        spectra = missing_section(run) + residual_section(run) + spectra_section(run)
    except (LibraryError, CubeError) as error:
        spectra = f'<p class="poor">{text(error)}</p>'
    command = " ".join(map(str, report.get("command") or []))
    record = json.dumps(
        {key: value for key, value in report.items() if key not in ("digests", "sizes")}, indent=1, ensure_ascii=False
    )
    body = "\n".join([
        f"<h1>{text(run.stem.name)}</h1>", f'<p class="quiet">{about}</p>', verdict(report),
        f'<div class="top">{picture}<div>{rmse_figure(run)}</div></div>', *sections, uncertainty_section(run), ranges_section(run),
        fit_section(run, sums), spectra,
        f"<h2>Record</h2><p class=quiet>unmix {text(report.get('unmix', ''))}</p>" + (f"<pre>{text(command)}</pre>" if command else ""),
        f"<details><summary>run.json</summary><pre>{lines_of(record)}</pre></details>",
    ])  # fmt: skip
    return document(f"{text(run.stem.name)} – unmix", body)


def lines_of(record: str) -> str:
    """Return text with its lines, each printable."""
    return "\n".join(text(line) for line in record.splitlines())
