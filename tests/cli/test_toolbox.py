"""The Processing provider of docs/qgis, in QGIS itself where that is installed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from test_qgis import OWN, QGIS

import unmix

ROOT = Path(__file__).parents[2]
PROGRAM = '#!/bin/sh\nexec {python} -m unmix "$@"\n'


@pytest.mark.slow
def test_commands_in_qgis(tmp_path):
    """Its Python is that of the system, not the one that this test runs in."""
    if QGIS is None:
        pytest.skip("QGIS is not installed")
    program = tmp_path / "unmix"
    program.write_text(PROGRAM.format(python=sys.executable).replace("exec", f"cd {ROOT}; exec"))
    program.chmod(0o755)
    own = (
        os.environ
        | OWN
        | {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path), "QGIS_PLUGINPATH": str(ROOT / "docs/qgis")}
    )

    def qgis(*words):
        ran = subprocess.run([str(QGIS), *map(str, words)], capture_output=True, text=True, env=own, timeout=300)
        return ran.stdout + ran.stderr

    qgis("plugins", "enable", "unmix_provider")
    assert all(f"unmix:{name}" in qgis("list") for name in ("run", "mesma", "report"))
    library = ROOT / "data/demo_truth_endmembers.csv"
    words = (f"--INPUT={ROOT}/data/demo.hdr", f"--PROGRAM={program}", "--OPTIONS=--device cpu")
    said = qgis("run", "unmix:run", "--json", *words, f"--LIBRARY={library}", "--METHOD=1", f"--OUTPUT={tmp_path}/maps")
    answer = json.loads(said[said.index("{") : said.rindex("}") + 1])["results"]
    assert answer["MAP"] == f"{tmp_path}/maps/demo_abundance.tif"
    unmix.run(
        ROOT / "data/demo.hdr",
        endmembers=library,
        method="fcls",
        device="cpu",
        format="geotiff",
        out_dir=tmp_path / "same",
    )
    maps = [unmix.open_cube(folder / "demo_abundance.tif") for folder in (tmp_path / "maps", tmp_path / "same")]
    values = [
        cube.read(slice(0, cube.lines), np.empty(cube.lines * cube.samples * cube.bands * 4, np.uint8)) for cube in maps
    ]
    np.testing.assert_array_equal(*values)
    qgis("run", "unmix:report", f"--INPUT={tmp_path}/maps/demo_abundance.tif", f"--PROGRAM={program}")
    assert (tmp_path / "maps/demo_report.html").exists()
    wrong = qgis("run", "unmix:run", *words, f"--LIBRARY={tmp_path}/none.csv", f"--OUTPUT={tmp_path}/o")
    assert "none.csv" in wrong and "exit code 3" in wrong
    assert "there is no program" in qgis("run", "unmix:run", words[0], "--PROGRAM=nowhere", f"--OUTPUT={tmp_path}/o")
