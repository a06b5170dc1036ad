"""`check`: find faults that would make a run wrong, from headers and a sample of pixels, before the run.

Library, features, problem and judgement are those of the run (`unmix.runs`): what it would log or raise is a finding here.
"""

import contextlib
import os
import tempfile
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from ..arrays.pixels import Solution, solve
from ..certificate import NODATA
from ..errors import MethodError
from ..features.runs import Part
from ..io import bytes_per_line, counted
from ..library import Endmembers, duplicates
from ..options import Options
from ..problem import Problem, plan_problem, some_of
from ..runs.inputs import begun, in_one_unit
from ..runs.look import Sample, has_both_signs, look_at, usable
from ..runs.record.fit import abundances_of, fit_of, in_percent
from ..runs.record.judgement import judge, suspects_sum, with_free
from ..runs.record.memory import is_beyond, is_inflated, said_of_memory
from ..runs.record.report import masked_by, planned_reading, seen_of
from ..runs.sum_to_one import cost_in_scene
from ..scene import ReadOptions, open_scene, scale_fault, survey
from ..settings.presets import preset_in_words, preset_of
from ..summary import Summary
from .findings import Findings, check_axis, check_bands, check_noise, check_sample, masked_in

# Share of the bands, or of the pixels, from which on the endmembers are too many.
CROWDED_SHARE = 0.8


def check(
    cube: str | os.PathLike[str], endmembers: str | os.PathLike[str] | None = None, **further: Any
) -> dict[str, Any]:
    """Check a cube, a library and options before a run; write nothing.

    Parameters
    ----------
    cube, endmembers
        As for `unmix.run`.
    **further
        Options of `unmix.run`. The fit is that of ``method`` and ``solver`` alone: without penalties and weights.

    Returns
    -------
    dict
        ``sound`` (False where a run would be wrong or refused), ``findings`` (severity, about, message), and the numbers
        behind them: bands, shares of masked pixels, sizes, condition, bytes, and the memory to expect.

    Raises
    ------
    CubeError, MethodError
        Where the cube cannot be opened, or options do not fit it.
    """
    given = Options.of(endmembers=endmembers, **further)
    options = given.for_scene(cube)
    if given.mesma:
        raise MethodError("`method` mesma: what is checked is one model for all pixels; leave it out")
    findings = Findings(scene := open_scene(cube, reading := options.reading, True))
    check_name(reading, findings)
    for problem in scene.cube.problems:
        findings.warning("file", problem)
    check_axis(findings)
    seen = survey(scene)
    check_bands(seen, findings)
    check_sample(seen, masked_in(scene, cube, reading), findings)
    check_noise((sample := Sample.read(scene)).Y, findings)
    if has_both_signs(sample.Y) and not seen.fill:  # which is not declared, and below 0
        findings.warning(
            "values", "they lie on both sides of 0, as those of MNF do, and have no brightness: unmix the cube itself"
        )
    findings.facts |= {
        "format": scene.cube.format,
        "bands": scene.cube.bands,
        "faulty_bands": {fault: [b + 1 for b in bands] for fault, bands in seen.faults().items()},
        "pixels_looked_at": seen.pixels,
        "masked_share": seen.masked / seen.pixels,
        "partly_nodata_share": seen.partly / seen.pixels,
    }
    library, planned, parts = None, None, dict[str, Part]()
    with findings.of_run("library"):
        given, options, inputs = in_one_unit(cube, scene, given)
        library = inputs.library
        parts = begun(options, inputs)
    if library is not None:
        check_library(library, options, findings)
        planned = check_problem(library, options, findings)
    elif endmembers is None:
        findings.info("endmembers", "extracted from the scene: their count and condition are only known in the run")
    if library and planned and not findings.has_error:
        mask = masked_by(reading, seen.masked, seen.pixels)
        check_fit(planned, options, library, sample, parts.values(), mask, findings)
    estimate_cost(options, None if library is None else library.names, findings)
    return {**findings.facts, "sound": not findings.has_error, "findings": findings.found}


def check_name(reading: ReadOptions, findings: Findings) -> None:
    """Report the preset that the scene's name or format is of, where none is given, and its masks can be named after the scene."""
    cube = findings.scene.cube
    name = preset_of(cube.path.name, cube.format)
    if reading.preset is not None or name is None:
        return
    with contextlib.suppress(MethodError):
        ReadOptions(preset=name).for_scene(cube.path)
        findings.info(
            "preset", f"it is of {name}: `preset` {name} sets {preset_in_words(name)} where these are not given"
        )


def check_library(library: Endmembers, options: Options, findings: Findings) -> None:
    """Report the size of a library on the bands in use, spectra that are the same, and the method."""
    L, p = library.matrix.shape
    findings.info("library", f"{p} {'spectrum' if p == 1 else 'spectra'} on {counted(L, 'band')}")
    equal = [f"{a} = {b}" for a, b in duplicates(library)]
    if equal:
        findings.warning(
            "library", f"{len(equal)} pairs of spectra are the same up to a factor: {'; '.join(equal[:5])}"
        )
    findings.info(
        "method", options.method_spec.name + ", as of a run without `method`" * ("method" in options.left_open)
    )


def check_problem(library: Endmembers, options: Options, findings: Findings) -> Problem | None:
    """Check the scale, number and condition of the endmembers; return their problem, None where it cannot be solved."""
    scene, facts = findings.scene, findings.facts
    with findings.of_run("scale"):
        fault = scale_fault(scene, library)
        if fault:
            findings.add("error" if options.reading.scale is None else "warning", "scale", fault)
        else:
            findings.info("scale", "pixels and endmembers have the same scale")
    L, p = library.matrix.shape
    pixels = round(scene.pixels * (1 - facts["masked_share"] - facts["partly_nodata_share"]))
    if p > 1 and 0 < (few := min(L, pixels or L)) <= p / CROWDED_SHARE:
        what, why, how = counted(pixels, "pixel"), "each pixel could be an endmember of its own", ""
        if few == L:
            what, why = counted(L, "band"), "noise is fitted as well as signal"
            how = ", or use `method` nnls with `l1`"
        findings.warning("endmembers", f"{p} endmembers for {what}: {why}; choose some with `select`{how}")
    with findings.of_run("endmembers"):
        problem = plan_problem(library, options.method_spec, options.solver_spec, scene)
        facts |= {"condition": problem.condition, "nearly_collinear": list(problem.collinear)}
        alike = f"; nearly collinear: {some_of(problem.collinear)}" if problem.collinear else ""
        findings.info("endmembers", f"cond(E) = {problem.condition:.2g}{alike}")
        return problem
    return None


def check_fit(
    problem: Problem, options: Options, library: Endmembers, sample: Sample, parts: Collection[Part],
    mask: tuple[str, float] | None, findings: Findings,
) -> None:  # fmt: skip
    """Judge the fit to a sample as a run judges its own; and report what is missing."""
    scene, facts, names, E = findings.scene, findings.facts, problem.endmembers.names, problem.endmembers.matrix
    kept = usable(sample, E)
    Y = (sample if kept is None else kept).Y
    if not len(Y):
        return
    p = len(names) - problem.constraint.has_shade
    best = solve(Y, E[:, :p], method=problem.method.name, solver=problem.solver.name)
    summary = summary_of(Y, E, best)
    look, both_signs = look_at(kept, problem, best.rmse, parts, scene, library)
    facts["fit"], facts["abundances"] = fit_of(summary), with_free(abundances_of(summary, names), look)
    cost = cost_in_scene(scene.cube, problem) if problem.constraint.may_cost_fit and suspects_sum(summary) else None
    lacking = max((part.lacking for part in parts), default=0.0)
    warnings = judge(seen_of(scene, problem, options, summary, cost, look, lacking, both_signs, mask))
    for sentence in warnings:
        findings.warning("fit", sentence)
    if not warnings:
        findings.info("fit", f"relative RMSE {in_percent(summary.percentile(0.5))} in the median of {len(Y)} pixels")
    for part in parts:
        entry = part.entry(None)
        facts |= entry
        if part.said:
            findings.warning(next(iter(entry)), part.said)


def summary_of(Y: np.ndarray, E: np.ndarray, best: Solution) -> Summary:
    """Return the totals of the answers for pixels Y (N, L) by endmembers E (L, p), shade included."""
    summary, abundances = Summary(), best.abundances
    if abundances.shape[1] < E.shape[1]:
        abundances = np.column_stack([abundances, 1 - abundances.sum(axis=1)])
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = np.sqrt(np.square(Y).sum(axis=1))
        left = (Y - abundances @ E.T)[best.valid]
        sums = np.stack([np.square(left).sum(axis=0), left.sum(axis=0), np.square(Y[best.valid]).sum(axis=0)])
    residuals = best.rmse * np.sqrt(Y.shape[1])
    relative = np.divide(residuals, lengths, out=np.full(len(Y), -1.0), where=(lengths > 0) & np.isfinite(lengths))
    relative = np.minimum(relative, np.finfo(np.float32).max)  # dark pixels whose abundances must sum to one exceed it
    planes = {"rmse": best.rmse, "relative": relative.astype(np.float32), "kappa": best.kappa, "delta": best.delta}
    planes |= {"steps": best.steps, "state": np.where(best.valid, 0, 1).astype(np.uint8)}
    summary.add(0, {name: values[None] for name, values in planes.items()} | {"abundance": abundances.T[None]})
    summary.add_rmse(np.where(best.valid, best.rmse, NODATA))
    summary.add_residuals(len(left), sums)
    return summary


def estimate_cost(options: Options, names: Sequence[str] | None, findings: Findings) -> None:
    """Report the bytes and the memory of a run."""
    cube = findings.scene.cube
    with findings.of_run("memory"):
        findings.facts |= (plan := planned_reading(findings.scene, options, names))
        size, passes, memory = plan["bytes_to_read"] / 1e6, plan["passes"], plan["memory_expected"]
        text = f"{size:.0f} MB to read in {passes} {'pass' if passes == 1 else 'passes'}; {said_of_memory(memory)}"
        if is_inflated(cube):
            whole = getattr(cube, "cube", cube)
            inflated = whole.lines * bytes_per_line(whole) / 1e6
            text += f"; it is inflated to {inflated:.0f} MB in {tempfile.gettempdir()} first (TMPDIR)"
        findings.info("cost", text)
        if is_beyond(memory):
            findings.warning("memory", "a run may be killed for its memory: lower `memory`")
