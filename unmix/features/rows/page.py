"""The part of a run's report about its rows: the table of what each would cost, and the knee."""

import math
from typing import Any

from ...pages.parts import table, text

# Of the table: the first two hold names.
COLUMNS = (
    "spectrum",
    "best exchange",
    "its cost, σ² a pixel",
    "cost of losing it beyond noise, σ² a pixel",
    "RMSE without it",
)
# Pixels of a bar at least, and of the longest beyond that.
SHORTEST, LONGEST = 4, 220


def section(run: Any) -> str:
    """Return HTML of a run's entry (`unmix.features.rows.scene.entry_of`)."""
    entry, cells = run.report["rows"], []
    for row in sorted(entry["rows"], key=lambda row: -(math.inf if row["loss"] is None else float(row["loss"]))):
        other = "–" if row["other"] is None else text(row["other"])
        cells.append([text(row["name"]), other, *(number(row[key]) for key in ("exchange", "loss", "rmse"))])
    said = "".join(f"<p>{text(sentence)}.</p>" for sentence in entry["said"])
    return (
        f"<h2>The rows of the library that the scene needs</h2>{said}{table(COLUMNS, cells, 2)}"
        f"<h3>Cost of one row less, by number of rows</h3>{knee(entry['numbers'])}"
    )


def number(value: float | None) -> str:
    """Return a number as text."""
    return "–" if value is None else f"{float(value):.3g}"


def knee(numbers: list[dict[str, Any]]) -> str:
    """Return bars of what one row less costs, for each number of rows, on a logarithmic scale."""
    known = [(int(one["rows"]), float(one["loss"])) for one in numbers if one["loss"] is not None and one["loss"] > 0]
    if not known:
        return ""
    low, high = (math.log(f([loss for _, loss in known])) for f in (min, max))
    bars = ['<text x="0" y="14">rows; cost in σ² a pixel, lengths logarithmic</text>']
    for i, (count, loss) in enumerate(known, 1):
        width, y = SHORTEST + LONGEST * (math.log(loss) - low) / max(high - low, 1e-9), 18 * i
        bars.append(
            f'<text x="28" y="{y + 14}" text-anchor="end">{count}</text>'
            f'<rect x="34" y="{y + 4}" width="{width:.1f}" height="12"/>'
            f'<text x="{40 + width:.1f}" y="{y + 14}">{loss:.3g} σ²</text>'
        )
    size = f'viewBox="0 0 340 {18 * len(known) + 24}" style="max-width:440px"'
    return (
        f'<svg class="bars" {size} role="img" aria-label="cost of one row less, by number of '
        f'rows">{"".join(bars)}</svg>'
    )
