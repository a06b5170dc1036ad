"""`verify`: check every file of a finished run, a sample of its pixels, and some of its lines."""

import logging
import os
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import CubeError, MethodError, OutputError
from ...io import Cube, identity_of, is_older, open_plain, status_of
from ...io.placement import Placement
from ...library import load
from ...maps.raster import blank_of
from ...methods import choose
from ...outputs.atomic import Identity
from ...outputs.atomic import identity_of_status as status_identity
from ...outputs.digests import digest_within, image_digest_within, is_tree, record_digest, tree_digest
from ...outputs.json_text import finite
from ...runs.files.finished import FinishedRun
from ...runs.files.journal import difference_of_requests
from ...scene import open_pixels
from ...settings.maps import MAPS, ORTHO
from .again import compare_lines
from .conditions import check_pixels
from .verdict import Maps, Verdict

log = logging.getLogger("unmix")
# Lines of a placed map that are compared.
PLACED_LINES = 20


def verify(stem: str | Path, cube: str | Path | None = None, everything: bool = False, sample: int = 1000) -> Verdict:
    """Check a run's files against digests, pixels against the conditions of an optimum, and lines unmixed again."""
    # ``everything`` takes all pixels and lines; else ``sample`` pixels are drawn with a fixed seed, and lines with
    # about as many are unmixed again.
    run = FinishedRun.of(Path(stem), cube)
    try:
        with run.believing():
            return verify_run(run, everything, sample)
    except OSError as error:
        raise OutputError(f"{error.filename or run.stem}: cannot be read: {error.strerror or error}") from None
    except MethodError as error:  # of options that the record names, and nobody else
        raise OutputError(f"{run.stem}_run.json: {error}") from None


def verify_run(run: FinishedRun, everything: bool, sample: int) -> Verdict:
    """Verify a run whose record is read; see `verify`."""
    verdict, report = Verdict(), run.report
    is_by_models = report["method"] != "nmf" and choose(report["method"], report["solver"])[0].is_by_models
    check_digests(run.stem, report, verdict)
    if verdict.faults:
        return verdict
    path = run.input()
    scene = open_pixels(path, run.reading(path))
    check_input(run.stem, report, scene, verdict)
    if verdict.faults:
        return verdict
    library, maps = load(run.stem.with_name(f"{run.stem.name}_endmembers.csv")), Maps(run)
    if not np.array_equal(library.matrix, run.endmembers().matrix):
        verdict.faults.append(f"{run.stem}_endmembers: the CSV and the library differ")
    if "placed" in report and scene.placement is not None:
        check_placed(maps, scene.placement, scene.lines, scene.samples, verdict)
    if not is_by_models:
        check_pixels(maps, scene, library, None if everything else sample, verdict)
    if report["method"] != "nmf" and (everything or "spatial" not in report):
        compare_lines(maps, path, library, None if everything else sample, verdict)
    return verdict


def check_input(stem: Path, report: dict[str, Any], scene: Cube, verdict: Verdict) -> None:
    """Check that cube and mask are the run's or copies, by size and by the identity in the run's record."""
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
    """Check a run's record and files against the digests in the record; return the files' identities."""
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
        for name in (name for name in MAPS if maps.run.has(name + ORTHO)):
            placed = maps.line(name + ORTHO, int(line))
            wrong = (placed[~has_pixel] != blank_of(name)).any()
            for row in np.unique(y[has_pixel]):
                cells = has_pixel & (y == row)
                wrong |= not np.array_equal(placed[cells], maps.line(name, int(row))[x[cells]], equal_nan=True)
            if wrong:
                verdict.faults.append(
                    f"{maps.run.stem}: line {line} of {name}{ORTHO}: not what the lookup table makes of {name}"
                )
