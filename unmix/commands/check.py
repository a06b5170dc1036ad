"""`check`: find faults that would make a run wrong, from headers and a sample of pixels, before the run."""

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from ..arrays.mixtures import solve_pixels
from ..blocks import parse_size
from ..certificate import MOST_DELTA, NODATA
from ..errors import CubeError, LibraryError, MethodError
from ..features.runs import Part, in_runs
from ..io import Changed, Scene, bytes_per_line, counted, located, read_lines
from ..library import Endmembers, duplicates, fit, load_parts, prepared
from ..library.to_bands import said_left_out
from ..methods import WITHOUT_METHOD, Method, Solver, choose
from ..options.contradictions import refuse_without_library
from ..problem import Problem, condition_of, faults_of, plan_problem, some_of, without_rank
from ..runs.look import Look, Sample, fits_look, has_both_signs, usable
from ..runs.record.fit import abundances_of, fit_of, in_percent
from ..runs.record.judgement import SAID_OF_SIGNS, Seen, judge, suspects_sum, with_free
from ..runs.record.memory import expected_memory, is_beyond, is_inflated, said_of_memory
from ..runs.record.report import input_of, masked_by
from ..runs.sum_to_one import beside_constant, cost_of_sum, hidden_constant
from ..scene import (
    ReadOptions,
    open_scene,
    scale_fault,
    survey,
    unit_of_library,
)
from ..settings import settings_of
from ..settings.presets import preset_in_words, preset_of
from ..summary import Summary
from .findings import Findings, check_axis, check_bands, check_noise, check_sample, masked_in

# Share of the bands, or of the pixels, from which on the endmembers are too many.
CROWDED_SHARE = 0.8
# The least part of the median that is named as a dark level.
LEAST_DARK = 0.02
# Fewest and most pixels whose search is timed, the latter unless fewer already take this many seconds; calls of each.
FEW_PIXELS, MANY_PIXELS, ENOUGH_SECONDS, CALLS = 256, 16384, 0.25, 2


def check(
    cube: str | os.PathLike[str],
    endmembers: str | os.PathLike[str] | None = None,
    *,
    select: str | None = None,
    complete: bool = False,
    classes: str | None = None,
    library_scale: float | None = None,
    across_gaps: bool = False,
    method: str | None = None,
    solver: str | None = None,
    memory: str | int = "1G",
    threads: int | None = None,
    **further: Any,
) -> dict[str, Any]:
    """Check a cube, a library and options before a run; write nothing.

    Parameters
    ----------
    cube, endmembers, select, complete, classes, library_scale, across_gaps, method, solver, memory, threads
        As for `unmix.run`.
    **further
        The fields of `unmix.ReadOptions`, and options of features that have a part in all runs.

    Returns
    -------
    dict
        ``sound`` (False where a run would be wrong or refused), ``findings`` (severity, about, message), and the
        numbers behind them: bands, shares of masked pixels, sizes, condition, bytes, and the memory to expect.

    Raises
    ------
    CubeError, MethodError
        Where the cube cannot be opened, or options do not fit it.
    """
    method_spec, solver_spec = choose(WITHOUT_METHOD if method is None else method, solver)
    if method_spec.is_by_models:
        raise MethodError(f"`method` {method}: models are chosen by `unmix mesma`; check with pcls or nnls")
    of_library = {
        "select": select,
        "complete": complete,
        "classes": classes,
        "library_scale": library_scale,
        "across_gaps": across_gaps,
    }
    if endmembers is None:
        refuse_without_library(of_library)
    looking = [one for one in in_runs().values() if one.is_always]
    own = {
        name: further.pop(name, getattr(one.settings, name)) for one in looking for name in settings_of(one.settings)
    }
    how_read = ReadOptions(**further).for_scene(cube)
    findings = Findings(scene := open_scene(cube, how_read, True))
    check_name(how_read, findings)
    for problem in scene.cube.problems:
        findings.warning("file", problem)
    check_axis(findings)
    began = time.perf_counter()
    seen = survey(scene)
    seconds_looking = time.perf_counter() - began
    sample = Sample.read(scene)
    check_bands(seen, findings, check_noise(sample.Y, findings))
    check_sample(seen, masked_in(scene, cube, how_read), findings)
    if isinstance(scene.cube, Changed) and not len(sample.Y) and seen.pixels > seen.masked + seen.partly:
        findings.error(
            "values", "every pixel would be masked, for a band that cannot be changed; `bands` auto may help"
        )
    # A fill value that is not declared is below 0, too.
    if has_both_signs(sample.Y) and not (seen.fill or isinstance(scene.cube, Changed)):
        findings.warning("values", f"they lie {SAID_OF_SIGNS}")
    findings.facts |= {
        "input": input_of(scene.cube),
        "format": scene.cube.format,
        "lines": scene.cube.lines,
        "samples": scene.cube.samples,
        "bands": scene.cube.bands,
        "bands_used": len(scene.bands.index),
        "faulty_bands": {fault: [b + 1 for b in bands] for fault, bands in seen.faults().items()},
        "pixels_looked_at": seen.pixels,
        "masked_share": seen.masked / seen.pixels,
        "partly_nodata_share": seen.partly / seen.pixels,
        "seconds_to_look": round(seconds_looking, 3),
    }
    parts = [one.begin(SimpleNamespace(endmembers=endmembers, threads=threads, **of_library, **own)) for one in looking]
    library, parts = None, [part for part in parts if reads(part, findings)]
    if endmembers is not None:
        library = check_library(located(endmembers), of_library, findings)
        unit = library and unit_of_library(scene, library, (library_scale, how_read.scale))
        if library is not None and unit:
            library = replace(library, matrix=library.matrix / unit)
            findings.info(
                "library",
                f"its values are divided by {unit:g} (`library_scale`): the file's own scale makes pixels reflectance",
            )
    if library is not None:
        findings.info("method", f"{method_spec.name}{', as of a run without `method`' if method is None else ''}")
        planned = check_problem(library, method_spec, solver_spec, how_read.scale is None, findings)
        if planned is not None and not findings.has_error:
            look = check_fit(planned, library, sample, parts, findings, masked_by(how_read, seen.masked, seen.pixels))
            tell(look, parts, planned.endmembers, findings)
    elif endmembers is None:
        findings.info("endmembers", "extracted from the scene: their count and condition are only known in the run")
        check_floor(sample.Y, findings)
    estimate_cost(library, parse_size(str(memory)), findings)
    return {**findings.facts, "sound": not findings.has_error, "findings": findings.found}


def check_floor(Y: np.ndarray, findings: Findings) -> None:
    """Say of counts (N, L), which a run without a library cannot compare, that a dark level may be in them."""
    scene = findings.scene
    floor = float(np.percentile(Y, 1, axis=0).min()) if len(Y) else 0.0
    if scene.cube.dtype.kind in "iu" and np.all(scene.bands.gain == 1) and floor > LEAST_DARK * float(np.median(Y)):
        findings.info(
            "scale",
            f"whole numbers without a scale factor, hardly any below {floor:g}: a dark level in counts makes endmembers "
            "wrong; take it off first",
        )


def check_library(path: Path, asked: dict[str, Any], findings: Findings) -> Endmembers | None:
    """Return the library on the bands in use, or None, with a finding, where it cannot be read or resampled to them."""
    scene = findings.scene
    try:
        how = asked["classes"], asked["library_scale"], asked["select"], bool(asked["across_gaps"])
        parts = prepared(load_parts(path), path, *how)
        for part in parts:
            equal = duplicates(part)
            if equal:
                pairs = "; ".join(f"{a} = {b}" for a, b in equal[:5])
                findings.warning("library", f"{len(equal)} pairs of spectra are the same up to a factor: {pairs}")
            if part.wavelengths is None and scene.wavelengths is not None:
                findings.warning(
                    "library", f"{part.source} has no wavelengths: its bands are matched with the cube's by number"
                )
        library = fit(parts, scene.cube, scene.bands.index, asked["complete"])
    except LibraryError as error:
        findings.error("library", str(error))
        return None
    channels, given = sorted({len(part.matrix) for part in parts}), sum(len(part.names) for part in parts)
    if len(library.names) < given:
        findings.info("library", said_left_out(given - len(library.names), given))
    findings.info(
        "library",
        f"{len(library.names)} spectra of {', '.join(map(str, channels))} channels, on "
        f"{counted(len(scene.bands.index), 'band')}",
    )
    findings.facts["endmembers"] = list(library.names)
    return library


def reads(part: Part, findings: Findings) -> bool:
    """Return whether a feature can read its files; add a finding where not."""
    try:
        part.read(findings.scene, None)
    except LibraryError as error:
        findings.error("library", str(error))
        return False
    return True


def check_problem(
    library: Endmembers, method_spec: Method, solver_spec: Solver, scaled: bool, findings: Findings
) -> Problem | None:
    """Check the scale, number and condition of the endmembers; return their problem, None where it cannot be solved."""
    scene, facts = findings.scene, findings.facts
    try:
        fault = scale_fault(scene, library)
    except CubeError as error:
        findings.error("signal", str(error))
        return None
    if fault:
        findings.add("error" if scaled else "warning", "scale", fault)
    else:
        findings.info("scale", "pixels and endmembers differ by less than a factor of 50 in size")
    L, p = library.matrix.shape
    if p > L and not solver_spec.any_rank:
        findings.error(
            "endmembers",
            f"{p} endmembers for {L} bands; solver '{solver_spec.name}' takes at most as many as bands; use fewer, or "
            f"{without_rank(method_spec)}",
        )
        return None
    pixels = scene.pixels * (1 - facts["masked_share"] - facts["partly_nodata_share"])
    message = too_many_endmembers(p, L, pixels)
    if message:
        findings.warning("endmembers", message)
    try:
        problem = plan_problem(library, method_spec, solver_spec, scene, warns=False)
    except LibraryError as error:
        facts["condition"], _, facts["nearly_collinear"] = condition_of(library, method_spec.constraint.sum_to_one)
        findings.error("endmembers", str(error))
        return None
    facts["condition"], facts["nearly_collinear"] = problem.condition, list(problem.collinear)
    faults = list(faults_of(problem))
    for fault in faults:
        findings.warning("endmembers", fault)
    if not faults:
        alike = f"; nearly collinear: {some_of(problem.collinear)}" if problem.collinear else ""
        findings.info("endmembers", f"cond(E) = {problem.condition:.2g}{alike}")
    return problem


def check_fit(
    problem: Problem,
    library: Endmembers,
    sample: Sample,
    parts: Sequence[Part],
    findings: Findings,
    mask: tuple[str, float] | None,
) -> Look | None:
    """Report the fit of the endmembers to a sample; return a `Look` at it, which features share, as in a run."""
    scene, facts, Y = findings.scene, findings.facts, sample.Y
    if not len(Y):
        return None
    plain = plan_problem(library, problem.method, problem.solver, warns=False)
    search = partial(solve_pixels, problem=plain, p=len(library.names), device="cpu", threads=None)
    best = search(Y)
    facts["seconds_to_solve"] = seconds_a_pixel(search, scene, Y) * scene.pixels * (1 - facts["masked_share"])
    with np.errstate(over="ignore"):
        lengths = np.sqrt(np.square(Y).sum(axis=1))
    residuals = best.rmse * np.sqrt(Y.shape[1])
    relative = np.divide(residuals, lengths, out=np.full(len(Y), -1.0), where=(lengths > 0) & np.isfinite(lengths))
    relative = np.minimum(relative, np.finfo(np.float32).max)  # dark pixels whose abundances must sum to one exceed it
    planes = {"rmse": best.rmse, "relative": relative.astype(np.float32), "kappa": best.kappa, "delta": best.delta}
    planes |= {"steps": best.steps, "state": np.where(best.valid, 0, 1).astype(np.uint8)}
    summary, abundances = Summary(), best.abundances
    names, E = problem.endmembers.names, problem.endmembers.matrix  # shade included
    if problem.constraint.has_shade:
        abundances = np.column_stack([abundances, 1 - abundances.sum(axis=1)])
    summary.add(0, {name: values[None] for name, values in planes.items()} | {"abundance": abundances.T[None]})
    summary.add_rmse(np.where(best.valid, best.rmse, NODATA))
    facts["fit"], facts["abundances"] = fit_of(summary), abundances_of(summary, names)
    cost = cost_of_sum(Y, E) if problem.constraint.may_cost_fit and suspects_sum(summary) else None
    cost = hidden_constant(scene, Y, E) if problem.constraint.is_cone else beside_constant(cost, scene, Y, E)
    with np.errstate(over="ignore", invalid="ignore"):
        left = (Y - abundances @ E.T)[best.valid]
        sums = np.stack([np.square(left).sum(axis=0), left.sum(axis=0), np.square(Y[best.valid]).sum(axis=0)])
    summary.add_residuals(len(left), sums)
    bands = scene.bands.index + 1, scene.wavelengths
    used, look = usable(sample, E), None
    both_signs = used is not None and has_both_signs(used.Y) and not isinstance(scene.cube, Changed)
    if used is not None and fits_look(E):
        look = Look.at(used, E, best.rmse if len(used.Y) == len(Y) else None, scene.cube.lost)
        for part in parts if not both_signs else ():
            part.look(used, look, scene, library)
    seen = Seen(
        summary,
        names,
        problem.method,
        MOST_DELTA,
        problem.alike,
        black=tuple(problem.black),
        cost=cost,
        bands=bands,
        free=look,
        both_signs=both_signs,
        lacking=max((part.lacking for part in parts), default=0.0),
        mask=mask,
        are_bands_told=True,
        weights=np.ones(len(names)),
    )
    warnings = judge(seen)
    for sentence in warnings:
        findings.warning("fit", sentence)
    if not warnings:
        findings.info("fit", f"relative RMSE {in_percent(summary.percentile(0.5))} in the median of {len(Y)} pixels")
    return look


def seconds_a_pixel(search: Callable[[np.ndarray], Any], scene: Scene, sample: np.ndarray) -> float:
    """Return about how long a pixel takes on the CPU, timed on middle lines once the search is compiled."""
    # A search starts from the neighbour's answer; a call takes 10 ms, whatever it solves.
    cube = scene.cube
    some = min(cube.lines, -(-MANY_PIXELS // cube.samples))
    first = (cube.lines - some) // 2
    raw = read_lines(cube, slice(first, first + some))
    Y = scene.spectra(raw)[~scene.missing(raw).ravel()][:MANY_PIXELS]
    Y = Y if len(Y) >= FEW_PIXELS else sample

    def seconds(count: int) -> float:
        """Return the least time of some calls: another program may hold one of them up."""
        spent = []
        for _ in range(CALLS):
            began = time.perf_counter()
            search(Y[:count])
            spent.append(time.perf_counter() - began)
        return min(spent)

    alone = spent = seconds(count := 1)
    while spent < ENOUGH_SECONDS and count < len(Y):
        count = min(8 * count, len(Y))
        spent = seconds(count)
    return (spent if count == 1 else max(spent / 10, spent - alone)) / count


def tell(look: Look | None, parts: Sequence[Part], library: Endmembers, findings: Findings) -> None:
    """Report negative unconstrained abundances of some pixels, and what features found."""
    facts = findings.facts
    if look is not None:
        worst = int(np.nanargmax(look.far_below))
        facts["abundances"] = with_free(facts.get("abundances", []), look)
        findings.info(
            "endmembers",
            f"without constraints the abundance of {library.names[worst]} is below -5 % in "
            f"{in_percent(look.far_below[worst])} of {len(look.Y)} pixels, the most of all endmembers",
        )
    for part in parts:
        entry = part.entry(None)
        facts |= entry if look is not None else {}
        if part.said:
            findings.warning(next(iter(entry)), part.said)


def check_name(reading: ReadOptions, findings: Findings) -> None:
    """Report the preset of the scene's name or format, if none is given and its masks have names after the scene's."""
    cube = findings.scene.cube
    name = preset_of(cube.path.name, cube.format)
    if reading.preset is not None or name is None:
        return
    with contextlib.suppress(MethodError):
        ReadOptions(preset=name).for_scene(cube.path)
        findings.info(
            "preset", f"it is of {name}: `preset` {name} sets {preset_in_words(name)} where these are not given"
        )


def too_many_endmembers(p: int, L: int, pixels: float) -> str | None:
    """Return a message if p endmembers are too many for L bands or ``pixels`` pixels, else None."""
    for count, noun in ((L, "band"), (round(pixels), "pixel")):
        if p > 1 and 0 < count <= p / CROWDED_SHARE:
            why, how = "each pixel could be an endmember of its own", ""
            if noun == "band":
                why, how = "noise is fitted as well as signal", ", or `rows` auto"
            return f"{p} endmembers for {counted(count, noun)}: {why}; choose some with `select`{how}"
    return None


def estimate_cost(library: Endmembers | None, memory: int, findings: Findings) -> None:
    """Estimate the bytes and the memory of a run."""
    scene, facts = findings.scene.cube, findings.facts
    size = scene.lines * bytes_per_line(scene)
    passes = 1 if library is not None else 3
    facts |= {"bytes_to_read": size * passes, "passes": passes}
    try:
        expected = expected_memory(scene, None if library is None else len(library.names), memory)
    except MethodError as error:
        findings.error("memory", str(error))
        return
    facts["memory_expected"] = expected
    text = (
        f"{size * passes / 1e6:.0f} MB to read in {passes} {'pass' if passes == 1 else 'passes'}; "
        f"{said_of_memory(expected)}"
    )
    if (seconds := facts.get("seconds_to_solve")) is not None:
        text += (
            f"; the search takes about {float(f'{seconds:.1g}'):g} s on this CPU, beside compiling, reading and writing"
        )
    if is_inflated(scene):
        whole = getattr(scene, "cube", scene)
        folder = tempfile.gettempdir()
        text += f"; it is inflated to {whole.lines * bytes_per_line(whole) / 1e6:.0f} MB in {folder} first (TMPDIR)"
    findings.info("cost", text)
    if is_beyond(expected):
        findings.warning("memory", "a run may be killed for its memory: lower `memory`")
