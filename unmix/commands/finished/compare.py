"""`compare`: measure the differences between the maps of two runs, or of a run and a truth."""

import logging
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...blocks import BlockPlan
from ...errors import InputError, OutputError
from ...io import Cube, bytes_per_line, open_cube
from ...io.cube import band_names, by_pixel, read_blocks
from ...io.window import Window
from ...library import Endmembers, load
from ...library.match import angles_between
from ...maps.map_type import decoded
from ...outputs.names import inputs_of, inputs_of_run
from ...outputs.run_record import normalize_of
from ...pages.compare_page import MOST_SHOWN, compare_page, side_for
from ...pages.views import Canvas, View
from ...pages.write import write_page
from ...runs.files.finished import FinishedRun, stem_of_outputs
from ...settings.maps import MAPS, ORTHO

log = logging.getLogger("unmix")

BLOCK_BYTES = 2**24  # of each map that are read at a time
# Cost of a forbidden pair in the assignment: more than any sum of angles.
FORBIDDEN_COST = 1e6
# By how much a value may be outside of its range and count as inside: the rounding of both maps.
ROUNDING_OF_MAPS = 1e-6
# The option `ranges` that goes with each map.
RANGES_OF = {"abundance": "each", "fraction": "class"}
# Names of the maps that can be compared.
COMPARED = tuple(name + placed for placed in ("", ORTHO) for name, what in MAPS.items() if what.is_share)
# Suffixes of a truth's files, as `unmix synth` writes them.
MAP, SPECTRA = "_abundance", "_endmembers.csv"


@dataclass(frozen=True)
class Side:
    """One of two maps that are compared.

    Attributes
    ----------
    path : Path
        The run or file that the user named.
    cube : Cube
        The map.
    names : list of str
        The names of its bands: endmembers, or classes.
    spectra : Endmembers or None
        The spectra of the endmembers; None if they are not known, or the bands are classes.
    is_by_class : bool
        Whether the bands are classes.
    report : dict
        The record of the run; empty for a map that no run wrote.
    is_placed : bool
        Whether a lookup table placed the map, so that its lines are not those of the scene.
    first : tuple of int
        The line and sample of the map at which the compared part begins.
    ranges : Cube or None
        The run's proved ranges of these endmembers, or classes, if it has them.
    """

    path: Path
    cube: Cube
    names: list[str]
    spectra: Endmembers | None
    report: dict[str, Any]
    is_by_class: bool = False
    is_placed: bool = False
    first: tuple[int, int] = (0, 0)
    ranges: Cube | None = None

    @property
    def begins(self) -> list[int]:
        """The line and sample of the scene at which the map begins; a map that no run wrote covers the whole scene."""
        return list(self.report.get("begins", [0, 0]))

    def cut(self, lines: slice, samples: slice) -> "Side":
        """Return a part of the map, given by lines and samples of the scene."""
        line, sample = self.begins
        down = slice(lines.start - line, lines.stop - line)
        across = slice(samples.start - sample, samples.stop - sample)
        cube, *ranges = (Window(one, down, across, one.nodata) for one in (self.cube, self.ranges) if one is not None)
        return replace(self, cube=cube, first=(down.start, across.start), ranges=ranges[0] if ranges else None)


def begins_of(report: dict[str, Any]) -> list[int]:
    """Return the line and sample of the scene at which a run begins; older records have them only among the reading options."""
    if "origin" in report:
        return [int(at) for at in report["origin"]]
    reading = report.get("reading", {})
    return [int(str(reading.get(name) or "0").partition(":")[0] or 0) for name in ("lines", "samples")]


def compare(
    a: str | os.PathLike[str], b: str | os.PathLike[str], kind: str | None = None, *,
    out: str | os.PathLike[str] | None = None, overwrite: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Compare the abundances of two runs, or of a run and a truth, pixel by pixel.

    If the runs cover parts of a scene, the pixels that both have are compared.

    Endmembers are matched one to one so that the sum of their spectral angles is least. Where spectra are not known or cannot be
    compared, they are matched by name, if all names of one map are names of the other and not just numbered; else so that the sum of
    the squared differences of their abundances is least.

    Parameters
    ----------
    a, b : path-like
        A run (the beginning of its outputs' names, one of them, or its cube), or a raster of abundances, beside which
        ``_endmembers.csv`` in place of ``_abundance`` may hold the spectra. Differences are a − b; b is the reference.
    kind : {"abundance", "fraction"}, optional
        The maps of runs to compare; default is the one that ``a`` or ``b`` names, else the abundances, or the sums by class where
        one run has no abundances.
    out : path-like, optional
        Write a page with the maps of both, their differences and all numbers to this file, too.
    overwrite : bool
        Replace a file of that name even if it is not such a page.

    Returns
    -------
    dict
        ``pixels``: compared, and those that only a or only b has; ``matched_by``; ``pairs``, each with ``a``, ``b``, ``angle``
        (degrees; None where spectra are not known), ``rmse``, ``mean_difference``, ``largest_difference`` and its ``line`` and
        ``sample`` in a, and, if a has ranges of what is compared, ``inside``, the share of b's values in them; ``only_a``,
        ``only_b``: names without a partner; ``rmse`` and ``sre`` (signal to reconstruction error, dB; None where there is no error)
        over all pairs; ``certified``: pixels certified in a and in b, None if not known.

    Raises
    ------
    OutputError
        Where there is no run and no raster of that name, a run has no such map, or the page cannot be written.
    InputError
        Where the maps are not of the same size, and are not known to be parts of one scene, or have no pixel in common.
    MethodError
        Where ``out`` does not end in .html.
    """
    likely = kind_named(Path(a), Path(b))
    one, other = side_of(Path(a), kind, likely), side_of(Path(b), kind, likely)
    if kind is None and one.is_by_class != other.is_by_class and one.report and other.report:
        one, other = side_of(Path(a), "fraction"), side_of(Path(b), "fraction")
    one, other = shared_part(one, other)
    kinds = [side.report.get("normalize", "none") for side in (one, other)]
    if one.report and other.report and kinds[0] != kinds[1]:
        log.warning(
            f"{a}, {b}: `normalize` is {kinds[0]} in one and {kinds[1]} in the other: their values mean different things"
        )
    scenes = [side.report.get("scene") for side in (one, other)]
    if None not in scenes and scenes[0] != scenes[1]:
        log.warning(
            f"{other.path}: is of another scene than {one.path}; pixels of the same line and sample are compared"
        )
    found, pairs = comparison(one, other)
    if out is not None:
        views = views_between(one, other, pairs, found)
        inputs = [*inputs_of(one.cube), *inputs_of(other.cube)]
        inputs += [file for side in (one, other) if side.report for file in inputs_of_run(stem_of_outputs(side.path))]
        write_page(Path(out), lambda: compare_page(found, views), overwrite, inputs)
    return found


def kind_named(*paths: Path) -> str | None:
    """Return the kind of map that files are named after; None if they are named after none or several."""
    kinds = {name for path in paths for name in COMPARED if path.stem.endswith("_" + name)}
    return kinds.pop() if len(kinds) == 1 else None


def shared_part(one: Side, other: Side) -> tuple[Side, Side]:
    """Return the pixels of a scene that two maps of it share.

    Maps of one size are taken to cover the same pixels, unless both are of runs that begin at different places. Maps of other sizes are
    parts of one scene if both runs recorded the same digest of it, or if one map has the size of the whole scene of the other.

    Raises
    ------
    InputError
        Where the maps are of other sizes, or have no pixel in common.
    """
    sizes = [(side.cube.lines, side.cube.samples) for side in (one, other)]
    are_runs = bool(one.report) and bool(other.report)
    if sizes[0] == sizes[1] and (one.begins == other.begins or not are_runs):
        return one, other
    wholes = [side.report.get("whole") for side in (one, other)]
    if are_runs:
        of_one_scene = one.report["scene"] is not None and one.report["scene"] == other.report["scene"]
    else:  # one of the two is the size of the whole scene of the other
        of_one_scene = wholes[0] == list(sizes[1]) or wholes[1] == list(sizes[0])
    if not of_one_scene or one.is_placed or other.is_placed:
        raise InputError(
            f"{other.path}: has {sizes[1][0]} lines of {sizes[1][1]} samples, but {one.path} {sizes[0][0]} of {sizes[0][1]}"
            + (", and they are not known to be of one scene" if are_runs else "")
        )
    ends = [(side.begins[0] + size[0], side.begins[1] + size[1]) for side, size in zip((one, other), sizes)]
    lines, samples = (
        slice(max(one.begins[axis], other.begins[axis]), min(ends[0][axis], ends[1][axis])) for axis in (0, 1)
    )
    if lines.start >= lines.stop or samples.start >= samples.stop:
        raise InputError(
            f"{other.path}: is of another part of the scene, from line and sample {other.begins}, than {one.path}, from {one.begins}"
        )
    return one.cut(lines, samples), other.cut(lines, samples)


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
        # Shade, a spectrum of zeros, has no angle: it is paired with shade alone. Among equal angles those of one name are paired.
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
    for row, share in zip(rows, shares_inside(one, other, pairs)):
        row["inside"] = share
    matched = {i for i, _ in pairs}, {j for _, j in pairs}
    certified = [side.report.get("pixels", {}).get("certified") for side in (one, other)]
    return {"a": str(one.path), "b": str(other.path), "matched_by": matched_by} | found | {
        "pairs": rows, "only_a": [name for i, name in enumerate(one.names) if i not in matched[0]],
        "only_b": [name for j, name in enumerate(other.names) if j not in matched[1]], "certified": certified,
    }, pairs  # fmt: skip


def side_of(path: Path, kind: str | None, likely: str | None = None) -> Side:
    """Open one of the two maps of `compare`. If ``kind`` is None, a run's is the ``likely`` one, if the run has it."""
    if path.is_dir():
        raise OutputError(f"{path}: is a folder; name a run or a map")
    try:
        run = FinishedRun.of(path)
    except OutputError as error:
        try:
            cube = decoded(open_cube(path))
        except (InputError, OSError):
            raise error from None
        spectra = cube.path.with_name(cube.path.stem.removesuffix(MAP) + SPECTRA)
        return Side(path, cube, band_names(cube), load(spectra) if spectra.exists() else None, {})
    with run.believing():
        return side_of_run(path, run, kind or (likely if likely and run.has(likely) else None))


def side_of_run(path: Path, run: FinishedRun, kind: str | None) -> Side:
    """Open a map of a run."""
    name = kind or ("abundance" if run.has("abundance") else "fraction")
    if not run.has(name):
        raise OutputError(f"{run.stem}: the run wrote no {name}")
    if name.startswith("abundance") and run.has("index"):
        raise OutputError(
            f"{run.stem}: has the largest abundances of each pixel only (`top`), which are of other endmembers each"
        )
    cube, pixels = run.open(name), run.report["pixels"]
    report = {
        "begins": begins_of(run.report),
        "whole": run.report.get("whole"),
        "scene": run.report.get("identity", {}).get("data"),
        "bands_used": list(run.report["bands_used"]),
        "normalize": normalize_of(run.report),
        "pixels": {key: int(count) for key, count in pixels.items()},
    }
    kind, is_placed = name.removesuffix(ORTHO), name.endswith(ORTHO)
    spectra = run.endmembers() if kind == "abundance" else None
    if spectra is not None and len(spectra.names) != cube.bands:
        raise ValueError(f"{cube.bands} maps of abundances, but {len(spectra.names)} endmembers")
    has_ranges = not is_placed and run.has("range") and run.report.get("asked", {}).get("ranges") == RANGES_OF[kind]
    ranges = run.open("range") if has_ranges else None
    names = run.band_names(kind, cube.bands)
    return Side(path, cube, names, spectra, report, kind == "fraction", is_placed, ranges=ranges)


def spectral_angles(one: Endmembers | None, other: Endmembers | None) -> np.ndarray | None:
    """Return the angles of all spectra of two sets (p, q), in radians, NaN for zero spectra; None without common bands."""
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


def blocks_of(one: Side, other: Side) -> Iterator[tuple[int, np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Yield first line, values of both maps (n, samples, bands) float64, and which pixels of each have values (n, samples) bool."""
    cubes = one.cube, other.cube
    step = max(1, BLOCK_BYTES // max(map(bytes_per_line, cubes)), *(cube.lines_together for cube in cubes))
    blocks = BlockPlan(cubes[0].lines, step, 1)
    for (lines, a), (_, b) in zip(*(read_blocks(cube, blocks) for cube in cubes)):
        values = [by_pixel(raw, cube.interleave).astype(float) for cube, raw in zip(cubes, (a, b))]
        present = [
            np.isfinite(each).all(axis=2) & (True if cube.nodata is None else (each != cube.nodata).all(axis=2))
            for cube, each in zip(cubes, values)
        ]
        yield lines.start, values[0], values[1], present[0], present[1]


def shares_inside(one: Side, other: Side, pairs: Sequence[tuple[int, int]]) -> list[float | None]:
    """Return for each pair which share of b's values is inside of a's ranges, where both are; nothing if a has no ranges."""
    if one.ranges is None:
        return []
    lower = {name.removesuffix(" lower"): at for at, name in enumerate(band_names(one.ranges)) if at % 2 == 0}
    inside, known = np.zeros(len(pairs)), 0
    for _, R, B, has_range, in_b in blocks_of(replace(one, cube=one.ranges), other):
        present = has_range & in_b
        R, B, known = R[present], B[present], known + int(present.sum())
        for k, (i, j) in enumerate(pairs):
            if one.names[i] in lower:
                at = lower[one.names[i]]
                is_inside = (B[:, j] >= R[:, at] - ROUNDING_OF_MAPS) & (B[:, j] <= R[:, at + 1] + ROUNDING_OF_MAPS)
                inside[k] += is_inside.sum()
    return [float(inside[k] / known) if known and one.names[i] in lower else None for k, (i, _) in enumerate(pairs)]


def squares_between(one: Side, other: Side) -> np.ndarray:
    """Return the sums of squared differences between all bands of two maps, (p, q)."""
    squares = np.zeros((len(one.names), len(other.names)))
    for _, A, B, in_a, in_b in blocks_of(one, other):
        A, B = A[in_a & in_b], B[in_a & in_b]
        squares += np.square(A).sum(axis=0)[:, None] + np.square(B).sum(axis=0) - 2.0 * (A.T @ B)
    return squares


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


def differences(one: Side, other: Side, pairs: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """Return counts of pixels, totals, and ``rows``, one for each pair."""
    left, right = [i for i, _ in pairs], [j for _, j in pairs]
    squares, sums, largest = np.zeros(len(pairs)), np.zeros(len(pairs)), np.zeros(len(pairs))
    places: list[tuple[int, int] | None] = [None] * len(pairs)
    signal, both, only_a, only_b = 0.0, 0, 0, 0
    for first, A, B, in_a, in_b in blocks_of(one, other):
        present = in_a & in_b
        both += int(present.sum())
        only_a += int((in_a & ~in_b).sum())
        only_b += int((in_b & ~in_a).sum())
        D = np.where(present[..., None], A[..., left] - B[..., right], 0.0)
        signal += float(np.square(B[..., right][present]).sum())
        squares += np.square(D).sum(axis=(0, 1))
        sums += D.sum(axis=(0, 1))
        for k in range(len(pairs)):
            line, sample = divmod(int(np.abs(D[..., k]).argmax()), D.shape[1])
            if abs(D[line, sample, k]) > abs(largest[k]):
                largest[k], places[k] = D[line, sample, k], (one.first[0] + first + line, one.first[1] + sample)
    n = max(1, both)
    rows = [
        {"rmse": float(np.sqrt(square / n)), "mean_difference": float(total / n), "largest_difference": float(most),
         "line": None if place is None else place[0], "sample": None if place is None else place[1]}
        for square, total, most, place in zip(squares, sums, largest, places)
    ]  # fmt: skip
    total = float(squares.sum())
    return {
        "pixels": {"compared": both, "only_a": only_a, "only_b": only_b},
        "rmse": float(np.sqrt(total / (n * max(1, len(pairs))))),
        "sre": None if not (total > 0 and signal > 0) else float(10 * np.log10(signal / total)), "rows": rows,
    }  # fmt: skip


def views_between(
    one: Side, other: Side, pairs: Sequence[tuple[int, int]], found: dict[str, Any]
) -> list[tuple[View, View, View]]:
    """Return pictures of the pairs that differ most: a, b, and a − b, on one scale for all."""
    ranked = sorted(range(len(pairs)), key=lambda k: -found["pairs"][k]["rmse"])[:MOST_SHOWN]
    rows = [found["pairs"][k] for k in ranked]
    reach = max((min(abs(row["largest_difference"]), 4 * row["rmse"]) for row in rows), default=0.0) or 1.0
    canvas = Canvas(one.cube.lines, one.cube.samples, side_for(len(ranked)))
    ends = (0.0, 1.0), (0.0, 1.0), (-reach, reach)
    names = ((row["a"], row["b"], f"{row['a']} − {row['b']}") for row in rows)
    views = [tuple(canvas.view(name, *both) for name, both in zip(three, ends)) for three in names]
    for first, A, B, in_a, in_b in blocks_of(one, other):
        for (i, j), three in zip((pairs[k] for k in ranked), views):
            a, b = A[..., i], B[..., j]
            for view, values, present in zip(three, (a, b, a - b), (in_a, in_b, in_a & in_b)):
                canvas.add(view, first, values.astype(np.float32), present)
    return views  # type: ignore[return-value]
