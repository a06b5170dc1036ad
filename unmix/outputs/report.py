"""Write the headers of the maps, and compose ``run.json`` and the report of a dry run."""

import datetime
import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from .._version import VERSION, build
from ..blocks import BlockPlan
from ..certificate import CERTIFIED
from ..io import Bands, Cube, bytes_per_line
from ..io.cube import band_names
from ..io.fields import ACQUISITION, MAP_FIELDS
from ..io.formats.header import clean, words
from ..io.window import origin_of, size_of_whole
from ..library import Endmembers
from ..options import Options
from ..pipeline import Seconds
from ..problem import WARN_CONDITION, Problem
from ..scene import ReadOptions
from ..summary import Summary
from .judgement import abundances_of, fit_of, judge, kappas_of
from .map_type import ORTHO, type_of
from .names import suffixes_of
from .output_set import Outputs

log = logging.getLogger("unmix")
# Of run.json; docs/run.schema.json describes it. A key that changes its meaning raises the number.
SCHEMA = 1
# By how much a penalty may make abundances smaller before it is named as a cause of a poor fit.
SHRUNK = 0.01
# Options that name files or choose endmembers, both of which have digests, or that change no value of a map.
WITHOUT_EFFECT = (
    "method", "solver", "count", "extract", "refine", "restarts", "smooth", "outside", "outliers", "select", "library_scale",
    "endmembers", "shade", "weights", "noise", "classes", "mask", "mask_out", "extract_mask", "wavelengths", "residual",
    "certificate", "browse", "rgb", "format", "tag",
)  # fmt: skip


def map_headers(
    outputs: Outputs,
    scene: Cube,
    names: Sequence[str],
    how: str,
    sums: np.ndarray,
    bands: Bands,
    further: Mapping[str, dict[str, Any]] = MappingProxyType({}),
    origin: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Write the headers of all rasters; they hold no time of ours, device, thread count, memory or path.

    ``how`` names method and solver in the descriptions; the endmembers with the three largest ``sums`` (p,) of abundances are the
    default bands. ``further`` has the fields of other maps, ``origin`` those of all (`origin_of_maps`).
    """
    origin = acquisition_of(scene) | dict(origin)
    map_fields = {key: scene.fields[key] for key in MAP_FIELDS if key in scene.fields}
    by = f"by unmix {VERSION}, {how}"
    brightest = np.argsort(-sums, kind="stable")[:3]
    shown = [str(int(j) + 1) for j in brightest] if len(names) >= 3 else [str(int(brightest[0]) + 1)]
    fields: dict[str, dict[str, str | list[str]]] = {
        "abundance": {"description": f"abundances {by}", "band names": list(names), "default bands": shown},
        "rmse": {"description": f"RMSE {by}", "band names": ["rmse"]},
        "certificate": {"description": f"certificate {by}", "band names": ["kappa", "delta", "steps"]},
        "index": {"description": f"endmembers of the largest abundances {by}, from 1; 0 is none"},
        "residual": {"description": f"residual {by}", **residual_fields(scene, bands)},
    }
    for name, own in further.items():
        fields[name] = own | {"description": f"{own['description']} {by}"}
    if "index" in outputs.rasters:  # only the largest abundances are written
        ranks = [str(k + 1) for k in range(outputs.rasters["index"].bands)]
        fields["abundance"] |= {
            "band names": [f"value {k}" for k in ranks],
            "default bands": ranks[:3] if len(ranks) >= 3 else ["1"],
        }
        fields["index"]["band names"] = [f"index {k}" for k in ranks]
    placed = {} if scene.placement is None else scene.placement.fields
    for name in outputs.rasters:
        location = placed if name.endswith(ORTHO) else map_fields
        stored = outputs.rasters[name].map_type.header(outputs.rasters[name].bands)
        outputs.write_header(name, {**fields[name.removesuffix(ORTHO)], **stored, **location, **origin})


def acquisition_of(scene: Cube) -> dict[str, str]:
    """Return what the scene's header says of its acquisition."""
    return {key: scene.fields[key] for key in ACQUISITION if key in scene.fields}


def origin_of_maps(
    scene: Cube, identity: dict[str, Any], library: Endmembers, how: tuple[str, str], given: Mapping[str, Any], tags: Mapping[str, str]
) -> dict[str, str]:  # fmt: skip
    """Return header fields that say where maps come from: the same for the same input and the same answers.

    Parameters
    ----------
    scene : Cube
    identity : dict
        Its own; see `unmix.io.identity.identity_of`.
    library : Endmembers
        The spectra that are written.
    how : (str, str)
        Method and solver.
    given : mapping
        Options that differ from the defaults. Those that name files are left out: of scene and spectra there are digests.
    tags : mapping
        Further fields.
    """
    without = (*WITHOUT_EFFECT, *(() if "monte_carlo" in given else ("seed",)))
    options = [f"{name} {clean(str(value))}" for name, value in sorted(given.items()) if name not in without]
    return {
        "unmix version": VERSION, "unmix method": how[0], "unmix solver": how[1],
        "unmix input": f"{clean(scene.path.name)} {identity['data'].get('digest', '')}".strip(),
        "unmix endmembers": library.digest(), "unmix options": "; ".join(options) or "none",
    } | dict(tags)  # fmt: skip


def residual_fields(scene: Cube, bands: Bands) -> dict[str, str | list[str]]:
    """Return the fields of the scene's header that the residual cube keeps, for the bands in use."""
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
    places = {str(int(b) + 1): str(place + 1) for place, b in enumerate(bands.index)}
    if shown and all(band in places for band in shown):  # some files name bands that they do not have
        kept["default bands"] = [places[band] for band in shown]
    return kept


def input_of(scene: Cube) -> dict[str, Any]:
    """Return name, path, size in bytes and modification time of the input."""
    status = scene.path.stat()
    modified = datetime.datetime.fromtimestamp(status.st_mtime, datetime.UTC)
    return {
        "name": scene.path.name,
        "path": str(scene.path.resolve()),
        "bytes": status.st_size,
        "modified": modified.isoformat(timespec="seconds"),
    }


def plan_only(
    scene: Cube, options: Options, device: str, used: Bands, folder: Path, problem: Problem | None, bands: dict[str, int]
) -> dict[str, Any]:  # fmt: skip
    """Return what `run` would do: all that is known before the scene is read.

    ``problem`` and the ``bands`` of each map are known where endmembers are given.
    """
    maps = [*options.maps(1, 1), *options.derived]
    outputs = [folder / (scene.stem + name) for name in suffixes_of(maps, options.form, options.ortho, options.browse)]
    return {
        "input": input_of(scene),
        "dry_run": True,
        "method": options.method_spec.name,
        "solver": options.solver_spec.name,
        "device": device,
        "lines": scene.lines,
        "samples": scene.samples,
        "bands_used": len(used.index),
        "endmembers": None if problem is None else list(problem.endmembers.names),
        "models": models_of(problem),
        "bands": bands or None,
        "bytes_to_read": scene.lines * bytes_per_line(scene),
        "bytes_to_write": scene.lines
        * scene.samples
        * sum(type_of(name, options.quantize).dtype.itemsize * count for name, count in bands.items())
        or None,
        "outputs": [str(path) for path in outputs],
        "outputs_that_exist": [str(path) for path in outputs if path.exists()],
    }


def models_of(problem: Problem | None) -> dict[str, int] | None:
    """Return how many models of each level are compared, for MESMA."""
    if problem is None or problem.choice is None:
        return None
    return problem.choice.count_models(problem.endmembers.classes or ())


def what_was_read(
    scene: Cube, bands: Bands, nodata: float | None, command: Sequence[str] | None, reading: ReadOptions
) -> dict[str, Any]:
    """Return the part of ``run.json`` about the input."""
    return {
        "schema": SCHEMA,
        "unmix": build(),
        "command": list(command) if command is not None else [Path(sys.argv[0]).name],
        "input": input_of(scene),
        "reading": reading.to_dict(),
        "origin": list(origin_of(scene)),
        "whole": list(size_of_whole(scene)),
        "acquisition": acquisition_of(scene),
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
    used: Bands,
    device: str,
    summary: Summary,
    seconds: Seconds,
    block_plan: BlockPlan,
    options: Options,
    passes: int,
    command: Sequence[str] | None,
) -> dict[str, Any]:
    """Return the contents of ``run.json``; log warnings about pixels that are not certified and about the fit."""
    pixels = scene.lines * scene.samples
    endmembers = problem.endmembers
    say_what_is_open(scene, problem, summary)
    # A penalty makes an abundance smaller by some λ/|e|².
    penalised = bool((problem.penalty > SHRUNK * np.square(problem.norms[: len(problem.penalty)])).any())
    for sentence in judge(summary, endmembers.names, problem.method, options.max_delta, problem.alike, penalised):
        log.warning(f"{scene.path}: {sentence}")
    return what_was_read(scene, used, problem.nodata, command, options.reading) | {
        "method": problem.method.name,
        "solver": problem.solver.name,
        "exact": problem.solver.exact,
        "device": device,
        "seed": options.seed,
        "endmembers": {
            "names": list(endmembers.names),
            "source": endmembers.source,
            "pixels": [list(pixel) for pixel in endmembers.pixels] if endmembers.pixels else None,
            "counted": endmembers.counted,
            "simplex": endmembers.simplex,
            "quality": endmembers.quality,
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
        "kappa_histogram": kappas_of(summary),
        "fit": fit_of(summary),
        "abundances": abundances_of(summary, endmembers.names),
        "steps": {str(taken): pixels for taken, pixels in enumerate(summary.steps) if pixels},
        "blocks": {"lines": block_plan.lines_per_block, "in_flight": block_plan.slots},
        "seconds": {name: round(value, 4) for name, value in asdict(seconds).items()},
        "hidden": seconds.hidden(),
        "pixels_per_second": round(pixels / seconds.total) if seconds.total > 0 else None,
        "passes": passes,
    }


def say_what_is_open(scene: Cube, problem: Problem, summary: Summary) -> None:
    """Log a warning if pixels are not certified: they may not be at the optimum."""
    if not summary.failed:
        return
    if not problem.solver.exact:
        log.warning(
            f"{scene.path}: solver '{problem.solver.name}' is not exact: {summary.failed} of {summary.solved} pixels "
            "are not at the optimum; use an exact `solver`"
        )
        return
    first = ", ".join(f"({line}, {sample})" for line, sample in summary.failures[:3])
    log.warning(
        f"{scene.path}: {summary.failed} of {summary.solved} pixels are not certified (κ > {CERTIFIED:g}) "
        f"and may not be at the optimum; the first (line, sample): {first}"
    )


def unique_or_list(values: np.ndarray) -> float | list[float]:
    """Return one number where all values are equal, else the list."""
    return float(values[0]) if np.all(values == values[0]) else [float(value) for value in values]
