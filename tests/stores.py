"""Writers of Zarr stores as archives hold them, by zarr and xarray alone; nothing of unmix. Each takes a `products.Truth`."""

import zipfile
from pathlib import Path

import numpy as np
import xarray
import zarr
from products import WKT, Truth, stored_as_int16

TRANSFORM = [30.0, 0.0, 257000.0, 0.0, -30.0, 4112000.0]


def dataset(scene: Truth) -> xarray.Dataset:
    """The scene as xarray has it, with coordinates."""
    lines, samples, _ = scene.Y.shape
    coordinates = {
        "wavelength": ("band", scene.waves / 1000, {"units": "um"}),
        "fwhm": ("band", scene.fwhm / 1000, {"units": "um"}),
        "x": ("x", 257015.0 + 30 * np.arange(samples)),
        "y": ("y", 4111985.0 - 30 * np.arange(lines)),
        "spatial_ref": ((), 0, {"crs_wkt": WKT}),
    }
    return xarray.Dataset({"reflectance": (("y", "x", "band"), scene.filled(np.nan))}, coordinates)


def xarray_v3(path: Path, scene: Truth, zarr_format: int = 3) -> None:
    """What ``Dataset.to_zarr`` writes: int16 with scale and fill, axes (y, x, band)."""
    encoding = {"reflectance": {"dtype": "int16", "scale_factor": 1e-4, "_FillValue": -9999, "chunks": (16, 8, 24)}}
    dataset(scene).to_zarr(path, mode="w", zarr_format=zarr_format, consolidated=zarr_format == 2, encoding=encoding)


def xarray_v2(path: Path, scene: Truth) -> None:
    """The same in Zarr v2, with consolidated metadata."""
    xarray_v3(path, scene, 2)


def xarray_zip(path: Path, scene: Truth) -> None:
    """The same in a ZIP archive."""
    folder = path.with_name("to_be_zipped.zarr")
    xarray_v3(folder, scene)
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                archive.write(file, file.relative_to(folder))


def floats(path: Path, scene: Truth) -> None:
    """float32 with NaN, the fill value as xarray writes it in v3, in base64."""
    dataset(scene).astype(np.float32).to_zarr(path, mode="w", zarr_format=3, consolidated=False)


def geozarr(
    path: Path, scene: Truth, shards: tuple[int, ...] = (24, 32, 32), chunks: tuple[int, ...] = (6, 8, 16)
) -> None:
    """GeoZarr: (band, y, x), sharded, int16, in the finest of two resolutions."""
    root = zarr.create_group(path, attributes={"multiscales": {"layout": [{"asset": "r30m"}, {"asset": "r60m"}]}})
    about = {
        "scale_factor": 1e-4,
        "_FillValue": -9999,
        "spatial:dimensions": ["north", "east"],
        "spatial:transform": TRANSFORM,
        "proj:code": "EPSG:32611",
    }
    for name, step in (("r30m", 1), ("r60m", 2)):
        stored = np.ascontiguousarray(stored_as_int16(scene)[::step, ::step].transpose(2, 0, 1))
        group = root.create_group(name)
        array = group.create_array(
            "data",
            shape=stored.shape,
            dtype="int16",
            chunks=chunks,
            shards=shards,
            fill_value=-9999,
            dimension_names=["spectral", "north", "east"],
            attributes=about,
        )
        array[...] = stored
        for key, values in (("wavelength", scene.waves), ("fwhm", scene.fwhm)):
            one = group.create_array(key, shape=values.shape, dtype="float64", dimension_names=["spectral"])
            one.attrs["units"] = "nm"
            one[...] = values


def eopf(path: Path, scene: Truth) -> None:
    """EOPF: Zarr v2, an array (y, x) of uint16 for each band, fill 0, scale and offset in ``_eopf_attrs``; another size beside it."""
    root = zarr.create_group(path, zarr_format=2)
    names = [f"b{k + 1:02d}" for k in range(scene.Y.shape[2])]
    root.attrs["stac_discovery"] = {
        "properties": {
            "bands": [
                {"name": name.upper(), "center_wavelength": wave / 1000, "full_width_half_max": width / 1000}
                for name, wave, width in zip(names, scene.waves, scene.fwhm)
            ]
        }
    }
    stored = np.where(scene.fill[..., None], 0, np.round(scene.Y * 10000) + 1000).astype(np.uint16)
    group = root.require_group("measurements/reflectance/r30m")
    about = {
        "_ARRAY_DIMENSIONS": ["y", "x"],
        "_eopf_attrs": {"add_offset": -0.1, "fill_value": 0, "scale_factor": 0.0001},
        "proj:epsg": 32611,
        "proj:transform": [*TRANSFORM, 0.0, 0.0, 1.0],
    }
    for k, name in enumerate(names):
        one = group.create_array(
            name, shape=stored.shape[:2], dtype="uint16", chunks=(16, 16), attributes=about, fill_value=0
        )
        one[...] = stored[..., k]
    coarse = root.require_group("conditions/geometry").create_array("angle", shape=(3, 4), dtype="float64")
    coarse.attrs["_ARRAY_DIMENSIONS"] = ["y", "x"]


def ome(path: Path, scene: Truth) -> None:
    """OME-Zarr 0.5: (t, c, z, y, x), two resolutions, uint16 counts, names of channels."""
    axes = [{"name": name, "type": kind} for name, kind in zip("tczyx", ("time", "channel", "space", "space", "space"))]
    levels = [{"path": str(k), "coordinateTransformations": []} for k in range(2)]
    channels = [{"label": f"{wave:g} nm"} for wave in scene.waves]
    root = zarr.create_group(
        path,
        attributes={
            "ome": {
                "version": "0.5",
                "multiscales": [{"axes": axes, "datasets": levels}],
                "omero": {"channels": channels},
            }
        },
    )
    stored = np.where(scene.fill[..., None], 0, np.round(scene.Y * 10000)).astype(np.uint16).transpose(2, 0, 1)
    for k in range(2):
        level = stored[:, :: k + 1, :: k + 1][None, :, None]
        array = root.create_array(
            str(k), shape=level.shape, dtype="uint16", chunks=(1, 1, 1, 16, 16), dimension_names=list("tczyx")
        )
        array[...] = level


STORES = {
    "xarray v3": (xarray_v3, "s.zarr"),
    "xarray v2": (xarray_v2, "s.zarr"),
    "zip": (xarray_zip, "s.zarr.zip"),
    "floats": (floats, "s.zarr"),
    "GeoZarr": (geozarr, "s.zarr"),
    "EOPF": (eopf, "s.zarr"),
    "OME-Zarr": (ome, "s.zarr"),
}
