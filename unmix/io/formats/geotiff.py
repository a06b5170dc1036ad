"""Read GeoTIFF through rasterio (extra `geo`): plain files, files behind an ENVI header, EnMAP L2A with metadata."""

import contextlib
import functools
import itertools
import logging
import os
import re
import threading
import warnings
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import CubeError, brief
from ..cube import Cube, Kind, as_stored, bands_named
from ..fields import DTYPES, axis_of_names, header_beside, spectral_fields
from ..ground import map_fields
from ..opening import read_small
from ..read import MOST_TOGETHER, ScratchFile
from ..remote import RemotePath, fetched, files_named
from .cf import names_of_no_data, numbers_in
from .cut_short import directory_of, end_of, refuse_short
from .header import MOST_BANDS, axis_in_nanometres, read_header, says_tiff, sizes_in

log = logging.getLogger("unmix")
PLAIN = Kind(
    "GeoTIFF",
    "bands of one real type, in tiles or strips, compressed or not (rasterio, extra `geo`)",
    "`wavelength`, `fwhm`, `bbl` of each band, GDAL's `IMAGERY` domain, the bands' descriptions, an ENVI header of its "
    "size beside it",
    "the TIFF's, in an ENVI header's words",
    "GDAL's nodata, scale and offset; an alpha band or a mask of its own, where it is 0",
)
BEHIND_HEADER = Kind(
    "GeoTIFF behind an ENVI header",
    "as GeoTIFF; the header says `file type = TIFF` or `interleave = tif` (HySU); either may be named",
    "the header's, else the TIFF's",
    "the header's, else the TIFF's",
    "the header's, else the TIFF's",
)
ENMAP = Kind(
    "EnMAP L2A",
    "`*-SPECTRAL_IMAGE.TIF`, with `*-METADATA.XML` beside it; DESIS's, and each spectrometer's of L1B, too",
    "`wavelengthCenterOfBand`, `FWHMOfBand`; DESIS: `wavelengthWidthOfBand`",
    "the TIFF's",
    "the TIFF's nodata; `GainOfBand`, `OffsetOfBand`",
)
KINDS = (PLAIN, BEHIND_HEADER, ENMAP)
# Bytes of GDAL's cache of decoded blocks; its default is a twentieth of the machine's memory.
CACHE = 64 * 2**20
# GDAL asks no server: its requests go to a proxy that is none, and no address has an ending that `/vsicurl` takes.
OFFLINE = dict.fromkeys(("GDAL_HTTP_PROXY", "GDAL_HTTPS_PROXY"), "127.0.0.1:0") | {
    "CPL_VSIL_CURL_ALLOWED_EXTENSIONS": ".none"
}
# Bytes of the longest EnMAP metadata that is read; real files have 1 MiB.
LONGEST_XML = 16 * 2**20
# Bytes that are decoded at a time where a cube is inflated, while as many are written.
LARGEST_PIECE = 160 * 2**20
# Bytes of a tile above which a warning is given.
LARGE_TILE = 128 * 2**20
# Tags of a whole file with a number for each band.
LISTED = "wavelength", "fwhm"
# First and end of lines and of samples.
Part = tuple[tuple[int, int], tuple[int, int]]


def gdal(what: str = "GeoTIFF needs") -> Any:
    """Return rasterio, silenced; raise `CubeError`, which begins with ``what``, where it is not installed."""
    try:
        import rasterio
    except ImportError:
        raise CubeError(f"{what} rasterio: pip install 'unmix[geo]'") from None
    silence(rasterio)
    return rasterio


@functools.cache
def silence(rasterio: Any) -> None:
    """Keep rasterio from writing to stderr: errors that matter are raised as exceptions."""
    logging.getLogger("rasterio").propagate = False
    warnings.filterwarnings("ignore", category=rasterio.errors.NotGeoreferencedWarning)


def settings() -> Any:
    """Return the GDAL settings that every call into it runs under."""
    return gdal().Env(GDAL_CACHEMAX=CACHE, **OFFLINE)


@dataclass(eq=False)
class OwnMask(Cube):
    """The mask of a GeoTIFF as a cube of one band, 0 where there is no data: its alpha bands, else its own mask."""

    of: "GeoTiffCube"
    alphas: list[int]
    held: tuple[int, np.ndarray] = (0, np.empty((0, 0), bool))

    @property
    def height(self) -> int:
        """Lines of a row of tiles."""
        return int(self.of.source.block_shapes[0][0])

    def fill(self, lines: slice, filled: np.ndarray) -> None:
        """Fill an array with whole lines."""
        with self.of.lock, settings():
            first, held = self.held
            if lines.start < first or lines.stop > first + len(held):
                first = lines.start - lines.start % self.height  # whole rows of tiles, each decoded once
                last = min(self.of.lines, -(-lines.stop // self.height) * self.height)
                read = self.of.source.read if self.alphas else self.of.source.read_masks
                held = (read(self.alphas or [1], window=((first, last), (0, self.samples))) != 0).all(axis=0)
                self.held = first, held
        filled[0] = held[lines.start - first : lines.stop - first]

    def storage(self) -> dict[str, Any]:
        """Return where the file has the mask; see `unmix.io.cube.Cube.storage`."""
        return {"alpha": self.alphas}


@dataclass(eq=False)
class GeoTiffCube(Cube):
    """A GeoTIFF; see `unmix.io.cube.Cube` for the attributes. ``source`` is open, and one thread at a time may use it.

    ``numbers`` are those of its bands in the file, from 1.

    Where a row of tiles takes more than `unmix.io.read.MOST_TOGETHER`, the cube is read from a ``scratch`` file.
    """

    source: Any
    numbers: list[int]
    lock: Any = field(default_factory=threading.Lock)

    def fill(self, lines: slice, filled: np.ndarray) -> None:
        """Fill an array with whole lines as stored."""
        self.decode(filled, self.numbers, ((lines.start, lines.stop), (0, self.samples)))

    def decode(self, filled: np.ndarray, bands: list[int], window: Part) -> None:
        """Fill an array with the bands (from 1) of a window ``((first, end), (first, end))`` of lines and samples."""
        try:
            with fetched(self.path, lambda: self.stretches(bands, window)), self.lock, settings():
                self.source.read(bands, window=window, out=filled)
        except Exception as error:  # GDAL raises many kinds of errors for a damaged file
            place = f"lines {window[0][0] + 1} to {window[0][1]}"
            raise CubeError(f"{self.path}: {place} cannot be read: {brief(error.__cause__ or error)}") from None

    def stretches(self, bands: list[int], window: Part) -> list[tuple[int, int]]:
        """Return the byte ranges ``(offset, bytes)`` of bands (from 1) of a window, from GDAL's tags."""
        (top, bottom), (left, right) = window
        height, width = self.source.block_shapes[0]
        numbers = [1] if pixel_by_pixel(self.source) else bands
        tiles = itertools.product(
            numbers, range(top // height, -(-bottom // height)), range(left // width, -(-right // width))
        )
        found = []
        with self.lock:
            for band, down, across in tiles:
                offset, size = (
                    self.source.get_tag_item(f"BLOCK_{of}_{across}_{down}", "TIFF", bidx=band)
                    for of in ("OFFSET", "SIZE")
                )
                if offset is not None and size is not None:  # else a tile that was never written
                    found.append((int(offset), int(size)))
        return found

    def decoded(self) -> Iterator[tuple[list[int], np.ndarray]]:
        """Yield every tile once, several together: their place (band, line, sample), values (bands, lines, samples)."""
        height, width = self.source.block_shapes[0]
        apart = not pixel_by_pixel(self.source)
        column = height * self.dtype.itemsize * (1 if apart else self.bands)
        # Pieces are whole rows of tiles of several bands: GDAL decodes them on all cores. 450 MB in tiles of 512 x 512
        # took 6 to 8 s tile by tile, now 1.6, or 3.1 with all bands of a pixel together.
        across = -(-self.samples // width)
        if column * self.samples > LARGEST_PIECE:
            across = max(1, LARGEST_PIECE // (column * width))
        together = max(1, LARGEST_PIECE // (column * min(self.samples, across * width))) if apart else self.bands
        for band, line, sample in itertools.product(
            range(0, self.bands, together), range(0, self.lines, height), range(0, self.samples, across * width)
        ):
            bands = range(band, min(band + together, self.bands))
            bottom, right = min(line + height, self.lines), min(sample + across * width, self.samples)
            values = np.empty((len(bands), bottom - line, right - sample), self.dtype)
            self.decode(values, [self.numbers[each] for each in bands], ((line, bottom), (sample, right)))
            yield [band, line, sample], values

    def inflate(self) -> Any:
        """Write all bands into a scratch file, each tile decompressed once, and return that."""
        from ..scratch import from_pieces

        return from_pieces(self.path, [self.bands, self.lines, self.samples], self.dtype, self.decoded())

    @property
    def sidecars(self) -> list[Path]:
        """Files that GDAL opened beside it: masks, overviews, world files."""
        return [] if isinstance(self.path, RemotePath) else [Path(name) for name in self.source.files]

    def storage(self) -> dict[str, Any]:
        """Return how the file stores the cube; see `unmix.io.cube.Cube.storage`."""
        pixels = "pixel" if pixel_by_pixel(self.source) else "band"
        compression = self.source.compression.name if self.source.compression is not None else None
        return {
            "tiles": " x ".join(map(str, self.source.block_shapes[0])),
            "stored_by": pixels,
            "compression": compression,
        }


def open_geotiff(path: Path) -> GeoTiffCube:
    """Open a GeoTIFF; read no pixel. An ENVI header or EnMAP's metadata beside it replaces its own metadata."""
    rasterio = gdal()
    try:
        with settings():
            how = {"opener": functools.partial(open_remote, path)} if isinstance(path, RemotePath) else {}
            named = path.name if isinstance(path, RemotePath) else path
            source = rasterio.open(named, driver="GTiff", NUM_THREADS="ALL_CPUS", **how)
            refuse_short(path, end_of(source, pixel_by_pixel(source)))
            return describe(path, source)
    except CubeError:
        raise
    except Exception as error:
        refuse_short(path, directory_of(path))
        raise CubeError(f"{path}: cannot be read as TIFF: {brief(error.__cause__ or error)}") from None


def open_remote(path: RemotePath, name: str, mode: str = "rb", **_: Any) -> Any:
    """Open a remote file for GDAL, and refuse the twenty neighbours that GDAL looks for without asking the server."""
    if os.path.basename(name) != path.name:
        raise FileNotFoundError(2, "not looked for", name)
    return path.open("rb", 0)


def describe(path: Path, source: Any) -> GeoTiffCube:
    """Return the cube of an open GeoTIFF."""
    pages = len(source.subdatasets)
    if pages > 1:
        raise CubeError(
            f"{path}: has {pages} pages, but a cube's bands must be in one: combine them with GDAL, or write them with spectral.envi"
        )
    if source.count > MOST_BANDS:
        raise CubeError(f"{path}: has {source.count} bands, more than any spectrometer; at most {MOST_BANDS} are read")
    alphas = alphas_of(path, source)
    numbers = [number for number in source.indexes if number not in alphas]
    kinds = {source.dtypes[number - 1] for number in numbers}
    dtype = np.dtype(kinds.pop()) if len(kinds) == 1 and "complex_int16" not in kinds else None
    if dtype not in DTYPES.values():
        raise CubeError(
            f"{path}: its bands are of type {', '.join(sorted(set(source.dtypes)))}; "
            "cubes have one, whole or real (of 32 or 64 bits)"
        )
    assert dtype is not None
    cube = GeoTiffCube(
        path, path.stem, PLAIN.name, source.height, source.width, len(numbers), dtype, "bsq", source, numbers
    )
    cube.lines_together = min(cube.lines, source.block_shapes[0][0])
    line = cube.samples * cube.bands * dtype.itemsize
    if cube.lines_together > 1 and cube.lines_together * line > MOST_TOGETHER:
        cube.scratch, cube.lines_together = ScratchFile(cube.inflate), 1
    tile = int(np.prod(source.block_shapes[0])) * dtype.itemsize * (cube.bands if pixel_by_pixel(source) else 1)
    if tile > LARGE_TILE:
        cube.problems.append(
            f"{path}: a tile takes {tile >> 20} MiB and is held in memory as a whole, whatever `memory` allows"
        )
    if not isinstance(path, RemotePath):
        # GDAL reads .aux.xml, .tfw and the like.
        cube.beside = [Path(name) for name in source.files if Path(name) != path]
    add_own_metadata(cube)
    for add_metadata in BESIDE:
        add_metadata(cube)
    if alphas:
        cube.problems.append(
            f"{path}: {bands_named([number - 1 for number in alphas])} is called alpha: no spectrum, but a mask, used "
            "where it is 0"
        )
    elif any({flag.name for flag in flags} == {"per_dataset"} for flags in source.mask_flag_enums):
        cube.problems.append(f"{path}: has a mask of its own, by which pixels are left out")
    else:
        return cube
    cube.mask = OwnMask(
        path,
        cube.stem,
        cube.format,
        cube.lines,
        cube.samples,
        1,
        np.dtype(np.uint8),
        "bsq",
        cube,
        alphas,
        lines_together=cube.lines_together,
    )
    return cube


def alphas_of(path: Path, source: Any) -> list[int]:
    """Return the numbers (from 1) of alpha bands without wavelength; none where a header beside counts all bands."""
    said = zip(source.indexes, source.colorinterp, source.descriptions)  # which some programs write alone
    found = [number for number, kind, name in said if "alpha" in (kind.name, str(name).strip().lower())]
    tags = {
        number: {key.lower() for key in (source.tags(number) | source.tags(number, ns="IMAGERY"))} for number in found
    }
    found = [number for number in found if not tags[number] & {"wavelength", "central_wavelength_um"}]
    header = header_beside(path) if found else None
    is_counted = header is not None and read_header(header).get("bands", "").strip() == str(source.count)
    return [] if is_counted or len(found) == source.count else found


def pixel_by_pixel(source: Any) -> bool:
    """Return whether a tile holds all bands."""
    return bool(source.profile.get("interleave") == "pixel")


def add_own_metadata(cube: GeoTiffCube) -> None:
    """Set what the TIFF itself holds, as GDAL reads it: metadata of its bands, scale, nodata, map."""
    source = cube.source
    tags = [{key.lower(): word for key, word in source.tags(number).items()} for number in cube.numbers]
    imagery = [source.tags(number, ns="IMAGERY") for number in cube.numbers]
    waves, fwhm = numbers_of(tags, "wavelength"), numbers_of(tags, "fwhm", gaps=True)
    units = {words.get("wavelength_units", "") for words in tags}
    if len(units) > 1:
        raise CubeError(f"{cube.path}: its bands have wavelengths in different units: {', '.join(sorted(units))}")
    unit = units.pop()
    if waves is None:  # as GDAL has it from 3.10 on
        waves, fwhm = numbers_of(imagery, "CENTRAL_WAVELENGTH_UM"), numbers_of(imagery, "FWHM_UM", gaps=True)
        unit = "um"
    for given in (source.tags(ns="ENVI"), source.tags()) if waves is None else ():  # lists of all bands
        listed = {key.lower(): numbers_in(word.strip("{} \n")) for key, word in given.items()}
        waves, fwhm = (one if one is not None and len(one) == cube.bands else None for one in map(listed.get, LISTED))
        unit = next((word for key, word in given.items() if key.lower() == "wavelength_units"), "")
        if waves is not None:
            break
    cube.wavelengths, cube.fwhm = axis_in_nanometres(waves, fwhm, unit, cube.path, cube.problems)
    good = numbers_of(tags, "bbl")
    cube.good_bands = None if good is None else good != 0
    places = [number - 1 for number in cube.numbers]
    gain, offset = np.array(source.scales, float)[places], np.array(source.offsets, float)[places]
    if not np.all(np.isfinite(gain) & (gain != 0) & np.isfinite(offset)):
        raise CubeError(f"{cube.path}: a scale or offset of its bands is not finite, or a scale is 0; give `scale`")
    if np.any(gain != 1) or np.any(offset != 0):
        cube.gain, cube.offset = gain, offset
    nodata = {value for value in (source.nodatavals[at] for at in places) if value is not None and value == value}
    tagged = (numbers_in(source.tags()[name]) for name in names_of_no_data(source.tags()))
    nodata = nodata or {float(one[0]) for one in tagged if one is not None}
    if len(nodata) > 1:
        raise CubeError(f"{cube.path}: its bands have {len(nodata)} different nodata values; give `nodata`")
    cube.nodata = as_stored(nodata.pop() if nodata else None, cube.dtype, cube.path, cube.problems)
    names = [name for name in (source.descriptions[at] for at in places) if name]
    if len(names) == cube.bands:
        cube.fields["band names"] = ", ".join(" ".join(name.replace(",", ";").split()) for name in names)
    if cube.wavelengths is None:
        cube.wavelengths = axis_of_names(cube.fields, cube.bands, cube.path)
    cube.fields |= envi_map_fields(cube)


def numbers_of(tags: list[dict[str, str]], key: str, gaps: bool = False) -> np.ndarray | None:
    """Return the number under a key for every band; None where one lacks it, NaN for those bands with ``gaps``."""
    try:
        has_gaps = gaps and any(key in words for words in tags)
        return np.array([float(words.get(key, "nan") if has_gaps else words[key]) for words in tags])
    except (KeyError, ValueError):
        return None


def envi_map_fields(cube: GeoTiffCube) -> dict[str, str]:
    """Return the map as ENVI header fields, which GDAL writes and reads back to show that nothing is lost."""
    source = cube.source
    if source.crs is None and source.transform.is_identity:
        return geo_points(cube)
    return map_fields(source.crs, source.transform, cube.path, cube.problems)


def geo_points(cube: GeoTiffCube) -> dict[str, str]:
    """Return ENVI's geo points of four ground control points in degrees; nothing, with a warning, of others."""
    points, system = cube.source.gcps
    if not points and cube.source.rpcs is not None:
        return {"rpc info": rpc_info(cube.source.rpcs)}
    if not points:
        return {}
    if len(points) != 4 or system is None or not system.is_geographic:
        cube.problems.append(
            f"{cube.path}: lies on the map by {len(points)} control points, which are not kept; gdalwarp brings it "
            "onto a grid"
        )
        return {}
    numbers = [number for one in points for number in (one.col + 1, one.row + 1, one.y, one.x)]
    return {"geo points": ", ".join(f"{number:.15g}" for number in numbers)}


def rpc_info(rpcs: Any) -> str:
    """Return rational polynomial coefficients as ENVI writes them: 93 numbers, the last three ENVI's own."""
    of = "line", "samp", "lat", "long", "height"
    numbers = [getattr(rpcs, f"{name}_{end}") for end in ("off", "scale") for name in of]
    for name in ("line_num", "line_den", "samp_num", "samp_den"):
        numbers += getattr(rpcs, f"{name}_coeff")
    return ", ".join(f"{float(number):.17g}" for number in (*numbers, 0, 0, 1))


def envi_header(cube: GeoTiffCube) -> None:
    """Apply an ENVI header that declares the TIFF its data (seen: HySU); from another header, only wavelengths."""
    header = header_beside(cube.path)
    if header is None:
        return
    fields = read_header(header)
    if not says_tiff(fields):
        with contextlib.suppress(CubeError):  # it may be the header of another file
            wavelengths_beside(cube, header, fields)
        return
    cube.beside.append(header)
    sizes = sizes_in(fields, header)
    if sizes != [cube.lines, cube.samples, cube.bands]:
        raise CubeError(
            f"{header}: promises {' x '.join(map(str, sizes))} (lines, samples, bands), but {cube.path.name} has "
            f"{cube.lines} x "
            f"{cube.samples} x {cube.bands}"
        )
    spectral = spectral_fields(fields, cube.bands, cube.dtype, header, cube.problems)
    for name, value in spectral.items():
        if value is not None:
            setattr(cube, name, value)
    cube.fields |= fields
    cube.format = BEHIND_HEADER.name


def wavelengths_beside(cube: GeoTiffCube, header: Path, fields: dict[str, str]) -> None:
    """Take wavelengths, widths and good bands from a header of the TIFF's size, where the TIFF has no wavelengths."""
    if cube.wavelengths is not None or sizes_in(fields, header) != [cube.lines, cube.samples, cube.bands]:
        return
    axes = spectral_fields(fields, cube.bands, cube.dtype, header, cube.problems)
    if axes["wavelengths"] is None:
        return
    cube.beside.append(header)
    cube.wavelengths, cube.fwhm = axes["wavelengths"], axes["fwhm"]
    cube.good_bands = axes["good_bands"] if cube.good_bands is None else cube.good_bands
    log.info(f"{cube.path}: wavelengths are taken from {header.name}")
    if lost := [key for key in ("data gain values", "data offset values", "data ignore value") if key in fields]:
        cube.problems.append(
            f"{cube.path}: {', '.join(lost)} of {header.name} are not applied; it does so with 'file type = TIFF'"
        )


# The element of a band in the metadata of EnMAP and of DESIS, and those of its wavelength, FWHM, gain and offset.
DLR = {
    "bandID": ("wavelengthCenterOfBand", "FWHMOfBand", "GainOfBand", "OffsetOfBand"),
    "band": ("wavelengthCenterOfBand", "wavelengthWidthOfBand", "gainOfBand", "offsetOfBand"),
}


def enmap(cube: GeoTiffCube) -> None:
    """Apply EnMAP's or DESIS's metadata: ``*-METADATA.XML`` beside ``*-SPECTRAL_IMAGE*.TIF``."""
    product = re.fullmatch(r"(.*)-SPECTRAL_IMAGE(_VNIR|_SWIR|_COG)?\.TIFF?", cube.path.name.upper())
    if product is None:  # maps that unmix made of an EnMAP scene have its name and a suffix: they do not match
        return
    wanted = product[1] + "-METADATA.XML"
    own = cube.path.name[: len(product[1])] + "-METADATA.XML"
    xml = next(iter(files_named(cube.path.parent, [own, own.removesuffix(".XML") + ".xml"])), None)
    if xml is None:
        cube.problems.append(f"{cube.path}: {wanted} is not beside it: no wavelengths, and only the TIFF's own scale")
        return
    cube.beside.append(xml)
    try:
        root = ElementTree.fromstring(read_small(xml, LONGEST_XML))
        known, names = next(
            (found, names)
            for tag, names in DLR.items()
            if (found := [node for node in root.iter(tag) if node.find(names[0]) is not None])
        )
        numbers = [int(node.get("number") or node.findtext("bandNumber") or 0) for node in known]
        order = np.argsort(numbers, kind="stable")
        # Of L1B each spectrometer has a file of its own, and both one XML.
        count, part = cube.bands, product[2]
        order = order[:count] if part == "_VNIR" else order[-count:] if part == "_SWIR" else order
        bands, numbers = [known[k] for k in order], [numbers[k] for k in order]
        columns = [np.array([float(node.findtext(name, "")) for node in bands]) for name in names]
    except StopIteration:
        raise CubeError(f"{xml}: describes no bands, as the metadata of EnMAP and DESIS do") from None
    except (ElementTree.ParseError, ValueError, LookupError, OSError) as error:
        raise CubeError(f"{xml}: is not EnMAP's metadata: {brief(error)}") from None
    if len(bands) != cube.bands:
        raise CubeError(f"{xml}: describes {len(bands)} bands, but {cube.path.name} has {cube.bands}")
    if sorted(numbers) != list(range(numbers[0], numbers[0] + cube.bands)):
        raise CubeError(f"{xml}: its bands are not numbered one after the other, each once")
    if not np.all(np.isfinite(columns)) or not np.all(columns[2] != 0):
        raise CubeError(f"{xml}: a wavelength, FWHM, gain or offset of its bands is not finite, or a gain is 0")
    waves, fwhm, cube.gain, cube.offset = columns
    cube.wavelengths, cube.fwhm = axis_in_nanometres(waves, fwhm, "nm", xml, cube.problems)
    cube.format = ENMAP.name


# Metadata that may lie beside a TIFF, in the order in which it is applied.
BESIDE: tuple[Callable[[GeoTiffCube], None], ...] = (envi_header, enmap)
