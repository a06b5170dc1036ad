"""Writers of files as archives hold them, from their documentation alone: h5py, rasterio, scipy; nothing of unmix.

Each takes a `Truth` and writes it as the product lays it out: axes, types, scale, fill, units, and where the
wavelengths stand.
"""

from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import rasterio
import scipy.io

WKT = 'PROJCS["WGS 84 / UTM zone 11N",AUTHORITY["EPSG","32611"]]'


@dataclass
class Truth:
    """A scene: reflectance ``Y`` (lines, samples, bands), bands ascending in nm, and the pixels that are fill."""

    Y: np.ndarray
    waves: np.ndarray
    fwhm: np.ndarray
    fill: np.ndarray

    def filled(self, value: float) -> np.ndarray:
        """Y with the fill value in its place."""
        return np.where(self.fill[..., None], value, self.Y)


def truth(lines: int = 7, samples: int = 19, bands: int = 24, seed: int = 0) -> Truth:
    """Mixtures of three smooth spectra, in steps of 1/10000 so that int16 holds them, with two pixels of fill."""
    random = np.random.default_rng(seed)
    waves = np.linspace(420.0, 2400.0, bands)
    E = np.stack([0.4 + 0.3 * np.sin(waves / 300.0 + k) for k in range(3)], axis=1)
    A = random.dirichlet(np.ones(3), (lines, samples))
    Y = np.round((A @ E.T + 0.002 * random.standard_normal((lines, samples, bands))) * 10000) / 10000
    fill = np.zeros((lines, samples), bool)
    fill[0, 0] = fill[-1, 3] = True
    return Truth(Y, waves, np.full(bands, 9.5), fill)


# What NEON calls its windows of water vapour: attributes of the group Reflectance, in nm.
NEON_WINDOWS = ((1340.0, 1445.0), (1790.0, 1955.0))


def neon(path: Path, scene: Truth, chunks: tuple[int, ...] | bool = True) -> None:
    """NEON AOP: int16, times 10000, (y, x, b), fill −9999."""
    stored = np.where(scene.fill[..., None], -9999, np.round(scene.Y * 10000)).astype(np.int16)
    with h5py.File(path, "w") as file:
        site = file.create_group("SJER/Reflectance")
        for number, window in enumerate(NEON_WINDOWS, 1):
            site.attrs[f"Band_Window_{number}_Nanometers"] = np.array(window)
        data = site.create_dataset("Reflectance_Data", data=stored, chunks=chunks, compression="gzip")
        data.attrs["Scale_Factor"] = np.array([10000.0])
        data.attrs["Data_Ignore_Value"] = np.array([-9999.0])
        for name, values in (("Wavelength", scene.waves), ("FWHM", scene.fwhm)):
            site.create_dataset(f"Metadata/Spectral_Data/{name}", data=values).attrs["Units"] = "nanometers"
        place = site.create_group("Metadata/Coordinate_System")
        place["Coordinate_System_String"] = WKT
        place["Map_Info"] = "UTM, 1.000, 1.000, 257000.0, 4112000.0, 1.0, 1.0, 11, North, WGS-84, units=Meters"
        place["EPSG Code"] = "32611"


def emit(path: Path, scene: Truth) -> None:
    """EMIT L2A: float32, (downtrack, crosstrack, b), fill −9999, one band that is not good."""
    with h5py.File(path, "w") as file:
        file.create_dataset(
            "reflectance", data=scene.filled(-9999.0).astype(np.float32), chunks=True, compression="gzip"
        )
        file["reflectance"].attrs["_FillValue"] = np.array([-9999.0], np.float32)
        good = np.ones(len(scene.waves), np.float32)
        good[4] = 0
        for name, values in (("wavelengths", scene.waves), ("fwhm", scene.fwhm), ("good_wavelengths", good)):
            file[f"sensor_band_parameters/{name}"] = np.asarray(values, np.float32)
        file.attrs["spatial_ref"] = WKT
        file.attrs["geotransform"] = np.array([-117.0, 0.00054, 0.0, 38.0, 0.0, -0.00054])
        lines, samples = scene.fill.shape
        for name in ("lon", "lat"):
            file[f"location/{name}"] = np.zeros((lines, samples))
        # A map that is the swath turned by half, with a border of fill, a gap filled (negative), and a pixel twice.
        y, x = np.mgrid[0 : lines + 2, 0 : samples + 3].astype(np.int32)
        tables = {"glt_y": lines + 1 - y, "glt_x": samples + 1 - x}
        border = (tables["glt_y"] < 1) | (tables["glt_y"] > lines) | (tables["glt_x"] < 1)
        for name, table in tables.items():
            table[border] = 0
            table[:, 0] = table[:, 1]
            table[3, 3] *= -1
            file[f"location/{name}"] = table


def aviris3(path: Path, scene: Truth) -> None:
    """AVIRIS-3 and -5: float32, (b, y, x), the fill in an array, wavelengths with a unit."""
    with h5py.File(path, "w") as file:
        stored = scene.filled(-9999.0).astype(np.float32).transpose(2, 0, 1)
        data = file.create_dataset("reflectance/reflectance", data=stored, chunks=True, compression="gzip")
        data.attrs["_FillValue"] = np.array([-9999.0], np.float32)
        for name, values in (("wavelength", scene.waves), ("fwhm", scene.fwhm)):
            file[f"reflectance/{name}"] = np.asarray(values, np.float32)
            file[f"reflectance/{name}"].attrs["units"] = "nm"
        place = file.create_dataset("transverse_mercator", data=np.int32(0))
        place.attrs["spatial_ref"] = WKT
        place.attrs["GeoTransform"] = "257000.0 5.0 0.0 4112000.0 0.0 -5.0"
        lines, samples = scene.fill.shape
        file["easting"], file["northing"] = np.arange(samples) * 5.0, np.arange(lines) * -5.0


def prisma(path: Path, scene: Truth) -> None:
    """PRISMA L2D: two uint16 cubes (y, b, x), wavelengths descending, some 0 and unused, the two overlapping by a band."""
    low, high = 0.06, 0.06 + 0.65535  # steps of 1e-5
    stored = np.round((scene.Y - low) / (high - low) * 65535).clip(1, 65535)
    stored = np.where(scene.fill[..., None], 0, stored).astype(np.uint16).transpose(0, 2, 1)
    visible = scene.waves <= 1000
    unused = np.where(scene.fill[:, None], 0, 777).astype(np.uint16)  # a pixel without data is 0 in all bands
    last = scene.waves[visible][-1]
    cubes = {
        # Descending: the last band first; then one that is not used.
        "Vnir": (
            np.concatenate([stored[:, visible][:, ::-1], unused], axis=1),
            [*scene.waves[visible][::-1], 0],
            [*scene.fwhm[visible][::-1], 0],
        ),
        # Its shortest band lies below VNIR's longest.
        "Swir": (
            np.concatenate([unused, stored[:, ~visible][:, ::-1], unused // 2], axis=1),
            [0, *scene.waves[~visible][::-1], last - 20],
            [0, *scene.fwhm[~visible][::-1], 9.5],
        ),
    }
    with h5py.File(path, "w") as file:
        for name, (values, waves, fwhm) in cubes.items():
            file[f"HDFEOS/SWATHS/PRS_L2D_HCO/Data Fields/{name.upper()}_Cube"] = values
            file.attrs[f"List_Cw_{name}"] = np.array(waves, np.float32)
            file.attrs[f"List_Fwhm_{name}"] = np.array(fwhm, np.float32)
            file.attrs[f"L2Scale{name}Min"], file.attrs[f"L2Scale{name}Max"] = np.float32(low), np.float32(high)
        file.attrs["Epsg_Code"] = np.int64(32611)
        lines, samples = scene.fill.shape
        corners = {"UL": (257000.0, 4112000.0), "LR": (257000.0 + 30 * samples, 4112000.0 - 30 * lines)}
        for corner, (east, north) in corners.items():
            file.attrs[f"Product_{corner}corner_easting"] = east
            file.attrs[f"Product_{corner}corner_northing"] = north


STRUCT = """GROUP=GridStructure
	GROUP=GRID_1
		GridName="HYP"
		XDim={samples}
		YDim={lines}
		UpperLeftPointMtrs=(257000.000000,4112000.000000)
		LowerRightMtrs=({east:.6f},{south:.6f})
		Projection=HE5_GCTP_UTM
		ZoneCode=11
"""


def tanager(path: Path, scene: Truth, group: str = "SWATHS") -> None:
    """Tanager: float32, (b, y, x), wavelengths, scale, offset and fill in the cube's attributes; a grid has its place."""
    with h5py.File(path, "w") as file:
        stored = np.where(scene.fill[..., None], -9999.0, (scene.Y - 0.25) / 0.5).astype(np.float32).transpose(2, 0, 1)
        fields = f"HDFEOS/{group}/HYP/Data Fields/surface_reflectance"
        lines, samples = scene.fill.shape
        if group == "GRIDS":
            words = STRUCT.format(lines=lines, samples=samples, east=257000 + 30 * samples, south=4112000 - 30 * lines)
            file["HDFEOS INFORMATION/StructMetadata.0"] = np.bytes_(words)
        data = file.create_dataset(fields, data=stored, chunks=True, compression="gzip")
        data.attrs.update(
            {
                "wavelengths": scene.waves,
                "fwhm": scene.fwhm,
                "scale_factor": np.array([0.5]),
                "add_offset": 0.25,
                "_FillValue": np.float32(-9999.0),
            }
        )


def stored_as_int16(scene: Truth) -> np.ndarray:
    """Times 10000, fill −9999."""
    return np.where(scene.fill[..., None], -9999, np.round(scene.Y * 10000)).astype(np.int16)


def geotiff(path: Path, scene: Truth, **options) -> None:
    """int16 with GDAL's scale and nodata, wavelengths in each band's metadata, tiles of 16; on a map."""
    lines, samples, bands = scene.Y.shape
    shape = {"height": lines, "width": samples, "count": bands, "dtype": "int16", "nodata": -9999}
    place = {"crs": "EPSG:32611", "transform": rasterio.Affine(30.0, 0.0, 257000.0, 0.0, -30.0, 4112000.0)}
    tiles = {"tiled": True, "blockxsize": 16, "blockysize": 16, "compress": "deflate"} | options
    with rasterio.open(path, "w", driver="GTiff", **shape, **place, **tiles) as file:
        file.write(stored_as_int16(scene).transpose(2, 0, 1))
        file.scales = [0.0001] * bands
        for b in range(bands):
            file.update_tags(b + 1, wavelength=scene.waves[b], wavelength_units="Nanometers", fwhm=scene.fwhm[b])


def enmap(path: Path, scene: Truth) -> None:
    """EnMAP L2A: int16, its scale and wavelengths in the XML beside it, one band's offset not 0 in the TIFF's own words."""
    lines, samples, bands = scene.Y.shape
    shape = {"height": lines, "width": samples, "count": bands, "dtype": "int16", "nodata": -9999}
    with rasterio.open(path, "w", driver="GTiff", **shape) as file:
        file.write(stored_as_int16(scene).transpose(2, 0, 1))
    nodes = [
        f'<bandID number="{b + 1}"><wavelengthCenterOfBand>{scene.waves[b]}</wavelengthCenterOfBand>'
        f"<FWHMOfBand>{scene.fwhm[b]}</FWHMOfBand><GainOfBand>0.0001</GainOfBand><OffsetOfBand>0</OffsetOfBand></bandID>"
        for b in reversed(range(bands))  # their numbers say which is which
    ]
    words = (
        "<level_X><specific><bandCharacterisation>" + "".join(nodes) + "</bandCharacterisation></specific></level_X>"
    )
    path.with_name(path.name.replace("-SPECTRAL_IMAGE.TIF", "-METADATA.XML")).write_text(words)


def matlab5(path: Path, scene: Truth) -> None:
    """Version 5, compressed: float64 with NaN, a picture beside it, wavelengths in µm."""
    picture = np.zeros((*scene.fill.shape, 3), np.uint8)
    values = {"cube": scene.filled(np.nan), "rgb": picture, "wl": scene.waves[None] / 1000, "fwhm": scene.fwhm / 1000}
    scipy.io.savemat(path, values, do_compression=True)


def matlab_flat(path: Path, scene: Truth) -> None:
    """Two axes, (bands, pixels), column by column, as the benchmark scenes are handed round."""
    lines, samples, bands = scene.Y.shape
    flat = scene.filled(np.nan).transpose(2, 1, 0).reshape(bands, -1)
    scipy.io.savemat(path, {"Y": flat, "nRow": lines, "nCol": samples, "wavelength": scene.waves})


def matlab73(path: Path, scene: Truth, **options) -> None:
    """Version 7.3: HDF5 behind 512 bytes of text, the axes turned round."""
    with h5py.File(path, "w", userblock_size=512) as file:
        data = file.create_dataset("cube", data=scene.filled(np.nan).T, **options)
        data.attrs["MATLAB_class"] = np.bytes_("double")
        file["wavelength"] = scene.waves[:, None]
        file["fwhm"] = scene.fwhm[:, None]
    with open(path, "r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\0\2IM")


ARCHIVES = {
    "geotiff": (geotiff, "s.tif"),
    "enmap": (enmap, "ENMAP01-X-SPECTRAL_IMAGE.TIF"),
    "matlab5": (matlab5, "s.mat"),
    "matlab_flat": (matlab_flat, "s.mat"),
    "matlab73": (matlab73, "s.mat"),
}
WRITERS = {"neon": neon, "emit": emit, "aviris3": aviris3, "prisma": prisma, "tanager": tanager}
