"""`product emit-frcov`: EMIT's fractional cover (L2B) of a granule: the mission's files and names, by exact draws."""

import contextlib
import json
import logging
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..._version import VERSION
from ...errors import CubeError, LibraryError
from ...io import (
    NODATA,
    Cube,
    Scene,
    band_names,
    by_pixel,
    code_of,
    cut,
    located,
    open_cube,
    read_blocks,
    read_lines,
    refuse_elsewhere,
    write_new,
)
from ...io.export import require, work_map
from ...io.formats.header import image_header
from ...io.placement import Placement
from ...library import load_library
from ...maps.derived.noise import NoiseCube
from ...outputs import folder_for, inputs_of, named_together, refuse_inputs
from ...pages.pictures import png
from ...runs import run
from ...scene import ReadOptions, open_mask, open_scene

log = logging.getLogger("unmix")
# The covers of the product, each with the names of classes that are it.
COVERS = {"pv": ("pv", "gv"), "npv": ("npv",), "bare": ("soil", "bare", "s")}
# Values of the QC map, the first that holds.
CLOUD, URBAN, WATER, SNOW = 1, 2, 3, 4
CLOUD_FLAGS, WATER_FLAGS = ("cloud flag", "cirrus flag"), ("water flag",)
# Wavelengths (nm) of the snow index, and the index above which a pixel is snow (Hall et al. 1995).
GREEN, SHORTWAVE, SNOW_INDEX = 560.0, 1600.0, 0.4
# Bands that are left out, nm: water vapour absorbs all light.
IGNORED = "1300-1500,1800-2000"
BLOCK_BYTES = 2**26
# Spectra of a draw, where the library has so many.
USUAL_SPECTRA = 90
# Lines whose standard deviations are looked at for those of the bands.
LOOKED_AT = 64
PREFIX, LEVEL = "EMIT_L2A_RFL_", "EMIT_L2B_FRCOV"


def product_files(folder: Path, stem: str, has_ranges: bool) -> dict[str, Path]:
    """Return the product's files for a granule by the mission's word or, of browse image and record, the ending."""
    version, _, rest = stem.removeprefix(PREFIX).partition("_") if stem.startswith(PREFIX) else ("001", "_", stem)
    kinds = ("", "UNC", "RANGE") if has_ranges else ("", "UNC")
    rasters = [*(cover.upper() + kind for kind in kinds for cover in COVERS), "QC"]
    files = {word: folder / f"{LEVEL}{word}_{version}_{rest}.tif" for word in rasters}
    return files | {ending: folder / f"{LEVEL}_{version}_{rest}{ending}" for ending in (".png", ".json")}


def emit_frcov(
    granule: str | os.PathLike[str],
    endmembers: str | os.PathLike[str],
    *,
    classes: str | None = None,
    mask: str | os.PathLike[str] | None = None,
    uncertainty: str | os.PathLike[str] | None = None,
    urban: str | None = None,
    coast: str | None = None,
    draws: int = 20,
    draw_spectra: int | None = None,
    normalize: str = "sum",
    ranges: bool = False,
    seed: int = 0,
    out_dir: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    threads: int | None = None,
) -> dict[str, Any]:
    """Write EMIT's L2B FRCOV of a granule: cover of green and dry vegetation and bare soil, deviations and QC.

    Each cover is the mean over random draws of the share of its class: of spectra drawn evenly over the classes, and of
    noise as large as the granule's standard deviations. Each draw is solved exactly. The uncertainty is the standard
    deviation over the draws. Both are placed on the ground, and missing where QC is not 0.

    Parameters
    ----------
    granule : path-like
        EMIT's L2A reflectance, with its lookup table.
    endmembers : path-like
        A library whose classes are pv (or gv), npv and soil (or bare), in any case; others are refused.
    classes : str, optional
        The column of the library, or ``FILE:COLUMN``, with the classes; default is ``class``.
    mask, uncertainty : path-like, optional
        The granule's L2A mask and standard deviations (``RFLUNCERT``); by default those beside it.
    urban, coast : str, optional
        ``FILE`` or ``FILE:BAND``, rasters of the granule's lines and samples, not 0 where a pixel is built up, and on a
        coast or river; the mission has them of ESA WorldCover and GSHHG.
    draws, draw_spectra : int
        Number of draws, and spectra of each; the mission has 20 and 90, 30 of each class, which is the default where
        the library has so many.
    normalize : {"sum", "length"}
        Shares of the area, or, as the mission has them, of the lengths of spectra: these are larger for bright
        materials.
    ranges : bool
        Also write the least and the largest share of each class over all mixtures of the library that the noise allows
        (95 %), proved.
    seed : int
        Of the draws.
    out_dir : path-like, optional
        Default is the folder of the granule.
    overwrite : bool
        Replace files of an earlier product.
    threads : int, optional

    Returns
    -------
    dict
        ``files``; ``qc``: numbers of pixels of the map by value, 0 is clear; ``pixels`` that were unmixed; and what the
        product is of.

    Raises
    ------
    CubeError
        Where the granule has no lookup table, or a file beside it cannot be read, or is of another size.
    LibraryError
        Where a class is none of the product's.
    MethodError
        Where rasterio is missing, or an option is out of range.
    OutputError
        Where a file exists, or cannot be written.
    """
    require("cog")
    path = located(granule)
    scene = open_scene(path, ReadOptions(ignore_nm=IGNORED))
    placement = scene.cube.placement
    if placement is None:
        raise CubeError(
            f"{path}: has no lookup table, by which a product is placed on the ground; it takes EMIT's L2A reflectance"
        )
    beside = {
        "mask": mask or sibling(path, "MASK", "mask"),
        "uncertainty": uncertainty or sibling(path, "RFLUNCERT", "uncertainty"),
    }
    files = product_files(folder_for(out_dir, path), scene.cube.stem, ranges)
    inputs = inputs_of(scene.cube, library=endmembers, **{name: Path(one) for name, one in beside.items()})
    refuse_inputs(files.values(), inputs)
    columns, spectra = columns_of(endmembers, classes)
    draw_spectra = draw_spectra or min(spectra, USUAL_SPECTRA)
    quality = quality_of_granule(scene, open_cube(beside["mask"]), {URBAN: urban, WATER: coast})
    with (
        named_together(list(files.values()), overwrite, "another `out_dir`") as parts,
        tempfile.TemporaryDirectory(prefix="unmix-") as folder,
    ):
        work = Path(folder)
        report = None
        if (quality == 0).any():
            write_image(work / "clear", (quality == 0)[:, None].astype(np.uint8), {})
            noise = noise_of_granule(NoiseCube(beside["uncertainty"], scene, ReadOptions()))
            (work / "noise.txt").write_text("\n".join(map(repr, noise.tolist())))
            further = {"ranges": "class", "confidence": 0.95} if ranges else {"top": 1}
            with silent_about(work):
                report = run(
                    path,
                    endmembers=endmembers,
                    classes=classes,
                    by="class",
                    method="nnls",
                    normalize=normalize,
                    average="plain",
                    draws=draws,
                    draw_spectra=draw_spectra,
                    noise=work / "noise.txt",
                    seed=seed,
                    ignore_nm=IGNORED,
                    mask=os.fspath(work / "clear.hdr"),
                    out_dir=work,
                    device="cpu",
                    threads=threads,
                    browse=False,
                    **further,
                )
        else:
            log.warning(f"{path}: no pixel is clear: the covers are empty")
        written = dict(zip(files, parts))
        maps = CoverMaps(work, scene.cube.stem, placement, quality)
        maps.write_product(written, columns)
        counts = {str(value): int((maps.quality == value).sum()) for value in range(SNOW + 1)}
        about = {
            "unmix": VERSION,
            "granule": path.name,
            "library": Path(endmembers).name,
            "mask": Path(beside["mask"]).name,
            "uncertainty": Path(beside["uncertainty"]).name,
            "classes": classes,
            "urban": urban,
            "coast": coast,
            "ranges": 0.95 if ranges else None,
            "draws": draws,
            "draw_spectra": draw_spectra,
            "seed": seed,
            "normalize": normalize,
            "qc": counts,
            "pixels": report["pixels"]["solved"] if report else 0,
            "relative_rmse": report["fit"]["relative_rmse"] if report else None,
        }
        write_new(written[".json"], json.dumps(about, indent=1).encode())
    return about | {"files": [str(one) for one in files.values()]}


@contextlib.contextmanager
def silent_about(folder: Path) -> Iterator[None]:
    """Leave out what the log says of files in a folder that nobody sees, such as that a run there can be resumed."""

    def is_of_others(record: logging.LogRecord) -> bool:
        return os.fspath(folder) not in record.getMessage()

    log.addFilter(is_of_others)
    try:
        yield
    finally:
        log.removeFilter(is_of_others)


def sibling(path: Path, kind: str, ending: str) -> Path:
    """Return the file beside a granule with ``_KIND_`` in place of ``_RFL_``, or with an ending after its stem."""
    places = [
        path.with_name(path.name.replace("_RFL_", f"_{kind}_")),
        path.with_name(f"{path.stem}_{ending}{path.suffix}"),
    ]
    for place in places:
        if place != path and place.exists():
            return place
    raise CubeError(f"{path}: has no {kind} file beside it ({places[0].name}); name it with `{ending}`")


def columns_of(endmembers: str | os.PathLike[str], classes: str | None) -> tuple[dict[str, int], int]:
    """Return the place of each cover's class among the library's classes, and the number of spectra."""
    library = load_library(endmembers, classes=classes)
    names = list(dict.fromkeys(library.classes or ()))
    found = {cover: [k for k, name in enumerate(names) if name.lower() in known] for cover, known in COVERS.items()}
    if len(names) != len(COVERS) or any(len(places) != 1 for places in found.values()):
        raise LibraryError(
            f"{endmembers}: its classes are {', '.join(names) or 'none'}, but the product's pv, npv and soil; name "
            "their column with "
            "`classes`"
        )
    return {cover: places[0] for cover, places in found.items()}, len(library.names)


def quality_of_granule(scene: Scene, mask: Cube, rasters: Mapping[int, str | None]) -> np.ndarray:
    """Return the swath's QC, int16 (lines, samples): 0 is clear, NODATA has no reflectance; ``rasters`` add flags."""
    cube, names = scene.cube, [name.casefold() for name in band_names(mask)]
    lacking = [flag for flag in (*CLOUD_FLAGS, *WATER_FLAGS) if flag not in names]
    if lacking:
        raise CubeError(f"{mask.path}: has no band '{lacking[0]}'; it takes EMIT's L2A mask")
    more = {value: open_mask(text, "mask_out") for value, text in rasters.items() if text is not None}
    for raster in (mask, *(one.cube for one in more.values())):
        if (raster.lines, raster.samples) != (cube.lines, cube.samples):
            raise CubeError(
                f"{raster.path}: has {raster.lines} lines of {raster.samples} samples, the granule {cube.lines} of "
                f"{cube.samples}"
            )
        refuse_elsewhere(raster, cube, "mask")
    if scene.wavelengths is None:
        raise CubeError(f"{cube.path}: has no wavelengths")
    green, short = (int(np.abs(scene.wavelengths - wave).argmin()) for wave in (GREEN, SHORTWAVE))
    quality = np.zeros((cube.lines, cube.samples), np.int16)
    for lines, raw in read_blocks(cube, cut(cube, BLOCK_BYTES)):
        flags = by_pixel(read_lines(mask, lines), mask.interleave)
        Y = scene.spectra(raw).reshape(*flags.shape[:2], -1)
        a, b = Y[..., green], Y[..., short]
        here = quality[lines]
        here[(a - b > SNOW_INDEX * (a + b)) & (a + b > 0)] = SNOW
        each = {
            WATER: np.isin(flags[..., [names.index(flag) for flag in WATER_FLAGS]], 1).any(axis=2),
            URBAN: np.zeros(here.shape, bool),
            CLOUD: (flags[..., [names.index(flag) for flag in CLOUD_FLAGS]] != 0).any(axis=2),  # unknown is not clear
        }
        for value, flagged in each.items():  # of several, the last that is set here comes first in the product's order
            if value in more:
                flagged = flagged | ~more[value].keeps(lines, slice(0, cube.samples))
            here[flagged] = value
        here[scene.missing(raw).reshape(here.shape)] = NODATA
    return quality


def noise_of_granule(cube: NoiseCube) -> np.ndarray:
    """Return the standard deviation (L,) of the noise of each band in use: the median over evenly spaced lines."""
    lines = np.unique(np.linspace(0, cube.part.cube.lines - 1, LOOKED_AT).astype(int))
    values = np.concatenate([cube.read(int(line), 1) for line in lines])
    known = values[np.isfinite(values).all(axis=1)]
    if not len(known):
        raise CubeError(f"{cube.path}: has no pixel with a standard deviation in every band")
    return np.median(known, axis=0)


def write_image(stem: Path, values: np.ndarray, fields: Mapping[str, Any]) -> tuple[Path, Path]:
    """Write values (lines, bands, samples) as an ENVI pair with these fields; return image and header."""
    lines, bands, samples = values.shape
    image, header = stem.with_suffix(".img"), stem.with_suffix(".hdr")
    values.tofile(image)
    about = str(fields.get("description", stem.name))
    others = {name: value for name, value in fields.items() if name != "description"}
    header.write_text(image_header(lines, samples, bands, code_of(values.dtype), about, others), encoding="utf-8")
    return image, header


class CoverMaps:
    """The maps of a run, from which those of a product are made."""

    def __init__(self, folder: Path, stem: str, placement: Placement, quality: np.ndarray) -> None:
        self.folder, self.stem, self.placement = folder, stem, placement
        self.lines = slice(0, placement.shape[0])
        # Placed: NODATA outside of the swath.
        self.quality = self.placed(quality[:, None])[:, 0]

    def placed(self, swath: np.ndarray) -> np.ndarray:
        """Return a map (lines, bands, samples) on the ground, of the same type."""
        return self.placement.place(swath, self.lines, NODATA)

    def read(self, name: str) -> np.ndarray:
        """Return a map of the run on the ground, float32 (lines, bands, samples); missing where QC is not 0."""
        image = self.folder / f"{self.stem}_{name}.img"
        # No pixel was clear, so there was no run.
        if not image.exists():
            return np.full((self.quality.shape[0], 2 * (len(COVERS) + 1), self.quality.shape[1]), NODATA, np.float32)
        with work_map(name, image, image.with_suffix(".hdr")) as work:
            found = self.placed(work.values)
        found.transpose(0, 2, 1)[self.quality != 0] = NODATA
        return found

    def write_product(self, written: Mapping[str, Path], columns: Mapping[str, int]) -> None:
        """Write the product's rasters and browse image to the temporary files ``written`` of `product_files`."""
        drawn = self.read("average")
        half, has_ranges = drawn.shape[1] // 2, "PVRANGE" in written
        ranges = self.read("range") if has_ranges else drawn
        for cover, k in columns.items():
            word = cover.upper()
            self.write(written, word, drawn[:, [k]], f"{cover} fractional cover")
            self.write(written, f"{word}UNC", drawn[:, [half + k]], f"{cover} uncertainty")
            if has_ranges:
                self.write(written, f"{word}RANGE", ranges[:, 2 * k : 2 * k + 2], f"{cover} least and largest")
        self.write(written, "QC", self.quality[:, None], "QC: 1 cloud, 2 urban, 3 water, 4 snow or ice")
        colours = np.stack([drawn[:, columns[cover]] for cover in ("bare", "pv", "npv")], axis=-1)
        image = np.full((*self.quality.shape, 4), 255, np.uint8)
        image[..., :3] = np.round(255 * np.clip(np.where(colours == NODATA, 0, colours), 0, 1))
        image[self.quality == NODATA] = 0
        write_new(written[".png"], png(image))

    def write(self, written: Mapping[str, Path], word: str, values: np.ndarray, about: str) -> None:
        """Write a raster (lines, bands, samples) as COG, with bands that are named after the file."""
        name = f"{LEVEL}{word}"
        names = [name] if values.shape[1] == 1 else [f"{name} lower", f"{name} upper"]
        fields = {
            **self.placement.fields,
            "description": f"EMIT L2B {about}, by unmix",
            "band names": names,
            "data ignore value": f"{NODATA:g}",
        }
        image, header = write_image(self.folder / "raster", np.ascontiguousarray(values), fields)
        convert = require("cog").convert
        assert convert is not None
        kind = "class" if values.dtype.kind == "i" else "fraction"  # overviews of numbers are not means
        with work_map(kind, image, header) as work:
            convert(work, written[word])
