"""NetCDF with an axis of times: each date is a scene, in any order of axes and chunks, as its own file would be."""

import datetime
import json

import h5py
import numpy as np
import pytest
from conftest import mix, read_map, refused, write_csv, write_cube
from test_cli import unmix as command

import unmix
from unmix.commands.verify import verify
from unmix.errors import CubeError
from unmix.io import open_cube

LINES, SAMPLES, BANDS = 7, 9, 12
DAYS = (74, 104, 139)
SIZES = {"time": len(DAYS), "y": LINES, "x": SAMPLES, "band": BANDS}


def stack(
    path, values, order=("time", "band", "y", "x"), units="days since 2023-1-1 00:00:00", times=DAYS, chunks=None
):
    """Write values (time, y, x, band), integers with a scale and an offset, as CF has them, by h5py."""
    stored = np.where(np.isnan(values), -32767, np.round((values - 0.1) * 1e4)).astype("i2")
    turned = stored.transpose([("time", "y", "x", "band").index(name) for name in order])
    with h5py.File(path, "w") as file:
        data = file.create_dataset("reflectance", data=turned, chunks=chunks, compression="gzip" if chunks else None)
        data.attrs.update({"scale_factor": 1e-4, "add_offset": 0.1, "_FillValue": np.int16(-32767)})
        axes = {
            "y": 4e6 - 30.0 * np.arange(LINES),
            "x": 5e5 + 30.0 * np.arange(SAMPLES),
            "time": np.array(times),
            "band": np.arange(BANDS),
        }
        for name, numbers in axes.items():
            file[name] = numbers
            file[name].make_scale(name)
            data.dims[order.index(name)].attach_scale(file[name])
        file["time"].attrs["units"] = units
        file["wavelength"] = np.linspace(450, 900, BANDS)
        file["wavelength"].attrs["units"] = "nm"
        file["wavelength"].dims[0].attach_scale(file["band"])
    return path


@pytest.fixture
def values():
    _, E, Y = mix(3, (len(DAYS), LINES, SAMPLES), BANDS, 3, (0.1, 0.6))
    Y[1], Y[2, :, :2] = np.nan, np.nan
    return E, Y


@pytest.mark.parametrize("chunks", [None, (1, 5, 3, 2), (2, 12, 9, 7)])
@pytest.mark.parametrize("order", [("time", "band", "y", "x"), ("time", "y", "x", "band"), ("x", "y", "band", "time")])
def test_dates_are_cubes(tmp_path, values, order, chunks):
    chunks = chunks and tuple(min(size, SIZES[name]) for size, name in zip(chunks, order))
    path = stack(tmp_path / "s.nc", values[1], order, chunks=chunks)
    for k, day in enumerate(DAYS):
        date = (datetime.date(2023, 1, 1) + datetime.timedelta(day)).isoformat()
        cube = open_cube(f"{path}#{date}")
        raw = cube.read(slice(0, LINES), np.empty(LINES * SAMPLES * BANDS * 2, np.uint8))
        found = np.where(raw == -32767, np.nan, raw * 1e-4 + 0.1).transpose(1, 2, 0)
        np.testing.assert_allclose(found, np.round(values[1][k], 4), atol=6e-5)
        assert cube.stem == f"s_{date}" and cube.fields["acquisition time"] == date and cube.nodata == -32767
        np.testing.assert_allclose(cube.wavelengths, np.linspace(450, 900, BANDS))
    with pytest.raises(
        CubeError, match=r"has 3 times: 2023-03-16, 2023-04-15, 2023-05-20; name one, as s\.nc#2023-03-16"
    ):
        open_cube(path)
    row = next(line for line in command("info", path)[0].splitlines() if line.startswith("dates"))
    assert row.split()[1:] == ["2023-03-16,", "2023-04-15,", "2023-05-20"]
    assert f"{path}#2023-03-16" in (out := command("check", path)[0]) and "name another as s.nc#2023-05-20" in out
    refused(CubeError, "has no '2023-03-17' among its 3 times", open_cube, f"{path}#2023-03-17")


@pytest.mark.slow
def test_a_run_of_all_dates(tmp_path, values):
    """Each as a file of its own would be; proved from the record; skipped the second time; a date without values fails alone."""
    E, Y = values
    path, library = stack(tmp_path / "s.nc", Y), write_csv(tmp_path / "e.csv", E, names=("a", "b", "c"))
    words = ("-e", library, "--method", "fcls", "--device", "cpu", "--no-browse", "-o", tmp_path / "maps")
    words += ("--failed", tmp_path / "failed.csv")
    said = command("run", path, *words, code=4)[1]
    assert "s.nc: has 3 times; each is a scene" in said and "3 scenes: 2 done, 1 failed" in said
    assert f"{path}#2023-04-15: " in said
    for k, date in ((0, "2023-03-16"), (2, "2023-05-20")):
        stored = np.where(np.isnan(Y[k]), -9, np.round(Y[k], 4)).astype(np.float32)
        unmix.run(
            write_cube(tmp_path / "one.hdr", stored, data_ignore_value=-9),
            endmembers=library,
            method="fcls",
            out_dir=tmp_path / "ones",
            device="cpu",
            overwrite=True,
        )
        alone, found = (read_map(stem, "abundance") for stem in (tmp_path / "ones/one", tmp_path / f"maps/s_{date}"))
        np.testing.assert_allclose(found, alone, atol=1e-4)
        assert verify(tmp_path / f"maps/s_{date}", everything=True).faults == []
    assert "2 skipped, 1 failed" in command("run", path, *words, "--skip-existing", code=4)[1]
    shown = json.loads(command("zonal", tmp_path / "maps", "--failed", tmp_path / "failed.csv", "--wide", "--json")[0])
    failed = shown[2]
    assert (failed["run"], failed["time"]) == (
        str(tmp_path / "maps/s_2023-04-15"),
        "2023-04-15",
    ) and "nodata" in failed["reason"]
    rows = unmix.zonal(tmp_path / "maps", wide=True)
    assert [row["time"] for row in rows] == ["2023-03-16", "2023-05-20"]
    assert [row["pixels"] for row in rows] == [LINES * SAMPLES, LINES * (SAMPLES - 2)]


@pytest.mark.parametrize(
    ("units", "times", "names"),
    [
        ("hours since 2023-03-16T10:30", (0, 24, 48), ["2023-03-16", "2023-03-17", "2023-03-18"]),
        ("hours since 2023-03-16 10:30:00", (0, 1, 2), ["2023-03-16T103000", "2023-03-16T113000", "2023-03-16T123000"]),
        ("months since 2023-01-01", (0, 1, 2), ["0", "1", "2"]),
        ("days since 2023-01-01", (5, 5, 6), ["0", "1", "2"]),
        ("", (1, 2, 3), ["0", "1", "2"]),
    ],
)
def test_names_of_times(tmp_path, values, units, times, names):
    path = stack(tmp_path / "s.nc", values[1], units=units, times=times)
    refused(CubeError, f"has 3 times: {', '.join(names)};", open_cube, path)
    assert open_cube(f"{path}#{names[2]}").stem == f"s_{names[2]}"


def test_other_files_have_no_dates(tmp_path):
    scene = write_cube(tmp_path / "one#2.hdr", np.ones((3, 4, 5), np.float32))
    assert open_cube(scene).stem == "one#2"
    refused(CubeError, "is no HDF5 or NetCDF file with several times", open_cube, f"{scene}#2023-01-01")
    with h5py.File(tmp_path / "x.nc", "w") as file:
        file["a"] = np.ones((3, 4, 5))
    with pytest.raises(CubeError, match="has no dataset with a cube for each of several times"):
        open_cube(f"{tmp_path / 'x.nc'}#2023-01-01")
