"""Files of pictures: their endings and sizes; the same picture is the same bytes."""

import io
import math
from typing import Any

from ...errors import MethodError

# Endings of pictures, and what matplotlib calls each.
FORMS = {".png": "png", ".svg": "svg", ".pdf": "pdf", ".tif": "tiff", ".tiff": "tiff"}
# What each form says of its making: no date, by which files would differ.
ABOUT: dict[str, dict[str, str | None]] = {
    "png": {"Software": "unmix"},
    "svg": {"Date": None, "Creator": "unmix"},
    "pdf": {"CreationDate": None, "Creator": "unmix"},
}
# Narrowest and widest picture, in mm, and its dots an inch: less is not legible, more takes minutes and gigabytes.
WIDTHS, DPIS = (30.0, 600.0), (50, 1200)
INCH = 25.4  # mm


def within(name: str, value: float, limits: tuple[float, float], unit: str = "") -> float:
    """Return a number between two limits; `MethodError` where it is not."""
    if not limits[0] <= value <= limits[1]:
        raise MethodError(f"`{name}` {value:g}: must be from {limits[0]:g} to {limits[1]:g}{unit}")
    return value


def new_figure(width: float, height: float, dpi: int, **how: Any) -> Any:
    """Return an empty figure, sizes in mm, which has a whole number of dots; `MethodError` where matplotlib is missing."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MethodError("pictures need matplotlib: pip install 'unmix[plot]'") from None
    # Dots are cut to whole ones, so a little is added.
    across, up = ((math.ceil(side / INCH * dpi - 1e-6) + 1e-3) / dpi for side in (width, height))
    return Figure(figsize=(across, up), dpi=dpi, **how)


def content_of(figure: Any, form: str) -> bytes:
    """Return a figure as the content of a file."""
    from matplotlib import rc_context

    content = io.BytesIO()
    packed = {"pil_kwargs": {"compression": "tiff_lzw"}} if form == "tiff" else {}
    with rc_context({"svg.hashsalt": "unmix", "svg.fonttype": "none"}):
        figure.savefig(content, format=form, dpi=figure.dpi, metadata=ABOUT.get(form), **packed)
    return content.getvalue()
