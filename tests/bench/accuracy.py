"""Fractions against the truth.

``python tests/bench/accuracy.py [chosen | table | noise | score FOLDER KIND | pictures FOLDER] [DATA]``

The referee. For each scene of `families.py`, given the number of materials alone, the mean over materials of the RMSE
of their fractions, beside five rivals, which are here whatever the program keeps, and the floor that the true spectra
leave. Materials are matched with the truth by angle. Fractions are shares of spectra at unit length, and of the area
where brightness and spectra do not vary; there a rival is counted if it is fcls, elsewhere if it is nnls. "Counted" is
a run that is not given the number: endmembers that are too many are added to the nearest material, those that are
missing have fractions of 0.

`chosen` takes scenes like those on which the constants of `unmix.endmembers.auto` and `.plane` were chosen; `table`,
the default, others, drawn after that, and public scenes in DATA; `noise`, public scenes with white noise of 20, 30 and
40 dB. `score` prints the errors of maps of any program: of each public scene NAME whose FOLDER/NAME_abundance.hdr and
FOLDER/NAME_endmembers.csv are there, beside the floor that the true spectra leave with fractions of that KIND (area,
length, max or sum). `pictures` draws Samson, Jasper Ridge and sim1 to FOLDER: the truth, fcls of `vca`, and a run
without a method.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import families
import numpy as np
from common import matched, say, stored
from conftest import write_cube

import unmix
from unmix.library import load

DATA = Path(__file__).parents[3] / "shared/data"
# Families with the number of scenes of a table.
FAMILIES: dict[str, tuple[Callable[..., families.Known], int]] = {
    "soft": (families.soft, 32),
    "patches": (families.patches, 24),
    "flat": (families.flat, 24),
    "mixed": (families.mixed, 42),
    "level": (partial(families.mixed, level=True), 21),
}
FIRST = {"chosen": 0, "table": 5000}


def by_fcls(Y: np.ndarray, E: np.ndarray) -> np.ndarray:
    """Return fractions (n, p) that sum to one, of pixels as bright as they are."""
    return unmix.solve(Y, E, method="fcls").abundances


def by_length(Y: np.ndarray, E: np.ndarray) -> np.ndarray:
    """Return fractions (n, p) of nnls on spectra of unit length, over their sum: they do not depend on brightness."""
    return unmix.solve(Y, E, method="nnls", normalize="length").abundances


def by_norm(norm: str) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """Return the function that makes fractions by nnls with a norm of spectra."""
    return lambda Y, E: unmix.solve(Y, E, method="nnls", normalize=norm).abundances


# Kinds of fractions.
KINDS = {"area": by_fcls, "length": by_length, "max": by_norm("max"), "sum": by_norm("sum")}


# What a way to unmix makes of pixels (n, L), their scene and the number of materials: spectra (L, p) and fractions (n,
# p).
Way = Callable[[np.ndarray, Path, int], tuple[np.ndarray, np.ndarray]]


def extracted(name: str, fractions: Callable[[np.ndarray, np.ndarray], np.ndarray], smooth: int = 0) -> Way:
    """Return the way that extracts by this name; ``smooth`` is at most a p-th of the pixels."""

    def way(Y: np.ndarray, path: Path, p: int) -> tuple[np.ndarray, np.ndarray]:
        how = {"smooth": min(smooth, len(Y) // p)} if smooth else {}
        E = unmix.extract(path, count=p, extract=name, **how).matrix
        return E, fractions(Y, E)

    return way


def near_means(Y: np.ndarray, path: Path, p: int) -> tuple[np.ndarray, np.ndarray]:
    """Return N-FINDR's pixels, then four times over the mean direction of the pixels with a fraction of 0.8 and more."""
    E = unmix.extract(path, count=p, extract="nfindr").matrix
    units = Y / np.maximum(np.linalg.norm(Y, axis=1, keepdims=True), 1e-300)
    for _ in range(4):
        near = by_length(Y, E) >= 0.8
        E = np.stack([units[some].mean(axis=0) if some.any() else e for some, e in zip(near.T, E.T)], axis=1)
    return E, by_length(Y, E)


def as_users_run(Y: np.ndarray, path: Path, p: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Return what a run without a method writes."""
    out = path.parent / "out"
    unmix.run(path, count="auto" if p is None else p, out_dir=out, overwrite=True, browse=False, device="cpu")
    fractions = stored(out / f"{path.stem}_abundance.hdr").reshape(len(Y), -1)
    return load(out / f"{path.stem}_endmembers.csv").matrix, fractions


# The rivals, and whether each gives areas.
RIVALS: dict[str, tuple[Way, bool]] = {
    "`vca` + nnls, by length": (extracted("vca", by_length), False),
    "`nfindr` + four means, nnls by length": (near_means, False),
    "`cone` + nnls, by length": (extracted("cone", by_length), False),
    "`nfindr --smooth 100` + fcls": (extracted("nfindr", by_fcls, 100), True),
    "`sisal` + fcls": (extracted("sisal", by_fcls), True),
}
OWN, COUNTED, FLOOR = "**a run without a method**", "the same, counted", "the true spectra"


def error(E: np.ndarray, fractions: np.ndarray, scene: families.Known) -> float:
    """Return the mean over materials of the RMSE of fractions (n, q) of spectra E (L, q), matched with the truth by angle."""
    rows, columns, angles = matched(E, scene.spectra)
    found = np.zeros((len(fractions), scene.spectra.shape[1]))
    found[:, rows] = fractions[:, columns]
    for k in set(range(E.shape[1])) - set(columns.tolist()):
        found[:, int(angles[:, k].argmin())] += fractions[:, k]
    return float(np.sqrt(np.square(found - scene.fractions.reshape(found.shape)).mean(axis=0)).mean())


def scene_of(family: str, seed: int) -> families.Known:
    """Return a scene of a family and a seed, or of the public ones and a number."""
    if family == "noise":
        return list(families.noisier(DATA))[seed]
    return list(families.real(DATA))[seed] if family == "real" else FAMILIES[family][0](seed, DATA)


def judged(which: tuple[str, int]) -> dict[str, Any]:
    """Return the errors of all ways on one scene."""
    scene = scene_of(*which)
    Y, p = scene.cube.reshape(-1, scene.cube.shape[2]), scene.spectra.shape[1]
    with tempfile.TemporaryDirectory() as folder:
        path = write_cube(Path(folder) / "scene.hdr", scene.cube)
        errors = {title: error(*way(Y, path, p), scene) for title, (way, _) in RIVALS.items()}
        errors[OWN] = error(*as_users_run(Y, path, p), scene)
        E, fractions = as_users_run(Y, path, None)
    errors[COUNTED] = error(E, fractions, scene)
    truth = by_fcls(Y, scene.spectra) if scene.of_areas else by_length(Y, scene.spectra)
    errors[FLOOR] = error(scene.spectra, truth, scene)
    best = min(errors[title] for title, (_, of_areas) in RIVALS.items() if of_areas == scene.of_areas)
    return {
        "kind": scene.kind,
        "name": scene.name,
        "errors": errors,
        "ratio": errors[OWN] / best,
        "p": p,
        "counted": E.shape[1],
    }


def scenes_of(which: str) -> Iterator[tuple[str, int]]:
    """Yield the family and the number of each scene: those that constants were chosen on, or others and the public ones."""
    if which == "noise":
        yield from (("noise", k) for k in range(12))
        return
    for name, (_, count) in FAMILIES.items():
        yield from ((name, FIRST[which] + k) for k in range(count))
    if which == "table":
        yield from (("real", k) for k in range(7))


def table(which: str) -> None:
    """Print the table of errors, how a run without a method is beside the best rival, and how the counts are."""
    found = []
    with ProcessPoolExecutor(2) as pool:
        for one in pool.map(judged, scenes_of(which)):
            found.append(one)
            print(json.dumps(one, default=float), file=sys.stderr, flush=True)
    kinds = list(dict.fromkeys(one["kind"] for one in found))
    rows = {kind: [one for one in found if one["kind"] == kind] for kind in kinds}
    print("| spectra + fractions | " + " | ".join(f"{kind} ({len(rows[kind])})" for kind in kinds) + " |")
    print("| --- |" + " --- |" * len(kinds))
    for title in found[0]["errors"]:
        means = [np.mean([one["errors"][title] for one in rows[kind]]) for kind in kinds]
        print(f"| {title} | " + " | ".join(f"{mean:.3f}" for mean in means) + " |")
    ratios = np.array([one["ratio"] for one in found])
    print(f"beside the best rival: mean {ratios.mean():.3f}, at most 1.15 on {(ratios <= 1.15).sum()} of {len(ratios)}")
    for kind in kinds:
        near = [abs(one["counted"] - one["p"]) for one in rows[kind]]
        times = np.array([one["errors"][COUNTED] / one["errors"][OWN] for one in rows[kind]])
        said = (
            f"{near.count(0)} of {len(near)} right, {sum(n <= 1 for n in near)} within one; error {times.mean():.2f} "
            "times"
        )
        own = np.array([one["ratio"] for one in rows[kind]])
        print(f"{kind}: beside the best rival {own.mean():.2f}; counts {said}", flush=True)
    for one in sorted(found, key=lambda one: -one["ratio"]):
        if one["ratio"] > 1.5:
            say(
                {
                    "above 1.5": one["name"],
                    "ratio": round(one["ratio"], 2),
                    **{title.strip("*`"): round(value, 3) for title, value in one["errors"].items()},
                }
            )


def score(folder: Path, kind: str) -> None:
    """Print the errors of maps of public scenes, and the floor that the true spectra leave with fractions of a kind."""
    for scene in families.real(DATA):
        stem = folder / scene.name.replace(", ", "_").replace(" ", "")
        maps, spectra = stem.with_name(f"{stem.name}_abundance.hdr"), stem.with_name(f"{stem.name}_endmembers.csv")
        if not maps.exists():
            continue
        Y, found = scene.cube.reshape(-1, scene.cube.shape[2]), stored(maps)
        ours = error(load(spectra).matrix, found.reshape(len(Y), -1), scene)
        floor = error(scene.spectra, KINDS[kind](Y, scene.spectra), scene)
        print(f"{scene.name}: {ours:.4f}; with the true spectra {floor:.4f}")


def pictures(out: Path) -> None:
    """Write a picture of three scenes: a row each for the truth, fcls of `vca` and a run without a method; a column a material."""
    import matplotlib.pyplot as plt

    ways: dict[str, Way] = {"fcls of vca": extracted("vca", by_fcls), "without a method": as_users_run}
    shown_scenes = [scene for scene in families.real(DATA) if scene.name in ("samson", "jasper", "sim1, 40 dB")]
    with tempfile.TemporaryDirectory() as scratch:
        for scene in shown_scenes:
            stem = scene.name.partition(",")[0]
            Y, path = scene.cube.reshape(-1, scene.cube.shape[2]), write_cube(Path(scratch) / f"{stem}.hdr", scene.cube)
            p, shown = scene.spectra.shape[1], {"truth": scene.fractions.reshape(len(Y), -1)}
            for title, way in ways.items():
                E, fractions = way(Y, path, p)
                shown[title] = fractions[:, matched(E, scene.spectra)[1]]
            figure, axes = plt.subplots(3, p, figsize=(1.5 * p + 0.3, 4.9), layout="constrained")
            for row, (title, maps) in zip(axes, shown.items()):
                row[0].set_ylabel(title)
                for axis, values in zip(row, maps.T):
                    image = axis.imshow(values.reshape(scene.cube.shape[:2]), vmin=0, vmax=1, cmap="viridis")
                    axis.set(xticks=[], yticks=[])
            figure.colorbar(image, ax=axes, shrink=0.5)
            figure.suptitle(f"{scene.name}: fractions of each material", fontsize=10)
            figure.savefig(out / f"accuracy_{stem}.png", dpi=60)
            plt.close(figure)


def main(which: str = "table", *words: str) -> None:
    global DATA
    *own, data = words if len(words) > {"pictures": 1, "score": 2}.get(which, 0) else (*words, str(DATA))
    DATA = Path(data)
    if which == "score":
        score(Path(own[0]), own[1])
    elif which == "pictures":
        pictures(Path(own[0]))
    else:
        table(which)


if __name__ == "__main__":
    main(*sys.argv[1:])
