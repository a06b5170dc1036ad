"""The Processing provider of docs/qgis, in QGIS itself where that is installed."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import numpy as np
import pytest
from conftest import PATIENCE, read_values
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
        ran = subprocess.run([str(QGIS), *map(str, words)], capture_output=True, text=True, env=own, timeout=PATIENCE)
        return ran.stdout + ran.stderr

    qgis("plugins", "enable", "unmix_provider")
    assert all(f"unmix:{name}" in qgis("list") for name in ("run", "mesma", "match", "detect", "report"))
    library = ROOT / "data/demo_truth_endmembers.csv"
    words = (f"--INPUT={ROOT}/data/demo.hdr", f"--PROGRAM={program}", "--OPTIONS=--device cpu")
    said = qgis("run", "unmix:run", "--json", *words, f"--LIBRARY={library}", "--METHOD=1", f"--OUTPUT={tmp_path}/maps")
    answer = json.loads(said[said.index("{") : said.rindex("}") + 1])["results"]
    assert answer["MAP"] == f"{tmp_path}/maps/demo_abundance.tif"
    how = {"endmembers": library}
    unmix.run(ROOT / "data/demo.hdr", method="fcls", device="cpu", format="geotiff", out_dir=tmp_path / "same", **how)
    values = [read_values(tmp_path / folder / "demo_abundance.tif") for folder in ("maps", "same")]
    np.testing.assert_array_equal(*values)
    for name, more in (("match", "--max-distance 8"), ("detect", "--detector ace")):
        into = (f"--LIBRARY={library}", f"--OUTPUT={tmp_path}/{name}")
        said = qgis("run", f"unmix:{name}", "--json", words[0], words[1], f"--OPTIONS={more}", *into)
        answer = json.loads(said[said.index("{") : said.rindex("}") + 1])["results"]
        assert answer["MAP"] == f"{tmp_path}/{name}/demo_{'match_class' if name == 'match' else name}.tif"
        assert Path(answer["MAP"]).exists()
    assert (tmp_path / "match/demo_match_report.html").exists()
    qgis("run", "unmix:report", f"--INPUT={tmp_path}/maps/demo_abundance.tif", f"--PROGRAM={program}")
    assert (tmp_path / "maps/demo_report.html").exists()
    wrong = qgis("run", "unmix:run", *words, f"--LIBRARY={tmp_path}/none.csv", f"--OUTPUT={tmp_path}/o")
    assert "none.csv" in wrong and "exit code 3" in wrong
    assert "there is no program" in qgis("run", "unmix:run", words[0], "--PROGRAM=nowhere", f"--OUTPUT={tmp_path}/o")


def test_a_program_that_says_nothing_is_stopped(monkeypatch):
    """A user who cancels does not wait for its next line; lines come in their order, all of them."""
    core = types.ModuleType("qgis.core")
    core.__getattr__ = lambda name: type(name, (), {})
    monkeypatch.setitem(sys.modules, "qgis", types.ModuleType("qgis"))
    monkeypatch.setitem(sys.modules, "qgis.core", core)
    path = ROOT / "docs/qgis/unmix_provider/provider.py"
    provider = importlib.util.module_from_spec(spec := importlib.util.spec_from_file_location("provider", path))
    spec.loader.exec_module(provider)

    def lines(program, is_cancelled):
        feedback = types.SimpleNamespace(isCanceled=is_cancelled)
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
            return list(provider.lines_of(process, feedback)), process

    said, process = lines("for k in range(500): print(k)", lambda: False)
    assert said == [str(k) for k in range(500)] and process.wait() == 0
    began = time.monotonic()
    said, process = lines("import time; time.sleep(300)", lambda: time.monotonic() > began + 1)
    assert said == [] and process.returncode == -signal.SIGTERM
