"""How a scene is read."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from . import setting

option = partial(setting, group="Reading")


@dataclass(frozen=True)
class ReadSettings:
    """The options of `unmix.scene.ReadOptions`."""

    scale: float | None = option(
        None, "values",
        "Divide stored values by F, instead of applying the scale factor, gains and offsets in the file.",
        "F", kind="number",
    )  # fmt: skip
    nodata: float | None = option(
        None, "values",
        "Stored value that means no data; replaces the one in the file.",
        "V", kind="number",
    )  # fmt: skip
    bands: str = option(
        "good", "values",
        "Bands to use: good (by the bad band list in the file), all, auto (the good ones that are not dead, constant or out of "
        "physical range: more than half of a sample below 0, or above 1.2 where most bands are not), or a list from 1: 1-50,60.",
        "WHICH",
        is_first=True,
    )  # fmt: skip
    ignore_nm: str | None = option(
        None, "values",
        "Leave out bands with wavelengths in these ranges, in nm: 1350-1420,1800-1950; water is 1310-1490,1770-2050.",
        "A-B,...",
    )  # fmt: skip
    tie: str | None = option(
        None, "values",
        "Subtract from the bands in each of these windows of wavelengths, in nm, the first of them, in pixels and library, and "
        "leave that one out: 650-800,2030-2300.",
        "A-B,...",
    )  # fmt: skip
    lines: str | None = option(None, "values", "Read only lines A to B, counted from 0, B excluded.", "A:B")
    samples: str | None = option(
        None, "values",
        "Read only samples A to B, counted like lines; map information is shifted accordingly.",
        "A:B",
    )  # fmt: skip
    bbox: str | None = option(
        None, "values",
        "Read only the part that has all pixels whose centres are in this box, in the units of the map: of a swath with a "
        "lookup table (EMIT), too.",
        "W,S,E,N",
    )  # fmt: skip
    mask: str | None = option(
        None, "contents",
        "Leave out pixels where this raster of the same size is 0 or nodata; BAND is a number from 1, or a name.",
        "FILE[:BAND]", is_path=True,
        is_first=True,
    )  # fmt: skip
    mask_out: Sequence[str] = option(
        (), "contents",
        "Leave out pixels where this raster is not 0, as masks of EMIT and isofit flag them: `mask_out` 'mask.nc:Cloud flag'. May "
        "be repeated. {stem} and {dir} are each scene's own: '{dir}/{stem:RFL=MASK}.nc:Cloud flag' has MASK in place of RFL.",
        "FILE[:BAND]",
    )  # fmt: skip
    extract_mask: str | None = option(
        None, "contents",
        "Extract endmembers only from pixels where this raster is not 0 or nodata; all are unmixed. Names as for `mask`.",
        "FILE[:BAND]", is_path=True,
    )  # fmt: skip
    dataset: str | None = option(
        None, "values",
        "Path of the cube in an HDF5 file that is not of a known product, and the order of its axes.",
        "PATH[:yxb]",
    )  # fmt: skip
    wavelengths: str | None = option(
        None, "contents",
        "Use these wavelengths instead of the cube's: a text or CSV file with a line for each band, wavelength and optionally "
        "FWHM (nm; µm if all are below 25), or a file with an ENVI header; or, with `dataset`, their path in the HDF5 file.",
        "FILE",
    )  # fmt: skip
