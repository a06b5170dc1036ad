"""Write maps as GeoTIFF and cloud-optimized GeoTIFF, by GDAL."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ...settings.maps import row_of
from ..fields import origin_fields, scaling
from ..formats.header import words
from ..opening import path_of, write_new
from .work import TILE, WorkMap, check_read_back, tags_of_bands


def to_geotiff(work: WorkMap, out: Path) -> None:
    """Write a tiled, compressed GeoTIFF."""
    sides = {key: min(TILE, -(-n // 16) * 16) for key, n in zip(("blockysize", "blockxsize"), work.values.shape[::2])}
    write_tiff(work, out, driver="GTiff", tiled=True, interleave="band", predictor=(2, 3), **sides)


def to_cog(work: WorkMap, out: Path) -> None:
    """Write a cloud-optimized GeoTIFF; overviews are means, but nearest values where numbers name things."""
    means = "NEAREST" if row_of(work.name).names_things else "AVERAGE"
    predictors = "STANDARD", "FLOATING_POINT"
    write_tiff(work, out, driver="COG", blocksize=TILE, overview_resampling=means, predictor=predictors)


def write_tiff(work: WorkMap, out: Path, predictor: tuple[Any, Any], **how: Any) -> None:
    """Write a TIFF by a driver of GDAL, with its predictor of whole numbers or of reals, and check it."""
    from ..formats.geotiff import gdal, settings

    rasterio = gdal()
    from rasterio.shutil import copy, delete

    values, fields = work.values, work.fields
    with contextlib.ExitStack() as opened:
        opened.enter_context(settings())
        # Without an .aux.xml of class names, which nobody would find: the tags have them.
        opened.enter_context(rasterio.Env(GDAL_PAM_ENABLED=False))
        source = opened.enter_context(work_dataset(work))
        virtual = f"/vsimem{source.name}.vrt"  # a name of this process alone
        opened.callback(delete, virtual, "VRT")
        copy(source, virtual, driver="VRT")
        with rasterio.open(virtual, "r+") as target:
            if "map info" not in fields and source.gcps[0]:  # geo points are in degrees
                target.gcps = source.gcps[0], rasterio.crs.CRS.from_epsg(4326)
            elif "map info" not in fields and source.rpcs is not None:
                target.rpcs = source.rpcs
            write_tags(target, fields, values.shape[1], work.header)
        how |= {"compress": "DEFLATE", "bigtiff": "IF_SAFER", "predictor": predictor[values.dtype.kind == "f"]}
        copy(virtual, out, **how)
    with settings():
        check_tiff(out, values)


def write_tags(target: Any, fields: dict[str, str], bands: int, header: Path) -> None:
    """Write what a header says of a map and its bands into an open dataset of rasterio."""
    if colour_table_of(fields):
        target.write_colormap(1, dict(enumerate(colour_table_of(fields))))
        target.update_tags(
            1, CLASSES="; ".join(f"{i} {name}" for i, name in enumerate(words(fields, "class names") or []))
        )
    gain, offset = scaling(fields, bands, header)
    if gain is not None and offset is not None:  # of a map in steps
        target.scales, target.offsets = gain.tolist(), offset.tolist()
    origin = {key.replace(" ", "_").upper(): value for key, value in origin_fields(fields).items()}
    target.update_tags(TIFFTAG_SOFTWARE="unmix", DESCRIPTION=fields.get("description", "").strip(), **origin)
    for b, tags in enumerate(tags_of_bands(fields, bands), 1):
        target.set_band_description(b, tags.pop("name"))
        if tags:
            target.update_tags(b, **tags)
        if "wavelength" in tags:  # in micrometres, where GDAL 3.10 looks for them
            of_imagery = {"CENTRAL_WAVELENGTH_UM": tags["wavelength"], "FWHM_UM": tags.get("fwhm", "")}
            target.update_tags(
                b, ns="IMAGERY", **{tag: f"{float(word) / 1000:.6g}" for tag, word in of_imagery.items() if word}
            )


@contextlib.contextmanager
def work_dataset(work: WorkMap) -> Iterator[Any]:
    """Yield a work file as GDAL opens it, under names that it knows, in a folder of this process alone."""
    from ..formats.geotiff import gdal

    with tempfile.TemporaryDirectory(prefix="unmix-") as folder:
        pair = Path(folder) / f"{work.name}.img"
        if work.values.nbytes > 1:
            pair.symlink_to(path_of(work.file))
        else:  # GDAL does not recognise a file of one byte
            pair.write_bytes(work.values.tobytes() + b"\0")
        write_new(pair.with_suffix(".hdr"), work.text.encode(errors="surrogateescape"))
        with gdal().open(pair, driver="ENVI") as source:
            yield source


def colour_table_of(fields: dict[str, str]) -> list[tuple[int, ...]]:
    """Return red, green and blue of each class of a classification; of other maps none."""
    numbers = [int(word) for word in words(fields, "class lookup") or []]
    return [tuple(numbers[i : i + 3]) for i in range(0, len(numbers), 3)]


def check_tiff(path: Path, values: np.ndarray) -> None:
    """Raise `OutputError` where a TIFF differs from the work file's values (lines, bands, samples)."""
    from ..formats.geotiff import gdal

    with gdal().open(path, driver="GTiff") as written:
        samples = 0, values.shape[2]
        check_read_back(path, values, lambda b, rows: written.read(b + 1, window=((rows.start, rows.stop), samples)))
