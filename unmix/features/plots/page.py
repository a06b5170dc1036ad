"""The page of a validation: the errors of each map, and what it has over what was measured."""

from typing import Any

from ...pages.parts import SQUARE, document, square_chart, table, text

# The numbers of a pair: title, key and form.
NUMBERS = (
    ("plots", "n", "{}"),
    ("R²", "r2", "{:.3f}"),
    ("RMSE", "rmse", "{:.4f}"),
    ("MAE", "mae", "{:.4f}"),
    ("bias", "bias", "{:+.4f}"),
    ("slope", "slope", "{:.3f}"),
)


def rows_of(found: dict[str, Any]) -> tuple[list[str], list[tuple[str, ...]]]:
    """Return the titles and the rows of the table of errors, in words."""
    rows = [
        (pair["name"], *("" if pair[key] is None else form.format(pair[key]) for _, key, form in NUMBERS))
        for pair in found["pairs"]
    ]
    return ["map", *(title for title, _, _ in NUMBERS)], rows


def scatter(name: str, points: list[tuple[float, float]]) -> str:
    """Return a scatter plot of mapped over measured fractions, with the line where both are equal, as SVG."""
    low = min(0.0, *(value for point in points for value in point))
    high = max(1.0, *(value for point in points for value in point))

    def at(value: float) -> float:
        return (value - low) / (high - low) * SQUARE

    dots = "".join(
        f'<circle cx="{at(x):.1f}" cy="{SQUARE - at(y):.1f}" r="3" fill="currentColor" fill-opacity="0.6"/>'
        for x, y in points
    )
    said = f"mapped (up) over measured (across), from {low:.3g} to {high:.3g}; the line is where both are equal"
    chart = square_chart(dots, low, high, "measured", "mapped", f"{name}: mapped over measured", said)
    return f"<figure>{chart}<figcaption><b>{name}</b>: mapped over measured</figcaption></figure>"


def page_of_plots(found: dict[str, Any]) -> str:
    """Return the page of what `unmix.validate` found."""
    titles, rows = rows_of(found)
    figures = []
    for pair in found["pairs"]:
        points = [(row["measured"], row["mapped"]) for row in found["rows"] if row["name"] == pair["name"]]
        if points:
            figures.append(scatter(text(pair["name"]), points))
    window, left = (
        found["window"],
        [
            f"{len(found[key])} {said}"
            for key, said in (("outside", "outside of the scene"), ("nodata", "without values in the maps"))
            if found[key]
        ],
    )
    size = "a pixel each" if window == 1 else f"the mean of {window} × {window} pixels each"
    used = f"{found['used']} of {found['plots']} plots, {size}" + (f"; {', '.join(left)}" if left else "")
    body = "\n".join(
        [
            f"<h1>{text(found['run'])} at the plots of {text(found['table'])}</h1>",
            f"<p>{used}</p>",
            table([text(title) for title in titles], [[text(cell) for cell in row] for row in rows], 1),
            f'<h2>Mapped over measured</h2><div class="maps">{"".join(figures)}</div>',
        ]
    )
    return document("unmix validate", body)
