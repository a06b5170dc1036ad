"""The page of a comparison: the distances of two maps, their places, and endmembers."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .parts import MOST_SHOWN as MOST_MAPS
from .parts import SQUARE, bars, coloured, document, embedded, legend, square_chart, table, text
from .pictures import DIFFERENCES, VIRIDIS, MapView, png, ramp
from .scene_page import SIDES

# The most pairs whose maps are shown, three each: the pairs that differ most.
MOST_SHOWN = MOST_MAPS // 3
# The numbers of a pair: title, key and form. A column is there where some pair has the key.
NUMBERS = (
    ("angle", "angle", "{:.3f}°"),
    ("mean A", "mean_a", "{:.4f}"),
    ("mean B", "mean_b", "{:.4f}"),
    ("RMSE", "rmse", "{:.3g}"),
    ("MAE", "mae", "{:.3g}"),
    ("bias", "mean_difference", "{:+.3g}"),
    ("R²", "r2", "{:.3f}"),
    ("slope", "slope", "{:.3f}"),
    ("largest", "largest_difference", "{:+.3g}"),
    ("at line", "line", "{}"),
    ("sample", "sample", "{}"),
    ("B in range of A", "inside", "{:.1%}"),
    ("within σ (68 %)", "within", "{:.1%}"),
    ("beyond 1.96 σ (5 %)", "significant", "{:.1%}"),
)
# Numbers that say how far a map is from the truth, and nothing of a change.
OF_TRUTH = ("r2", "slope")
# The signal to reconstruction error, dB, from which on two maps agree well, and fairly: errors have a tenth, and half,
# of the energy; and the least R² of a pair of maps that agree well.
GOOD_SRE, FAIR_SRE, GOOD_R2 = 10.0, 3.0, 0.5
WORDS = ("poor", "fair", "good")
# Cells along each axis of a density of values; the last of 254 colours there: those beyond have less contrast than 3
# with white.
CELLS, LIGHTEST = 64, 150


def side_for(pairs: int) -> int:
    """Return the longest side of a map's picture, where there are three for each pair."""
    return next(side for count, side in SIDES if 3 * pairs <= count)


def agreement(found: dict[str, Any]) -> str:
    """Return in a word how well two maps agree, by the SRE; empty if the reference has no signal."""
    sre = found["sre"]
    if sre is None:
        return "equal" if found["rmse"] == 0 else ""
    level = int(sre >= FAIR_SRE) + int(sre >= GOOD_SRE)
    # A word less if a pair's R² is below `GOOD_R2`, or one of the reference has no partner.
    is_apart = found["only_b"] or any(pair["r2"] is not None and pair["r2"] < GOOD_R2 for pair in found["pairs"])
    return WORDS[max(0, level - bool(is_apart))]


def is_change(found: dict[str, Any]) -> bool:
    """Return whether both are runs, which differ where something changed; none is the truth of the other."""
    return None not in found["certified"]


def says(found: dict[str, Any]) -> str:
    """Return the outcome, first of all."""
    pixels, word = found["pixels"], "" if is_change(found) else agreement(found)
    what = "Change from B to A: " if is_change(found) else ""
    parts = [f"<strong>{what}RMSE {found['rmse']:.3g}</strong> over {pixels['compared']} pixels"]
    if word and found["sre"] is not None:
        parts[0] += f", SRE {found['sre']:.1f} dB: the agreement is {word}"
    parts += [f"{pixels[key]} pixels only in {key[-1].upper()}" for key in ("only_a", "only_b") if pixels[key]]
    if found["averaged"]:
        parts.append(f"{found['averaged'].upper()} was averaged by area onto the pixels of the other")
    parts += [f"{name}: {count} pixels certified" for name, count in zip("AB", found["certified"]) if count is not None]
    parts += [
        f"without a partner in {there}: {text(', '.join(found[key]))}"
        for key, there in (("only_a", "B"), ("only_b", "A"))
        if found[key]
    ]
    return f'<div class="verdict {word}"><p>{"</p><p>".join(parts)}</p></div>'


def rows_of(found: dict[str, Any]) -> tuple[list[str], list[tuple[str, ...]]]:
    """Return the titles and the rows of a table of pairs, in words; the first two columns are names."""
    changed = is_change(found)
    columns = [
        ("change" if changed and key == "mean_difference" else title, key, form)
        for title, key, form in NUMBERS
        if any(key in pair for pair in found["pairs"]) and not (changed and key in OF_TRUTH)
    ]
    rows = [
        (
            pair["a"],
            pair["b"],
            *("" if pair[key] is None else form.format(pair[key]).replace("%", " %") for _, key, form in columns),
        )
        for pair in found["pairs"]
    ]
    return ["A", "B", *(title for title, _, _ in columns)], rows


def density_of_pairs(counts: np.ndarray, name: str) -> str:
    """Return a figure of ``counts`` of pixels (B, A) by their values in both maps, 0 to 1, with the line of equals."""
    shares = np.log1p(counts[:, ::-1].T) / np.log1p(max(1, counts.max()))
    colours = np.where(shares > 0, np.round(LIGHTEST * (1 - shares)), 255).astype(np.uint8)
    side = f'width="{SQUARE}" height="{SQUARE}"'
    image = f'href="{embedded(png(colours, ramp(VIRIDIS)))}" {side} style="image-rendering:pixelated"'
    said = "pixels by their values in B (across) and A (up), from 0 to 1; the line is where both are equal"
    chart = square_chart(f'<rect {side} fill="#fff"/><image {image}/>', 0.0, 1.0, "B", "A", f"density of {name}", said)
    return f"<figure>{chart}<figcaption>A over B: the darker, the more pixels</figcaption></figure>"


def compare_page(
    found: dict[str, Any], views: Sequence[tuple[MapView, MapView, MapView]], densities: Sequence[np.ndarray]
) -> str:
    """Return the page of the results of `unmix.compare`, with views of a, b and a − b of the pairs that are shown."""
    # ``densities`` are the pixels of these pairs by values of b and a, int64.
    shares, differences = ramp(VIRIDIS), ramp(DIFFERENCES)
    figures = []
    for (one, other, difference), counts in zip(views, densities):
        for letter, view, colours in (("A", one, shares), ("B", other, shares), ("A − B", difference, differences)):
            name = text(view.name)
            chart = bars(view.counts, view.low, view.high, "", (240, 64), f"{letter}: {view.name}")
            figures.append(
                f'<figure><img src="{embedded(coloured(view, colours))}" alt="{letter}: map of {name}">'
                f"<figcaption>{letter}: <b>{name}</b> mean {view.mean:.3g}</figcaption>{chart}</figure>"
            )
        figures.append(density_of_pairs(counts, text(one.name)))
    reach = f"{views[0][2].high:.2g}" if views else ""
    scales = (
        f'<div class="charts"><div>A, B{legend(shares, "0", "1")}</div>'
        f"<div>A − B{legend(differences, '−' + reach, '+' + reach)}</div></div>"
    )
    left_out = len(found["pairs"]) - len(views)
    more = f"<p class=quiet>The {len(views)} pairs that differ most; {left_out} more are in the table.</p>"
    more = more if left_out > 0 else ""
    maps = f'<h2>Maps</h2>{scales}{more}<div class="maps compared">{"".join(figures)}</div>' if views else ""
    titles, rows = rows_of(found)
    pairs = table([text(title) for title in titles], [[text(cell) for cell in row] for row in rows], 2)
    body = "\n".join(
        [
            f"<h1>{text(found['a'])} and {text(found['b'])}</h1>",
            f'<p class="quiet">A and B; matched by {text(found["matched_by"])}</p>',
            says(found),
            "<h2>Pairs</h2>",
            pairs,
            maps,
        ]
    )
    return document("unmix compare", body)
