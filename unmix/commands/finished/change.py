"""The map of a difference: A less B of each pair, and how much of the ground has changed by more than a threshold."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..._version import VERSION
from ...errors import MethodError, OutputError
from ...io import MAP_FIELDS, NODATA, Cube, code_of, open_new, write_new
from ...io.cube import band_names
from ...io.export import OutputFormat, require
from ...io.export.areas import areas_of_pixels
from ...io.formats.header import image_header
from ...library import OF_LIGHT
from ...maps.plain_map import WORK, convert_map
from ...outputs import named_together, refuse_headers_of_others, refuse_inputs
from .blocks import blocks_of, plan_of
from .sides import Side

# Formats of a map by the ending of its name; a page is HTML.
MADE = {".tif": "geotiff", ".tiff": "geotiff", ".hdr": "envi", ".img": "envi"}
PAGES = (".html", ".htm")
MAP = "change"  # names the work file
# Deviations beyond which 5 % of normal errors are.
SIGNIFICANT = 1.96
# A function of lines that returns numbers of each pair.
ReadsPairs = Callable[[slice], np.ndarray]


def format_of(out: Path) -> OutputFormat | None:
    """Return the format of a map of that name, None of a page; `MethodError` for another ending."""
    ending = out.suffix.lower()
    if ending in PAGES:
        return None
    if ending not in MADE:
        raise MethodError(f"{out}: name a page, .html, or a map, {', '.join(MADE)}")
    return require(MADE[ending])


def grid_of(one: Side, other: Side) -> Cube:
    """Return the map whose pixels are compared: the first, unless that is averaged onto those of the other."""
    return one.cube if one.grid is None else other.cube


def differences(
    one: Side, other: Side, pairs: Sequence[tuple[int, int]], empty: float
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield each block's first line and a − b (lines, samples, pairs), ``empty`` where either has no value."""
    left, right = [i for i, _ in pairs], [j for _, j in pairs]
    for first, A, B, in_a, in_b in blocks_of(one, other):
        yield first, np.where((in_a & in_b)[..., None], A[..., left] - B[..., right], empty)


def deviation_of_pairs(one: Side, other: Side, pairs: Sequence[tuple[int, int]]) -> ReadsPairs | None:
    """Return what reads deviations (n, samples, pairs) of a − b in lines, negative where unknown; None if all are."""
    sides = []
    for side, own in ((one, [i for i, _ in pairs]), (other, [j for _, j in pairs])):
        bands = [] if side.sigma is None else band_names(side.sigma)
        if side.sigma is not None and any(side.names[k] in bands for k in own):
            at = [bands.index(side.names[k]) if side.names[k] in bands else -1 for k in own]
            sides.append((side.beside(side.sigma), np.array(at)))
    if not sides:
        return None

    def read(lines: slice) -> np.ndarray:
        # Of a pixel without one, such as those of fractions of nothing, values are below 0; infinite ones are some.
        values = [np.where(at >= 0, known_values(beside, lines)[..., np.maximum(at, 0)], -1.0) for beside, at in sides]
        return np.where(np.min(values, axis=0) >= 0, np.sqrt(np.square(values).sum(axis=0)), -1.0)

    return read


def known_values(side: Side, lines: slice) -> np.ndarray:
    """Return values of a map in lines; of a crop of its grid, whose pixels without values are 0, −1 in place of these."""
    values, is_there = side.read(lines)
    return values if side.grid is None else np.where(is_there[..., None], values, -1.0)


def beyond(one: Side, other: Side, pairs: Sequence[tuple[int, int]], threshold: float) -> list[dict[str, Any]]:
    """Return for each pair the number of pixels of a ``below`` and ``above`` b by over ``threshold``, and hectares.

    ``net_hectares`` is the difference of all pixels times their areas.
    """
    areas, deviations = areas_of_pixels(grid_of(one, other)), deviation_of_pairs(one, other, pairs)
    counts, hectares, net = np.zeros((2, len(pairs)), int), np.zeros((2, len(pairs))), np.zeros(len(pairs))
    for first, D in differences(one, other, pairs, 0.0):
        lines = slice(first, first + len(D))
        ground = None if areas is None else areas(lines) / 1e4
        net += 0.0 if ground is None else np.tensordot(ground, D, 2)
        least = threshold if deviations is None else np.maximum(threshold, SIGNIFICANT * deviations(lines))
        for k, is_beyond in enumerate((-least > D, least < D)):
            counts[k] += is_beyond.sum(axis=(0, 1))
            if ground is not None:
                hectares[k] += np.tensordot(ground, is_beyond, 2)
    return [
        {"below": int(counts[0, k]), "above": int(counts[1, k])}
        | {
            f"{word}_hectares": None if areas is None or one.names[i] in OF_LIGHT else float(of_word[k])
            for word, of_word in zip(("below", "above", "net"), (*hectares, net))
        }
        for k, (i, _) in enumerate(pairs)
    ]


def pixels_outside(side: Side) -> int:
    """Return how many pixels with values lie beyond the other map; an averaged map counts in the other's pixels."""
    source, size = replace(side.whole or side, grid=None), 1.0
    taken = [np.zeros(length, bool) for length in source.size]
    if side.grid is not None:
        parts = side.grid.rows, side.grid.columns
        size = float(np.prod([part.data.max() for part in parts]))
        for among, part in zip(taken, parts):
            among[part.indices] = True
    else:
        for among, first, length in zip(taken, side.first, side.size):
            among[first : first + length] = True
    count = 0
    for lines in plan_of(source) if not (taken[0].all() and taken[1].all()) else ():
        there = source.stored(lines)[1] & source.kept(lines)
        count += int((there & ~np.logical_and.outer(taken[0][lines], taken[1])).sum())
    return round(count * size)


def write_change(
    out: Path,
    form: OutputFormat,
    one: Side,
    other: Side,
    pairs: Sequence[tuple[int, int]],
    overwrite: bool,
    inputs: Sequence[tuple[str, Path]],
) -> list[Path]:
    """Write a − b of each pair as a map, and over its deviation if known, nodata where unknown; return its files."""
    if not pairs:
        raise OutputError(f"{out}: nothing of A has a partner in B, so there is no difference")
    names, deviations = [one.names[i] for i, _ in pairs], deviation_of_pairs(one, other, pairs)

    def blocks() -> Iterator[np.ndarray]:
        for first, D in differences(one, other, pairs, NODATA):
            sigma = np.zeros_like(D) if deviations is None else deviations(slice(first, first + len(D)))
            z = np.divide(D, sigma, out=np.full_like(D, NODATA), where=(sigma > 0) & (D != NODATA))
            yield D if deviations is None else np.concatenate([D, z], axis=2)

    what = f"{one.path.name} less {other.path.name}"
    bands = names if deviations is None else [*names, *(f"z of {name}" for name in names)]
    return write_map(out, form, grid_of(one, other), bands, what, blocks(), overwrite, inputs)


def write_map(
    out: Path,
    form: OutputFormat,
    grid: Cube,
    names: Sequence[str],
    what: str,
    blocks: Iterable[np.ndarray],
    overwrite: bool,
    inputs: Sequence[tuple[str, Path]],
) -> list[Path]:
    """Write blocks of lines (n, samples, bands), one after the other, as a map on a grid; return its files."""
    finals = [out.with_suffix(ending) if form.convert is None else out for ending in form.endings]
    refuse_inputs(finals, inputs)
    refuse_headers_of_others(finals)
    fields: dict[str, Any] = {key: grid.fields[key] for key in MAP_FIELDS if key in grid.fields}
    fields |= {"band names": list(names), "data ignore value": f"{NODATA:g}"}
    header = image_header(
        grid.lines, grid.samples, len(names), code_of(np.dtype("f4")), f"{what} by unmix {VERSION}", fields
    )
    with named_together(finals, overwrite, "another name") as parts:
        image, beside = (
            parts if form.convert is None else [parts[0].with_name(f"work_{MAP}{ending}") for ending in WORK]
        )
        with open_new(image) as file:
            for block in blocks:
                file.write(block.transpose(0, 2, 1).astype("<f4").tobytes())
        write_new(beside, header)
        if form.convert is not None:
            convert_map(form, {f"_{MAP}.img": image, f"_{MAP}.hdr": beside}, MAP, parts[0])
    return finals
