"""The part of a run's report about its rows: the table of what each would cost, and the knee."""

import math
from html import escape
from typing import Any


def section(run: Any) -> str:
    """Return HTML of a run's entry (`unmix.features.rows.scene.entry_of`)."""
    entry, lines = run.report["rows"], []
    for row in sorted(entry["rows"], key=lambda row: -(math.inf if row["loss"] is None else float(row["loss"]))):
        other = "–" if row["other"] is None else escape(str(row["other"]))
        cells = (escape(str(row["name"])), number(row["loss"]), number(row["rmse"]), other, number(row["exchange"]))
        lines.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    head = "".join(
        f"<th>{text}</th>"
        for text in (
            "spectrum",
            "cost of losing it beyond noise, σ² a pixel",
            "RMSE without it",
            "best exchange",
            "its cost, σ² a pixel",
        )
    )
    said = "".join(f"<p>{escape(str(sentence))}.</p>" for sentence in entry["said"])
    return (
        f'<h2>The rows of the library that the scene needs</h2>{said}<table class="stats"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table><h3>Cost of one row less, by number of rows</h3>{knee(entry['numbers'])}"
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
    bars = []
    for i, (count, loss) in enumerate(known):
        width = 4 + 296 * (math.log(loss) - low) / max(high - low, 1e-9)
        bars.append(
            f'<text x="28" y="{16 * i + 12}" text-anchor="end" font-size="11" fill="currentColor">{count}</text>'
            f'<rect x="34" y="{16 * i + 3}" width="{width:.1f}" height="10" fill="#4878a8"/>'
            f'<text x="{40 + width:.1f}" y="{16 * i + 12}" font-size="11" fill="currentColor">{loss:.3g} σ²</text>'
        )
    return f'<svg width="420" height="{16 * len(known) + 6}" role="img" aria-label="knee">{"".join(bars)}</svg>'
