"""Maps of every format as QGIS opens them, without a window: place, nodata, values."""

import json
import os
import shutil
import subprocess

import numpy as np
import pytest
from conftest import PATIENCE, mix, write_csv, write_cube

import unmix
from unmix.devices import simulated

# Debian's wrapper hands over an option that the program does not know.
QGIS = shutil.which("qgis_process.bin") or shutil.which("qgis_process")
# No window, and the system's Python, which QGIS finds by PATH.
OWN = {"QT_QPA_PLATFORM": "offscreen", "PATH": "/usr/bin:/bin"}
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(QGIS is None, reason="no QGIS (Debian: qgis)"),
    pytest.mark.skipif(simulated(), reason="nothing of it is about kernels"),
]
MAP = "{UTM, 1, 1, 500000, 4000000, 30, 20, 11, North, WGS-84, units=Meters}"


def ask(tmp_path, algorithm, **inputs):
    """Run an algorithm of QGIS; return its results."""
    here = os.environ | OWN | {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
    command = [str(QGIS), "--json", "run", algorithm, *(f"--{name}={value}" for name, value in inputs.items())]
    done = subprocess.run(command, env=here, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr[-1000:]
    return json.loads(done.stdout[done.stdout.index("{") :])["results"]


@pytest.mark.parametrize(("form", "ending"), [("envi", "img"), ("geotiff", "tif"), ("cog", "tif"), ("netcdf", "nc")])
def test_qgis_opens_a_map_in_its_place(tmp_path, form, ending):
    if form in ("geotiff", "cog"):
        pytest.importorskip("rasterio")
    _, E, Y = mix(1, (40, 50), 6, 3)
    Y[3, 4] = -1
    write_csv(tmp_path / "l.csv", E)
    path = write_cube(tmp_path / "x.hdr", Y, map_info=MAP, data_ignore_value=-1)
    unmix.run(path, endmembers=tmp_path / "l.csv", format=form)
    found = ask(tmp_path, "native:rasterlayerproperties", INPUT=tmp_path / f"x_abundance.{ending}", BAND=2)
    assert found["CRS_AUTHID"] == "EPSG:32611" and (found["WIDTH_IN_PIXELS"], found["HEIGHT_IN_PIXELS"]) == (50, 40)
    assert (found["X_MIN"], found["X_MAX"], found["Y_MIN"], found["Y_MAX"]) == (500000, 501500, 3999200, 4000000)
    assert found["BAND_COUNT"] == 3 and found["HAS_NODATA_VALUE"] and float(found["NODATA_VALUE"]) == -9999
    unmix.run(path, endmembers=tmp_path / "l.csv", out_dir=tmp_path / "raw")
    values = np.fromfile(tmp_path / "raw/x_abundance.img", "<f4").reshape(40, 3, 50)[:, 1]
    values = values[values != -9999].astype(float)
    said = ask(tmp_path, "native:rasterlayerstatistics", INPUT=tmp_path / f"x_abundance.{ending}", BAND=2)
    assert [said["MIN"], said["MAX"], said["MEAN"]] == pytest.approx(
        [values.min(), values.max(), values.mean()], rel=1e-5
    )
