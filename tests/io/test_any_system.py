"""Random coordinate systems of EPSG, from each format of input to each of output: the place is GDAL's, or its loss is said."""

import itertools
import logging

import numpy as np
import pytest

import unmix
from unmix.io import ground

rasterio = pytest.importorskip("rasterio")
pyproj = pytest.importorskip("pyproj")
h5py = pytest.importorskip("h5py")
LINES, SAMPLES = 3, 4
SPECTRA = np.array([[0.1, 0.5], [0.4, 0.2], [0.3, 0.6]])


def codes(count, seed):
    """Draw codes of projected and geographic systems."""
    kinds = ("PROJECTED_CRS", "GEOGRAPHIC_2D_CRS")
    known = sorted(int(code) for kind in kinds for code in pyproj.get_codes("EPSG", kind))
    return np.random.default_rng(seed).choice(known, count, replace=False).tolist()


def place_of(crs):
    """Return a transform in the middle of a system's area of use: pixels of some 30 m."""
    area = crs.area_of_use
    east = area.east + 360 * (area.east < area.west)
    to = pyproj.Transformer.from_crs(crs.geodetic_crs or crs, crs, always_xy=True)
    middle = ((area.west + east) / 2 + 180) % 360 - 180
    x, y = to.transform(middle, (area.south + area.north) / 2)
    step = 30.0 / crs.axis_info[0].unit_conversion_factor if crs.is_projected else 3e-4
    return rasterio.Affine(step, 0, round(x, 6), 0, -step, round(y, 6))


def write_tiff(path, crs, transform, values):
    shape = {"height": LINES, "width": SAMPLES, "count": len(values), "dtype": "float64"}
    with rasterio.open(path, "w", crs=crs.to_wkt(), transform=transform, **shape) as file:
        file.write(values)


def write_netcdf(path, crs, transform, values):
    with h5py.File(path, "w") as file:
        cube = file.create_dataset("reflectance", data=values)
        axes = {"band": np.arange(len(values)), "y": transform.f + transform.e * (np.arange(LINES) + 0.5)}
        axes["x"] = transform.c + transform.a * (np.arange(SAMPLES) + 0.5)
        for k, (name, axis) in enumerate(axes.items()):
            file[name] = axis
            file[name].make_scale(name)
            cube.dims[k].attach_scale(file[name])
        cube.attrs["grid_mapping"] = "crs"
        file["crs"] = 0
        a, b, c, d, e, f = transform[:6]
        file["crs"].attrs.update({"crs_wkt": crs.to_wkt(), "GeoTransform": f"{c!r} {a!r} {b!r} {f!r} {d!r} {e!r}"})


WRITERS = {"tif": write_tiff, "nc": write_netcdf}
ENDINGS = {"envi": "img", "geotiff": "tif", "cog": "tif", "netcdf": "nc", "hdf5": "h5", "zarr": "zarr"}


def place_in(path, kind):
    """The system and transform of a map: GDAL's, whose CF driver reads HDF5; of Zarr v3, which it cannot read, by CF."""
    if kind != "zarr":
        with rasterio.open(f"NETCDF:{path}:abundance" if kind in ("netcdf", "hdf5") else path) as file:
            return file.crs, file.transform
    store = pytest.importorskip("zarr").open_group(path, mode="r")
    system = store["spatial_ref"].attrs.get("crs_wkt") if "spatial_ref" in store else None
    names = store["abundance"].metadata.dimension_names
    y, x = (store[name][:] for name in names[-2:]) if system else ((0, 1), (0, 1))
    step, down = x[1] - x[0], y[1] - y[0]
    crs = None if system is None else rasterio.crs.CRS.from_wkt(system)
    return crs, rasterio.Affine(step, 0, x[0] - step / 2, 0, down, y[0] - down / 2)


def moved(folder, code, ending, kind, caplog):
    """Return how far, in m, a corner of the map lies from the input's; None where the run says that it has no place."""
    crs = pyproj.CRS.from_epsg(code)
    transform, scene = place_of(crs), folder / f"s{code}.{ending}"
    values = np.random.default_rng(0).dirichlet([1, 1], LINES * SAMPLES).reshape(LINES, SAMPLES, 2) @ SPECTRA.T
    WRITERS[ending](scene, crs, transform, values.transpose(2, 0, 1))
    (folder / "lib.csv").write_text(
        "name,1,2,3\n" + "".join(f"e{j},{','.join(map(str, e))}\n" for j, e in enumerate(SPECTRA.T))
    )
    caplog.clear()
    with caplog.at_level(logging.WARNING, "unmix"):
        unmix.run(
            scene,
            endmembers=folder / "lib.csv",
            out_dir=folder / "out",
            overwrite=True,
            format=kind,
            device="cpu",
        )
    said = " ".join(record.getMessage() for record in caplog.records)
    back, at = place_in(folder / f"out/s{code}_abundance.{ENDINGS[kind]}", kind)
    if back is None or "outputs have no" in said:
        assert "outputs have no" in said, (code, ending, kind, said)
        return None
    corner = np.array([at.c + at.a * SAMPLES, at.f + at.e * LINES])
    other = pyproj.CRS.from_user_input(back.to_wkt())
    if not other.equals(crs, ignore_axis_order=True):
        corner = np.array(pyproj.Transformer.from_crs(other, crs, always_xy=True).transform(*corner))
    meant = np.array([transform.c + transform.a * SAMPLES, transform.f + transform.e * LINES])
    metres = crs.axis_info[0].unit_conversion_factor if crs.is_projected else 111e3
    return float(np.abs(corner - meant).max()) * metres


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("code", [2264, 26910, 3035, 2154, 4326, 4267, 8045, 2053, *codes(4, 1)])
def test_place_of_a_few_systems(tmp_path, caplog, code):
    """US survey feet, a datum that is not WGS 84, ellipsoids, and some at random."""
    for ending, kind in itertools.product(WRITERS, ENDINGS):
        found = moved(tmp_path, code, ending, kind, caplog)
        assert found is not None and found < 1e-3, (code, ending, kind, found)


@pytest.mark.night
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_place_of_many_systems(tmp_path, caplog):
    pairs = list(itertools.product(WRITERS, ENDINGS))
    wrong = {}
    for k, code in enumerate(codes(60, 2)):
        found = moved(tmp_path, code, *pairs[k % len(pairs)], caplog)
        if found is not None and found >= 1e-3:
            wrong[code] = found
    assert not wrong


def test_a_system_that_names_a_file_is_not_shown_to_gdal(monkeypatch):
    """The guard against files and servers comes before GDAL's reading of a header."""
    monkeypatch.setattr(ground, "wkt_by_gdal", lambda *_, **__: pytest.fail("shown to GDAL"))
    wkt = pyproj.CRS.from_epsg(8045).to_wkt("WKT1_GDAL")
    harmful = wkt[:-1] + ',EXTENSION["PROJ4","+proj=cass +nadgrids=/x/y.gsb +no_defs"]]'
    fields = {"map info": "{Arbitrary, 1, 1, 0, 0, 30, 30}", "coordinate system string": f"{{{harmful}}}"}
    assert ground.system_of(fields) == ""
