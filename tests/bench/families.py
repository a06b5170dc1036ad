"""Scenes with a known truth, for `accuracy.py`: synthetic families, drawn by a seed, and public scenes.

`soft`, three to six USGS minerals, smooth fractions with pure pixels or of at most 85 %, brightness that varies
smoothly by 30 %, spectra that vary by 5 % within a material, 35 dB. `patches`, the same minerals in patches with mixed
edges, spectra that vary by 4 to 10 %, 30 to 38 dB; in every other one a material reflects 12 % of what the others do.
`flat`, the same minerals as bright as they are, 25 to 45 dB, pure pixels, or none above 85 or 70 %: brightness and
spectra do not vary.

`mixed`, what real scenes hold: minerals, plants and artificial materials of USGS's library for AVIRIS, scenes of 50 to
100 lines and samples; by the seed at least one, and each of the others in a quarter of the scenes: shares from a
log-normal distribution (`uneven`), a material that is ten to twenty times darker, covers a third to a half, and to
which haze is added (`dark`), two materials 0.1 to 0.2 rad apart (`pair`), several plants (`plants`), a crop of 30 x 80
pixels (`crop`), white noise of 20 to 27 dB in place of 28 to 45 (`noisy`), a material of the largest share that varies
by 10 to 20 % in place of 2 to 6 (`spread`). `level` is the same without variability.

Fractions are shares of spectra at unit length, and of the area in `flat` and `level`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from common import stored
from scipy.io import loadmat
from scipy.ndimage import gaussian_filter, gaussian_filter1d

from unmix.library import load

SIZE = 80
# Spectra of USGS's library for AVIRIS from this one on are of plants.
PLANTS = 1165
WHAT = ("uneven", "dark", "pair", "plants", "crop", "noisy", "spread")


class Known(NamedTuple):
    """A scene and its truth."""

    kind: str
    name: str
    cube: np.ndarray  # (lines, samples, L)
    spectra: np.ndarray  # (L, p)
    fractions: np.ndarray  # (lines, samples, p)
    of_areas: bool = False  # brightness and spectra do not vary: fractions are shares of the area


def field(random: np.random.Generator, scale: float, shape: tuple[int, int] = (SIZE, SIZE)) -> np.ndarray:
    """Return a smooth random field of mean 0 and deviation 1."""
    values = gaussian_filter(random.standard_normal(shape), scale, mode="reflect")
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


def varied(
    random: np.random.Generator, E: np.ndarray, F: np.ndarray, shares: np.ndarray, fine: np.ndarray
) -> np.ndarray:
    """Return mixtures of spectra that vary smoothly over the bands and the scene; where ``fine``, also from pixel to pixel."""
    L, shape = len(E), F.shape[:2]
    total = np.zeros((*shape, L))
    for j in range(E.shape[1]):
        change = np.zeros((*shape, L))
        for _ in range(3):
            curve = gaussian_filter1d(random.standard_normal(L), L / 8)
            smooth = field(random, 3, shape)
            where = (smooth + field(random, 0.7, shape)) / np.sqrt(2) if fine[j] else smooth
            change += where[..., None] * curve / curve.std() / np.sqrt(3)
        total += F[..., j : j + 1] * E[:, j] * (1 + shares[j] * change)
    return total


def noised(random: np.random.Generator, Y: np.ndarray, decibels: float) -> np.ndarray:
    """Return pixels with white noise."""
    return Y + np.sqrt(np.square(Y).mean() / 10 ** (decibels / 10)) * random.standard_normal(Y.shape)


def at_most_85(F: np.ndarray) -> np.ndarray:
    """Return fractions of which none is above 85 %."""
    p = F.shape[-1]
    return F * (1 - 0.15 * p / (p - 1)) + 0.15 / (p - 1)


def to_one(F: np.ndarray) -> np.ndarray:
    """Return fractions that sum to one."""
    return F / F.sum(axis=-1, keepdims=True)


def soft(seed: int, data: Path) -> Known:
    """Return a scene of smooth fractions; of every eight, four have pure pixels and four at most 85 %."""
    random = np.random.default_rng(seed)
    p, pure = 3 + seed % 4, seed // 4 % 2 == 0
    E, scale = minerals(random, data, p), random.uniform(4, 9)
    F = to_one(np.exp(random.uniform(1.5, 3.5) * np.stack([field(random, scale) for _ in range(p)], -1)))
    F = to_one(np.maximum(F - 0.04, 0) if pure else at_most_85(F))
    brightness = 1 + 0.3 * np.clip(field(random, 8) / 2, -1, 1)
    Y = varied(random, E, F, np.full(p, 0.05), np.zeros(p, bool)) * brightness[..., None]
    return Known("soft, pure" if pure else "soft, 85 %", f"soft {seed}", noised(random, Y, 35), E, F)


def patches(seed: int, data: Path) -> Known:
    """Return a scene of patches; those of odd seeds have a dark material."""
    random = np.random.default_rng(10_000 + seed)
    p, dark = 3 + seed // 2 % 4, seed % 2 == 1
    E, scale = minerals(random, data, p), random.uniform(4, 7)
    F = np.eye(p)[np.stack([field(random, scale) for _ in range(p)], -1).argmax(-1)]
    F = to_one(gaussian_filter(F, (*(random.uniform(0.6, 1.3),) * 2, 0), mode="nearest"))
    albedo = np.ones(p)
    if dark:
        albedo[random.integers(p)] = 0.12
    brightness = (1 + 0.3 * np.clip(field(random, 8) / 2, -1, 1)) * (F @ albedo)
    Y = varied(random, E, F, np.full(p, random.uniform(0.04, 0.1)), np.ones(p, bool)) * brightness[..., None]
    kind = "patches, dark" if dark else "patches"
    return Known(kind, f"patches {seed}", noised(random, Y, 10 * random.uniform(3, 3.8)), E, F)


def flat(seed: int, data: Path) -> Known:
    """Return a scene whose brightness does not vary: pure pixels, at most 85 %, or at most 70 %."""
    random = np.random.default_rng(50_000 + seed)
    p, most = 3 + seed % 4, ("pure", "85 %", "70 %")[seed // 4 % 3]
    E = minerals(random, data, p) * random.uniform(0.5, 2.0, p)
    F = to_one(np.exp(random.uniform(1.5, 3.5) * np.stack([field(random, random.uniform(4, 9)) for _ in range(p)], -1)))
    if most == "pure":
        F = np.maximum(F - 0.04, 0)
    elif most == "85 %":
        F = at_most_85(F)
    else:
        F = random.dirichlet(np.ones(p), 40 * SIZE**2)
        F = F[F.max(axis=1) < 0.7][: SIZE**2].reshape(SIZE, SIZE, p)
    F = to_one(F)
    Y = noised(random, F @ E.T, 10 * random.uniform(2.5, 4.5))
    return Known(f"flat, {most}", f"flat {seed}", Y, E, F, True)


def natural(random: np.random.Generator, data: Path, p: int, plants: int, pair: bool) -> np.ndarray:
    """Return p spectra (L, p) at unit length, some of plants, at least 0.15 rad apart or, of a ``pair``, two of them 0.1 to 0.2."""
    M = load(data / "libraries/s06av95a_envi.hdr").matrix.copy()
    M[~np.isfinite(M) | (M < -1)] = np.nan
    whole = np.isfinite(M).mean(axis=0) > 0.93
    bands = np.isfinite(M[:, whole]).mean(axis=1) > 0.97
    good = np.flatnonzero((np.nan_to_num(M[bands], nan=-1.0) > 1e-4).all(axis=0))
    U = M[bands][:, good] / np.linalg.norm(M[bands][:, good], axis=0)
    green, rest = np.flatnonzero(good >= PLANTS), np.flatnonzero(good < PLANTS)
    while True:
        some = [*random.choice(green, plants, replace=False), *random.choice(rest, p - plants, replace=False)]
        if pair:
            angles = np.arccos(np.clip(U[:, some[0]] @ U, -1, 1))
            near = np.flatnonzero((angles > 0.1) & (angles < 0.2))
            if len(near) == 0:
                continue
            some[1] = random.choice(near)
        E = U[:, some]
        if np.arccos(np.clip(E.T @ E, -1, 1))[np.triu_indices(p, 1)].min() > (0.1 if pair else 0.15):
            return E[:, random.permutation(p)]


def covers(random: np.random.Generator, shape: tuple[int, int], shares: np.ndarray) -> tuple[np.ndarray, str]:
    """Return fractions (lines, samples, p) whose largest are of these shares of the scene, soft or in patches, and their words."""
    p, scale, is_soft = len(shares), random.uniform(3, 9), random.random() < 0.5
    G, bias = np.stack([field(random, scale, shape) for _ in range(p)], -1), np.zeros(p)
    for _ in range(60):
        found = np.bincount((G + bias).argmax(-1).ravel(), minlength=p) / G[..., 0].size
        bias += 0.5 * np.log((shares + 1e-3) / (found + 1e-3))
    if not is_soft:
        F = np.eye(p)[(G + bias).argmax(-1)]
        return to_one(gaussian_filter(F, (*(random.uniform(0.6, 1.6),) * 2, 0), mode="nearest")), "patches"
    F = to_one(np.exp(random.uniform(1.5, 3.5) * (G + bias)))
    pure = random.random() < 0.6
    return to_one(np.maximum(F - 0.04, 0) if pure else at_most_85(F)), "soft" if pure else "soft, 85 %"


def mixed(seed: int, data: Path, level: bool = False) -> Known:
    """Return a scene of what real scenes hold, see above; ``level``, without variability."""
    random = np.random.default_rng((7, seed, int(level)))
    has = {what: WHAT[seed % 7] == what or random.random() < 0.25 for what in WHAT}
    p = int(random.integers(3, 7))
    lines, samples = (30, 80) if has["crop"] else (int(n) for n in random.integers(50, 101, 2))
    plants = int(random.integers(2, p)) if has["plants"] else int(random.integers(0, 2))
    E, shares = natural(random, data, p, plants, has["pair"]), random.lognormal(0, 1.5 if has["uneven"] else 0.3, p)
    dark = int(random.integers(p)) if has["dark"] else None
    if dark is not None:
        shares[dark] = shares.sum() * random.uniform(0.5, 1.0)
    F, words = covers(random, (lines, samples), shares / shares.sum())
    decibels = random.uniform(20, 27) if has["noisy"] else random.uniform(28, 45)
    if level:
        E = E * random.uniform(0.5, 2.0, p)
        if dark is not None:
            E[:, dark] *= random.uniform(0.05, 0.12)
        Y = F @ E.T
    else:
        Y = shaded(random, E, F, shares, dark, has["spread"])
    name = f"{seed}: {', '.join(what for what in WHAT if has[what])}; {words}, {p} materials, {decibels:.0f} dB"
    return Known(f"{'level' if level else 'mixed'}, {WHAT[seed % 7]}", name, noised(random, Y, decibels), E, F, level)


def shaded(
    random: np.random.Generator, E: np.ndarray, F: np.ndarray, shares: np.ndarray, dark: int | None, spread: bool
) -> np.ndarray:
    """Return pixels of varied spectra and brightness, with haze where a material is dark."""
    (lines, samples, p), L = F.shape, len(E)
    by = np.full(p, random.uniform(0.02, 0.06))
    if spread:
        by[int(np.argmax(shares))] = random.uniform(0.1, 0.2)
    T, albedo = varied(random, E, F, by, random.random(p) < 0.5), random.uniform(0.5, 2.0, p)
    if dark is not None:
        albedo[dark] = albedo.mean() * random.uniform(0.05, 0.12)
    light = 1 + random.uniform(0.1, 0.4) * np.clip(field(random, 8, (lines, samples)) / 2, -1, 1)
    Y = T * (light * (F @ albedo))[..., None]
    if dark is None:
        return Y
    haze = np.exp(-np.arange(L) / (L / random.uniform(2, 8)))
    amount = albedo[dark] * random.uniform(0.1, 0.5) * np.abs(field(random, random.uniform(1, 8), (lines, samples)))
    return Y + amount[..., None] * haze / np.linalg.norm(haze)


def real(data: Path) -> Iterator[Known]:
    """Yield public scenes: Samson, Jasper Ridge, Moffett, and two of exact mixtures, toy and, at 20, 30 and 40 dB, sim1."""
    for name in ("samson", "jasper", "moffett", "toy"):
        folder = data / name
        truth = load(folder / f"{name}_truth_endmembers.csv").matrix
        cube, fractions = stored(folder / f"{name}.hdr"), stored(folder / f"{name}_truth_abundance.hdr")
        yield Known(name, name, cube, truth, fractions, name == "toy")
    clean, E, A = (loadmat(data / "sim1_synth" / f"{key}.mat")[key] for key in ("Y_clean", "E", "A_true"))
    for decibels in (20, 30, 40):
        noise = np.random.default_rng(0).standard_normal(clean.shape)
        Y = clean + noise * np.sqrt(np.square(clean).mean() / 10 ** (decibels / 10))
        yield Known(f"sim1, {decibels} dB", f"sim1, {decibels} dB", Y, E, A.reshape(*clean.shape[:2], -1), True)


def noisier(data: Path) -> Iterator[Known]:
    """Yield the public scenes with white noise of 20, 30 and 40 dB; sim1 has its own."""
    for scene in real(data):
        if not scene.name.startswith("sim1"):
            for decibels in (20, 30, 40):
                cube = noised(np.random.default_rng(0), scene.cube, decibels)
                yield scene._replace(
                    kind=f"{scene.name}, {decibels} dB", name=f"{scene.name}, {decibels} dB", cube=cube
                )
