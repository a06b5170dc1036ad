"""Read the HDF5 and NetCDF-4 products of data centres: one function for each product, and a table of them."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from ...errors import CubeError, MethodError, brief
from ..cube import Kind, as_stored
from ..placement import Placement
from ..probe import survives
from ..read import refuse_links, refuse_links_out
from ..remote import RemotePath
from .cf import set_values
from .cf_place import describe, map_info, placed_by
from .hdf5 import (
    LAYOUTS,
    STRAIGHT,
    DatasetPart,
    Hdf5Cube,
    attribute,
    axes_named,
    beside,
    keep_open,
    of_bands,
    scaled_dataset,
    single,
    spectral,
    text_of_attribute,
    together,
    variable_in,
)
from .header import axis_in_nanometres
from .planes import by_planes, sets_of_planes
from .times import at_date, cube_of_times, dates_along, refuse_stack

# Attributes of NEON's group Reflectance: first and last wavelength, in nm, of each window in which water vapour absorbs
# all light.
NEON_WINDOWS = ("Band_Window_1_Nanometers", "Band_Window_2_Nanometers")


def neon(file: h5py.File, path: Path) -> Hdf5Cube | None:
    """Open NEON AOP: ``/SITE/Reflectance/Reflectance_Data`` (y, x, b)."""
    sites = [name for name in file if isinstance(file.get(f"{name}/Reflectance/Reflectance_Data"), h5py.Dataset)]
    if not sites:
        return None
    root = file[f"{sites[0]}/Reflectance"]
    data = root["Reflectance_Data"]
    cube = single(path, data, "yxb", spectral(root, "Metadata/Spectral_Data/Wavelength", "Metadata/Spectral_Data/FWHM"))
    cube.nodata = as_stored(attribute(data, "Data_Ignore_Value"), cube.dtype, path, cube.problems)
    scale = attribute(data, "Scale_Factor")
    if scale is not None:
        scaled_dataset(cube, 1.0 / scale if scale > 0 else np.nan, 0.0)
    cube.good_bands = outside_windows(cube, root)
    system = root.get("Metadata/Coordinate_System")
    system = system if isinstance(system, h5py.Group) else {}
    keep_open(cube, "map info", system.get("Map_Info"))
    keep_open(cube, "coordinate system string", system.get("Coordinate_System_String"))
    return cube


def outside_windows(cube: Hdf5Cube, root: h5py.Group) -> np.ndarray | None:
    """Return which bands lie outside NEON's water vapour windows, bool (bands,); None where none lies inside one."""
    # Reflectance in the windows is noise of any size: with these bands in use the median misfit of NEON's sample is
    # 50 % of a pixel, without them 6 %.
    good, windows = np.ones(cube.bands, bool), [name for name in NEON_WINDOWS if name in root.attrs]
    for name in windows:
        try:
            low, high = np.asarray(root.attrs[name], float).ravel()
        except (TypeError, ValueError):
            low, high = np.nan, np.nan
        if cube.wavelengths is None or not low <= high:
            cube.problems.append(
                f"{cube.path}: {name} is not understood, so its bands stay in use; leave them out with `ignore_nm` "
                "water"
            )
            continue
        good &= ~((cube.wavelengths >= low) & (cube.wavelengths <= high))
    return good if windows and not good.all() else None


# The dataset of EMIT's files of standard deviations (`RFLUNCERT`).
UNCERTAINTY = "reflectance_uncertainty"
# The size of a pixel of PRISMA, m.
PRISMA_PIXEL = 30.0


def emit(file: h5py.File, path: Path, held: str = "reflectance") -> Hdf5Cube | None:
    """Open EMIT L2A: ``/reflectance``, or another dataset, (downtrack, crosstrack, b), in the sensor's geometry."""
    if not isinstance(file.get(held), h5py.Dataset) or "sensor_band_parameters/wavelengths" not in file:
        return None
    names = "sensor_band_parameters/wavelengths", "sensor_band_parameters/fwhm"
    cube = single(path, file[held], "yxb", spectral(file, *names))
    set_values(cube, [variable_in(file[held])], [cube.bands])
    keep_open(cube, "acquisition time", file.attrs.get("time_coverage_start"))
    keep_open(cube, "sensor type", file.attrs.get("instrument"))
    if cube.nodata is None:
        cube.nodata = as_stored(-9999.0, cube.dtype, path, cube.problems)
    good = file.get("sensor_band_parameters/good_wavelengths")
    if good is not None:
        cube.good_bands = of_bands(cube, good, "good_wavelengths") != 0
    cube.placement = emit_placement(file)
    if cube.placement is None and "location/glt_x" in file:
        cube.problems.append(
            f"{path}: its lookup table or geotransform is not understood, so `ortho` cannot place its maps"
        )
    return cube


def emit_uncertainty(file: h5py.File, path: Path) -> Hdf5Cube | None:
    """Open the standard deviations of EMIT L2A, for `--noise`."""
    return emit(file, path, UNCERTAINTY)


def emit_mask(file: h5py.File, path: Path) -> Hdf5Cube | None:
    """Open EMIT L2A's mask: ``/mask`` (downtrack, crosstrack, b), 1 where a flag is set; for `--mask-out`."""
    names = file.get("sensor_band_parameters/mask_bands")
    if not isinstance(names, h5py.Dataset) or not isinstance(file.get("mask"), h5py.Dataset):
        return None
    cube = single(path, file["mask"], "yxb", (None, None, ""))
    set_values(cube, [variable_in(file["mask"])], [cube.bands])
    keep_names(cube, names)
    return cube


def keep_names(cube: Hdf5Cube, names: Any) -> None:
    """Keep the names of the bands, where a dataset has one for each."""
    if isinstance(names, h5py.Dataset) and names.shape == (cube.bands,) and not names.external and not names.is_virtual:
        cube.fields["band names"] = ", ".join(text_of_attribute(name).replace(",", ";") for name in names[()])


def emit_placement(file: h5py.File) -> Placement | None:
    """Return EMIT's lookup table and the map information of its grid; None where either is missing or unclear."""
    tables = [file.get(f"location/{name}") for name in ("glt_y", "glt_x")]
    try:
        transform = np.asarray(file.attrs.get("geotransform", ()), float).ravel()
    except (TypeError, ValueError):
        return None
    if len(transform) != 6 or not np.all(np.isfinite(transform)) or transform[2] or transform[4]:  # or rotated
        return None
    for table in tables:
        if not isinstance(table, h5py.Dataset) or table.ndim != 2 or table.dtype.kind not in "iu":
            return None
        refuse_links(Path(file.filename), table)
    if tables[0].shape != tables[1].shape or 0 in tables[0].shape:
        return None
    system = " ".join(text_of_attribute(file.attrs.get("spatial_ref", "")).split())
    west, across, _, north, _, down = (float(number) for number in transform)
    problems: list[str] = []
    return Placement(
        tables[0], tables[1], placed_by(system, (across, 0.0, west, 0.0, down, north), Path(file.filename), problems)
    )


def aviris3(file: h5py.File, path: Path) -> Hdf5Cube | None:
    """Open AVIRIS-3 and -5: ``/reflectance/reflectance`` (b, y, x)."""
    data = file.get("reflectance/reflectance")
    if not isinstance(data, h5py.Dataset):
        return None
    cube = single(path, data, "byx", spectral(file, "reflectance/wavelength", "reflectance/fwhm"))
    set_values(cube, [variable_in(data)], [cube.bands])
    for name in ("transverse_mercator", "projection"):
        if name in file and "spatial_ref" in file[name].attrs:
            system = text_of_attribute(file[name].attrs["spatial_ref"])
            transform = text_of_attribute(file[name].attrs.get("GeoTransform", "")).split()
            if len(transform) == 6:
                west, across, _, north, _, down = (float(word) for word in transform)
                cube.fields |= placed_by(system, (across, 0.0, west, 0.0, down, north), path, cube.problems)
    return cube


def prisma(file: h5py.File, path: Path) -> Hdf5Cube | None:
    """Open PRISMA L2D: VNIR and SWIR (y, b, x) as one cube, both by wavelength; SWIR bands in the overlap are bad."""
    fields = file.get("HDFEOS/SWATHS/PRS_L2D_HCO/Data Fields", {})
    if "VNIR_Cube" not in fields or "SWIR_Cube" not in fields:
        return None
    parts, waves, widths = [], [], []
    for name in ("Vnir", "Swir"):
        data = fields[f"{name.upper()}_Cube"]
        if not isinstance(data, h5py.Dataset) or data.ndim != 3 or 0 in data.shape or data.dtype.str[1:] != "u2":
            raise CubeError(f"{path}: {data.name} is not uint16 (y, b, x): {data}")
        refuse_links(path, data)
        wave, width = (np.asarray(file.attrs[f"List_{quantity}_{name}"], float).ravel() for quantity in ("Cw", "Fwhm"))
        if not len(wave) == len(width) == data.shape[1]:
            raise CubeError(f"{path}: {len(wave)} wavelengths for {data.shape[1]} bands of {data.name}")
        take = np.flatnonzero((wave > 0) & np.isfinite(wave))
        if len(take) == 0:
            raise CubeError(f"{path}: no band of {data.name} has a wavelength")
        take = take[np.argsort(wave[take], kind="stable")]
        low, high = (float(file.attrs[f"L2Scale{name}{end}"]) for end in ("Min", "Max"))
        if not (np.isfinite(high - low) and high > low):
            raise CubeError(
                f"{path}: L2Scale{name}Min and L2Scale{name}Max are {low:g} and {high:g}; {data.name} needs Max above "
                "Min"
            )
        parts.append(DatasetPart(data, take, (high - low) / 65535, low))
        waves.append(wave[take])
        widths.append(width[take])
    lines, _, samples = parts[0].data.shape
    if parts[1].data.shape[::2] != (lines, samples):
        raise CubeError(f"{path}: VNIR is {parts[0].data.shape} and SWIR {parts[1].data.shape}; they must be one scene")
    cube = Hdf5Cube(
        path,
        path.stem,
        NAMED.name,
        lines,
        samples,
        sum(len(part.take) for part in parts),
        np.dtype(np.float32),
        "bil",
        parts,
        lines_together=together(parts[0].data, 0),
    )
    axis = np.concatenate(waves), np.concatenate(widths)
    cube.wavelengths, cube.fwhm = axis_in_nanometres(*axis, "nm", path, cube.problems)
    longest = waves[0].max(initial=0.0)
    cube.good_bands = np.concatenate([np.ones(len(waves[0]), bool), waves[1] > longest])
    first = [file.attrs.get(f"Product_ULcorner_{axis}") for axis in ("easting", "northing")]
    code = file.attrs.get("Epsg_Code")
    if code is not None and None not in first and np.isfinite(float(code)):
        # Corners are centres of pixels, unless they are a whole pixel farther apart.
        east = attribute(file, "Product_LRcorner_easting")
        is_outer = east is not None and abs(east - float(first[0]) - PRISMA_PIXEL * samples) < PRISMA_PIXEL / 2
        west, north = (
            float(one) + (not is_outer) * half for one, half in zip(first, (-PRISMA_PIXEL / 2, PRISMA_PIXEL / 2))
        )
        cube.fields["map info"] = map_info(f"EPSG:{int(code)}", west, north, PRISMA_PIXEL, PRISMA_PIXEL)
    return cube


def tanager(file: h5py.File, path: Path) -> Hdf5Cube | None:
    """Open Tanager: ``/HDFEOS/{SWATHS,GRIDS}/HYP/Data Fields/…`` (b, y, x), described by its own attributes."""
    for group in ("SWATHS", "GRIDS"):
        for name in ("surface_reflectance", "toa_radiance"):
            data = file.get(f"HDFEOS/{group}/HYP/Data Fields/{name}")
            if isinstance(data, h5py.Dataset):
                waves = data.attrs.get("wavelengths", data.attrs.get("center_wavelengths"))
                cube = single(path, data, "byx", (waves, data.attrs.get("fwhm"), ""))
                set_values(cube, [variable_in(data)], [cube.bands])
                if group == "GRIDS":
                    cube.fields |= grid_map(text_of_attribute(file.get("HDFEOS INFORMATION/StructMetadata.0", "")))
                return cube
    return None


def by_conventions(file: h5py.File, path: Path) -> Hdf5Cube | None:
    """Open the one dataset whose axes have names, as xarray and unmix write it; `CubeError` where there are several."""
    found: list[h5py.Dataset] = []

    def visit(_: str, thing: Any) -> None:
        if isinstance(thing, h5py.Dataset) and thing.dtype.kind in "iuf" and axes_named(thing):
            found.append(thing)

    file.visititems(visit)
    if len(found) > 1:
        listed = ", ".join(f"{brief(data.name)} {data.shape}" for data in found[:MOST_LISTED])
        raise CubeError(f"{path}: name its cube with `dataset`; there are: {listed}")
    return described(path, found[0], axes_named(found[0])) if found else by_planes(file, path)


def described(path: Path, data: h5py.Dataset, axes: str, waves: h5py.Dataset | None = None) -> Hdf5Cube:
    """Return the cube of a dataset with all that its attributes and what lies beside it say."""
    cube = single(path, data, axes, (None, None, ""))
    if waves is not None:
        refuse_links(path, waves)
        of_bands(cube, np.empty(waves.shape or 1), "wavelengths")
    describe(cube, beside(cube, data, axes), [cube.bands], None if waves is None else variable_in(waves))
    return cube


def grid_map(meta: str) -> dict[str, str]:
    """Return ENVI's map info of an HDF-EOS5 grid in UTM, from its StructMetadata; empty for any other text."""
    corners = [
        re.search(rf"{name}=\(([-+.\deE]+),([-+.\deE]+)\)", meta) for name in ("UpperLeftPointMtrs", "LowerRightMtrs")
    ]
    sizes = [re.search(rf"\b{name}=(\d+)", meta) for name in ("XDim", "YDim")]
    zone = re.search(r"ZoneCode=(-?\d+)", meta)
    if "HE5_GCTP_UTM" not in meta or not all((*corners, *sizes, zone)):
        return {}
    (west, north), (east, south) = ([float(number) for number in corner.groups()] for corner in corners if corner)
    samples, lines = (int(size[1]) for size in sizes if size)
    number = int(zone[1]) if zone else 0
    if not (samples and lines and 1 <= abs(number) <= 60):
        return {}
    code = f"EPSG:32{6 if number > 0 else 7}{abs(number):02d}"
    return {"map info": map_info(code, west, north, (east - west) / samples, (north - south) / lines)}


# Attributes that say what is missing and how values are scaled, for HDF5, NetCDF and Zarr alike; see
# `unmix.io.formats.cf`.
CF = "`_FillValue`, `missing_value`, `valid_range`, `scale_factor`, `add_offset`, `_Unsigned`"
# Most datasets that an error lists.
MOST_LISTED = 5
# Tried in turn: each function returns the cube of its product, or None.
PRODUCTS: tuple[tuple[Kind, Callable[[h5py.File, Path], Hdf5Cube | None]], ...] = (
    (
        Kind(
            "NEON AOP",
            "`/SITE/Reflectance/Reflectance_Data` (y, x, b)",
            "`Metadata/Spectral_Data`; `Band_Window_1_Nanometers` and `_2_` are called bad",
            "`Map_Info`, `Coordinate_System_String`",
            "`Data_Ignore_Value`, `Scale_Factor`",
        ),
        neon,
    ),
    (
        Kind(
            "EMIT L2A",
            "`/reflectance` (downtrack, crosstrack, b)",
            "`sensor_band_parameters`, `good_wavelengths`",
            "the sensor's geometry; with `--ortho` maps are placed by `/location/glt_x`, `glt_y`",
            "`_FillValue`, or −9999",
        ),
        emit,
    ),
    (
        Kind(
            "EMIT L2A uncertainty",
            "`/reflectance_uncertainty` (downtrack, crosstrack, b), for `--noise FILE`",
            "`sensor_band_parameters`, `good_wavelengths`",
            "the sensor's geometry",
            "`_FillValue`, or −9999",
        ),
        emit_uncertainty,
    ),
    (
        Kind(
            "EMIT L2A mask",
            "`/mask` (downtrack, crosstrack, b), for `--mask-out FILE:NAME`",
            "none; names in `mask_bands`",
            "the sensor's geometry",
            "`_FillValue`",
        ),
        emit_mask,
    ),
    (
        Kind(
            "AVIRIS-3",
            "`/reflectance/reflectance` (b, y, x); also AVIRIS-5",
            "`/reflectance/wavelength`, `fwhm`",
            "`spatial_ref`, `GeoTransform`",
            "`_FillValue`",
        ),
        aviris3,
    ),
    (
        Kind(
            "PRISMA L2D",
            "`VNIR_Cube` and `SWIR_Cube` (y, b, x) as one cube; wavelengths of 0 are left out, SWIR's in VNIR's "
            "range are called bad",
            "`List_Cw_*`, `List_Fwhm_*`",
            "corner and EPSG code",
            "`L2Scale*`; a pixel that is 0 in all bands",
        ),
        prisma,
    ),
    (
        Kind(
            "Tanager",
            "`surface_reflectance` or `toa_radiance` (b, y, x)",
            "attributes of the cube",
            "grids: `StructMetadata.0`, UTM; swaths: none",
            "`_FillValue`, `scale_factor`, `add_offset`",
        ),
        tanager,
    ),
    (
        Kind(
            "NetCDF",
            "the one dataset whose axes have names, such as `band`, `y`, `x` or `lat`, `lon`, as xarray writes it; "
            "maps of "
            "unmix; three or more datasets (y, x) with a wavelength in each name (ACOLITE), `--dataset rhos_*`; "
            "`--dataset /path` where there are several; with "
            "an axis of times `FILE#DATE`",
            "`wavelength`, `fwhm` and `good_wavelengths` beside it",
            "`grid_mapping`, or evenly spaced coordinates",
            CF,
        ),
        by_conventions,
    ),
)
NAMED = Kind(
    "HDF5",
    "any dataset: `--dataset /path:byx` with its axes in any order, or `/path` where they have names",
    "`--wavelengths /path`, or as NetCDF",
    "as NetCDF",
    CF,
)


def open_hdf5(path: Path, dataset: str | None = None, wavelengths: str | None = None, date: str = "") -> Hdf5Cube:
    """Open the cube of a product in `PRODUCTS`, or ``dataset``, at one ``date`` if it has several; read no pixel."""
    if not isinstance(path, RemotePath):  # a child would not have the threads that fetch
        survives(path, lambda: open_in_process(path, dataset, wavelengths, date))
    return open_in_process(path, dataset, wavelengths, date)


def open_in_process(path: Path, dataset: str | None, wavelengths: str | None, date: str) -> Hdf5Cube:
    """Open the cube in this process; see `open_hdf5`."""
    try:
        file = h5py.File(path.open("rb", 0) if isinstance(path, RemotePath) else path, "r")
    except OSError as error:
        raise CubeError(f"{path}: cannot be read as HDF5: {brief(error)}") from None
    try:
        refuse_links_out(path, file)
        if date:
            return at_date(file, path, dataset, date, described)
        if dataset is not None:
            refuse_stack(file, path, dataset)
            return named_product(file, path, dataset, wavelengths)
        if wavelengths is not None:
            raise MethodError("`wavelengths` goes with `dataset`, unless it is a file")
        for kind, read in PRODUCTS:
            cube = read(file, path)
            if cube is not None:
                cube.format = kind.name
                return cube
        refuse_stack(file, path)
        raise CubeError(
            f"{path}: is HDF5, but of no product that is known; name its cube with `dataset`, and its axes in order, "
            "as /NAME:byx: "
            f"{candidates_in(file)}"
        )
    except (CubeError, MethodError):
        file.close()
        raise
    except Exception as error:  # a damaged file: h5py raises ten kinds of errors
        file.close()
        raise CubeError(f"{path}: is damaged, or its layout is not known: {brief(error)}") from None


def dates_in(path: Path) -> list[str]:
    """Return the dates of a file with several scenes; empty for other files, also for unreadable files."""

    def found() -> list[str]:
        with h5py.File(path, "r") as file:
            refuse_links_out(path, file)
            stack = cube_of_times(file, None)
            return dates_along(*stack) if stack else []

    try:
        survives(path, found)
        return found()
    except Exception:  # opening it as a scene says what is wrong
        return []


def named_product(file: h5py.File, path: Path, dataset: str, wavelengths: str | None) -> Hdf5Cube:
    """Open any dataset of three axes, with any dataset of wavelengths; fill value and scale are NetCDF's."""
    name, _, axes = dataset.partition(":")
    data = file.get(name)
    planes = by_planes(file, path, name) if name.endswith("*") and not axes else None
    if planes is not None:
        return planes
    if not isinstance(data, h5py.Dataset):
        raise CubeError(f"{path}: has no dataset '{name}'; of three axes there are: {candidates_in(file)}")
    waves = None
    if wavelengths is not None:
        if not isinstance(file.get(wavelengths), h5py.Dataset):
            raise CubeError(f"{path}: has no dataset '{wavelengths}'")
        waves = file[wavelengths]
    axes = axes or axes_named(data)
    if not axes and waves is not None and data.ndim == 3:
        fitting = [order for order in STRAIGHT if data.shape[order.index("b")] == np.size(waves)]
        axes = fitting[0] if len(fitting) == 1 else ""
    if not axes and data.ndim == 3:
        raise CubeError(
            f"{path}: the axes of {brief(name)} {data.shape} have no names that tell lines, samples and bands; say "
            "their order with "
            f"`dataset` {brief(name)}:byx"
        )
    axes = axes or "yxb"
    if axes.replace("1", "") not in LAYOUTS:
        raise MethodError(f"`dataset` {dataset}: the axes must be one of {', '.join(LAYOUTS)}, not '{axes}'")
    return described(path, data, axes, waves)


def candidates_in(file: h5py.File) -> str:
    """Return the names and shapes of up to five datasets that could be a cube, as text."""
    candidates: list[str] = []

    def visit(name: str, thing: Any) -> None:
        if isinstance(thing, h5py.Dataset) and thing.ndim == 3 and len(candidates) < MOST_LISTED:
            candidates.append(f"/{brief(name)} {thing.shape}")

    file.visititems(visit)
    candidates += [f"/{brief(name)}" for name in sets_of_planes(file)][:MOST_LISTED]
    return ", ".join(candidates) or "none"
