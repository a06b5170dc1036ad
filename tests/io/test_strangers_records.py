"""A record may be a stranger's: no server is asked because a ``run.json`` names it, but only where the user does."""

import contextlib
import io
import json
from pathlib import Path

import numpy as np
import pytest
from conftest import rest_slow, write_csv, write_cube
from object_server import serving
from test_cli import unmix as command
from unmix_cli.main import cli, print_err

import unmix
from unmix.outputs.digests import record_digest

pytest.importorskip("obstore")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The stem of a finished run with a mask and a cube of noise, whose scene lies in the folder ``there``, which may be served."""
    random, there = np.random.default_rng(5), tmp_path / "there"
    there.mkdir()
    E = random.uniform(0.1, 0.9, (12, 3))
    Y = random.dirichlet(np.ones(3), (8, 9)) @ E.T + 0.01 * random.standard_normal((8, 9, 12))
    write_csv(there / "e.csv", E)
    write_cube(there / "s.hdr", Y.astype(np.float32))
    write_cube(there / "mask.hdr", np.ones((8, 9, 1), np.uint8))
    write_cube(there / "noise.hdr", np.full((8, 9, 12), 0.01, np.float32))
    how = {"mask": f"{there}/mask.hdr", "noise": f"{there}/noise.hdr", "uncertainty": True}
    unmix.run(there / "s.hdr", endmembers=there / "e.csv", method="nnls", out_dir=tmp_path / "o", browse=False, **how)
    return tmp_path / "o/s"


def forge(run: Path, change) -> None:
    """Change the record of a run, as who sends it may."""
    path = run.with_name("s_run.json")
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record | {"digest": record_digest(record)}))


def commands(run: Path) -> list[list[object]]:
    """Return all commands that read a finished run."""
    out = run.parent.parent / "out"
    return [
        ["report", run],
        ["report", run.parent],
        ["verify", run],
        ["verify", run, "--all"],
        ["status", run],
        ["plot", run, "-o", f"{out}.png"],
        ["plot", run, "--at", "1,1", "-o", f"{out}-2.png"],
        ["compare", run, run],
        ["compare", run, run, "-o", f"{out}.html"],
        ["export", run, "-f", "hdf5", "-o", out],
        ["stac", run],
    ]


def tried(words: list[object]) -> str:
    """Run a command, and return all that it said, whatever its exit code."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), contextlib.suppress(SystemExit):
        try:
            cli.main([str(word) for word in words], prog_name="unmix", standalone_mode=False)
        except unmix.errors.UnmixError as error:
            print_err(str(error))
    assert "Traceback" not in said.getvalue()
    return said.getvalue()


REMOTE = {
    "input": lambda url, record: record["input"].update(path=f"{url}/s.img"),
    "input by s3": lambda url, record: record["input"].update(path="s3://bucket/s.img"),
    "input in capitals": lambda url, record: record["input"].update(path=f"{url}/s.img".replace("http:", "HTTP:")),
    "input with one slash": lambda url, record: record["input"].update(path=f"{url}/s.img".replace("://", ":/")),
    "mask": lambda url, record: record["reading"].update(mask=f"{url}/mask.hdr:1"),
    "masks": lambda url, record: record["reading"].update(mask_out=[f"{url}/mask.hdr:1"]),
    "mask by the stem": lambda url, record: record["reading"].update(mask=f"{{stem:s={url}/mask}}.hdr:1"),
    "wavelengths": lambda url, record: record["reading"].update(wavelengths=f"{url}/axis.txt"),
    "noise": lambda url, record: record["options"].update(noise=f"{url}/noise.hdr"),
    "noise of the stem": lambda url, record: record["options"].update(noise=f"{{stem:s={url}/noise}}.hdr"),
}


@pytest.mark.parametrize("name", rest_slow(REMOTE, "input", "input by s3", "mask", "noise of the stem"))
def test_no_server_is_asked(run: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by any command that reads a run, and each says why it does less."""
    Source = pytest.importorskip("unmix.features.viewer.source").Source
    from unmix.scene import ReadOptions

    with serving(run.parent.parent / "there") as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        forge(run, lambda record: REMOTE[name](server.url, record))
        said = {" ".join(map(str, words[:1] + words[2:3])): tried(words) for words in commands(run)}
        source = Source(run, ReadOptions())
        assert server.requests == []
    assert "is on a server" in said["verify"] and "is on a server" in said["verify --all"]
    if not name.startswith("noise"):
        assert "is on a server" in source.said and "is on a server" in said["plot --at"]
        assert "is on a server" in run.with_name("s_report.html").read_text()


def test_what_the_user_names_is_asked(run: Path) -> None:
    """The scene that ``cube`` names, and what else its server has; not another server."""
    there = run.parent.parent / "there"
    with serving(there) as server, serving(there) as other:
        for name in ("input", "mask"):
            forge(run, lambda record, name=name: REMOTE[name](server.url, record))
        cube = f"{server.url}/s.hdr"
        assert "is on a server" in tried(["verify", run])
        assert "unmixed again" in tried(["verify", run, "--cube", cube]) and server.requests
        assert "is on a server" in tried(["verify", run, "--cube", f"{other.url}/s.hdr"])
        assert "mask" not in " ".join(path for _, path, _ in other.requests)
        tried(["report", run, "--cube", cube])
        assert "is on a server" not in run.with_name("s_report.html").read_text()
        out = run.parent / "at.png"
        assert "is on a server" not in tried(["plot", run, "--cube", cube, "--at", "1,1", "-o", out])


def test_options_of_a_record(run: Path, tmp_path: Path) -> None:
    """A run that repeats a record asks no server that the record alone names."""
    scene, record = tmp_path / "there/s.hdr", run.with_name("s_run.json")
    with serving(tmp_path / "there") as server:
        forge(run, lambda record: record["options"].update(endmembers=f"{server.url}/e.csv"))
        words = ["run", scene, "--config", record, "-o", tmp_path / "again"]
        _, err = command(*words, code=2)
        assert "--endmembers" in err and "server" in err and server.requests == []
        command(*words, "-e", f"{server.url}/e.csv")
        assert server.requests
