"""`compare`: measure the differences between the maps of two runs, or of a run and a truth."""

import logging
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import InputError, MethodError, UnmixError
from ...io import has_names
from ...io.cube import band_names
from ...library import OF_LIGHT, Endmembers
from ...library.spectra import angles_between
from ...outputs.names import inputs_of, inputs_of_run
from ...pages.compare_page import CELLS, MOST_SHOWN, compare_page, side_for
from ...pages.pictures import Canvas, MapView
from ...pages.write import write_page
from ...runs.files.finished import FinishedRun, repeat_warnings, stem_of_outputs
from .array_maps import is_array, one_line
from .blocks import blocks_of, both_of, plan_of
from .cautions import warn_of_dates, warn_of_maps
from .change import SIGNIFICANT, ReadsPairs, beyond, deviation_of_pairs, format_of, pixels_outside, write_change
from .grids import is_one_grid, placed
from .shift import middle_of, shift_between
from .sides import (
    OF_ONE_BAND,
    Side,
    kind_named,
    masked,
    shared_part,
    side_of,
    with_classes,
)

# By how much a value may be outside of its range and count as inside: the rounding of both maps.
ROUNDING_OF_MAPS = 1e-6
# The share of the squares of a reference below which its variance is rounding of its values.
LEAST_VARIANCE = 2.0**-100
# Entries of pairs whose runs have ranges or deviations.
OF_SHARES = "inside", "within", "significant", "variance"
# The least variance of a reference, beside its squared errors, at which R² and slope say anything: at less it hardly
# varies.
LEAST_BESIDE_ERRORS = 1e-3


def differences(one: Side, other: Side, pairs: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """Return counts of pixels, totals, ``rows``, one for each pair, and the range of the values of each map."""
    left, right = [i for i, _ in pairs], [j for _, j in pairs]
    # Of d, |d|, d², c, c² and c d, with d = a − b and c = b − middle: the squares of large values would cancel.
    sums, largest, middle = np.zeros((6, len(pairs))), np.zeros(len(pairs)), np.zeros(len(pairs))
    places: list[tuple[int, int] | None] = [None] * len(pairs)
    both, only_a, only_b = 0, 0, 0
    seen = {"a": [np.inf, -np.inf], "b": [np.inf, -np.inf]}
    totals = [np.zeros(len(side.names)) for side in (one, other)]
    for first, A, B, in_a, in_b in blocks_of(one, other):
        present = in_a & in_b
        if not both and present.any():
            middle = np.median(B[..., right][present], axis=0)
        both += int(present.sum())
        for total, values in zip(totals, (A, B)):
            total += values[present].sum(axis=0)
        only_a += int((in_a & ~in_b).sum())
        only_b += int((in_b & ~in_a).sum())
        for side, values in (("a", A[in_a]), ("b", B[in_b])):
            if values.size:
                seen[side] = [min(seen[side][0], float(values.min())), max(seen[side][1], float(values.max()))]
        D = np.where(present[..., None], A[..., left] - B[..., right], 0.0)
        c, d = B[..., right][present] - middle, D[present]
        sums += [each.sum(axis=0) for each in (d, np.abs(d), np.square(d), c, np.square(c), c * d)]
        for k in range(len(pairs)):
            line, sample = divmod(int(np.abs(D[..., k]).argmax()), D.shape[1])
            if abs(D[line, sample, k]) > abs(largest[k]):
                largest[k], places[k] = D[line, sample, k], (one.first[0] + first + line, one.first[1] + sample)
    if not both:
        raise InputError(f"{other.path}: no pixel has values in it and in {one.path}, none that the mask keeps")
    n, (signed, sizes, squares, c, c2, cd) = both, sums
    b, rows = middle + c / n, []
    b2 = c2 - c**2 / n + n * b**2
    for k, place in enumerate(places):
        # Sums about the means; rounding of large equal values is no variance.
        varies = c2[k] - c[k] ** 2 / n
        varies = varies if varies > max(LEAST_VARIANCE * b2[k], LEAST_BESIDE_ERRORS * squares[k]) else 0.0
        together = cd[k] - c[k] * signed[k] / n + varies
        rows.append(
            {
                "mean_a": float(signed[k] / n + b[k]),
                "mean_b": float(b[k]),
                "rmse": float(np.sqrt(squares[k] / n)),
                "mae": float(sizes[k] / n),
                "mean_difference": float(signed[k] / n),
                "r2": float(1.0 - squares[k] / varies) if varies else None,
                "slope": float(together / varies) if varies else None,
                "largest_difference": float(largest[k]),
                "line": None if place is None else place[0],
                "sample": None if place is None else place[1],
            }
        )
    of_ground = np.array([one.names[i] not in OF_LIGHT for i in left], bool)
    of_ground |= not of_ground.any()
    error, signal = float(squares[of_ground].sum()), float(b2[of_ground].sum())
    return {
        "pixels": {"compared": both, "only_a": only_a + pixels_outside(one), "only_b": only_b + pixels_outside(other)},
        "rmse": float(np.sqrt(error / (n * max(1, of_ground.sum())))),
        "sre": None if not (error > 0 and signal > 0) else float(10 * np.log10(signal / error)),
        "rows": rows,
        "values": seen,
        "means": [(total / n).tolist() for total in totals],
    }


def shares_within(one: Side, other: Side, pairs: Sequence[tuple[int, int]]) -> Iterator[dict[str, float | None]]:
    """Yield the shares of each pair ``inside`` ranges, ``within`` a deviation, ``significant``, and the ``variance``."""
    ranges, deviations = range_of_pairs(one, pairs), deviation_of_pairs(one, other, pairs)
    # Pixels with b inside a's range; |b − a| within one deviation of both; and beyond 1.96 of it, as 5 % are by chance.
    inside, known = np.zeros((len(OF_SHARES), len(pairs))), np.zeros((len(OF_SHARES), len(pairs)))
    left, right = [i for i, _ in pairs], [j for _, j in pairs]
    for lines in plan_of(one, other) if ranges or deviations else ():
        A, B, in_a, in_b = both_of(one, other, lines)
        A, B, both = A[..., left], B[..., right], (in_a & in_b)[..., None]
        if ranges is not None:
            low, high = ranges(lines)
            has_range = both & (high >= low)
            off = np.maximum(low - B, B - high)
            inside[0] += (has_range & (off <= ROUNDING_OF_MAPS)).sum(axis=(0, 1))
            known[0] += has_range.sum(axis=(0, 1))
        if deviations is not None:
            sigma, size = deviations(lines), np.abs(A - B)
            has_sigma = both & (sigma >= 0)
            each = size <= sigma + ROUNDING_OF_MAPS, size > SIGNIFICANT * sigma, np.square(sigma)
            for k, values in enumerate(each, 1):
                inside[k] += np.where(has_sigma, values, 0).sum(axis=(0, 1))
                known[k] += has_sigma.sum(axis=(0, 1))
    # Only shares that some pixel has: deviations of endmembers do not serve sums by class, nor the other way round.
    told = [name for name, counts in zip(OF_SHARES, known) if counts.any()]
    for k in range(len(pairs)):
        shares = zip(OF_SHARES, inside[:, k], known[:, k])
        yield {name: float(some / all_of) if all_of else None for name, some, all_of in shares if name in told}


def range_of_pairs(one: Side, pairs: Sequence[tuple[int, int]]) -> ReadsPairs | None:
    """Return a reader of a's least and largest values (2, n, samples, pairs), NaN where unknown; None without ranges."""
    cube = one.ranges
    if cube is None:
        return None
    beside, names = one.beside(cube), [name.removesuffix(" lower") for name in band_names(cube)]
    at = [names.index(one.names[i]) if one.names[i] in names else -1 for i, _ in pairs]

    def read(lines: slice) -> np.ndarray:
        R, has_range = beside.read(lines)
        known = has_range[..., None] & (np.array(at) >= 0)
        return np.stack([np.where(known, R[..., [max(0, band) + k for band in at]], np.nan) for k in (0, 1)])

    return read


def squares_between(one: Side, other: Side) -> np.ndarray:
    """Return the sums of squared differences between all bands of two maps, (p, q)."""
    squares = np.zeros((len(one.names), len(other.names)))
    for _, A, B, in_a, in_b in blocks_of(one, other):
        A, B = A[in_a & in_b], B[in_a & in_b]
        middle = B.mean(axis=1, keepdims=True)  # any number of a pixel serves: it cancels in A − B
        A, B = A - middle, B - middle
        squares += np.square(A).sum(axis=0)[:, None] + np.square(B).sum(axis=0) - 2.0 * (A.T @ B)
    return squares


log = logging.getLogger("unmix")

# Cost of a forbidden pair in the assignment: more than any sum of angles.
FORBIDDEN_COST = 1e6


def compare(
    a: str | os.PathLike[str],
    b: str | os.PathLike[str],
    kind: str | None = None,
    *,
    by: str | None = None,
    mask: str | None = None,
    nodata: float | None = None,
    scale: float | tuple[float, float] = 1.0,
    offset: float = 0.0,
    out: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    threshold: float | None = None,
    legend: str | os.PathLike[str] | None = None,
    dataset: str | None = None,
) -> dict[str, Any]:
    """Compare the abundances of two runs, or of a run and a truth, pixel by pixel.

    If the runs cover parts of a scene, the pixels that both have are compared. Of two maps on different grids of one
    coordinate system that with the smaller pixels is averaged by area onto those of the other: a pixel has a value
    where at least half of it has values.

    Endmembers are matched one to one so that the sum of their spectral angles is least. Where spectra are not known or
    cannot be compared, they are matched by name, if all names of one map are names of the other and not just numbered;
    else so that the sum of the squared differences of their abundances is least.

    Parameters
    ----------
    a, b : path-like
        A run (the beginning of its outputs' names, one of them, or its cube), or a raster of abundances, beside which
        ``_endmembers.csv`` in place of ``_abundance`` may hold the spectra, or an array, FILE.npy or FILE.h5:/NAME.
        Differences are a − b; b is the reference.
    kind : str, optional
        The maps of runs to compare; default is the one that ``a`` or ``b`` names, else the abundances, or the sums by
        class where one run has no abundances.
    by : {"class"}, optional
        Add up the endmembers of each class first, of runs by the classes of their library; classes are matched by name.
        The bands of a raster that no run wrote are classes, unless its spectra have some.
    mask : str, optional
        ``FILE`` or ``FILE:BAND``, of the size of one of the maps or of both: pixels where it is 0 or no data are left
        out.
    nodata : float, optional
        The value, as stored, that stands for no data in a raster that no run wrote; default is its header's.
    scale : float or tuple of float
        The divisor of the values of such rasters, or those of a and of b: 100 for per cent.
    offset : float
        The number added to these values after that.
    out : path-like, optional
        Write a page with the maps of both, their differences and all numbers to this file, too; or, if its name ends in
        .tif or .hdr, the map of the differences, on the grid that is compared, with no data where either map has no
        value.
    overwrite : bool
        Replace a map of that name that unmix wrote; a page of unmix is replaced anyway.
    threshold : float, optional
        Count the pixels that differ by more than this.
    legend : path-like, optional
        A table whose rows begin with the number and the name of a class: a raster of one band that no run wrote holds
        such numbers, and 0 where there is no class. An ENVI Classification names its own. Of larger pixels those are
        compared that classes cover wholly.
    dataset : str, optional
        The map in an HDF5, Zarr or MATLAB file that no run wrote, as for `open_cube`; where no run wrote either, the
        one in b. A table (bands, pixels) of a MATLAB file without ``nRow`` and ``nCol`` has the size of the other map,
        and its names and spectra where the file has them.

    Returns
    -------
    dict
        ``pixels``: compared, and pixels only a or only b has, also beyond the other; ``matched_by``; ``averaged``:
        "a" or "b", which was averaged onto the other's pixels, or None; ``values``: the least and the largest value of
        each; ``pairs``, each with ``a``, ``b``, ``angle`` (degrees; None where spectra are not known),
        ``mean_a``, ``mean_b``, ``rmse``, ``mae``, ``mean_difference``, ``r2``, one less the share of b's
        variance that the differences are, and ``slope``, by which a grows with b (least squares; None where b does not
        vary), ``largest_difference`` and its ``line`` and ``sample`` in a, on the grid that is compared, and, if a has
        ranges of what is compared, ``inside``, the share of b's values in them, and, if a or b has deviations (of both,
        √(σ_a² + σ_b²)), the share of pixels that differ by at most one, ``within`` (of normal errors 68 %), and by more
        than 1.96, ``significant`` (5 %), and their mean square, ``variance``, and, with a threshold, how many pixels of
        a are ``below`` and ``above`` b by more (where deviations are known, also by more than 1.96 of them), their
        ``below_hectares`` and ``above_hectares``, and ``net_hectares``, the difference of all pixels times their areas,
        None without a place on a map; of runs of two scenes ``shift``, by how many lines and
        samples a is shifted against b, None where that is below 0.1 or not clear; ``only_a``, ``only_b``: names without
        a partner; ``rmse`` and ``sre`` (signal to reconstruction error, dB; None where there is no error) over all
        pairs; ``certified``: pixels certified in a and in b, None if not known.

    Raises
    ------
    OutputError
        Where there is no run and no raster of that name, a run has no such map, or the page cannot be written.
    InputError
        Where the maps are not of the same size, and are not known to be parts of one scene or of one place, or have no
        pixel in common; or the mask is of neither's size, or of both and on other grids.
    MethodError
        Where ``out`` does not end in .html, .tif or .hdr, ``threshold`` is below 0, ``by`` is not class,
        a ``scale`` is not above 0, it or ``nodata`` is given and both maps are
        of runs, or a run's endmembers have no classes and these are asked for.
    """
    if by not in (None, "class"):
        raise MethodError(f"`by` {by}: has to be class")
    scales = scale if isinstance(scale, tuple) else (scale, scale)
    if not all(0 < one < np.inf for one in scales):
        raise MethodError(f"`scale` {scale}: must be above 0, and finite")
    if not np.isfinite(offset):
        raise MethodError(f"`offset` {offset:g}: must be finite")
    if threshold is not None and not 0 <= threshold < np.inf:
        raise MethodError(f"`threshold` {threshold:g}: must be 0 or above, and finite")
    form = None if out is None else format_of(Path(out))
    named = [kind_named(Path(path)) for path in (a, b)]
    likely = ["fraction"] * 2 if by == "class" else [named[0] or named[1], named[1] or named[0]]
    sides = both_sides((Path(a), Path(b)), kind, likely, dataset)
    one, other = (side.read_as(nodata, divisor, offset) for side, divisor in zip(sides, scales))
    others = [name for name in named if name in OF_ONE_BAND] if kind is None and (one.report or other.report) else []
    if others and (by or set(named) - {None, others[0]}):
        raise MethodError(f"{a}, {b}: {others[0]} and shares are not compared; name one map of both runs")
    if others and out is not None and form is None:
        raise MethodError(f"{out}: a page is of shares; name a map, .tif or .hdr")
    if (
        one.report
        and other.report
        and (nodata is not None or set(scales) != {1.0} or offset != 0.0 or dataset is not None)
    ):
        raise MethodError(
            "`nodata`, `scale`, `offset` and `dataset` are for rasters that no run wrote: runs know theirs"
        )
    if (
        kind is None
        and by is None
        and one.is_by_class != other.is_by_class
        and one.report
        and other.report
        and not any(named)
    ):
        one, other = side_of(Path(a), "fraction"), side_of(Path(b), "fraction")
    names = None if legend is None else Path(legend)
    one, other = with_classes(one, names), with_classes(other, names)
    if legend is not None and one.codes is other.codes is None:
        raise MethodError(f"`legend` {legend}: neither map is a raster of classes, of one band, that no run wrote")
    if by is not None:
        one, other = one.by_class(), other.by_class()
    if mask is not None:
        one, other = masked((one, other), mask)
    one, other = shared_part(one, other)
    kinds = [side.report.get("normalize", "none") for side in (one, other)]
    if one.report and other.report and kinds[0] != kinds[1]:
        log.warning(
            f"{a}, {b}: `normalize` is {kinds[0]} in one and {kinds[1]} in the other: their values mean different "
            "things"
        )
    scenes = [side.report.get("scene") for side in (one, other)]
    is_averaged = any(side.grid is not None and not side.grid.crops for side in (one, other))
    if None not in scenes and scenes[0] != scenes[1] and not is_averaged:
        is_placed = one.grid is not other.grid or (placed(one.cube) is not None and is_one_grid(one.cube, other.cube))
        same = "place" if is_placed else "line and sample"
        log.info(f"{one.path}, {other.path}: two scenes, of which pixels of the same {same} are compared")
    repeat_warnings([one.report, other.report])
    found, pairs = comparison(one, other)
    if None not in scenes and scenes[0] != scenes[1]:
        A, B = middle_of(one, other, pairs)
        warn_of_dates(one, other, found["pairs"], A - B)
        found["shift"] = shift = None if found["averaged"] or not pairs else shift_between(A, B)
        if shift is not None:
            log.warning(
                f"{one.path}: looks shifted against {other.path} by {shift[0] + 0.0:.2f} lines and {shift[1] + 0.0:.2f} "
                "samples, unless what is on the ground moved: register the scenes first, since edges pass for changes"
            )
    means = found.pop("means")
    warn_of_maps(one, other, found, means, lambda a, b: float(comparison(a, b)[0]["rmse"]))
    if threshold is not None:
        for row, counts in zip(found["pairs"], beyond(one, other, pairs, threshold)):
            row |= counts
    if out is not None:
        inputs = [*inputs_of(one.cube), *inputs_of(other.cube)]
        inputs += [file for side in (one, other) if side.report for file in inputs_of_run(stem_of_outputs(side.path))]
        if form is not None:
            write_change(Path(out), form, one, other, pairs, overwrite, inputs)
        else:
            pictures = pictures_of(one, other, pairs, found)
            write_page(Path(out), lambda: compare_page(found, *pictures), inputs)
    return found


def both_sides(
    paths: tuple[Path, Path], kind: str | None, likely: Sequence[str | None], dataset: str | None
) -> tuple[Side, Side]:
    """Open both maps, arrays last: they may take the other's size; ``dataset`` is of b, or of a if b holds no arrays by name."""
    takes = [dataset is None or (FinishedRun.of_source(path) is None and has_names(path)) for path in paths]
    if not any(takes) and any(map(is_array, paths)):
        raise MethodError(f"`dataset` {dataset}: names a map in a file of several, which neither is")
    names = [dataset, None] if takes == [True, False] else [None, dataset]

    def opened(k: int, size: tuple[int, int] | None) -> Side:
        return side_of(paths[k], kind, likely[k], names[k], size)

    first, last = sorted((0, 1), key=lambda k: (is_array(paths[k]), paths[k].suffix.lower() == ".mat"))
    try:
        found = opened(first, None)
    except UnmixError:  # a table of pixels: the other one may say the size
        if not is_array(paths[first]) and paths[first].suffix.lower() != ".mat":
            raise
        first, last = last, first
        found = opened(first, one_line(*paths))
    sides = {first: found, last: opened(last, (found.cube.lines, found.cube.samples))}
    return sides[0], sides[1]


def comparison(one: Side, other: Side) -> tuple[dict[str, Any], list[tuple[int, int]]]:
    """Return the result of `compare`, and the pairs of bands."""
    bands = [side.report.get("bands_used") for side in (one, other)]
    has_axis = one.spectra is not None and one.spectra.wavelengths is not None
    of_same_bands = None in bands or bands[0] == bands[1] or has_axis
    angles = spectral_angles(one.spectra, other.spectra) if of_same_bands else None
    by_class = one.is_by_class or other.is_by_class
    of_one_name = np.equal.outer(np.array(one.names), np.array(other.names))
    if by_class and not set(one.names) & set(other.names):
        raise InputError(f"{one.path}, {other.path}: classes and endmembers, and none have the same name")
    if by_class or (angles is None and named_alike(one.names, other.names)):
        cost, matched_by = 1.0 - of_one_name, "name"
    elif angles is not None:
        # Shade, a spectrum of zeros, has no angle: it is paired with shade alone. Among equal angles those of one name
        # are paired.
        zeros = np.logical_and.outer(
            *(~side.spectra.matrix.any(axis=0) for side in (one, other) if side.spectra is not None)
        )
        cost = np.where(zeros, 0.0, np.where(np.isnan(angles), FORBIDDEN_COST, angles)) - 1e-9 * of_one_name
        matched_by = "spectral angle"
    else:
        cost, matched_by = squares_between(one, other), "abundances"
    pairs = matches(cost, matched_by)
    found = differences(one, other, pairs)
    degrees = np.degrees(np.full(cost.shape, np.nan) if angles is None else angles)
    rows = [
        {
            "a": one.names[i],
            "b": other.names[j],
            "angle": None if np.isnan(degrees[i, j]) else float(degrees[i, j]),
            **row,
        }
        for (i, j), row in zip(pairs, found.pop("rows"))
    ]
    for row, shares in zip(rows, shares_within(one, other, pairs)):
        row |= shares
    matched = {i for i, _ in pairs}, {j for _, j in pairs}
    certified = [side.report.get("pixels", {}).get("certified") for side in (one, other)]
    averaged = next(
        (letter for letter, side in (("a", one), ("b", other)) if side.grid is not None and not side.grid.crops), None
    )
    return {"a": str(one.path), "b": str(other.path), "matched_by": matched_by, "averaged": averaged} | found | {
        "pairs": rows,
        "only_a": [name for i, name in enumerate(one.names) if i not in matched[0]],
        "only_b": [name for j, name in enumerate(other.names) if j not in matched[1]],
        "certified": certified,
    }, pairs


def spectral_angles(one: Endmembers | None, other: Endmembers | None) -> np.ndarray | None:
    """Return the angles (p, q) of two sets of spectra, in radians, NaN for zero spectra; None if bands differ."""
    if one is None or other is None or len(one.matrix) != len(other.matrix):
        return None
    left, right = one.wavelengths, other.wavelengths
    if (left is None) != (right is None):
        return None
    if left is not None and right is not None and not np.allclose(left, right, rtol=1e-4):
        return None
    angles = angles_between(one.matrix, other.matrix)
    is_zero = [~E.matrix.any(axis=0) for E in (one, other)]
    angles[is_zero[0]], angles[:, is_zero[1]] = np.nan, np.nan
    return angles


def named_alike(one: Sequence[str], other: Sequence[str]) -> bool:
    """Return whether the names of one set are all in the other, and are not just numbered."""
    few, many = sorted((set(one), set(other)), key=len)
    return few <= many and not all(re.fullmatch(r"\D*\d+", name) for name in few)


def matches(cost: np.ndarray, matched_by: str) -> list[tuple[int, int]]:
    """Return pairs of rows and columns with the least sum of costs, in order of the rows; without forbidden pairs."""
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(cost)
    most = {"name": 0.0, "spectral angle": FORBIDDEN_COST / 2}.get(matched_by, np.inf)
    return [(int(i), int(j)) for i, j in zip(rows, columns) if cost[i, j] <= most]


def pictures_of(
    one: Side, other: Side, pairs: Sequence[tuple[int, int]], found: dict[str, Any]
) -> tuple[list[tuple[MapView, MapView, MapView]], list[np.ndarray]]:
    """Return views of a, b and a − b of the pairs that differ most, on one scale, and pixel counts by b and a."""
    ranked = sorted(range(len(pairs)), key=lambda k: -found["pairs"][k]["rmse"])[:MOST_SHOWN]
    rows = [found["pairs"][k] for k in ranked]
    reach = max((min(abs(row["largest_difference"]), 4 * row["rmse"]) for row in rows), default=0.0) or 1.0
    canvas = Canvas(*one.size, side_for(len(ranked)))
    ends = (0.0, 1.0), (0.0, 1.0), (-reach, reach)
    names = ((row["a"], row["b"], f"{row['a']} − {row['b']}") for row in rows)
    views = [tuple(canvas.view(name, *both) for name, both in zip(three, ends)) for three in names]
    densities = [np.zeros((CELLS, CELLS), np.int64) for _ in ranked]
    for first, A, B, in_a, in_b in blocks_of(one, other):
        for (i, j), three, counts in zip((pairs[k] for k in ranked), views, densities):
            a, b, both = A[..., i], B[..., j], in_a & in_b
            for view, values, present in zip(three, (a, b, a - b), (in_a, in_b, both)):
                canvas.add(view, first, values.astype(np.float32), present)
            across, up = (np.clip(values[both] * CELLS, 0, CELLS - 1).astype(int) for values in (b, a))
            counts += np.bincount(across * CELLS + up, minlength=CELLS**2).reshape(CELLS, CELLS)
    return views, densities  # type: ignore[return-value]
