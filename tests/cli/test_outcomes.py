"""Outcomes of many scenes: folders of an archive again, and the table of scenes that failed."""

import csv
import io
import json
import os
from pathlib import Path

import click
import numpy as np
import pytest
from conftest import refused, write_csv, write_cube
from test_cli import unmix as command
from unmix_cli import main
from unmix_cli.archive import leave_out, read_list
from unmix_cli.main import print_json
from unmix_cli.outcomes import Outcomes, scenes_that_failed

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
    (archive / "none").mkdir()  # where all have failed
    assert "failed       in/2024/" in command("status", "none", "--failed", "failed.csv", cwd=archive, code=1)[0]
    write_cube(archive / "in/2024/broken.hdr", np.full((4, 5, 6), 0.5))
    command("run", SCENES[2], *OPTIONS, "-o", "maps/{dir}", cwd=archive)  # it is done, and the table is of yesterday
    assert "failed" not in command("status", "maps", "--failed", "failed.csv", cwd=archive)[0]
    assert (
        "a table that run --failed wrote has the columns"
        in command("status", "maps", "--failed", "e.csv", cwd=archive, code=3)[1]
    )


ROWS = [
    ("scene", "exit code", "reason"),
    ("b\xe4d.hdr", "3", "is no cube; look"),
    ("x.hdr", "1", "a, b"),
    ("y", "3", "two\nlines"),
]


def as_text(rows, cut=","):
    file = io.StringIO()
    csv.writer(file, delimiter=cut).writerows(rows)
    return file.getvalue()


@pytest.mark.parametrize("coding", ["utf-8", "utf-8-sig", "latin-1", "utf-16"])
@pytest.mark.parametrize("cut", [",", ";", "\t"])
def test_the_table_is_read_as_spreadsheets_save_it(tmp_path, coding, cut):
    (tmp_path / "f.csv").write_bytes(as_text(ROWS, cut).encode(coding))
    assert scenes_that_failed(tmp_path / "f.csv") == [(row[0], row[2]) for row in ROWS[1:]]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "has no column 'scene'"),
        (b"scene,exit code,reason\n/q\0x,3,a\n", "not a CSV table, but binary"),
        (as_text([*ROWS, ("y", "3", "x" * 200000)]).encode(), "field larger than field limit"),
        (b"scene,reason\na,b\n", "has no column 'exit code'; a table that run --failed wrote has the columns"),
        (b"scene,exit code,reason\na,3,why,7\n", "row 2 has 4 cells"),
        (b"\xff\xfe\0", "has no column|not a CSV"),
    ],
)
def test_another_table_is_refused_in_one_line(tmp_path, content, says):
    (tmp_path / "f.csv").write_bytes(content)
    assert "\n" not in str(refused(unmix.InputError, says, scenes_that_failed, tmp_path / "f.csv").value)


def test_names_that_are_no_utf_8_are_written(tmp_path):
    outcomes = Outcomes(2, False, None, "fail", tmp_path / "f.csv")
    outcomes.failed(Path("b\udce4d.hdr"), unmix.InputError("is no cube"))
    outcomes.summary()
    assert b"b\xe4d.hdr,3,is no cube" in (tmp_path / "f.csv").read_bytes()


def test_json_has_no_infinity(capsys):
    print_json(
        {"a": [1.5, float("inf")], "b": (float("nan"), {"c": -float("inf")}), "d": np.float64("inf"), "e": 10**400}
    )
    found = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert found == {"a": [1.5, None], "b": [None, {"c": None}], "d": None, "e": 10**400}


@pytest.mark.parametrize(("raising", "place"), [("click", "stdout"), ("others", "an open file"), ("named", "x.img")])
def test_an_error_is_said_of_its_file(monkeypatch, capsys, raising, place):
    """An error without a name is stdout's only where it was raised as something was printed."""

    class Full(io.StringIO):
        def write(self, _):
            raise OSError(5, "Input/output error")

    def act(**_):
        if raising == "click":
            click.echo("x", file=Full())
        raise OSError(5, "Input/output error", *(["x.img"] if raising == "named" else []))

    monkeypatch.setattr(main.cli, "main", act)
    end = refused(SystemExit, None, main.main)
    assert end.value.code == 1 and f"unmix: error: {place}" in capsys.readouterr().err


def test_long_lists_are_read_in_linear_time(tmp_path):
    """Each name is looked at on the disk, so that names that are repeated are once enough."""

    class Name(str):
        looked_up = 0

        def __hash__(self):
            Name.looked_up += 1
            return str.__hash__(self)

    (tmp_path / "list").write_text("a.hdr\nb.hdr\na.hdr\n" * 100)
    assert read_list(tmp_path / "list") == [Path("a.hdr"), Path("b.hdr")]
    names = tuple(map(Name, range(200)))
    assert leave_out(names, lambda name: int(name) % 2, "other", "others") == names[::2]
    assert Name.looked_up <= 3 * len(names)


def test_an_older_run_of_a_scene_that_failed_is_no_news(archive):
    command("run", SCENES[0], *OPTIONS, "-o", "maps/{dir}", cwd=archive)
    (archive / "failed.csv").write_text(f"scene,exit code,reason\n{SCENES[0]},1,it is of another input\n")
    later = (archive / "failed.csv").stat().st_mtime + 60
    os.utime(archive / "failed.csv", (later, later))
    assert "another input" in command("status", "maps", "--failed", "failed.csv", cwd=archive, code=1)[0]
