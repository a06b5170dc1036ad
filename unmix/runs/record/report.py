"""Compose ``run.json`` and the report of a dry run.

Compose the headers of the maps: names of bands, place and acquisition of the scene, and where the maps come from.
"""

import datetime
import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from ..._version import VERSION, build
from ...blocks import BlockPlan
from ...certificate import CERTIFIED
from ...compiled.jit import rounding_of
from ...features.runs import in_runs, searches
from ...io import (
    MAP_FIELDS,
    Cube,
    Scene,
    Window,
    acquisition_of,
    band_names,
    bytes_per_line,
    origin_of,
    size_of_whole,
    status_of,
)
from ...io.formats.header import axis_fields, clean, words
from ...library import Endmembers
from ...maps.raster import type_of
from ...options import Options
from ...pipeline import Seconds
from ...problem import Problem
from ...scene import ReadOptions
from ...scene.bands import MOST_VALUES, values_of_masks
from ...settings import settings_of
from ...settings.maps import MAPS, ORTHO
from ...settings.presets import PRESETS
from ...settings.reading import ReadSettings
from ...settings.run import RunSettings
from ...summary import Summary
from ..files.output_set import Outputs
from .fit import abundances_of, fit_of, kappas_of, residual_by_band
from .judgement import Free, Seen, SumCost, judge, with_free
from .memory import expected_memory

# Not listed in map headers: recorded as digests already, or without effect on values.
NOT_IN_HEADERS = tuple(
    name for name, one in settings_of(RunSettings, ReadSettings).items() if one.affects in ("contents", "outputs")
)


def map_headers(
    outputs: Outputs,
    scene: Scene,
    names: Sequence[str],
    how: str,
    sums: np.ndarray,
    further: Mapping[str, dict[str, Any]] = MappingProxyType({}),
    origin: Mapping[str, str] = MappingProxyType({}),
    what: str = "abundances",
) -> None:
    """Write the headers of all rasters; they hold no time of the run, device, thread count, memory or path."""
    # The endmembers of the three largest ``sums`` (p,) of abundances are the default bands; ``further`` has the fields
    # of other maps, ``origin`` those of all.
    cube = scene.cube
    origin = acquisition_of(cube.fields) | dict(origin)
    map_fields = {key: cube.fields[key] for key in MAP_FIELDS if key in cube.fields}
    by = f"by unmix {VERSION}, {how}"
    brightest = np.argsort(-sums, kind="stable")[:3]
    shown = [str(int(j) + 1) for j in brightest] if len(names) >= 3 else [str(int(brightest[0]) + 1)]
    fields: dict[str, dict[str, str | list[str]]] = {}
    for name, one in MAPS.items():
        fields[name] = {"description": one.holds.format(what=what, by=by)} | (
            {"band names": list(one.bands)} if one.bands else {}
        )
    fields["abundance"] |= {"band names": list(names), "default bands": shown}
    fields["residual"] |= residual_fields(scene)
    for name, own in further.items():
        fields[name] = own | {"description": f"{own['description']} {by}"}
    if "index" in outputs.rasters:  # only the largest abundances are written
        ranks = [str(k + 1) for k in range(outputs.rasters["index"].bands)]
        fields["abundance"] |= {
            "band names": [f"value {k}" for k in ranks],
            "default bands": ranks[:3] if len(ranks) >= 3 else ["1"],
        }
        fields["index"]["band names"] = [f"index {k}" for k in ranks]
    placed = {} if cube.placement is None else cube.placement.fields
    for name in outputs.rasters:
        location = placed if name.endswith(ORTHO) else map_fields
        stored = outputs.rasters[name].map_type.header(outputs.rasters[name].bands)
        outputs.write_header(name, {**fields[name.removesuffix(ORTHO)], **stored, **location, **origin})


def origin_of_maps(
    scene: Cube,
    identity: dict[str, Any],
    library: Endmembers,
    how: tuple[str, str],
    given: Mapping[str, Any],
    tags: Mapping[str, str],
) -> dict[str, str]:
    """Return header fields on the origin of maps, the same for the same input and answers."""
    # ``how`` is (method, solver), ``given`` the options that differ from the defaults. Options that name files are left
    # out: scene and spectra have digests.
    without = (
        *NOT_IN_HEADERS,
        *(() if any(one.uses_seed and name in given for name, one in in_runs().items()) else ("seed",)),
    )
    options = [f"{name} {clean(str(value))}" for name, value in sorted(given.items()) if name not in without]
    return {
        "unmix version": VERSION,
        "unmix method": how[0],
        "unmix solver": how[1],
        "unmix input": f"{clean(scene.path.name)} {identity['data'].get('digest', '')}".strip(),
        "unmix endmembers": library.digest(),
        "unmix options": "; ".join(options) or "none",
    } | dict(tags)


def residual_fields(scene: Scene) -> dict[str, str | list[str]]:
    """Return the fields of the scene's header that the residual cube keeps, for the bands in use."""
    cube, bands, _ = scene
    names = band_names(cube)
    kept: dict[str, str | list[str]] = {"band names": [names[b] for b in bands.index]}
    kept |= axis_fields(scene.wavelengths, scene.fwhm)
    if cube.good_bands is not None:
        kept["bbl"] = [str(int(cube.good_bands[b])) for b in bands.index]
    shown = words(cube.fields, "default bands") or []
    places = {str(int(b) + 1): str(place + 1) for place, b in enumerate(bands.index)}
    if shown and all(band in places for band in shown):  # some files name bands that they do not have
        kept["default bands"] = [places[band] for band in shown]
    return kept


log = logging.getLogger("unmix")
# Version of run.json; docs/run.schema.json describes it. A key that changes its meaning raises the number.
SCHEMA = 1
# Values of a mask from here on are codes or bits, where it has several: few masks count so many degrees.
FIRST_CODE = 64
# By how much a penalty may make abundances smaller before it is named as a cause of a poor fit.
SHRUNK = 0.01


def input_of(scene: Cube) -> dict[str, Any]:
    """Return name, path, size in bytes and modification time of the input."""
    status = status_of(scene.path)
    modified = datetime.datetime.fromtimestamp(status.modified / 1e9, datetime.UTC)
    return {
        "name": scene.path.name,
        "path": scene.named or str(scene.path.resolve()),
        "bytes": status.size,
        "modified": modified.isoformat(timespec="seconds"),
    }


def plan_only(
    scene: Scene, options: Options, device: str, outputs: list[Path], problem: Problem | None, bands: dict[str, int]
) -> dict[str, Any]:
    """Return the plan of `run` before the scene is read; ``problem`` and ``bands`` are known with endmembers."""
    cube, pixel = (
        scene.cube,
        sum(type_of(name, options.quantize).dtype.itemsize * n for name, n in bands.items()),
    )  # bytes
    return {
        "input": input_of(cube),
        "dry_run": True,
        "method": options.method_spec.name,
        "solver": options.solver_spec.name,
        "device": device,
        "lines": cube.lines,
        "samples": cube.samples,
        "bands_used": len(scene.bands.index),
        "endmembers": None if problem is None else list(problem.endmembers.names),
        "models": models_of(problem),
        "bands": bands or None,
        "memory_expected": expected_memory(
            cube, None if problem is None else len(problem.endmembers.names), options.budget
        ),
        "bytes_to_read": cube.lines * bytes_per_line(cube),
        "bytes_to_write": scene.pixels * pixel or None,
        "outputs": [str(path) for path in outputs],
        "outputs_that_exist": [str(path) for path in outputs if path.exists()],
    }


def models_of(problem: Problem | None) -> dict[str, int] | None:
    """Return how many models of each level are compared, for MESMA."""
    if problem is None or not problem.mesma:
        return None
    return problem.mesma.count_models(problem.endmembers.classes or ())


def what_was_read(scene: Scene, command: Sequence[str] | None, reading: ReadOptions) -> dict[str, Any]:
    """Return the part of ``run.json`` about the input."""
    cube, bands, nodata = scene
    masks = masks_of(cube, reading)
    return {
        "schema": SCHEMA,
        "unmix": build(),
        "command": list(command) if command is not None else [Path(sys.argv[0]).name],
        "input": input_of(cube),
        "reading": reading.to_dict(),
        "origin": list(origin_of(cube)),
        "whole": list(size_of_whole(cube)),
        "acquisition": acquisition_of(cube.fields),
        "lines": cube.lines,
        "samples": cube.samples,
        "bands": cube.bands,
        "bands_used": [int(b) + 1 for b in bands.index],
        "gain": unique_or_list(bands.gain),
        "offset": unique_or_list(bands.offset),
        "nodata": nodata,
    } | ({"masks": masks} if masks else {})


def masks_of(cube: Cube, reading: ReadOptions) -> list[dict[str, Any]]:
    """Return and log how many pixels the masks of a user, not those of a preset, give which value."""
    of_preset = PRESETS.get(str(reading.preset), {}).get("mask_out")
    is_own = reading.masks and (of_preset is None or reading.mask_out != of_preset)
    found = values_of_masks(cube) if isinstance(cube, Window) and is_own else []
    for one in found:
        counts = ", ".join(f"{count} of {value}" for value, count in [*one["values"].items()][:MOST_VALUES])
        log.info(f"{cube.stem}: {one['file']} has pixels {counts}{', …' * (len(one['values']) > MOST_VALUES)}")
        if len(one["values"]) > 2 and max(map(int, one["values"])) >= FIRST_CODE:
            log.warning(
                f"{cube.stem}: {one['file']} holds codes, or flags of bits, and all but 0 are "
                f"{'left out' if one['option'] == 'mask_out' else 'kept'}: write the pixels that you mean as 0 and 1"
            )
    return [one for one in found if len(one["values"]) <= MOST_VALUES]


def weights_of(problem: Problem) -> np.ndarray:
    """Return what abundances (p,) are multiplied by to make fractions: 1 where they are not made."""
    return np.ones(problem.E.shape[1]) if problem.normalization is None else problem.normalization.weights


def report_of(
    scene: Scene,
    problem: Problem,
    device: str,
    summary: Summary,
    seconds: Seconds,
    block_plan: BlockPlan,
    options: Options,
    passes: int,
    command: Sequence[str] | None,
    cost: SumCost | None = None,
    free: Free | None = None,
    lacking: float = 0.0,
    is_flat: bool = False,
    both_signs: bool = False,
) -> dict[str, Any]:
    """Return the contents of ``run.json``; log warnings about pixels that are not certified and about the fit."""
    # ``cost``: of the sum to one, in a sample; ``free``: its unconstrained answers, of that sample; for the others see `Seen`.
    pixels, path = scene.pixels, scene.cube.path
    endmembers = problem.endmembers
    say_what_is_open(path, problem, summary)
    bands = scene.bands.index + 1, scene.wavelengths
    seen = Seen(
        summary,
        endmembers.names,
        problem.method,
        options.max_delta,
        problem.alike,
        tuple(problem.black),
        "counts are few, so that noise alone looks like a poor fit"
        if options.likelihood == "poisson"
        else price_of(problem, summary, options.reading.albedo is not None),
        cost,
        bands,
        free,
        is_flat,
        both_signs,
        lacking,
        masked_by(options.reading, summary.masked, pixels),
        options.reading.valid_max is not None,
        endmembers.quality is not None,
        None if options.by or options.likelihood == "poisson" else weights_of(problem),
    )
    stem = scene.cube.stem
    for sentence in judge(seen):
        log.warning(f"{stem}: {sentence}")
    return (
        what_was_read(scene, command, options.reading)
        | {
            "method": problem.method.name,
            "normalize": "none" if problem.normalization is None else problem.normalization.kind,
            "solver": problem.solver.name,
            "exact": problem.solver.exact,
            "device": device,
            "computed_by": computed_by(device),
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
            "nearly_collinear": list(problem.collinear),
            "max_delta": options.max_delta,
            "abundances": with_free(abundances_of(summary, endmembers.names), free),
            "blocks": {"lines": block_plan.lines_per_block, "in_flight": block_plan.slots},
            "seconds": {name: round(value, 4) for name, value in asdict(seconds).items()},
            "ended": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "hidden": seconds.hidden(),
            "pixels_per_second": round(pixels / seconds.total) if seconds.total > 0 else None,
            "passes": passes,
        }
        | counted(summary, pixels, seen.faint)
        | ({} if free is None or free.misfit is None else {"misfit_over_noise": free.misfit.to_dict()})
    )


def computed_by(device: str) -> str:
    """Return the device, and what rounding depends on: runs that agree in both have the same bytes."""
    return f"{device}, {rounding_of()}"


def counted(summary: Summary, pixels: int, faint: float | None) -> dict[str, Any]:
    """Return the record's numbers of pixels, worst certificates, fit, and residual of each band."""
    return {
        "certified": summary.failed == 0,
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
        "fit": fit_of(summary) | {"faint_part": faint},
        "residual_by_band": residual_by_band(summary),
        "steps": {str(taken): pixels for taken, pixels in enumerate(summary.steps) if pixels},
    }


def masked_by(reading: ReadOptions, masked: int, pixels: int) -> tuple[str, float] | None:
    """Return the option of a scene's mask, if it has one, and the share of its pixels that are masked."""
    of_user = ("mask",) if reading.preset else ("mask", "mask_out")  # presets name the flags of products
    given = next((name for name in of_user if getattr(reading, name)), None)
    return None if given is None else (given, masked / max(1, pixels))


def price_of(problem: Problem, summary: Summary, of_albedo: bool) -> str:
    """Return advice where a penalty, albedo, or the search of a feature may make the fit worse; else an empty text."""
    # A penalty makes an abundance smaller by some λ/|e|².
    if (problem.penalty > SHRUNK * np.square(problem.norms[: len(problem.penalty)])).any():
        return "a smaller `l1` fits better"
    if of_albedo:
        return "albedo is of reflectance: I/F needs a `scale` first (docs/methods.md, Intimate mixtures)"
    name, value = problem.search or ("", None)
    return searches()[name].price(value, summary) if name else ""


def say_what_is_open(path: Path, problem: Problem, summary: Summary) -> None:
    """Log a warning if pixels are not certified: they may not be at the optimum."""
    if not summary.failed:
        return
    if not problem.solver.exact:
        log.warning(
            f"{path}: solver '{problem.solver.name}' is not exact: {summary.failed} of {summary.solved} pixels "
            "are not at the optimum; use an exact `solver`"
        )
        return
    first = ", ".join(f"({line}, {sample})" for line, sample in summary.failures[:3])
    log.warning(
        f"{path}: {summary.failed} of {summary.solved} pixels are not certified (κ > {CERTIFIED:g}) "
        f"and may not be at the optimum; the first (line, sample): {first}"
    )


def unique_or_list(values: np.ndarray) -> float | list[float]:
    """Return one number where all values are equal, else the list."""
    return float(values[0]) if np.all(values == values[0]) else [float(value) for value in values]
