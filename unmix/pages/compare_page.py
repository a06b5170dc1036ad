"""The page of a comparison: the distances of two maps, their places, and endmembers."""

from collections.abc import Sequence
from typing import Any

from .charts import bars
from .colours import DIFFERENCES, VIRIDIS, ramp
from .parts import coloured, document, embedded, legend, table, text
from .scene_page import SIDES
from .spectra import MOST_SHOWN as MOST_MAPS
from .views import View

# The most pairs whose maps are shown, three each: those that differ most.
MOST_SHOWN = MOST_MAPS // 3
COLUMNS = ("A", "B", "angle", "RMSE", "MAE", "mean difference", "R²", "slope", "largest", "at line, sample of A")
INSIDE = "B inside A's range"


def side_for(pairs: int) -> int:
    """Return the longest side of a map's picture, where there are three for each pair."""
    return next(side for count, side in SIDES if 3 * pairs <= count)


def says(found: dict[str, Any]) -> str:
    """Return the outcome, first of all."""
    pixels = found["pixels"]
    parts = [f"<strong>RMSE {found['rmse']:.3e}</strong> over {pixels['compared']} pixels"]
    if found["sre"] is not None:
        parts[0] += f", SRE {found['sre']:.1f} dB"
    parts += [f"{pixels[key]} pixels only in {key[-1].upper()}" for key in ("only_a", "only_b") if pixels[key]]
    parts += [f"{name}: {count} pixels certified" for name, count in zip("AB", found["certified"]) if count is not None]
    parts += [
        f"without a partner in {there}: {text(', '.join(found[key]))}"
        for key, there in (("only_a", "B"), ("only_b", "A"))
        if found[key]
    ]
    return f'<div class="verdict"><p>{"</p><p>".join(parts)}</p></div>'


def numbers_of(pair: dict[str, Any]) -> tuple[str, ...]:
    """Return the numbers of a pair in words: the columns after the two names."""
    inside = pair.get("inside")
    return (
        "" if pair["angle"] is None else f"{pair['angle']:.3f}°", f"{pair['rmse']:.2e}", f"{pair['mae']:.2e}",
        f"{pair['mean_difference']:+.2e}", *("" if pair[key] is None else f"{pair[key]:.3f}" for key in ("r2", "slope")),
        f"{pair['largest_difference']:+.2e}", "" if pair["line"] is None else f"{pair['line']}, {pair['sample']}",
        *([] if "inside" not in pair else ["" if inside is None else f"{100 * inside:.1f} %"]),
    )  # fmt: skip


def pairs_table(found: dict[str, Any]) -> str:
    """Return a row for each pair."""
    rows = [(text(pair["a"]), text(pair["b"]), *numbers_of(pair)) for pair in found["pairs"]]
    has_ranges = any("inside" in pair for pair in found["pairs"])
    return table((*COLUMNS, INSIDE) if has_ranges else COLUMNS, rows, 2)


def compare_page(found: dict[str, Any], views: Sequence[tuple[View, View, View]]) -> str:
    """Return the page of what `unmix.compare` found; ``views`` are a, b and their difference of the pairs that are shown."""
    shares, differences = ramp(VIRIDIS), ramp(DIFFERENCES)
    figures = []
    for one, other, difference in views:
        for letter, view, colours in (("A", one, shares), ("B", other, shares), ("A − B", difference, differences)):
            name = text(view.name)
            chart = bars(view.counts, view.low, view.high, "", (240, 64))
            figures.append(
                f'<figure><img src="{embedded(coloured(view, colours))}" alt="{letter}: map of {name}">'
                f"<figcaption>{letter}: <b>{name}</b> mean {view.mean:.3g}</figcaption>{chart}</figure>"
            )
    reach = f"{views[0][2].high:.2g}" if views else ""
    scales = (
        f'<div class="charts"><div>A, B{legend(shares, "0", "1")}</div>'
        f"<div>A − B{legend(differences, '−' + reach, '+' + reach)}</div></div>"
    )
    left_out = len(found["pairs"]) - len(views)
    more = f"<p class=quiet>The {len(views)} pairs that differ most; {left_out} more are in the table.</p>"
    more = more if left_out > 0 else ""
    maps = f'<h2>Maps</h2>{scales}{more}<div class="maps triples">{"".join(figures)}</div>' if views else ""
    body = "\n".join([
        f"<h1>{text(found['a'])} and {text(found['b'])}</h1>", f'<p class="quiet">A and B; matched by {text(found["matched_by"])}</p>',
        says(found), "<h2>Pairs</h2>", pairs_table(found), maps,
    ])  # fmt: skip
    return document("unmix compare", body)
