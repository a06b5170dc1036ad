"""`verify`: solve pixels of a finished run again, by another method, and compare them with the run's maps."""

import logging
import os
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import CubeError, OutputError
from ...features.runs import in_runs, own_maps
from ...io import Cube
from ...io.folder import status_of
from ...io.identity import identity_of, is_older
from ...io.opening import open_plain
from ...io.placement import Placement
from ...io.window import Changed
from ...library import load
from ...maps.map_type import blank_of
from ...methods import choose
from ...outputs.digests import digest_within, image_digest_within, record_digest
from ...outputs.json_text import finite
from ...outputs.ours import Identity
from ...outputs.ours import identity_of as status_identity
from ...outputs.trees import is_tree, tree_digest
from ...runs.files.finished import FinishedRun
from ...runs.files.journal import difference
from ...scene import open_pixels
from ...settings.maps import MAPS, ORTHO
from .abundances import check_line
from .derived import check_classes, check_derived, check_masked
from .maps import Maps, Verdict
from .models import MOST_FITS, ModelCheck
from .neighbours import check_neighbours
from .recount import differs, recounted
from .simplex import fault_of_simplex
from .solved import SolvedScene

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
    elif changed := difference(before, finite(identity_of(scene)), "input "):
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
