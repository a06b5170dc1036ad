"""`verify`: solve pixels of a finished run again, by another method, and compare them with the run's maps.

Recount from a run's maps the numbers of pixels in its record.

Verify the abundances of a run with a spatial prior (`tv`, `laplacian`): whether they are the optimum of the whole scene.
"""

import logging
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ...arrays.spatial.passes import PROVEN, SMALLEST_COST, Field, prior_of, search
from ...certificate import CERTIFIED
from ...errors import CubeError, OutputError
from ...features.runs import in_runs, own_maps, searches
from ...io import NODATA, Changed, Cube, Placement, identity_of, is_older, open_plain, status_of
from ...library import load
from ...maps.raster import blank_of
from ...methods import choose
from ...outputs.atomic import Identity
from ...outputs.atomic import identity_of_status as status_identity
from ...outputs.digests import digest_within, image_digest_within, is_tree, record_digest, tree_digest
from ...outputs.json_text import finite
from ...reference.neighbours import cost_of_field, least_cost, price, refund
from ...runs.files.finished import FinishedRun
from ...runs.files.journal import difference_of_requests
from ...runs.penalties.neighbours import Neighbours, fill
from ...runs.penalties.search_file import SearchFile
from ...scene import open_pixels
from ...settings.maps import MAPS, ORTHO
from ...summary import THERE
from .derived import MOST_FITS, ModelCheck, check_classes, check_derived, check_masked
from .maps import Maps, Verdict
from .simplex import fault_of_simplex
from .solved import SolvedScene, check_line

# Relative difference of two correct numbers: float32 sums are taken in another order, and maps hold float32 of the record's float64.
RECOUNT_TOLERANCE = 1e-5


def recounted(report: dict[str, Any], maps: Maps, top: bool, certificate: bool) -> Iterator[tuple[str, Any, Any]]:
    """Yield each number of the record that the maps determine: its name, the recorded value and the one counted in the maps.

    Parameters
    ----------
    report : dict
        The record.
    maps : Maps
    top : bool
        Whether only the largest abundances were written, so that those of each endmember cannot be counted.
    certificate : bool
        Whether κ and δ were written.
    """
    pixels, lines = report["pixels"], int(report["lines"])
    solved, largest, total = 0, 0.0, 0.0
    p = len(report["endmembers"]["names"])
    counts = np.zeros(p + 1, int)
    sums, maxima, present = np.zeros(p), np.full(p, -np.inf), np.zeros((3, p), int)
    blur, line_of = maps.blur("abundance"), maps.line
    kappas, deltas = [], []
    for line in range(lines):
        rmse = line_of("rmse", line)[0]
        is_solved = rmse != NODATA
        solved += int(is_solved.sum())
        largest = max(largest, float(rmse[is_solved].max(initial=0)))
        total += float(rmse[is_solved].sum(dtype=float))
        if not top:
            a = line_of("abundance", line)[:, is_solved].astype(float)
            sums += a.sum(axis=1)
            counts += np.bincount((a > 0).sum(axis=0), minlength=p + 1)
            maxima = np.maximum(maxima, a.max(axis=1, initial=-np.inf))
            present += [(a > THERE + off).sum(axis=1) for off in (0.0, blur, -blur)]
        if certificate:
            certificates = line_of("certificate", line)[:, is_solved]
            kappas.append(certificates[0])
            deltas.append(certificates[1])
    yield "pixels solved", pixels["solved"], solved
    yield "pixels masked", pixels["masked"] + pixels["partly_nodata"], pixels["all"] - solved
    if "spatial" not in report:  # whose pixels are proved together
        proofs = sum(pixels[key] for key in ("certified", "fit_certified", "failed"))
        yield "pixels certified, fit certified and failed", proofs, solved
        yield "certified", report["certified"], pixels["failed"] == 0
    yield "maximum_rmse", report["fit"]["maximum_rmse"], largest
    if "mean_rmse" in report["fit"]:  # runs of older versions have none
        yield "mean_rmse", report["fit"]["mean_rmse"], total / max(1, solved)
    yield "relative_rmse_histogram", sum(report["fit"]["relative_rmse_histogram"]["counts"]) <= solved, True
    for name, own in searches().items() if not top and not blur else ():
        if name in report.get("asked", {}):
            yield from own.recounted(report[name], counts)
    if "kappa_histogram" in report:  # runs of older versions have none
        yield "kappa_histogram", sum(report["kappa_histogram"]["counts"]), solved
    for j, recorded in enumerate(report["abundances"] if not top and solved else ()):
        name = f"abundances of {recorded['name']}: "
        shares = present[:, j] / solved
        yield name + "mean", recorded["mean"], nearest_pixel(recorded["mean"], sums[j] / solved, blur)
        yield name + "maximum", recorded["maximum"], nearest_pixel(recorded["maximum"], maxima[j], blur)
        share = recorded["share_above_1_percent"]
        yield name + "share_above_1_percent", share, share if shares[1] <= share <= shares[2] else shares[0]
    if certificate:
        kappa, delta = np.concatenate(kappas), np.concatenate(deltas)
        yield "worst_kappa", report["worst_kappa"], float(kappa.max(initial=0))
        yield "worst_delta", report["worst_delta"], float(delta.max(initial=0))
        # A pixel at the limit may be on either side of it in float32.
        for edge in (1 - RECOUNT_TOLERANCE, 1 + RECOUNT_TOLERANCE):
            kappa_small = kappa <= CERTIFIED * edge
            both_small = kappa_small & (delta <= report["max_delta"] * edge)
            low = edge < 1
            failed, certified = int((~kappa_small).sum()), int(both_small.sum())
            yield "pixels failed", (min if low else max)(pixels["failed"], failed), failed if low else pixels["failed"]
            yield "pixels certified", (max if low else min)(pixels["certified"], certified), pixels["certified"]


def nearest_pixel(said: Any, found: float, blur: float) -> float:
    """Clip the recorded number to the counted one ± ``blur``; the counted one where there is no blur."""
    return float(np.clip(said, found - blur, found + blur)) if blur and said is not None else found


def differs(said: Any, found: Any) -> bool:
    """Return whether a recorded and a counted number differ by more than rounding; None is recorded for one that is not finite."""
    if said is None:
        return bool(np.isfinite(found))
    if isinstance(said, bool | int):
        return bool(said != found)
    return not abs(float(said) - found) <= RECOUNT_TOLERANCE * max(abs(found), 1e-30)


# The largest duality gap of the maps, relative to the cost: three times that of a run, for the rounding of maps to float32.
LARGEST_GAP = 3 * PROVEN
# The largest relative difference of the cost from the recorded one.
LARGEST_DIFFERENCE = 1e-6
MEMORY = 2**28


def check_neighbours(maps: Maps, solved: SolvedScene, everything: bool, verdict: Verdict) -> None:
    """Check the cost of all abundances that were written and, with ``everything``, how far it may be above the optimum.

    The cost is computed from the maps and the cube alone, and so is the bound below which no abundances come: for duals that a search
    of the cube finds anew, and that prove what they prove wherever they are from.
    """
    about = solved.report["spatial"]
    prior = prior_of(**{about["prior"]: about["lambda"]})
    E, cube = solved.library.matrix, solved.cube
    shape = cube.lines, cube.samples, E.shape[1], E.shape[1] - solved.has_shade
    penalty = 0.0 if solved.penalty is None else solved.penalty
    with tempfile.TemporaryDirectory() as folder:
        values = SearchFile(Path(folder) / "search", b"", shape).make().field
        guided = about["edges"] == "guided"
        fill(values, solved.scene, E, penalty, MEMORY, guided)
        Neighbours(prior.kind, prior.weight, guided).connect(values, prior)
        total = cost_of_abundances(maps, solved, values, penalty, prior.smooth)
        size = max(total, SMALLEST_COST * values.half_squares)
        if abs(total - about["objective"]) > LARGEST_DIFFERENCE * size:
            verdict.faults.append(
                f"{maps.stem}_abundance: the cost of the abundances is {total:.9g}, not {about['objective']:.9g}"
            )
            return
        verdict.together = "the cost of all abundances together is that of the record"
        if not everything:
            return
        assert solved.method is not None
        sums = solved.method.constraint.sum_to_one
        search(values, E, prior, sums, proven=PROVEN / 2, budget=MEMORY)
        bound = bound_of(solved, values, penalty, prior.smooth, sums)
    gap = (total - bound) / size if size > 0 else 0.0
    verdict.together += f", and at most {gap:.1e} of it above the optimum"
    if not gap <= LARGEST_GAP:
        verdict.faults.append(
            f"{maps.stem}_abundance: the abundances are no optimum: their cost may be {gap:.1e} of it too large (`{prior.kind}`)"
        )


def cost_of_abundances(
    maps: Maps, solved: SolvedScene, values: Field, penalty: np.ndarray | float, smooth: bool
) -> float:
    """Return the cost of the abundances that were written."""
    E, q, total, above = solved.library.matrix, values.arrays["W"].shape[1], 0.0, None
    across, down = values.arrays["across"], values.arrays["down"]
    for line in range(solved.cube.lines):
        Y, masked = solved.pixels(line)
        A = np.where(masked[:, None], 0.0, maps.line("abundance", line).T.astype(float))
        total += cost_of_field(Y[~masked], E, A[~masked], penalty)
        total += price(A[:-1, :q], A[1:, :q], across[line, :-1], smooth)
        if above is not None:
            total += price(above[:, :q], A[:, :q], down[line - 1], smooth)
        above = A
    return total


def bound_of(solved: SolvedScene, values: Field, penalty: np.ndarray | float, smooth: bool, sum_to_one: bool) -> float:
    """Return what the cost of no abundances is below, by the duals of the field."""
    E, arrays, total = solved.library.matrix, values.arrays, 0.0
    for line in range(solved.cube.lines):
        Y, masked = solved.pixels(line)
        W, U = arrays["W"][line], arrays["U"][line]
        charges = np.zeros((len(Y), E.shape[1]))
        q = len(W)
        charges[:, :q] -= (W + U).T
        charges[1:, :q] += W[:, :-1].T
        if line > 0:
            charges[:, :q] += arrays["U"][line - 1].T
        X = arrays["x"][line].T
        total += least_cost(Y[~masked], E, X[~masked], (charges + penalty)[~masked], sum_to_one)
        total -= refund(W.T, arrays["across"][line], smooth) + refund(U.T, arrays["down"][line], smooth)
    return total


log = logging.getLogger("unmix")
# Lines of a placed map that are compared.
PLACED_LINES = 20


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
    run = FinishedRun.of(Path(stem), cube)
    try:
        with run.believing():
            return verify_run(run, everything, sample)
    except OSError as error:
        raise OutputError(f"{error.filename or run.stem}: cannot be read: {error.strerror or error}") from None


def verify_run(run: FinishedRun, everything: bool, sample: int) -> Verdict:
    """Verify a run whose record is read; see `verify`."""
    stem, report = run.stem, run.report
    if report["method"] == "nmf":  # nothing can be solved again: only whether the maps agree with each other is checked
        method, solver, verdict = None, "nmf", Verdict(by="their own model, as nmf has no other reference")
    else:
        method, solver_spec = choose(report["method"], report["solver"])
        solver = solver_spec.name
        verdict = Verdict(by="scipy" if solver_spec.exact else f"{solver} itself, which is not the optimum")
        verdict.by = "fitting all models" if method.is_by_models else verdict.by
    check_digests(stem, report, verdict)
    if verdict.faults:
        return verdict
    is_by_models = method is not None and method.is_by_models
    maps = Maps(run)
    blur = maps.blur("fraction" if is_by_models else "abundance")
    if blur:
        verdict.rounding = f"half a step: {blur:g}"
    if method is not None and "fit" in report:
        counts = recounted(report, maps, "index" in maps or is_by_models, "certificate" in maps)
        for name, recorded, counted in counts:
            if differs(recorded, counted):
                verdict.faults.append(f"{stem}_run.json: {name}: is {recorded}, but the maps hold {counted}")
    path = run.input()
    scene = open_pixels(path, run.reading(path))
    check_input(stem, report, scene, verdict)
    solved = SolvedScene(run, scene, method, solver)
    check_endmembers(stem, solved, everything, verdict)
    solved.prepare()
    for feature in (one for name, one in in_runs().items() if name in report):
        faults, found = feature.check(solved, everything)
        verdict.faults += faults
        verdict.found += [found] if found else []
    if "spatial" in report:
        check_neighbours(maps, solved, everything, verdict)
    check_pixels(maps, solved, everything, sample, verdict)
    return verdict


def check_endmembers(stem: Path, solved: SolvedScene, everything: bool, verdict: Verdict) -> None:
    """Check that both files of endmembers hold the same, and with ``everything`` that extracted ones are what the record says."""
    matrix = solved.library.matrix
    if not np.array_equal(matrix, load(stem.with_name(stem.name + "_endmembers.sli")).matrix):
        verdict.faults.append(f"{stem}_endmembers: the CSV and the library differ")
    if everything and solved.report.get("endmembers", {}).get("simplex") is not None:
        extracted = np.ascontiguousarray(matrix[:, : matrix.shape[1] - solved.has_shade])  # shade is no pixel
        if isinstance(solved.cube, Changed):
            extracted = solved.cube.change(extracted)
        fault = fault_of_simplex(solved.report, solved.scene, extracted)
        verdict.faults += [] if fault is None else [f"{stem}_endmembers: {fault}"]


def check_pixels(maps: Maps, solved: SolvedScene, everything: bool, sample: int, verdict: Verdict) -> None:
    """Solve all pixels, or a sample of them, again and compare with the maps."""
    lines, samples, method = solved.cube.lines, solved.cube.samples, solved.method
    models = ModelCheck(solved, everything, maps) if solved.is_by_models else None
    sample = sample if models is None else min(sample, max(1, MOST_FITS // models.models.count))
    chosen = np.arange(lines * samples)
    if not everything and sample < len(chosen):
        chosen = np.sort(np.random.Generator(np.random.PCG64(0)).choice(len(chosen), sample, replace=False))
    given = own_maps() if method is not None and models is None else {}
    own = {name: one.check(solved, everything, len(chosen)) for name, one in given.items() if name in maps}
    if "placed" in solved.report and solved.cube.placement is not None:
        check_placed(maps, solved.cube.placement, lines, samples, verdict)
    for line in map(int, np.unique(chosen // samples)):
        places = chosen[chosen // samples == line] % samples
        check_masked(maps, line, places, verdict)
        if "class" in maps and method is not None:
            check_classes(maps, len(solved.classes.names), line, places, verdict)
        if models is not None:
            models.check(maps, line, places, verdict)
        else:
            known = check_line(maps, solved, line, places, verdict)
            check_derived(maps, solved, own, line, *known, verdict)


def check_input(stem: Path, report: dict[str, Any], scene: Cube, verdict: Verdict) -> None:
    """Check that the cube and its mask are those that the run read, or copies, by size and by the identity in its record."""
    if (scene.lines, scene.samples, scene.bands) != (int(report["lines"]), int(report["samples"]), report["bands"]):
        raise CubeError(f"{scene.path}: does not have the size of the run's input; name the right scene with `cube`")
    before = report.get("identity") or {"data": {"modified": None}}
    if is_older(before):
        log.warning(
            f"{stem}_run.json: is of an older unmix; whether {scene.path} is the input that it read cannot be checked"
        )
    elif changed := difference_of_requests(before, finite(identity_of(scene)), "input "):
        verdict.faults.append(f"{scene.path}: is not what the run read: {', '.join(changed[:4])} differ")
    if status_of(scene.path).size != report["input"]["bytes"]:
        verdict.faults.append(f"{scene.path}: has another size in bytes than when the run read it")


def check_digests(stem: Path, report: dict[str, Any], verdict: Verdict) -> dict[str, Identity]:
    """Check the record, and every file that the run wrote, against the digests in the record; return how the files are known."""
    known = {}
    if "digest" in report and report["digest"] != record_digest(report):
        verdict.faults.append(f"{stem}_run.json: is not what the run wrote")
    for name, digest in report["digests"].items():
        path = stem.with_name(name)
        lines = report["placed"]["lines"] if name.endswith(f"{ORTHO}.img") else report["lines"]
        try:
            now, known[name] = digested(path, int(lines) if name.endswith(".img") else None)
        except OSError as error:
            verdict.faults.append(f"{path}: {error.strerror if os.path.lexists(path) else 'is missing'}")
            continue
        if now != digest:
            verdict.faults.append(f"{path}: is not what the run wrote (digest {now[:12]}, not {digest[:12]})")
    return known


def digested(path: Path, lines: int | None) -> tuple[str, Identity]:
    """Return the digest of an output, by ``lines`` where it is an image, and how it is known."""
    if is_tree(path):
        return tree_digest(path), status_identity(os.lstat(path))
    with open_plain(path) as file:
        digest = digest_within(file) if lines is None else image_digest_within(file, lines)
        return digest, status_identity(os.fstat(file.fileno()))


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
