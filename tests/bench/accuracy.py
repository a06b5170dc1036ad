"""Fractions against the truth: ``python tests/bench/accuracy.py [chosen | table | pictures FOLDER] [DATA]``.

For each scene, given the number of materials alone (or not even that: "counted"), the mean over materials of the RMSE of their
fractions, and the mean angle (radians) of the spectra, matched with the truth by angle. `chosen` takes scenes drawn like those on which
the constants of `unmix.endmembers.cone` were chosen; `table`, the default, 32 others of the first kind and 24 of the second, drawn
after that, and the real scenes in DATA (Samson, Jasper Ridge, sim1).

Kinds: `soft`, three to six USGS minerals, smooth fractions with pure pixels or of at most 85 %, brightness that varies smoothly by
30 %, spectra that vary by 5 % within a material, 35 dB. `patches`, the same minerals in patches with mixed edges, spectra that vary
by 4 to 10 %, 30 to 38 dB; in every other one a material reflects 12 % of what the others do. Fractions are shares of spectra at unit
length. `flat`, the same minerals as bright as they are, 25 to 45 dB, pure pixels, or none above 85 or 70 %: brightness and spectra do
not vary, and fractions are shares of the area. `pictures FOLDER` draws a picture of Samson, Jasper Ridge and sim1: the truth, fcls of
`vca`, and a run without a method.
"""

import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from scipy.cluster.vq import kmeans2
from scipy.io import loadmat
from scipy.ndimage import gaussian_filter, gaussian_filter1d
from scipy.optimize import linear_sum_assignment, minimize
from scipy.special import logsumexp

sys.path.insert(0, str(Path(__file__).parents[1]))
import naive
from conftest import write_cube

import unmix
from unmix.commands.synth import project_onto_simplex
from unmix.io import bytes_per_line, spectra
from unmix.library import load
from unmix.scene.bands import choose_bands

SIZE = 80
Known = tuple[
    str, str, np.ndarray, np.ndarray, np.ndarray
]  # kind, name, cube, spectra (L, p), fractions (lines, samples, p)


def field(random: np.random.Generator, scale: float) -> np.ndarray:
    """Return a smooth random field of mean 0 and deviation 1."""
    values = gaussian_filter(random.standard_normal((SIZE, SIZE)), scale, mode="reflect")
    return (values - values.mean()) / values.std()


def minerals(random: np.random.Generator, data: Path, p: int) -> np.ndarray:
    """Return p spectra of the USGS library at unit length, every second band, at least 5° apart."""
    library = load(data / "libraries/USGS_1995_Library.mat")
    assert library.wavelengths is not None
    M = library.matrix[np.argsort(library.wavelengths)][::2]
    M = M[:, (M > 1e-4).all(axis=0)]
    while True:
        E = M[:, random.choice(M.shape[1], p, replace=False)]
        E = E / np.linalg.norm(E, axis=0)
        if np.degrees(np.arccos(np.clip(E.T @ E, -1, 1)))[np.triu_indices(p, 1)].min() > 5:
            return E


def varied(random: np.random.Generator, E: np.ndarray, F: np.ndarray, share: float, fine: bool) -> np.ndarray:
    """Return mixtures of spectra that vary smoothly over the bands and the scene; ``fine``, also from pixel to pixel."""
    L, total = len(E), np.zeros((SIZE, SIZE, len(E)))
    for j in range(E.shape[1]):
        change = np.zeros((SIZE, SIZE, L))
        for _ in range(3):
            shape = gaussian_filter1d(random.standard_normal(L), L / 8)
            where = (field(random, 3) + field(random, 0.7)) / np.sqrt(2) if fine else field(random, 3)
            change += where[..., None] * shape / shape.std() / np.sqrt(3)
        total += F[..., j : j + 1] * E[:, j] * (1 + share * change)
    return total


def soft(seed: int, data: Path) -> Known:
    """Return a scene of smooth fractions; of every eight, four have pure pixels and four at most 85 %."""
    random = np.random.default_rng(seed)
    p, pure = 3 + seed % 4, seed // 4 % 2 == 0
    E, scale = minerals(random, data, p), random.uniform(4, 9)
    F = np.exp(random.uniform(1.5, 3.5) * np.stack([field(random, scale) for _ in range(p)], -1))
    F /= F.sum(axis=-1, keepdims=True)
    F = np.maximum(F - 0.04, 0) if pure else F * (1 - 0.15 * p / (p - 1)) + 0.15 / (p - 1)
    F /= F.sum(axis=-1, keepdims=True)
    brightness = 1 + 0.3 * np.clip(field(random, 8) / 2, -1, 1)
    Y = varied(random, E, F, 0.05, False) * brightness[..., None]
    Y += np.sqrt(np.square(Y).mean() / 10**3.5) * random.standard_normal(Y.shape)
    return "soft, pure" if pure else "soft, 85 %", f"soft {seed}", Y, E, F


def patches(seed: int, data: Path) -> Known:
    """Return a scene of patches; those of odd seeds have a dark material."""
    random = np.random.default_rng(10_000 + seed)
    p, dark = 3 + seed // 2 % 4, seed % 2 == 1
    E, scale = minerals(random, data, p), random.uniform(4, 7)
    F = np.eye(p)[np.stack([field(random, scale) for _ in range(p)], -1).argmax(-1)]
    F = gaussian_filter(F, (*(random.uniform(0.6, 1.3),) * 2, 0), mode="nearest")
    F /= F.sum(axis=-1, keepdims=True)
    albedo = np.ones(p)
    if dark:
        albedo[random.integers(p)] = 0.12
    brightness = (1 + 0.3 * np.clip(field(random, 8) / 2, -1, 1)) * (F @ albedo)
    Y = varied(random, E, F, random.uniform(0.04, 0.1), True) * brightness[..., None]
    Y += np.sqrt(np.square(Y).mean() / 10 ** random.uniform(3, 3.8)) * random.standard_normal(Y.shape)
    return "patches, dark" if dark else "patches", f"patches {seed}", Y, E, F


def flat(seed: int, data: Path) -> Known:
    """Return a scene whose brightness does not vary: pure pixels, at most 85 %, or at most 70 %."""
    random = np.random.default_rng(50_000 + seed)
    p, most = 3 + seed % 4, ("pure", "85 %", "70 %")[seed // 4 % 3]
    E = minerals(random, data, p) * random.uniform(0.5, 2.0, p)
    F = np.exp(random.uniform(1.5, 3.5) * np.stack([field(random, random.uniform(4, 9)) for _ in range(p)], -1))
    F /= F.sum(axis=-1, keepdims=True)
    if most == "pure":
        F = np.maximum(F - 0.04, 0)
    elif most == "85 %":
        F = F * (1 - 0.15 * p / (p - 1)) + 0.15 / (p - 1)
    else:
        F = random.dirichlet(np.ones(p), 40 * SIZE**2)
        F = F[F.max(axis=1) < 0.7][: SIZE**2].reshape(SIZE, SIZE, p)
    F /= F.sum(axis=-1, keepdims=True)
    Y = F @ E.T
    Y += np.sqrt(np.square(Y).mean() / 10 ** random.uniform(2.5, 4.5)) * random.standard_normal(Y.shape)
    return f"flat, {most}", f"flat {seed}", Y, E, F


def stored(path: Path) -> np.ndarray:
    """Return a cube in memory, (lines, samples, bands), scaled."""
    cube = unmix.open_cube(path)
    raw = cube.read(slice(0, cube.lines), np.empty(bytes_per_line(cube) * cube.lines, np.uint8))
    return spectra(raw, cube.interleave, choose_bands(cube, "good", None)).reshape(cube.lines, cube.samples, -1)


def real(data: Path) -> Iterator[Known]:
    """Yield the real scenes, and sim1 at 40 dB, no pixel of which is pure."""
    for name in ("samson", "jasper"):
        truth = load(data / name / f"{name}_truth_endmembers.csv").matrix
        yield (
            name,
            name,
            stored(data / name / f"{name}.hdr"),
            truth,
            stored(data / name / f"{name}_truth_abundance.hdr"),
        )
    clean, E, A = (loadmat(data / "sim1_synth" / f"{key}.mat")[key] for key in ("Y_clean", "E", "A_true"))
    noise = np.random.default_rng(0).standard_normal(clean.shape) * np.sqrt(np.square(clean).mean() / 1e4)
    yield "sim1, 40 dB", "sim1", clean + noise, E, A.reshape(*clean.shape[:2], -1)


def by_fcls(Y: np.ndarray, E: np.ndarray) -> np.ndarray:
    """Return fractions (n, p) that sum to one, of pixels as bright as they are."""
    return unmix.solve(Y, E, method="fcls").abundances


def by_length(Y: np.ndarray, E: np.ndarray) -> np.ndarray:
    """Return fractions (n, p) of nnls on spectra of unit length, over their sum: they do not depend on brightness."""
    return unmix.solve(Y, E, method="nnls", normalize="length").abundances


# What a way to unmix makes of pixels (n, L), their scene and the number of materials: spectra (L, p) and fractions (n, p).
Way = Callable[[np.ndarray, Path, int], tuple[np.ndarray, np.ndarray]]


def extracted(name: str, fractions: Callable[[np.ndarray, np.ndarray], np.ndarray], **how: object) -> Way:
    """Return the way that extracts by this name."""

    def way(Y: np.ndarray, path: Path, p: int) -> tuple[np.ndarray, np.ndarray]:
        E = unmix.extract(path, count=p, extract=name, **how).matrix
        return E, fractions(Y, E)

    return way


def as_users_run(Y: np.ndarray, path: Path, p: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Return what a run without a method writes."""
    out = path.parent / "out"
    unmix.run(path, count="auto" if p is None else p, out_dir=out, overwrite=True, browse=False, device="cpu")
    return load(out / f"{path.stem}_endmembers.csv").matrix, stored(out / f"{path.stem}_abundance.hdr").reshape(
        len(Y), -1
    )


def plain_vca(Y: np.ndarray, path: Path, p: int) -> tuple[np.ndarray, np.ndarray]:
    """Return VCA as published, without exchanges, and fcls."""
    E = naive.vca(Y, p, 0)[1]
    return E, by_fcls(Y, E)


def near_means(Y: np.ndarray, path: Path, p: int) -> tuple[np.ndarray, np.ndarray]:
    """Return N-FINDR's pixels, then four times over the mean direction of the pixels with a fraction of 0.8 and more."""
    E = unmix.extract(path, count=p, extract="nfindr").matrix
    units = Y / np.maximum(np.linalg.norm(Y, axis=1, keepdims=True), 1e-300)
    for _ in range(4):
        near = by_length(Y, E) >= 0.8
        E = np.stack([units[some].mean(axis=0) if some.any() else e for some, e in zip(near.T, E.T)], axis=1)
    return E, by_length(Y, E)


def polyhedral(Y: np.ndarray, path: Path, p: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a plain reading of polyhedral unmixing (Bottenmuller and others 2026, arXiv 2603.29438) from clusters by k-means.

    Pixels at unit length are clustered; cones that part the clusters, the regions of a linear classifier without offset, are fitted;
    signed distances to the faces of each, with those of its purest pixel as unit, are projected onto the simplex as first abundances;
    spectra and abundances follow by pseudo-inverses.
    """
    units = Y / np.maximum(np.linalg.norm(Y, axis=1, keepdims=True), 1e-300)
    axes = np.linalg.eigh(units.T @ units)[1][:, -max(p, min(10, Y.shape[1])) :]
    Z = units @ axes
    labels = kmeans2(Z, p, minit="++", rng=np.random.default_rng(0))[1]

    def loss(w: np.ndarray) -> tuple[float, np.ndarray]:
        scores = Z @ w.reshape(p, -1).T
        scores -= logsumexp(scores, axis=1, keepdims=True)
        slope = np.exp(scores) - np.eye(p)[labels]
        return float(-scores[np.arange(len(Z)), labels].mean() + 1e-4 * w @ w), (
            slope.T @ Z / len(Z)
        ).ravel() + 2e-4 * w

    W = minimize(loss, np.zeros(p * Z.shape[1]), jac=True, method="L-BFGS-B").x.reshape(p, -1)
    faces = W[:, None] - W
    faces /= np.linalg.norm(faces, axis=2, keepdims=True) + np.eye(p)[..., None]
    D = np.stack([np.delete(Z @ faces[i].T, i, axis=1).min(axis=1) for i in range(p)], axis=1)
    A = project_onto_simplex(np.linalg.solve(D[D.argmax(axis=0)].T, D.T).T)
    E = np.maximum(np.linalg.pinv(A) @ units, 1e-9).T
    return E, project_onto_simplex(units @ np.linalg.pinv(E).T)


WAYS: dict[str, Way] = {
    "VCA, plain + fcls": plain_vca,
    "polyhedral, our plain reading": polyhedral,
    "`vca` + fcls": extracted("vca", by_fcls),
    "`nfindr` + fcls": extracted("nfindr", by_fcls),
    "`sisal` + fcls": extracted("sisal", by_fcls),
    "`vca` + nnls, by length": extracted("vca", by_length),
    "`vca --smooth 100` + nnls, by length": extracted("vca", by_length, smooth=100),
    "`nfindr` + four means, nnls by length": near_means,
    "**a run without a method**": as_users_run,
    "the same, counted": lambda Y, path, p: as_users_run(Y, path, None),
}


def errors(E: np.ndarray, fractions: np.ndarray, truth: np.ndarray, F: np.ndarray) -> tuple[float, float]:
    """Return the mean over materials of the RMSE of fractions, and the mean angle of the spectra.

    Materials without a spectrum of their own have fractions 0; those of spectra without a material are lost.
    """
    units = [some / np.linalg.norm(some, axis=0) for some in (truth, E)]
    angles = np.arccos(np.clip(units[0].T @ units[1], -1, 1))
    rows, columns = linear_sum_assignment(angles)
    found = np.zeros((len(fractions), truth.shape[1]))
    found[:, rows] = fractions[:, columns]
    difference = found - F.reshape(len(fractions), -1)
    return float(np.sqrt(np.square(difference).mean(axis=0)).mean()), float(angles[rows, columns].mean())


def scenes_of(which: str, folder: Path) -> Iterator[Known]:
    """Yield the scenes that constants were chosen on, or others and the real ones."""
    first = 0 if which == "chosen" else 1000
    for k in range(24 if which == "chosen" else 32):
        yield soft(first + k, folder)
    for k in range(24):
        yield patches(first + k, folder)
    for k in range(24):
        yield flat(first + k, folder)
    if which == "table":
        yield from real(folder)


def table(which: str, folder: Path) -> None:
    """Print the table of errors, and how the counts are."""
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    counts: dict[str, list[tuple[int, int]]] = {}  # of each kind: found, and true
    with tempfile.TemporaryDirectory() as scratch:
        for kind, _, cube, truth, F in scenes_of(which, folder):
            Y, path = cube.reshape(-1, cube.shape[2]), write_cube(Path(scratch) / "scene.hdr", cube)
            rows = found.setdefault(kind, {})
            for title, way in WAYS.items():
                E, fractions = way(Y, path, truth.shape[1])
                rows.setdefault(title, []).append(errors(E, fractions, truth, F))
                if title.endswith("counted"):
                    counts.setdefault(kind, []).append((E.shape[1], truth.shape[1]))
            of_areas = kind.startswith(("flat", "sim1"))
            best = by_fcls(Y, truth) if of_areas else by_length(Y, truth)
            rows.setdefault("the true spectra", []).append(errors(truth, best, truth, F))
    kinds = list(found)
    print(
        "| spectra + fractions | "
        + " | ".join(f"{kind} ({len(next(iter(found[kind].values())))})" for kind in kinds)
        + " |"
    )
    print("| --- |" + " --- |" * len(kinds))
    for title in found[kinds[0]]:
        means = [np.mean(found[kind][title], axis=0) for kind in kinds]
        print(f"| {title} | " + " | ".join(f"{error:.3f} · {angle:.3f}" for error, angle in means) + " |", flush=True)
    for kind, some in counts.items():
        near = [abs(count - truth) for count, truth in some]
        told = f"; {some[0][0]} for {some[0][1]}" if len(some) == 1 else ""
        print(f"counts, {kind}: {near.count(0)} of {len(some)} right, {sum(n <= 1 for n in near)} within one{told}")


def pictures(out: Path, folder: Path) -> None:
    """Write a picture of each real scene: a row each for the truth, fcls of `vca` and a run without a method; a column a material."""
    import matplotlib.pyplot as plt

    ways = {"fcls of vca": WAYS["`vca` + fcls"], "without a method": as_users_run}
    with tempfile.TemporaryDirectory() as scratch:
        for kind, name, cube, truth, F in real(folder):
            Y, path = cube.reshape(-1, cube.shape[2]), write_cube(Path(scratch) / f"{name}.hdr", cube)
            p, shown = truth.shape[1], {"truth": F.reshape(len(Y), -1)}
            for title, way in ways.items():
                E, fractions = way(Y, path, p)
                units = [some / np.linalg.norm(some, axis=0) for some in (truth, E)]
                shown[title] = fractions[:, linear_sum_assignment(-units[0].T @ units[1])[1]]
            figure, axes = plt.subplots(3, p, figsize=(1.5 * p + 0.3, 4.9), layout="constrained")
            for row, (title, maps) in zip(axes, shown.items()):
                row[0].set_ylabel(title)
                for axis, values in zip(row, maps.T):
                    image = axis.imshow(values.reshape(cube.shape[:2]), vmin=0, vmax=1, cmap="viridis")
                    axis.set(xticks=[], yticks=[])
            figure.colorbar(image, ax=axes, shrink=0.5)
            figure.suptitle(f"{kind}: fractions of each material", fontsize=10)
            figure.savefig(out / f"accuracy_{name}.png", dpi=60)
            plt.close(figure)


def main(which: str = "table", *words: str) -> None:
    *out, data = (
        words if len(words) > (which == "pictures") else (*words, str(Path(__file__).parents[3] / "shared/data"))
    )
    pictures(Path(out[0]), Path(data)) if which == "pictures" else table(which, Path(data))


if __name__ == "__main__":
    main(*sys.argv[1:])
