"""Parts that pages are made of: text, maps with their colours and histograms, tables."""

import base64
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import printable
from ..io.formats.written_by import PAGE_HEAD
from .charts import bars
from .colours import ramp
from .png import png
from .views import View


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
    image = f'src="{embedded(coloured(view, colours))}" data-low="{view.low:.6g}" data-high="{view.high:.6g}"'
    return (
        f'<figure><img {image} alt="map of {name}"><figcaption><b>{name}</b> {caption}</figcaption>'
        f"{bars(view.counts, view.low, view.high, '', size, view.name)}</figure>"
    )


def legend(colours: np.ndarray, low: str, high: str) -> str:
    """Return a bar with the colours of maps and what its ends are."""
    stops = ",".join("#" + bytes(colours[k, :3]).hex() for k in range(0, 255, 254 // 8))
    return (
        f'<div class="ramp" style="background:linear-gradient(90deg,{stops})"></div><div class="ends"><span>{low}</span>'
        f"<span>{high}</span></div>"
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


def ramps(*colours: str) -> str:
    """Return the colours of maps, by which a script knows the value under the pointer (values.js)."""
    each = ("".join(bytes(one[:3]).hex() for one in ramp(stops)[:255]) for stops in colours)
    return "".join(f'<div class="ramp-of" data-colours="{one}" hidden></div>' for one in each)
