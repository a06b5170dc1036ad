"""Outcomes of many scenes: folders of an archive again, and the table of scenes that failed."""

import csv
import json

import numpy as np
import pytest
from conftest import write_csv, write_cube
from test_cli import unmix as command

import unmix


@pytest.fixture
def archive(tmp_path):
    """Two folders with a scene of one name each, and a broken one."""
    random = np.random.default_rng(1)
    E = random.uniform(0.1, 0.9, (6, 2))
    write_csv(tmp_path / "e.csv", E)
    for year in ("2023", "2024"):
        (tmp_path / "in" / year).mkdir(parents=True)
        write_cube(tmp_path / "in" / year / "s.hdr", random.dirichlet(np.ones(2), (4, 5)) @ E.T)
    (tmp_path / "in/2024/broken.hdr").write_text("<html>404</html>\n")
    return tmp_path


SCENES = ("in/2023/s.hdr", "in/2024/s.hdr", "in/2024/broken.hdr")
OPTIONS = ("-e", "e.csv", "--method", "fcls", "-q")


def table(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_folders_of_an_archive_again(archive):
    assert "one stem" in command("run", *SCENES, *OPTIONS, "-o", "maps", cwd=archive, code=2)[1]
    command("run", *SCENES, *OPTIONS, "-o", "maps/{dir}", cwd=archive, code=4)
    found = sorted(path.relative_to(archive).as_posix() for path in archive.rglob("*_run.json"))
    assert found == ["maps/in/2023/s_run.json", "maps/in/2024/s_run.json"]
    # A second time nothing is done again, and a scene must not be replaced by outputs.
    said = command("run", *SCENES[:2], *OPTIONS[:-1], "-o", "maps/{dir}", "--skip-existing", cwd=archive)[1]
    assert said.count("is finished already") == 2
    said = command("run", archive / SCENES[1], *OPTIONS[:-1], "-o", "maps/{dir}", "--skip-existing", cwd=archive)[1]
    assert said.count("is finished already") == 1  # an absolute name is that of the same folder
    said = command(
        "run", archive / SCENES[0], *OPTIONS[:-1], "-o", "../maps/{dir}", "--dry-run", cwd=archive / "in/2024", code=3
    )[1]
    assert "{dir} is the whole path" in said
    report = unmix.run(
        archive / SCENES[0], endmembers=archive / "e.csv", method="fcls", out_dir=archive / "b" / "{stem}"
    )
    assert report["certified"] and (archive / "b/s/s_run.json").exists()


def test_the_table_of_scenes_that_failed(archive):
    command("run", *SCENES, *OPTIONS, "-o", "maps/{dir}", "--failed", "failed.csv", cwd=archive, code=4)
    (row,) = table(archive / "failed.csv")
    assert row["scene"] == SCENES[2] and row["exit code"] == "3" and "not an ENVI header" in row["reason"]
    # Of the next night, which all ends well, it is empty: a program that looks at it sees no failure of yesterday.
    command("run", *SCENES[:2], *OPTIONS, "-o", "maps/{dir}", "--overwrite", "--failed", "failed.csv", cwd=archive)
    assert table(archive / "failed.csv") == []
    command("run", SCENES[2], *OPTIONS, "-o", "maps", "--failed", "failed.csv", cwd=archive, code=3)
    assert len(table(archive / "failed.csv")) == 1


def test_nothing_else_is_replaced_by_the_table(archive):
    before = (archive / "e.csv").read_bytes()
    said = command("run", *SCENES, *OPTIONS, "-o", "maps/{dir}", "--failed", "e.csv", cwd=archive, code=1)[1]
    assert "e.csv: exists already" in said and (archive / "e.csv").read_bytes() == before
    assert not (archive / "maps").exists()  # it is said before any work


def test_status_knows_scenes_that_failed(archive):
    """They are in no folder of maps, but in the table; a plan leaves no table."""
    command("run", *SCENES, *OPTIONS, "-o", "maps/{dir}", "--failed", "failed.csv", "--dry-run", cwd=archive, code=4)
    assert not (archive / "failed.csv").exists()
    command("run", *SCENES, *OPTIONS, "-o", "maps/{dir}", "--failed", "failed.csv", cwd=archive, code=4)
    assert "failed" not in command("status", "maps", cwd=archive)[0]
    out = command("status", "maps", "--failed", "failed.csv", cwd=archive, code=1)[0]
    assert out.count("done ") == 2 and "failed       in/2024/broken.hdr: is not an ENVI header" in out
    lines = command("status", "maps", "--failed", "failed.csv", "--json", cwd=archive, code=1)[0].splitlines()
    assert [json.loads(line)["state"] for line in lines] == ["done", "done", "failed"]
    write_cube(archive / "in/2024/broken.hdr", np.full((4, 5, 6), 0.5))
    command("run", SCENES[2], *OPTIONS, "-o", "maps/{dir}", cwd=archive)  # it is done, and the table is of yesterday
    assert "failed" not in command("status", "maps", "--failed", "failed.csv", cwd=archive)[0]
    assert (
        "is no table that run --failed wrote" in command("status", "maps", "--failed", "e.csv", cwd=archive, code=2)[1]
    )
