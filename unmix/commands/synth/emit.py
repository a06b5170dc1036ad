"""Make a granule like EMIT's with known fractions: reflectance, deviation, mask, lookup table, library, truth."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from ...errors import MethodError
from ...io import NODATA, write_new
from ...io.formats.hdf5_write import new_hdf5
from ...io.formats.header import image_header
from ...library import Endmembers
from . import CODES, Fields, SyntheticScene, written_scene

BANDS, FIRST_NM, LAST_NM, FWHM = 285, 381.0, 2493.0, 8.5
# Where water absorbs all light: EMIT sets reflectance to this value there.
DEEP_WATER, FILL = ((1320.0, 1440.0), (1770.0, 1970.0)), -0.01
# Reflectance of each class at some wavelengths (nm), and how much the logarithm of a spectrum may differ at places 150
# nm apart.
KNOTS = (381, 550, 680, 750, 900, 1100, 1450, 1650, 1940, 2100, 2200, 2300, 2493)
CLASSES = {
    "soil": (0.06, 0.14, 0.2, 0.23, 0.27, 0.31, 0.31, 0.37, 0.33, 0.38, 0.33, 0.34, 0.3),
    "pv": (0.03, 0.09, 0.04, 0.42, 0.48, 0.46, 0.16, 0.28, 0.06, 0.13, 0.15, 0.11, 0.05),
    "npv": (0.07, 0.17, 0.26, 0.32, 0.4, 0.46, 0.36, 0.46, 0.28, 0.25, 0.33, 0.26, 0.2),
}
VARIATION = 0.12
# Spectra of each class in the library; each pixel has one of each class.
OF_EACH = 8
# EMIT's granules have 1.6 million; each takes some 7 kB while it is made.
MOST_PIXELS = 2_000_000
# The bands of EMIT's mask.
FLAGS = (
    "Cloud flag",
    "Cirrus flag",
    "Water flag",
    "Spacecraft Flag",
    "Dilated Cloud Flag",
    "AOD550",
    "H2O (g cm-2)",
    "Aggregate Flag",
)
# The upper left corner of the map (degrees), the size of its cells, and by how much the swath is turned on it
# (degrees).
WEST, NORTH, CELL, TURN = -116.2, 36.9, 0.000542, 13.0
TIME = "2023-08-11T19:04:49+0000"
WGS84 = (
    'GEOGCS["WGS 84",DATUM["WGS_1984",SPHEROID["WGS '
    '84",6378137,298.257223563,AUTHORITY["EPSG","7030"]],AUTHORITY["EPSG","6326"]],'
    'PRIMEM["Greenwich",0,AUTHORITY["EPSG","8901"]],UNIT["degree",0.0174532925199433,AUTHORITY["EPSG","9122"]],'
    'AXIS["Latitude",NORTH],AXIS["Longitude",EAST],AUTHORITY["EPSG","4326"]]'
)


@dataclass(frozen=True)
class Granule:
    """The size of a granule, and the seed of all that is random in it; EMIT's have 1280 lines of 1242 samples."""

    lines: int = 120
    samples: int = 100
    seed: int = 0

    def check(self) -> None:
        """Raise `MethodError` where it cannot be made."""
        if min(self.lines, self.samples) < 1 or self.seed < 0:
            raise MethodError("lines and samples must be at least 1, and seed not negative")
        if self.lines * self.samples > MOST_PIXELS:
            raise MethodError(f"a granule is made in memory; at most {MOST_PIXELS} pixels")


def axis() -> np.ndarray:
    """Return the wavelengths of the bands, (285,), in nm."""
    return np.linspace(FIRST_NM, LAST_NM, BANDS)


def synthetic_library(of_each: int, random: np.random.Generator) -> Endmembers:
    """Return ``of_each`` smooth spectra of each class, with one absorption each of random place, depth and width."""
    waves, coarse = axis(), np.arange(381, 2600, 150)
    spectra, names, kinds = [], [], []
    for kind, values in CLASSES.items():
        for number in range(of_each):
            offset = VARIATION * np.interp(waves, coarse, random.standard_normal(len(coarse)))
            varied = np.interp(waves, KNOTS, values) * np.exp(offset)
            centre, width, depth = random.uniform(400, 2450), random.uniform(15, 80), random.uniform(0, 0.15)
            spectra.append(varied * (1 - depth * np.exp(-0.5 * np.square((waves - centre) / width))))
            names.append(f"{kind} {number + 1}")
            kinds.append(kind)
    return Endmembers(tuple(names), np.array(spectra).T, waves, source="library", classes=tuple(kinds))


def synthesise_emit(path: Path, granule: Granule, overwrite: bool = False) -> list[Path]:
    """Write a synthetic granule ``X.nc``, the reflectance, and the files beside it; return the files."""
    # Beside it come ``X_uncertainty.nc``, each band's deviation; ``X_mask.nc``, the flags; ``X_library.csv``, with
    # classes; and ``X_truth_fraction``, of the classes and of shade.
    if path.suffix.lower() != ".nc":
        raise MethodError(f"{path}: a granule is NetCDF; use a name that ends in .nc")
    granule.check()
    writers = writers_of(granule)

    def write(parts: dict[str, Path]) -> None:
        for name, part in parts.items():
            writers[name](part)

    return written_scene(path.with_suffix(""), list(writers), write, overwrite)


def writers_of(granule: Granule) -> dict[str, Callable[[Path], None]]:
    """Return the function that writes each file, by the file's suffix to the granule's name."""
    random = np.random.Generator(np.random.PCG64([granule.seed, 7]))
    library = synthetic_library(OF_EACH, random)
    fractions = synthetic_fractions(granule)
    cloud = clouds_of(granule)
    Y, sigma = synthetic_pixels(granule, library, fractions, random)
    Y[cloud] = np.minimum(0.7 + 0.05 * random.standard_normal((int(cloud.sum()), 1)), 1.0)
    water = np.any([(axis() >= low) & (axis() <= high) for low, high in DEEP_WATER], axis=0)
    Y[..., water] = FILL
    names = ["soil", "pv", "npv", "shade"]
    size = (granule.lines, granule.samples, len(names), CODES["float32"])
    header = image_header(*size, "true fractions by unmix", {"band names": names}, "bip")
    return {
        ".nc": lambda out: write_granule(out, granule, "reflectance", Y, ~water),
        "_uncertainty.nc": lambda out: write_granule(out, granule, "reflectance_uncertainty", sigma, ~water),
        "_mask.nc": lambda out: write_mask(out, cloud),
        "_library.csv": lambda out: library.write(out, None, None),
        "_truth_fraction.img": lambda out: write_new(out, fractions.astype("<f4").tobytes()),
        "_truth_fraction.hdr": lambda out: write_new(out, header),
    }


def synthetic_fractions(granule: Granule) -> np.ndarray:
    """Return patchy fractions of the three classes and of shade, of 5 to 40 %, (lines, samples, 4)."""
    scenes = [
        SyntheticScene(granule.lines, granule.samples, BANDS, len(CLASSES), seed)
        for seed in (granule.seed, granule.seed + 1)
    ]
    materials, others = (Fields(scene).abundances(slice(0, granule.lines)) for scene in scenes)
    shade = 0.05 + 0.35 * others[..., :1]
    return np.concatenate([materials * (1 - shade), shade], axis=2)


def clouds_of(granule: Granule) -> np.ndarray:
    """Return which pixels a cloud hides: a disc in the upper right corner, bool (lines, samples)."""
    line, sample = np.mgrid[: granule.lines, : granule.samples]
    radius = 0.12 * min(granule.lines, granule.samples)
    away = np.hypot(line - 0.2 * granule.lines, sample - 0.8 * granule.samples)
    return np.asarray(away < radius)


def synthetic_pixels(
    granule: Granule, library: Endmembers, fractions: np.ndarray, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return noisy reflectance, and the standard deviation of its noise, (lines, samples, 285) float32 each."""
    kinds = np.array(library.classes)
    Y = np.zeros((granule.lines, granule.samples, BANDS))
    for c, kind in enumerate(CLASSES):
        chosen = random.choice(np.flatnonzero(kinds == kind), (granule.lines, granule.samples))
        Y += fractions[..., [c]] * library.matrix.T[chosen]
    waves = axis()
    of_band = 0.002 + 0.004 * (np.exp(-(waves - FIRST_NM) / 60) + np.exp((waves - LAST_NM) / 120))
    sigma = (of_band * (0.7 + Y.mean(axis=2, keepdims=True))).astype(np.float32)
    return (Y + sigma * random.standard_normal(Y.shape)).astype(np.float32), sigma


def write_granule(out: Path, granule: Granule, name: str, values: np.ndarray, good: np.ndarray) -> None:
    """Write a cube in EMIT's NetCDF-4 layout, with its wavelengths, places on Earth and lookup table."""
    with new_hdf5(out, libver=("earliest", "v110")) as (file, _):
        add_cube(file, name, values)
        file[name].attrs["_FillValue"] = np.array([NODATA], np.float32)
        bands = file.create_group("sensor_band_parameters")
        bands["wavelengths"], bands["fwhm"] = axis().astype(np.float32), np.full(BANDS, FWHM, np.float32)
        bands["good_wavelengths"] = good.astype(np.float32)
        location = file.create_group("location")
        for key, table in lookup_of(granule).items():
            location.create_dataset(key, data=table, compression="gzip")
        file.attrs["geotransform"] = [WEST, CELL, 0.0, NORTH, 0.0, -CELL]
        file.attrs["spatial_ref"], file.attrs["time_coverage_start"] = WGS84, TIME
        file.attrs["instrument"], file.attrs["title"] = "EMIT", "synthetic granule by unmix, as EMIT's L2A"


def write_mask(out: Path, cloud: np.ndarray) -> None:
    """Write EMIT's mask, whose flags say which pixels are bad."""
    flags = np.zeros((*cloud.shape, len(FLAGS)), np.float32)
    flags[..., FLAGS.index("Cloud flag")] = flags[..., FLAGS.index("Aggregate Flag")] = cloud
    flags[..., FLAGS.index("AOD550")], flags[..., FLAGS.index("H2O (g cm-2)")] = 0.1, 1.5
    with new_hdf5(out, libver=("earliest", "v110")) as (file, _):
        file.attrs["title"] = "synthetic mask by unmix, as EMIT's L2A"
        add_cube(file, "mask", flags)
        file["sensor_band_parameters/mask_bands"] = np.array(FLAGS, h5py.string_dtype())


def add_cube(file: Any, name: str, values: np.ndarray) -> None:
    """Add a cube, in chunks of whole spectra."""
    lines, samples, bands = values.shape
    chunk = min(lines, 32), min(samples, 32), bands
    file.create_dataset(name, data=values, chunks=chunk, compression="gzip", compression_opts=1, shuffle=True)


def lookup_of(granule: Granule) -> dict[str, np.ndarray]:
    """Return longitude and latitude of each pixel, and sample and line, from 1 (0: none), of each cell of the map."""
    turn = np.radians(TURN)
    line, sample = np.mgrid[: granule.lines, : granule.samples] + 0.5
    # In cells from the map's upper left corner.
    across = sample * np.cos(turn) - line * np.sin(turn) + granule.lines * np.sin(turn)
    down = sample * np.sin(turn) + line * np.cos(turn)
    rows = int(np.ceil(granule.samples * np.sin(turn) + granule.lines * np.cos(turn)))
    columns = int(np.ceil(granule.samples * np.cos(turn) + granule.lines * np.sin(turn)))
    row, column = np.mgrid[:rows, :columns] + 0.5
    east = column - granule.lines * np.sin(turn)
    at_sample = np.floor(east * np.cos(turn) + row * np.sin(turn)).astype(int)
    at_line = np.floor(row * np.cos(turn) - east * np.sin(turn)).astype(int)
    inside = (at_sample >= 0) & (at_sample < granule.samples) & (at_line >= 0) & (at_line < granule.lines)
    return {
        "lon": WEST + CELL * across,
        "lat": NORTH - CELL * down,
        "glt_x": np.where(inside, at_sample + 1, 0).astype(np.int32),
        "glt_y": np.where(inside, at_line + 1, 0).astype(np.int32),
    }
