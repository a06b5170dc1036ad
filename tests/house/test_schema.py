"""Every record is as docs/run.schema.json says, and has no key that it does not describe."""

import json
import random
from pathlib import Path

import fuzz_records
import numpy as np
import pytest
from conftest import falsify_record, write_csv, write_cube
from test_cli import unmix as command

import unmix
from unmix.commands.verify import verify
from unmix.io.export import FORMATS

jsonschema = pytest.importorskip("jsonschema")
SCHEMA = json.loads((Path(__file__).parents[2] / "docs/run.schema.json").read_text())


@pytest.fixture(scope="module")
def granule(tmp_path_factory):
    """A small granule like those of EMIT."""
    folder = tmp_path_factory.mktemp("granule")
    command("synth", folder / "g.nc", "--like", "emit", "--lines", 12, "--samples", 10)
    return folder


@pytest.mark.parametrize(
    "words",
    [
        ("run", "-n", 3),
        ("run", "-n", 2, "--method", "ucls", "--top", 1),
        ("run", "-n", "auto", "--extract", "nfindr", "-f", "hdf5"),
        (
            "run",
            "-e",
            "g_library.csv",
            "--method",
            "pcls",
            "--by",
            "class",
            "--uncertainty",
            "--noise",
            "g_uncertainty.nc",
            "--ortho",
        ),
        (
            "run",
            "-e",
            "g_library.csv",
            "--method",
            "nnls",
            "--by",
            "class",
            "--average",
            "plain",
            "--draws",
            3,
            "--tag",
            "a=b",
            "--bands",
            "1-20",
        ),
        ("nmf", "-n", 3),
        pytest.param(
            ("mesma", "-e", "g_library.csv", "--levels", "2-4", "--average", "likelihood"),
            marks=pytest.mark.slow,
        ),
    ],
    ids=lambda words: " ".join(map(str, words[:5])),
)
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
    assert set(SCHEMA["properties"]["format"]["enum"]) == set(FORMATS)
    assert all(key.get("description") for key in SCHEMA["properties"].values()) and not SCHEMA["additionalProperties"]


@pytest.mark.slow
def test_every_reader_takes_or_refuses_edited_records(tmp_path):
    """`make fuzz` has thousands of them; places whose edits were tracebacks once are among the first fifty of seed 0."""
    ends, findings = fuzz_records.fuzz(tmp_path, 50)
    assert findings == []
    assert ends["verify", "refused"] > 20 and ends["report", "read"] > 2 and ends["a continued run", "read"] > 5


def test_a_gain_that_overflows_is_a_fault_and_no_warning(tmp_path):
    """NumPy warned of it on the terminal; here its warnings are errors."""
    stem = fuzz_records.runs(tmp_path, numbers=[3])[0]
    falsify_record(stem, lambda report: report.update(gain=1e308))
    assert any("does not match the cube" in fault for fault in verify(stem, everything=True).faults)


@pytest.mark.parametrize("count", [300, pytest.param(2000, marks=[pytest.mark.slow, pytest.mark.night])])
def test_our_reading_of_the_schema_is_that_of_jsonschema(tmp_path, count):
    """Records are validated without the library, which is no dependency: on edited ones both say the same."""
    from unmix.outputs.names import fault_of, schema

    record = json.loads((fuzz_records.runs(tmp_path, numbers=[0])[0].with_name("s_run.json")).read_text())
    # Of integers JSON Schema says otherwise: 1.0 and 1e308 are some there.
    strict = jsonschema.validators.extend(
        jsonschema.Draft202012Validator,
        type_checker=jsonschema.Draft202012Validator.TYPE_CHECKER.redefine(
            "integer", lambda _, one: isinstance(one, int) and not isinstance(one, bool)
        ),
    )(schema())
    assert fault_of(record, schema()) is None and strict.is_valid(record)
    refused = 0
    for number in range(count):
        try:
            edited = json.loads(fuzz_records.edited(record, random.Random(number))[0])
        except (ValueError, RecursionError):
            continue
        if "NaN" in json.dumps(edited):  # compares as neither, and is refused by itself
            continue
        fault = fault_of(edited, schema())
        assert (fault is None) == strict.is_valid(edited), (fault, edited)
        refused += fault is not None
    assert refused > count / 4
