"""How a scene is read."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from . import setting
from .presets import AUTO, PRESETS

option = partial(setting, group="Reading")


@dataclass(frozen=True)
class ReadSettings:
    """The options of `unmix.scene.ReadOptions`."""

    preset: str | None = option(
        None,
        "values",
        "A sensor, whose files need options beside what they say themselves (docs/sensors.md): these are set where "
        "they are not given. "
        "auto: that of the file's name or format.",
        choices=(AUTO, *PRESETS),
    )
    scale: float | None = option(
        None,
        "values",
        "Divide stored values by F, instead of applying the file's scale factor, gains and offsets.",
        "F",
        kind="number",
        is_first=True,
    )
    offset: float | None = option(
        None,
        "values",
        "Add V to the values after they are divided by `scale`, instead of the file's offsets; without `scale` the "
        "file's gains stay. "
        "Nodata is compared before.",
        "V",
        kind="number",
    )
    nodata: float | None = option(
        None,
        "values",
        "Stored value that means no data, instead of the file's.",
        "V",
        kind="number",
        is_first=True,
    )
    valid_max: float | None = option(
        None,
        "values",
        "Leave out pixels with a stored value above V in any band, such as saturated ones.",
        "V",
        kind="number",
    )
    bands: str = option(
        "good",
        "values",
        "Bands to use: good (by the file's bad band list), all, auto (good ones but those dead, constant or, in half "
        "of a sample, "
        "below 0 or, unlike most, above 1.2), or a list from 1: 1-50,60.",
        "WHICH",
        is_first=True,
    )
    ignore_nm: str | None = option(
        None,
        "values",
        "Leave out bands in these ranges, in nm, ends included; water is 1310-1490,1770-2050.",
        "A-B,...",
        is_first=True,
    )
    only_nm: str | None = option(
        None,
        "values",
        "Use only bands in these ranges, in nm, such as 2000-2450 for clays, carbonates and micas.",
        "A-B,...",
    )
    tie: str | None = option(
        None,
        "values",
        "Subtract the first band in each of these windows, in nm, from the others, in pixels and library, and leave it "
        "out: "
        "650-800,2030-2300.",
        "A-B,...",
        group="Model",
        needs=("endmembers",),
        excludes={"likelihood poisson": "since differences of counts are none"},
    )
    albedo: str | None = option(
        None,
        "values",
        "Unmix single-scattering albedo, in which intimate mixtures are linear, of pixels and library, whose "
        "reflectance is under these angles of incidence and emission, in degrees (Hapke 1981, isotropic); two more are "
        "the library's, if others. STEM_reflectance has the RMSE of the reflectance.",
        "I,E[,I,E]",
        group="Model",
        excludes={"tie": "which changes the bands, too", "mesma": "since it is for abundances of mixtures"}
        | dict.fromkeys(("noise", "likelihood"), "which is for bands as they are"),
    )
    free: str | None = option(
        None,
        "contents",
        "Library of spectra that each pixel may have more or less than nothing of, beside the endmembers: backgrounds, "
        "offsets, slopes; no sum counts them. STEM_free has their amounts.",
        "LIBRARY",
        group="Model",
        needs=("endmembers",),
        excludes=dict.fromkeys(("tie", "albedo"), "which changes the bands, too")
        | dict.fromkeys(("noise", "likelihood", "weights", "shade", "mesma"), "which is for bands as they are"),
    )
    lines: str | None = option(None, "values", "Read only lines A to B, counted from 0, B excluded.", "A:B")
    samples: str | None = option(
        None,
        "values",
        "Read only samples A to B, counted like lines; map information follows.",
        "A:B",
    )
    bbox: str | None = option(
        None,
        "values",
        "Read only the part with the pixels whose centres are in this box, in map units; of a swath with a lookup "
        "table (EMIT), too.",
        "W,S,E,N",
    )
    mask: str | None = option(
        None,
        "contents",
        "Leave out pixels where this raster is 0 or nodata (`mask_out`: where it is not 0); one on another grid by its "
        "value at their "
        "centres. BAND is a number, from 1, or a name.",
        "FILE[:BAND]",
        is_path=True,
        is_first=True,
    )
    mask_out: Sequence[str] = option(
        (),
        "contents",
        "Leave out pixels where this raster is anything but 0 (nodata of 255, too), such as clouds or 'mask.nc:Cloud "
        "flag'. May be "
        "repeated. "
        "{stem} and {dir} are each scene's: '{dir}/{stem:RFL=MASK}.nc:Cloud flag' has MASK in place of RFL.",
        "FILE[:BAND]",
    )
    extract_mask: str | None = option(
        None,
        "contents",
        "Extract endmembers only from pixels where this raster is not 0 or nodata; all are unmixed.",
        "FILE[:BAND]",
        is_path=True,
        group="Endmembers",
        excludes={"endmembers": "which are not extracted"},
    )
    dataset: str | None = option(
        None,
        "values",
        "The cube in an HDF5, Zarr or MATLAB file, and the order of its axes, which is needed where these have no "
        "names.",
        "PATH[:byx]",
    )
    wavelengths: str | None = option(
        None,
        "contents",
        "Wavelengths instead of the cube's: a text file with wavelength and, if known, FWHM of a band a line, CSV with a "
        "heading (nm; µm if the least is below 100), a file with an ENVI header or, with `dataset`, a path in the HDF5 file.",
        "FILE",
    )
