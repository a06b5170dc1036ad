"""Items of STAC as four catalogues write them, made by hand beside small files: EMIT, Wyvern, Planet's Tanager, Sentinel-2."""

import json
from pathlib import Path

import h5py
import numpy as np
import products
import rasterio
from rasterio.transform import from_origin

SCALE, OFFSET, FILL = 1e-4, -0.1, 0


def written(folder: Path, name: str, assets: dict, version: str = "1.0.0", **properties) -> Path:
    """Write an item; return its path."""
    item = {
        "type": "Feature",
        "stac_version": version,
        "id": name,
        "geometry": None,
        "links": [],
        "properties": {"datetime": "2026-05-04T10:11:12Z"} | properties,
        "assets": assets,
    }
    path = folder / f"{name}.json"
    path.write_text(json.dumps(item))
    return path


def tiff(path: Path, values: np.ndarray, size: float = 10.0, **how) -> None:
    """Write (lines, samples, bands) as GeoTIFF, with a place."""
    lines, samples, bands = values.shape
    with rasterio.open(
        path,
        "w",
        driver="GTiff",
        width=samples,
        height=lines,
        count=bands,
        dtype=values.dtype,
        tiled=True,
        blockxsize=16,
        blockysize=16,
        compress="deflate",
        **{"crs": "EPSG:32633", "transform": from_origin(5e5, 5e6, size, size)} | how,
    ) as file:
        file.write(values.transpose(2, 0, 1))


def stored_of(truth: products.Truth) -> np.ndarray:
    """The scene as uint16 with a scale, an offset and a fill, as Sentinel-2 and its like have it."""
    return np.where(truth.fill[..., None], FILL, np.round((truth.Y - OFFSET) / SCALE)).astype(np.uint16)


def emit(folder: Path, truth: products.Truth) -> Path:
    """CMR's form: reflectance, uncertainty and mask, all "data", each by https and by s3, and nothing of bands."""
    products.emit(folder / "EMIT_L2A_RFL_001.nc", truth)
    for kind, dataset in (("RFLUNCERT", "reflectance_uncertainty"), ("MASK", "mask")):
        products.emit(folder / f"EMIT_L2A_{kind}_001.nc", truth)
        with h5py.File(folder / f"EMIT_L2A_{kind}_001.nc", "r+") as file:
            file.move("reflectance", dataset)
            if kind == "MASK":
                bands = len(truth.waves)
                file["sensor_band_parameters/mask_bands"] = np.array([f"flag {b}" for b in range(bands)], "S")
                del file["sensor_band_parameters/wavelengths"]
    assets = {
        f"001/{kind}{way}": {"href": f"{base}EMIT_L2A_{kind}_001.nc", "roles": ["data"], "title": f"{kind} by {way}"}
        for kind in ("RFL", "RFLUNCERT", "MASK")
        for way, base in (("https", "./"), ("s3", "s3://lp-prod-protected/EMIT/"))
    }
    assets |= {"browse": {"href": "./EMIT.png", "type": "image/png", "roles": ["browse"]}}
    return written(folder, "EMIT_L2A_RFL_001_X", assets)


def wyvern(folder: Path, truth: products.Truth) -> Path:
    """Wyvern's form: STAC 1.0, a key with spaces, wavelengths in µm, nodata and scale of each band; the file says none."""
    tiff(folder / "wyvern.tiff", stored_of(truth))
    tiff(folder / "mask.tiff", np.ones((*truth.fill.shape, 1), np.uint8))
    eo = [
        {"name": f"Band_{wave:.0f}", "center_wavelength": wave / 1000, "full_width_half_max": width / 1000}
        for wave, width in zip(truth.waves, truth.fwhm)
    ]
    raster = [{"nodata": FILL, "scale": SCALE, "offset": OFFSET, "unit": "1"}] * len(eo)
    assets = {
        "Thumbnail": {"href": "t.png", "type": "image/png", "roles": ["thumbnail"]},
        "Data Mask": {"href": "mask.tiff", "type": "image/tiff; application=geotiff", "roles": ["data-mask"]},
        "Cloud optimized GeoTiff": {
            "href": "wyvern.tiff",
            "type": "image/tiff; application=geotiff; profile=cloud-optimized",
            "roles": ["data"],
            "eo:bands": eo,
            "raster:bands": raster,
        },
    }
    return written(folder, "wyvern_dragonette-001_X", assets, **{"eo:cloud_cover": 3.0, "view:sun_elevation": 55.5})


def planet(folder: Path, truth: products.Truth) -> Path:
    """Planet's form: STAC 1.1, reflectance and radiance of Tanager, each "data", and ``bands``."""
    for name in ("sr", "radiance"):
        products.tanager(folder / f"tanager_{name}.h5", truth)
    bands = [
        {"name": f"{b}", "eo:center_wavelength": wave / 1000, "eo:full_width_half_max": width / 1000}
        for b, (wave, width) in enumerate(zip(truth.waves, truth.fwhm))
    ]
    assets = {
        f"basic_{name}_hdf5": {
            "href": f"tanager_{name}.h5",
            "type": "application/x-hdf5",
            "roles": ["data"],
            "bands": bands,
        }
        for name in ("sr", "radiance")
    }
    return written(folder, "20260504_101112_64_4001", assets, "1.1.0")


def sentinel(folder: Path, truth: products.Truth, **properties) -> Path:
    """Earth Search's form: a file for each band, of two sizes, SCL and JPEG 2000 besides; scale and offset in the item alone."""
    assets, stored = {}, stored_of(truth)
    for b in reversed(range(len(truth.waves))):
        is_fine = b < 3
        values = np.repeat(np.repeat(stored[:, :, b : b + 1], 2, 0), 2, 1) if is_fine else stored[:, :, b : b + 1]
        tiff(folder / f"B{b:02}.tif", values, 10.0 if is_fine else 20.0, nodata=FILL)
        about = {
            "roles": ["data", "reflectance"],
            "raster:bands": [{"nodata": FILL, "scale": SCALE, "offset": OFFSET}],
            "eo:bands": [
                {"name": f"B{b:02}", "center_wavelength": truth.waves[b] / 1000, "full_width_half_max": 0.0095}
            ],
        }
        assets[f"b{b}"] = {"href": f"./B{b:02}.tif", "type": "image/tiff; application=geotiff"} | about
        assets[f"b{b}-jp2"] = {"href": f"s3://sentinel/B{b:02}.jp2", "type": "image/jp2"} | about
    tiff(folder / "SCL.tif", np.ones((*truth.fill.shape, 1), np.uint8), 20.0)
    assets["scl"] = {"href": "./SCL.tif", "type": "image/tiff; application=geotiff", "roles": ["data", "reflectance"]}
    return written(folder, "S2A_33UXP_20260504_0_L2A", assets, **properties)


FORMS = {"emit": emit, "wyvern": wyvern, "planet": planet, "sentinel": sentinel}
# How each is named: of Planet's an asset.
NAMED = {"planet": "#basic_sr_hdf5"}
