"""Every record is as docs/run.schema.json says, and has no key that it does not describe."""

import json
from pathlib import Path

import numpy as np
import pytest
from conftest import write_csv, write_cube
from test_cli import unmix as command

import unmix

jsonschema = pytest.importorskip("jsonschema")
SCHEMA = json.loads((Path(__file__).parents[1] / "docs/run.schema.json").read_text())


@pytest.fixture(scope="module")
def granule(tmp_path_factory):
    """A small granule like those of EMIT."""
    folder = tmp_path_factory.mktemp("granule")
    command("synth", folder / "g.nc", "--like", "emit", "--lines", 12, "--samples", 10)
    return folder


@pytest.mark.parametrize(
    "words",
    [
        ("run", "-n", 3), ("run", "-n", 2, "--method", "ucls", "--top", 1), ("run", "-n", "auto", "--extract", "nfindr", "-f", "hdf5"),
        ("run", "-e", "g_library.csv", "--method", "pcls", "--by", "class", "--uncertainty", "--noise", "g_uncertainty.nc", "--ortho"),
        ("run", "-e", "g_library.csv", "--method", "nnls", "--by", "class", "--monte-carlo", 3, "--tag", "a=b", "--bands", "1-20"),
        ("mesma", "-e", "g_library.csv", "--levels", "2-4", "--uncertainty", "--within", "all"), ("nmf", "-n", 3),
    ],
    ids=lambda words: " ".join(map(str, words[:5])),
)  # fmt: skip
def test_records_of_all_kinds(tmp_path, granule, words):
    name, *rest = (granule / word if str(word).startswith("g_") else word for word in words)
    command(name, granule / "g.nc", *rest, "-o", tmp_path)
    record = json.loads((tmp_path / "g_run.json").read_text())
    jsonschema.Draft202012Validator(SCHEMA).validate(record)
    assert record["schema"] == 1


def test_a_record_with_numbers_that_json_has_none_for(tmp_path):
    random = np.random.default_rng(1)
    E = random.uniform(0.1, 0.9, (4, 6))
    E[:, 5] = E[:, 0]
    write_csv(tmp_path / "l.csv", E)
    path = write_cube(tmp_path / "x.hdr", random.dirichlet(np.ones(6), (5, 4)) @ E.T)
    unmix.run(path, endmembers=tmp_path / "l.csv", method="nnls")
    record = json.loads((tmp_path / "x_run.json").read_text())
    jsonschema.Draft202012Validator(SCHEMA).validate(record)
    assert record["condition"] is None


def test_the_schema_describes_every_key():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert all(key.get("description") for key in SCHEMA["properties"].values()) and not SCHEMA["additionalProperties"]
