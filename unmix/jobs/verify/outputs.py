"""`verify`: solve pixels of a finished run again, by another method, and compare them with the run's maps."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ...certificate import CERTIFIED
from ...errors import CubeError, OutputError
from ...io import Bands, Cube, read_pixels
from ...io.identity import identity_of, is_older
from ...io.placement import Placement
from ...io.remote import located
from ...io.window import Tied
from ...library import ClassSums, Endmembers, load
from ...library.fractions import Normalization
from ...methods import MESMA, SOLVERS, Method, choose
from ...outputs.digests import file_digest, image_digest, record_digest
from ...outputs.json_text import finite
from ...outputs.maps.map_type import blank_of
from ...outputs.run_files.finished import FinishedRun, record_of, stem_of_outputs
from ...outputs.run_files.journal import difference
from ...outputs.run_record import normalize_of
from ...problem import Weighting, less_shade
from ...scene import ReadOptions, open_pixels
from ...settings.maps import MAPS, ORTHO
from ..derived.noise import NoiseCube
from . import at_most
from .derived import (
    check_classes,
    check_fractions,
    check_masked,
    check_scatter,
    check_unweighted,
    noise_of_each,
    with_weighted_noise,
)
from .draws import DrawCheck
from .maps import MAP_TOLERANCE, NODATA, Maps, Verdict
from .models import MOST_FITS, ModelCheck
from .recount import differs, recounted
from .references import has_others, reference
from .rows import check_rows
from .simplex import fault_of_simplex

log = logging.getLogger("unmix")
# Lines of a placed map that are compared.
PLACED_LINES = 20
# Two costs of a pixel are the same up to this share of |y|²: the rounding of maps in float32 changes them by 1e-15.
SAME_COST = 1e-13


def verify(stem: str | Path, cube: str | Path | None = None, everything: bool = False, sample: int = 1000) -> Verdict:
    """Check the outputs of a run: every file against its digest, and pixels against an independent solution.

    Parameters
    ----------
    stem : path-like
        The beginning of the outputs' names, such as ``scenes/cube``.
    cube : path-like, optional
        The scene, if it is no longer where the run found it.
    everything : bool
        Solve all pixels again rather than a sample.
    sample : int
        How many pixels, drawn with a fixed seed.

    Raises
    ------
    OutputError
        Where there is no finished run of that name.
    CubeError
        Where the scene cannot be read.
    """
    stem = stem_of_outputs(Path(stem))
    run = FinishedRun(stem, record_of(stem))
    try:
        with run.believing():
            return verify_report(stem, run.report, cube, everything, sample)
    except OSError as error:
        raise OutputError(f"{error.filename or stem}: cannot be read: {error.strerror or error}") from None


def verify_report(
    stem: Path, report: dict[str, Any], cube: str | Path | None, everything: bool, sample: int
) -> Verdict:
    """Verify a run whose record is read; see `verify`."""
    lines, samples = int(report["lines"]), int(report["samples"])
    if report["method"] == "nmf":  # nothing can be solved again: only whether the maps agree with each other is checked
        method, solver, verdict = None, "nmf", Verdict(by="their own model, as nmf has no other reference")
    else:
        method, solver_spec = choose(report["method"], report["solver"])
        solver = solver_spec.name
        verdict = Verdict(by="scipy" if solver_spec.exact else f"{solver} itself, which is not the optimum")
        verdict.by = "fitting all models" if method is MESMA else verdict.by
    check_digests(stem, report, verdict)
    if verdict.faults:
        return verdict
    maps = Maps(FinishedRun(stem, report))
    blur = maps.blur("fraction" if method is MESMA else "abundance")
    if blur:
        verdict.rounding = f"half a step: {blur:g}"
    if method is not None and "fit" in report:
        counts = recounted(report, maps, "index" in maps or method is MESMA, "certificate" in maps)
        for name, recorded, counted in counts:
            if differs(recorded, counted):
                verdict.faults.append(f"{stem}_run.json: {name}: is {recorded}, but the maps hold {counted}")
    scene = open_pixels(cube or find_cube(stem, report), ReadOptions(**report["reading"]))
    if (scene.lines, scene.samples, scene.bands) != (lines, samples, report["bands"]):
        raise CubeError(f"{scene.path}: does not have the size of the run's input; name the right scene with `cube`")
    check_input(stem, report, scene, verdict)
    if scene.path.stat().st_size != report["input"]["bytes"]:
        verdict.faults.append(f"{scene.path}: has another size in bytes than when the run read it")
    index = np.array(report["bands_used"]) - 1
    # Copied: code for arrays that cannot be written to would be compiled once more.
    gain, offset = (np.broadcast_to(np.asarray(report[key], float), len(index)).copy() for key in ("gain", "offset"))
    bands = Bands(index, gain, offset)
    library = load(stem.with_name(stem.name + "_endmembers.csv"))
    if not np.array_equal(library.matrix, load(stem.with_name(stem.name + "_endmembers.sli")).matrix):
        verdict.faults.append(f"{stem}_endmembers: the CSV and the library differ")
    if everything and report.get("endmembers", {}).get("simplex") is not None:
        extracted = library.matrix.shape[1] - (method is not None and method.has_shade)  # shade is no pixel
        fault = fault_of_simplex(report, scene, bands, np.ascontiguousarray(library.matrix[:, :extracted]))
        verdict.faults += [] if fault is None else [f"{stem}_endmembers: {fault}"]
    if isinstance(scene, Tied):
        library = replace(library, matrix=scene.tie(library.matrix))
    if method is MESMA and report["asked"].get("shade") is not None:
        shade = library.matrix[:, -1]
        bands, library = less_shade(shade, bands, library.take(range(len(library.names) - 1)))
    shares = shares_of(report, library, method)
    weighting = None
    if report.get("asked", {}).get("weights") is not None:
        weighting = Weighting(np.array(report["asked"]["weights"]), bands, library)
        bands, library = weighting.weighted()
        report = with_weighted_noise(report, weighting)
    if "l21" in report:
        bands, library = check_rows(maps, report, scene, bands, library, everything, verdict)
    E = library.matrix
    each = noise_of_each(report, scene, bands)
    models = ModelCheck(library, report) if method is MESMA else None
    draws = (
        DrawCheck(library, report, method, everything, shares) if method is not None and "montecarlo" in maps else None
    )
    sample = sample if models is None else min(sample, max(1, MOST_FITS // models.count))
    chosen = np.arange(lines * samples)
    if not everything and sample < len(chosen):
        chosen = np.sort(np.random.Generator(np.random.PCG64(0)).choice(len(chosen), sample, replace=False))
    if "placed" in report and scene.placement is not None:
        check_placed(maps, scene.placement, lines, samples, verdict)
    for line in np.unique(chosen // samples):
        places = chosen[chosen // samples == line] % samples
        check_masked(maps, int(line), places, verdict)
        if "class" in maps and method is not None:
            count = len(ClassSums.of(replace(library, has_shade=method.has_shade), False).names)
            check_classes(maps, count, int(line), places, verdict)
        if models is not None:
            check_choices(models, maps, report, scene, bands, int(line), places, verdict)
            continue
        best = check_line(maps, report, scene, bands, E, method, solver, int(line), places, verdict, shares)
        if weighting is not None:
            check_unweighted(maps, scene, weighting, int(line), best, verdict)
        if method is not None:
            check_derived(maps, report, scene, bands, library, method, draws, each, int(line), best, verdict, shares)
    return verdict


def shares_of(report: dict[str, Any], library: Endmembers, method: Method | None) -> Normalization | None:
    """Return how a run made fractions of abundances, for its spectra without weights of bands; None where it did not."""
    return Normalization.of(normalize_of(report), library.matrix, has_shade=method is not None and method.has_shade)


def check_derived(
    maps: Maps, report: dict[str, Any], scene: Cube, bands: Bands, library: Endmembers, method: Method, draws: DrawCheck | None,
    each: NoiseCube | None, line: int, best: tuple[np.ndarray, np.ndarray], verdict: Verdict, shares: Normalization | None,
) -> None:  # fmt: skip
    """Compute what is made of the abundances of some pixels of a line again and compare."""
    if "sigma" in maps or draws is not None:
        check_scatter(maps, report, scene, bands, library, method, draws, each, line, best, verdict, shares)
    if "fraction" in maps:
        check_fractions(maps, report, library, method, line, best, verdict, shares)


def check_input(stem: Path, report: dict[str, Any], scene: Cube, verdict: Verdict) -> None:
    """Check that the cube and its mask are those that the run read, or copies, by the identity in its record."""
    before = report.get("identity") or {"data": {"modified": None}}
    if is_older(before):
        log.warning(
            f"{stem}_run.json: is of an older unmix; whether {scene.path} is the input that it read cannot be checked"
        )
        return
    changed = difference(before, finite(identity_of(scene)), "input ")
    if changed:
        verdict.faults.append(f"{scene.path}: is not what the run read: {', '.join(changed[:4])} differ")


def check_digests(stem: Path, report: dict[str, Any], verdict: Verdict) -> None:
    """Check the record, and every file that the run wrote, against the digests in the record."""
    if "digest" in report and report["digest"] != record_digest(report):
        verdict.faults.append(f"{stem}_run.json: is not what the run wrote")
    for name, digest in report["digests"].items():
        path = stem.with_name(name)
        if not path.exists():
            verdict.faults.append(f"{path}: is missing")
            continue
        is_image = name.endswith(".img")
        lines = report["placed"]["lines"] if name.endswith(f"{ORTHO}.img") else report["lines"]
        now = image_digest(path, int(lines)) if is_image else file_digest(path)
        if now != digest:
            verdict.faults.append(f"{path}: is not what the run wrote (digest {now[:12]}, not {digest[:12]})")


def find_cube(stem: Path, report: dict[str, Any]) -> Path:
    """Return the path of the run's input: where the run read it, or beside the outputs."""
    for path in (located(report["input"]["path"]), stem.with_name(report["input"]["name"])):
        if path.exists():
            return path
    raise CubeError(f"{report['input']['path']}: the run's input is not there; name it with `cube`")


def check_placed(maps: Maps, placement: Placement, lines: int, samples: int, verdict: Verdict) -> None:
    """Check some lines of the placed maps: each cell must hold the pixel of the swath that the lookup table names."""
    for line in np.unique(np.linspace(0, placement.shape[0] - 1, PLACED_LINES).astype(int)):
        y, x, has_pixel = (table[0] for table in placement.look_up(slice(int(line), int(line) + 1), lines, samples))
        for name in MAPS:
            if name + ORTHO not in maps:
                continue
            placed = maps.line(name + ORTHO, int(line)).copy()
            wrong = (placed[:, ~has_pixel] != blank_of(name)).any()
            for row in np.unique(y[has_pixel]):
                cells = has_pixel & (y == row)
                wrong |= not np.array_equal(placed[:, cells], maps.line(name, int(row))[:, x[cells]], equal_nan=True)
            if wrong:
                verdict.faults.append(
                    f"{maps.stem}: line {line} of {name}{ORTHO}: not what the lookup table makes of {name}"
                )


def check_line(
    maps: Maps,
    report: dict[str, Any],
    scene: Cube,
    bands: Bands,
    E: np.ndarray,
    method: Method | None,
    solver: str,
    line: int,
    places: np.ndarray,
    verdict: Verdict,
    shares: Normalization | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Solve some pixels of a line again and compare; see `verify`.

    Return the places that are not masked, and the abundances (n, p) there.
    """
    L, penalty = len(E) - len(report.get("l21", {}).get("costs", ())), penalty_of(report, E.shape[1])
    most = report.get("asked", {}).get("at_most")
    Y, masked = read_pixels(scene, bands, report["nodata"], line, places)
    abundance = maps.line("abundance", line)[:, places].T
    rmse = maps.line("rmse", line)[0, places]
    wrong = masked != (rmse == NODATA)
    verdict.pixels += len(places)
    blur = maps.blur("abundance")
    written_a, complete = written_of(maps, line, places[~masked], E.shape[1])
    if method is None:
        best = abundance[~masked].astype(float)
    elif most is not None:
        best = at_most.answers(Y[~masked], E, most, written_a, complete)
    else:
        best = reference_of(Y[~masked], E, method, solver, penalty, shares)
    residual = (Y[~masked] - best @ E.T)[:, :L]
    length = np.sqrt(np.square(Y[~masked]).sum(axis=1))
    truth = np.sqrt(np.square(residual).mean(axis=1))
    found_a, known = abundance[~masked], best
    if shares is not None:
        known, scale = shares.of_abundances(best, 1)
        written_scale = maps.line("scale", line)[0, places]
        off_scale = np.abs(written_scale[~masked] - scale)
        wrong[masked] |= written_scale[masked] != NODATA
    best_a = known
    if "index" in maps:  # only the largest were written
        index = maps.line("index", line)[:, places].T[~masked].astype(int)
        best_at_index = np.take_along_axis(known, np.maximum(index - 1, 0), axis=1)
        best_a = -np.sort(-known, axis=1)[:, : found_a.shape[1]]
        elsewhere = beyond(np.where(index > 0, best_at_index, 0) - found_a, blur) / np.maximum(1, np.abs(found_a))
    apart, size_a = np.abs(found_a - best_a), np.maximum(1, np.abs(best_a))
    off, whole = ((each / size_a).max(axis=1, initial=0) for each in (beyond(apart, blur), apart))
    off = off if "index" not in maps else np.maximum(off, elsewhere.max(axis=1, initial=0))
    if penalty is not None and "index" not in maps and shares is None:
        off[(off > MAP_TOLERANCE) & as_good(Y[~masked], E, found_a.astype(float), best, penalty, blur)] = 0.0
    rmse_off = np.abs(rmse[~masked] - truth)
    if shares is not None:
        written_a = shares.back(written_a, written_scale[~masked].astype(float), 1)
    unclear = has_others(Y[~masked], E, method, solver, ((off > MAP_TOLERANCE) | ~complete) & (most is None), penalty)
    fits = is_answer(written_a.astype(float), complete, Y[~masked][:, :L], E[:L], method, rmse[~masked], blur)
    off[unclear] = np.where(fits[unclear], 0.0, np.inf)
    best = np.where((unclear & complete)[:, None], written_a, best)
    if shares is not None:
        size_s = np.maximum(scale, float(shares.weights.max(initial=0.0)))
        wrong[~masked] |= ~unclear & ~(off_scale <= len(E.T) * MAP_TOLERANCE * size_s)
    dropped = unclear & ~complete
    # Of a pixel of zeros the abundances are some 1e-16, and the residual is that part of the spectra.
    limit = 1e-6 * truth + 2e-8 * length / np.sqrt(L) + 1e-14 * np.abs(E).max()
    # What overflows or is not a number is no match, unless the map says so as well.
    wrong[~masked] |= ~(off <= MAP_TOLERANCE) | (rmse_off > limit) | (np.isfinite(rmse[~masked]) & ~np.isfinite(truth))
    wrong[masked] |= (abundance[masked] != NODATA).any(axis=1)
    wrong[~masked] |= (found_a < 0).any(axis=1) if method is None else False
    shown = np.where(off > 0, off + blur, np.minimum(whole, blur))  # with what the steps explain
    verdict.worst_abundance = max(verdict.worst_abundance, float(shown.max(initial=0)))
    verdict.worst_rmse = max(verdict.worst_rmse, float((rmse_off / np.maximum(length, 1e-300)).max(initial=0)))
    if "residual" in maps:
        written = maps.line("residual", line)[:, places].T * report.get("weights", 1.0)
        size = (np.abs(Y[~masked]) + np.abs(best) @ np.abs(E).T)[:, :L]
        limit = 1e-6 * size.max(axis=1, initial=0, keepdims=True) + maps.blur("residual") * report.get("weights", 1.0)
        wrong[~masked] |= (np.abs(written[~masked] - residual) > limit).any(axis=1)
    if "certificate" in maps and SOLVERS[solver].exact:
        kappa = maps.line("certificate", line)[0, places]
        wrong[~masked] |= ~(kappa[~masked] <= CERTIFIED)
    verdict.accuse(maps.stem, line, places[wrong], "does not match the cube")
    return places[~masked][~dropped], best[~dropped]


def reference_of(
    Y: np.ndarray, E: np.ndarray, method: Method, solver: str, penalty: np.ndarray | None, shares: Normalization | None
) -> np.ndarray:
    """Return abundances by scipy; for fractions, of pixels brought to length 1 where that changes none: its tolerance is absolute."""
    if shares is None or method.sum_to_one or penalty is not None:
        return reference(Y, E, method, solver, penalty)
    lengths = np.linalg.norm(Y, axis=1, keepdims=True)
    return reference(Y / np.where(lengths > 0, lengths, 1.0), E, method, solver) * lengths


def written_of(maps: Maps, line: int, places: np.ndarray, p: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the abundances (n, p) that were written of some pixels of a line, and of which pixels these are all that are not 0."""
    values = maps.line("abundance", line)[:, places].T
    if "index" in maps:
        return dense(values, maps.line("index", line)[:, places].T.astype(int), p)
    return values, np.ones(len(values), bool)


def penalty_of(report: dict[str, Any], p: int) -> np.ndarray | None:
    """Return what abundances cost in a run, (p,), or None."""
    asked = report.get("asked", {}).get("l1")
    if asked is None:
        return None
    return float(report["l1"]["lambda"]) * np.array(np.ones(p) if asked["weights"] is None else asked["weights"])


def beyond(off: np.ndarray, blur: float) -> np.ndarray:
    """Return by how much differences exceed those of values that are stored in steps."""
    return np.maximum(np.abs(off) - blur, 0.0)


def as_good(
    Y: np.ndarray, E: np.ndarray, A: np.ndarray, best: np.ndarray, penalty: np.ndarray, blur: float = 0.0
) -> np.ndarray:
    """Return which abundances (n, p) cost no more than others: where a penalty is below rounding, it cannot choose between them.

    ``blur`` is by how much each abundance may be off: near the optimum that costs no more than its square.
    """
    costs = [0.5 * np.square(Y - some @ E.T).sum(axis=1) + some @ penalty for some in (A, best)]
    costs[1] += 0.5 * (blur * np.sqrt(np.square(E).sum(axis=0)).sum()) ** 2
    return np.asarray(costs[0] <= costs[1] + SAME_COST * np.square(Y).sum(axis=1)) & (A >= 0).all(axis=1)


def dense(values: np.ndarray, index: np.ndarray, p: int) -> tuple[np.ndarray, np.ndarray]:
    """Expand written maps, also top-K ones, to (n, p); also return which pixels are complete."""
    full = np.zeros((len(values), p + 1), values.dtype)
    np.put_along_axis(full, np.clip(index, 0, p), values, axis=1)
    in_order = (np.diff(values, axis=1) <= 0).all(axis=1) & ((index >= 0) & (index <= p)).all(axis=1)
    full[~in_order] = np.nan
    return full[:, 1:], values[:, -1] == 0


def is_answer(
    A: np.ndarray, complete: np.ndarray, Y: np.ndarray, E: np.ndarray, method: Method | None, rmse: np.ndarray, blur: float = 0.0
) -> np.ndarray:  # fmt: skip
    """Return which abundances (n, p), ``blur`` off at most, are feasible and, where all are known, leave the RMSE that was written."""
    if method is None:
        return np.ones(len(A), bool)
    limit = MAP_TOLERANCE * np.maximum(1, np.abs(A).sum(axis=1)) + blur * A.shape[1]
    good = np.isfinite(A).all(axis=1)
    good &= (A.min(axis=1) >= -limit) if method.nonnegative else True
    over = A.sum(axis=1) - 1
    good &= np.where(complete, np.abs(over), over) <= limit if method.sum_to_one else True
    left = np.sqrt(np.square(Y - A @ E.T).mean(axis=1))
    return good & (~complete | (np.abs(left - rmse) <= 1e-6 * left + limit * np.abs(E).max()))


def check_choices(
    models: ModelCheck, maps: Maps, report: dict[str, Any], scene: Cube, bands: Bands, line: int, places: np.ndarray,
    verdict: Verdict,
) -> None:  # fmt: skip
    """Choose the models of some pixels of a line again and compare."""
    wrong, worst = models.check(maps, report, scene, bands, line, places)
    verdict.pixels += len(places)
    verdict.worst_abundance = max(verdict.worst_abundance, worst)
    for fault in dict.fromkeys(wrong.values()):
        verdict.accuse(maps.stem, line, [place for place, what in wrong.items() if what == fault], fault)
