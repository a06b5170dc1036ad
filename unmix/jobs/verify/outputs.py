"""`verify`: solve pixels of a finished run again, by another method, and compare them with the run's maps."""

import json
import logging
from collections.abc import Container
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import nnls

from ...certificate import CERTIFIED, MOST_DELTA
from ...errors import CubeError, OutputError
from ...io import Bands, Cube, bytes_per_line, missing, open_cube, spectra
from ...io.export import FORMATS, OutputFormat
from ...io.identity import identity_of, is_older
from ...io.placement import Placement
from ...io.window import Window
from ...library import Endmembers, load
from ...methods import MESMA, SOLVERS, Method, choose
from ...outputs.atomic import file_digest, finite, image_digest, record_digest
from ...outputs.journal import difference
from ...outputs.names import MAPS, ORTHO, SUFFIXES, blank_of
from ...scene import ReadOptions, open_part
from .deviations import wrong_deviations
from .draws import DrawCheck
from .models import MOST_FITS, ModelCheck
from .recount import differs, recounted

log = logging.getLogger("unmix")
# A written abundance is the float32 rounding (6e-8) of a solution within δ of the optimum, and so is the one found here.
TOLERANCE = 2e-6
NODATA = np.float32(-9999)
# How many lines of a placed map are compared.
PLACED_LINES = 20


@dataclass
class Verdict:
    """The result of `verify`.

    Attributes
    ----------
    by : str
        What solved the pixels again: scipy, or ``delete-only`` itself, which has no other reference; the optimum is not checked then.
    pixels : int
        How many were solved again and compared.
    worst_abundance, worst_rmse : float
        Largest differences, relative to max(1, a) and to the pixel's norm.
    faults : list of str
        One line each; empty where everything is right.
    """

    by: str = "scipy"
    pixels: int = 0
    worst_abundance: float = 0.0
    worst_rmse: float = 0.0
    faults: list[str] = field(default_factory=list)


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
    record = stem.with_name(stem.name + "_run.json")
    try:
        report = json.loads(record.read_text())
    except OSError as error:
        raise OutputError(f"{record}: no finished run: {error.strerror}; STEM begins its outputs' names") from None
    except ValueError as error:
        raise OutputError(f"{record}: is damaged: {error}") from None
    try:
        return verify_report(stem, report, cube, everything, sample)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, ArithmeticError, OSError) as error:
        raise OutputError(f"{record}: is damaged: {type(error).__name__}: {error}") from None


def stem_of_outputs(path: Path) -> Path:
    """Return the beginning of the outputs' names, where the user gave it, one of the outputs, or the cube beside them."""
    ends = [suffix for suffix in SUFFIXES if path.name.endswith(suffix) and path.name != suffix]
    candidates = [path, *(path.with_name(path.name.removesuffix(end)) for end in ends), path.with_suffix("")]
    finished = [stem for stem in candidates if stem.with_name(stem.name + "_run.json").exists()]
    likely = candidates[1] if ends or path.suffix.lower() in (".hdr", ".img") else path
    return (finished or [likely])[0]


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
    maps = Maps(stem, FORMATS[report["format"]], report["digests"])
    if method is not None and "fit" in report:
        for name, recorded, counted in recounted(
            report, maps.line, "index" in maps or method is MESMA, "certificate" in maps
        ):
            if differs(recorded, counted):
                verdict.faults.append(f"{stem}_run.json: {name}: is {recorded}, but the maps hold {counted}")
    scene, _ = open_part(cube or find_cube(stem, report), ReadOptions(**report["reading"]))
    if (scene.lines, scene.samples, scene.bands) != (lines, samples, report["bands"]):
        raise CubeError(f"{scene.path}: does not have the size of the run's input; name the right scene with `cube`")
    check_input(stem, report, scene, verdict)
    if scene.path.stat().st_size != report["input"]["bytes"]:
        verdict.faults.append(f"{scene.path}: has another size in bytes than when the run read it")
    bands = Bands(
        np.array(report["bands_used"]) - 1,
        np.broadcast_to(np.asarray(report["gain"], float), len(report["bands_used"])),
        np.broadcast_to(np.asarray(report["offset"], float), len(report["bands_used"])),
    )
    library = load(stem.with_name(stem.name + "_endmembers.csv"))
    E = library.matrix
    if not np.array_equal(E, load(stem.with_name(stem.name + "_endmembers.sli")).matrix):
        verdict.faults.append(f"{stem}_endmembers: the CSV and the library differ")
    models = ModelCheck(library, report) if method is MESMA else None
    draws = DrawCheck(library, report, method, everything) if method is not None and "montecarlo" in maps else None
    sample = sample if models is None else min(sample, max(1, MOST_FITS // models.count))
    chosen = np.arange(lines * samples)
    if not everything and sample < len(chosen):
        chosen = np.sort(np.random.Generator(np.random.PCG64(0)).choice(len(chosen), sample, replace=False))
    if "placed" in report and scene.placement is not None:
        check_placed(maps, scene.placement, lines, samples, verdict)
    for line in np.unique(chosen // samples):
        places = chosen[chosen // samples == line] % samples
        if "class" in maps and method is not None:
            check_classes(
                maps, len(dict.fromkeys(library.classes or ())) - method.has_shade, int(line), places, verdict
            )
        if models is not None:
            check_choices(models, maps, report, scene, bands, int(line), places, verdict)
            continue
        best = check_line(maps, report, scene, bands, E, method, solver, int(line), places, verdict)
        check_masked(maps, int(line), places, verdict)
        if method is not None and ("sigma" in maps or draws is not None):
            check_scatter(maps, report, scene, bands, library, method, draws, int(line), best, verdict)
        if "fraction" in maps and method is not None:
            check_fractions(maps, report, library, method, int(line), best, verdict)
    return verdict


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
    for path in (Path(report["input"]["path"]), stem.with_name(report["input"]["name"])):
        if path.exists():
            return path
    raise CubeError(f"{report['input']['path']}: the run's input is not there; name it with `cube`")


@dataclass
class Maps:
    """The maps of a run, in any format; each is opened when it is first read."""

    stem: Path
    form: OutputFormat
    names: Container[str]
    opened: dict[str, Cube] = field(default_factory=dict)
    held: dict[str, tuple[int, np.ndarray]] = field(default_factory=dict)

    def line(self, name: str, line: int) -> np.ndarray:
        """Return one line of a map, float32 (bands, samples)."""
        if name not in self.opened:
            path = self.stem.with_name(f"{self.stem.name}_{name}{self.form.endings[0]}")
            self.opened[name] = open_cube(path, self.form.dataset and self.form.dataset.format(name))
        cube = self.opened[name]
        # A whole chunk is kept: to read one of its lines, all of it is inflated.
        together = min(cube.lines_together, cube.lines)
        first = line // together * together
        if self.held.get(name, (-1, None))[0] != first:
            last = min(first + together, cube.lines)
            self.held[name] = first, cube.read(slice(first, last), np.empty(together * bytes_per_line(cube), np.uint8))
        raw = self.held[name][1]
        return raw[:, line - first] if cube.interleave == "bsq" else raw[line - first]

    def __contains__(self, name: str) -> bool:
        return f"{self.stem.name}_{name}{self.form.endings[0]}" in self.names


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
) -> tuple[np.ndarray, np.ndarray]:
    """Solve some pixels of a line again and compare; see `verify`.

    Return the places that are not masked, and the abundances (n, p) there.
    """
    L = len(E)
    raw = scene.read(slice(line, line + 1), np.empty(bytes_per_line(scene), np.uint8))
    masked = missing(raw, scene.interleave, bands, report["nodata"])[places]
    Y = spectra(raw, scene.interleave, bands)[places]
    abundance = maps.line("abundance", line)[:, places].T
    rmse = maps.line("rmse", line)[0, places]
    wrong = masked != (rmse == NODATA)
    verdict.pixels += len(places)
    best = abundance[~masked].astype(float) if method is None else reference(Y[~masked], E, method, solver)
    residual = Y[~masked] - best @ E.T
    length = np.sqrt(np.square(Y[~masked]).sum(axis=1))
    truth = np.sqrt(np.square(residual).mean(axis=1))
    found_a, best_a = abundance[~masked], best
    if "index" in maps:  # only the largest were written
        index = maps.line("index", line)[:, places].T[~masked].astype(int)
        best_at_index = np.take_along_axis(best, np.maximum(index - 1, 0), axis=1)
        best_a = -np.sort(-best, axis=1)[:, : found_a.shape[1]]
        elsewhere = np.abs(np.where(index > 0, best_at_index, 0) - found_a) / np.maximum(1, np.abs(found_a))
    off = (np.abs(found_a - best_a) / np.maximum(1, np.abs(best_a))).max(axis=1, initial=0)
    off = off if "index" not in maps else np.maximum(off, elsewhere.max(axis=1, initial=0))
    rmse_off = np.abs(rmse[~masked] - truth)
    unclear = has_others(Y[~masked], E, method, solver, off > TOLERANCE)
    off[unclear] = 0.0
    wrong[~masked] |= (off > TOLERANCE) | (rmse_off > 1e-6 * truth + 2e-8 * length / np.sqrt(L))
    wrong[masked] |= (abundance[masked] != NODATA).any(axis=1)
    wrong[~masked] |= (found_a < 0).any(axis=1) if method is None else False
    verdict.worst_abundance = max(verdict.worst_abundance, float(off.max(initial=0)))
    verdict.worst_rmse = max(verdict.worst_rmse, float((rmse_off / np.maximum(length, 1e-300)).max(initial=0)))
    if "residual" in maps:
        written = maps.line("residual", line)[:, places].T
        size = np.abs(Y[~masked]) + np.abs(best) @ np.abs(E).T
        limit = 1e-6 * size.max(axis=1, initial=0, keepdims=True)
        wrong[~masked] |= (np.abs(written[~masked] - residual) > limit).any(axis=1)
    if "certificate" in maps and SOLVERS[solver].exact:
        kappa = maps.line("certificate", line)[0, places]
        wrong[~masked] |= ~(kappa[~masked] <= CERTIFIED)
    for place in places[wrong]:
        if len(verdict.faults) < 100:
            verdict.faults.append(f"{maps.stem}: line {line}, sample {place}: does not match the cube")
    return places[~masked][~unclear], best[~unclear]


def has_others(Y: np.ndarray, E: np.ndarray, method: Method | None, solver: str, doubtful: np.ndarray) -> np.ndarray:
    """Return which of the doubtful pixels have other abundances that fit as well, so that these cannot be compared; bool (n,)."""
    unclear = np.zeros(len(Y), bool)
    if doubtful.any() and method is not None and SOLVERS[solver].exact:
        from ...arrays.pixels import solve

        name = "fcls" if method.has_shade else method.name  # shade is one of the endmembers that the run wrote
        unclear[doubtful] = ~(solve(Y[doubtful], E, method=name).delta <= MOST_DELTA)
    return unclear


def check_choices(
    models: ModelCheck, maps: Maps, report: dict[str, Any], scene: Cube, bands: Bands, line: int, places: np.ndarray,
    verdict: Verdict,
) -> None:  # fmt: skip
    """Choose the models of some pixels of a line again and compare."""
    wrong, worst = models.check(maps, report, scene, bands, line, places)
    verdict.pixels += len(places)
    verdict.worst_abundance = max(verdict.worst_abundance, worst)
    for place in wrong[: 100 - len(verdict.faults)]:
        verdict.faults.append(f"{maps.stem}: line {line}, sample {place}: is not the best model")


def check_scatter(
    maps: Maps, report: dict[str, Any], scene: Cube, bands: Bands, library: Endmembers, method: Method, draws: DrawCheck | None,
    line: int, solved: tuple[np.ndarray, np.ndarray], verdict: Verdict,
) -> None:  # fmt: skip
    """Compute standard deviations, and those over draws, of some pixels of a line again and compare."""
    places, best = solved
    raw = scene.read(slice(line, line + 1), np.empty(bytes_per_line(scene), np.uint8))
    Y = spectra(raw, scene.interleave, bands)[places]
    wrong = {}
    if "sigma" in maps:
        written = maps.line("sigma", line)[:, places]
        wrong["standard deviations"] = wrong_deviations(written, library, report, method, best, Y)
    if draws is not None:
        origin = scene.origin if isinstance(scene, Window) else (0, 0)
        wrong["means and deviations over draws"] = draws.wrong(
            maps.line("montecarlo", line)[:, places], best, Y, np.full(len(places), origin[0] + line), origin[1] + places,
            lambda drawn, E: reference(drawn, E, method, report["solver"]),
        )  # fmt: skip
    for what, which in wrong.items():
        for place in places[which]:
            if len(verdict.faults) < 100:
                verdict.faults.append(f"{maps.stem}: line {line}, sample {place}: its {what} do not match the cube")


def check_masked(maps: Maps, line: int, places: np.ndarray, verdict: Verdict) -> None:
    """Check that those pixels of a line that are masked have no values in the maps made of abundances."""
    places = places[maps.line("rmse", line)[0, places] == NODATA]
    for name in ("fraction", "sigma", "montecarlo", "class"):
        if name in maps:
            wrong = (maps.line(name, line)[:, places] != blank_of(name)).any(axis=0)
            verdict.faults += [
                f"{maps.stem}: line {line}, sample {place}: is masked, but has a {name}" for place in places[wrong][:10]
            ]


def check_classes(maps: Maps, count: int, line: int, places: np.ndarray, verdict: Verdict) -> None:
    """Compare the class of some pixels of a line with the sums by class, of which there are ``count``."""
    sums = maps.line("fraction", line)[:count, places].astype(float)
    chosen, most = maps.line("class", line)[0, places].astype(int), sums.max(axis=0)
    of_chosen = np.take_along_axis(sums, np.clip(chosen - 1, 0, count - 1)[None], axis=0)[0]
    wrong = np.where(chosen > 0, of_chosen < most - TOLERANCE * np.maximum(1, np.abs(most)), most > TOLERANCE)
    for place in places[wrong | (chosen > count)]:
        if len(verdict.faults) < 100:
            verdict.faults.append(f"{maps.stem}: line {line}, sample {place}: its class has not the largest sum")


def check_fractions(
    maps: Maps, report: dict[str, Any], library: Endmembers, method: Method, line: int, solved: tuple[np.ndarray, np.ndarray],
    verdict: Verdict,
) -> None:  # fmt: skip
    """Sum the abundances of some pixels by class again and compare."""
    places, best = solved
    materials = best[:, : best.shape[1] - method.has_shade]
    kinds = (library.classes or ())[: materials.shape[1]]
    sums = np.stack([materials[:, [kind == name for kind in kinds]].sum(axis=1) for name in dict.fromkeys(kinds)])
    brightness = materials.sum(axis=1)
    lit = brightness > 1e-4  # where it is smaller, its quotients are not known to the tolerance
    written = maps.line("fraction", line)[:, places]
    expected = sums / np.where(lit, brightness, 1) if report["asked"]["shade_normalize"] else sums
    rest = [1 - brightness] * method.has_shade + [brightness]
    expected = np.vstack([expected, *rest])
    compared = np.ones_like(expected, bool)
    compared[: len(sums)] = lit | (not report["asked"]["shade_normalize"])
    tolerance = np.where(lit, TOLERANCE / np.minimum(np.where(lit, brightness, 1), 1), TOLERANCE) * len(kinds)
    off = np.abs(written - expected) > tolerance * np.maximum(1, np.abs(expected))
    for place in places[(off & compared).any(axis=0)]:
        if len(verdict.faults) < 100:
            verdict.faults.append(f"{maps.stem}: line {line}, sample {place}: its sums by class do not match the cube")


def reference(Y: np.ndarray, E: np.ndarray, method: Method, solver: str) -> np.ndarray:
    """Return abundances (N, p) by scipy, not by our solvers; a solver that is not exact has no reference but itself."""
    if not SOLVERS[solver].exact:
        from ...arrays.pixels import solve

        return solve(Y, E, method=method.name, solver=solver).abundances
    return np.array([REFERENCES[method.name](E, y) for y in Y]).reshape(len(Y), E.shape[1])


def reference_scls(E: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Solve SCLS by elimination: the last abundance is 1 minus the sum of the others."""
    if E.shape[1] == 1:
        return np.ones(1)
    rest = np.linalg.lstsq(E[:, :-1] - E[:, -1:], y - E[:, -1], rcond=None)[0]
    return np.append(rest, 1 - rest.sum())


def reference_fcls(E: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Solve FCLS exactly by one NNLS: find the point of the hull of ``e_j − y`` nearest to 0.

    ``min |D u|² + c²(1 − Σu)²`` over u ≥ 0 with ``D = E − y1ᵀ`` has its minimum at a multiple of the FCLS solution,
    whatever c (Lawson and Hanson 1974, chapter 23); then SCLS on the support refines it.
    """
    if E.shape[1] == 1:
        return np.ones(1)
    D = E - y[:, None]
    c = np.abs(D).max()
    if c == 0:  # all endmembers are the pixel
        c = 1.0
    u = nnls(np.vstack([D, np.full(E.shape[1], c)]), np.append(np.zeros(len(y)), c), maxiter=100 * E.shape[1])[0]
    support = np.flatnonzero(u > 1e-12 * u.max())
    a = np.zeros(E.shape[1])
    a[support] = reference_scls(E[:, support], y) if len(support) > 1 else 1.0
    return a if a.min() >= 0 else u / u.sum()


REFERENCES = {
    "ucls": lambda E, y: np.linalg.lstsq(E, y, rcond=None)[0],
    "scls": reference_scls,
    "nnls": lambda E, y: nnls(E, y, maxiter=100 * E.shape[1])[0],
    "fcls": reference_fcls,
    "pcls": reference_fcls,  # shade is one of the endmembers that the run wrote
}
