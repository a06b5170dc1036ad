"""What a run says of itself: the headers of its maps, ``run.json``, and what it would do."""

import datetime
import logging
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from .._version import VERSION, build
from ..blocks import BlockPlan
from ..certificate import CERTIFIED
from ..io import Bands, Cube, bytes_per_line
from ..io.cube import band_names
from ..io.fields import MAP_FIELDS
from ..io.formats.header import words
from ..library import Endmembers
from ..options import Options
from ..pipeline import Seconds
from ..problem import WARN_CONDITION, Problem
from ..scene import ReadOptions
from ..summary import Summary
from .judgement import abundances_of, fit_of, judge
from .names import ORTHO, suffixes_of
from .output_set import Outputs

log = logging.getLogger("unmix")


def map_headers(outputs: Outputs, scene: Cube, names: Sequence[str], how: str, sums: np.ndarray, bands: Bands) -> None:
    """The headers of all rasters; they carry no time, device, thread count, memory or path.

    ``how`` the abundances were found, ``sums`` of them by endmember: the three largest are shown.
    """
    where = {key: scene.fields[key] for key in MAP_FIELDS if key in scene.fields}
    by = f"by unmix {VERSION}, {how}"
    brightest = np.argsort(-sums, kind="stable")[:3]
    shown = [str(int(j) + 1) for j in brightest] if len(names) >= 3 else [str(int(brightest[0]) + 1)]
    own: dict[str, dict[str, str | list[str]]] = {
        "abundance": {"description": f"abundances {by}", "band names": list(names), "default bands": shown},
        "rmse": {"description": f"RMSE {by}", "band names": ["rmse"]},
        "certificate": {"description": f"certificate {by}", "band names": ["kappa", "delta", "steps"]},
        "index": {"description": f"endmembers of the largest abundances {by}, from 1; 0 is none"},
        "residual": {"description": f"residual {by}", **residual_fields(scene, bands)},
    }
    if "index" in outputs.rasters:  # only the largest are written
        ranks = [str(k + 1) for k in range(outputs.rasters["index"].bands)]
        own["abundance"] |= {
            "band names": [f"value {k}" for k in ranks],
            "default bands": ranks[:3] if len(ranks) >= 3 else ["1"],
        }
        own["index"]["band names"] = [f"index {k}" for k in ranks]
    placed = {} if scene.placement is None else scene.placement.fields
    for name in outputs.rasters:
        here = placed if name.endswith(ORTHO) else where
        outputs.write_header(name, own[name.removesuffix(ORTHO)] | {"data ignore value": "-9999", **here})


def residual_fields(scene: Cube, bands: Bands) -> dict[str, str | list[str]]:
    """What the header of the residual cube keeps of the scene's, for the bands in use."""
    names = band_names(scene)
    kept: dict[str, str | list[str]] = {"band names": [names[b] for b in bands.index]}
    if scene.wavelengths is not None:
        kept["wavelength units"] = "Nanometers"
        kept["wavelength"] = [repr(float(scene.wavelengths[b])) for b in bands.index]
    if scene.fwhm is not None:
        kept["fwhm"] = [repr(float(scene.fwhm[b])) for b in bands.index]
    if scene.good_bands is not None:
        kept["bbl"] = [str(int(scene.good_bands[b])) for b in bands.index]
    shown = words(scene.fields, "default bands") or []
    used = {str(int(b) + 1): str(place + 1) for place, b in enumerate(bands.index)}
    if shown and all(band in used for band in shown):  # seen out of range
        kept["default bands"] = [used[band] for band in shown]
    return kept


def input_of(scene: Cube) -> dict[str, Any]:
    """The input's name, place, size and time."""
    status = scene.path.stat()
    when = datetime.datetime.fromtimestamp(status.st_mtime, datetime.UTC)
    return {
        "name": scene.path.name,
        "path": str(scene.path.resolve()),
        "bytes": status.st_size,
        "modified": when.isoformat(timespec="seconds"),
    }


def plan_only(
    scene: Cube, options: Options, device: str, used: Bands, folder: Path, library: Endmembers | None
) -> dict[str, Any]:
    """What `run` would do, without doing it: all that can be known before the scene is read."""
    outputs = [folder / (scene.stem + name) for name in suffixes_of(options.maps(1, 1), options.form, options.ortho)]
    return {
        "input": input_of(scene),
        "dry_run": True,
        "method": options.method_spec.name,
        "solver": options.solver_spec.name,
        "device": device,
        "lines": scene.lines,
        "samples": scene.samples,
        "bands_used": len(used.index),
        "endmembers": None if library is None else list(library.names),
        "bytes_to_read": scene.lines * bytes_per_line(scene),
        "outputs": [str(path) for path in outputs],
        "outputs_that_exist": [str(path) for path in outputs if path.exists()],
    }


def what_was_read(
    scene: Cube, bands: Bands, nodata: float | None, command: Sequence[str] | None, reading: ReadOptions
) -> dict[str, Any]:
    """What ``run.json`` says of the input."""
    return {
        "unmix": build(),
        "command": list(command) if command is not None else [Path(sys.argv[0]).name],
        "input": input_of(scene),
        "reading": reading.to_dict(),
        "lines": scene.lines,
        "samples": scene.samples,
        "bands": scene.bands,
        "bands_used": [int(b) + 1 for b in bands.index],
        "gain": unique_or_list(bands.gain),
        "offset": unique_or_list(bands.offset),
        "nodata": nodata,
    }


def report_of(
    scene: Cube,
    problem: Problem,
    device: str,
    summary: Summary,
    seconds: Seconds,
    block_plan: BlockPlan,
    options: Options,
    passes: int,
    command: Sequence[str] | None,
) -> dict[str, Any]:
    """The contents of ``run.json``; warns where the pixels' certificates or the fit give reason."""
    pixels = scene.lines * scene.samples
    found = problem.endmembers
    say_what_is_open(scene, problem, summary)
    for sentence in judge(summary, found.names, problem.method.sum_to_one, options.max_delta, problem.alike):
        log.warning(f"{scene.path}: {sentence}")
    return what_was_read(scene, problem.bands, problem.nodata, command, options.reading) | {
        "method": problem.method.name,
        "solver": problem.solver.name,
        "exact": problem.solver.exact,
        "device": device,
        "seed": options.seed,
        "endmembers": {
            "names": list(found.names),
            "source": found.source,
            "pixels": [list(pixel) for pixel in found.pixels] if found.pixels else None,
            "counted": found.counted,
        },
        "condition": problem.condition,
        "nearly_collinear": list(problem.culprits) if problem.condition > WARN_CONDITION else [],
        "certified": summary.failed == 0,
        "max_delta": options.max_delta,
        "pixels": {
            "all": pixels,
            "solved": summary.solved,
            "masked": summary.masked,
            "partly_nodata": summary.partly_nodata,
            "certified": summary.certified,
            "fit_certified": summary.fit_certified,
            "failed": summary.failed,
            "rescued": summary.rescued,
        },
        "failures": [list(place) for place in summary.failures],
        "worst_kappa": summary.worst_kappa,
        "worst_delta": summary.worst_delta,
        "fit": fit_of(summary),
        "abundances": abundances_of(summary, found.names),
        "steps": {str(taken): pixels for taken, pixels in enumerate(summary.steps) if pixels},
        "blocks": {"lines": block_plan.lines_per_block, "in_flight": block_plan.slots},
        "seconds": {name: round(value, 4) for name, value in asdict(seconds).items()},
        "hidden": seconds.hidden(),
        "pixels_per_second": round(pixels / seconds.total) if seconds.total > 0 else None,
        "passes": passes,
    }


def say_what_is_open(scene: Cube, problem: Problem, summary: Summary) -> None:
    """Warn of pixels that are not at the optimum, or may not be."""
    if not summary.failed:
        return
    if not problem.solver.exact:
        log.warning(
            f"{scene.path}: solver '{problem.solver.name}' is not exact: {summary.failed} of {summary.solved} pixels "
            f"are not at the optimum"
        )
        return
    first = ", ".join(f"({line}, {sample})" for line, sample in summary.failures[:3])
    log.warning(
        f"{scene.path}: {summary.failed} of {summary.solved} pixels are not certified (κ > {CERTIFIED:g}); "
        f"the first (line, sample): {first}"
    )


def unique_or_list(values: np.ndarray) -> float | list[float]:
    """One number where all are equal."""
    return float(values[0]) if np.all(values == values[0]) else [float(value) for value in values]
