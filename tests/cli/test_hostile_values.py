"""Scenes of hostile values through every command that reads one: no warning of numpy (an error here), no "this should not happen"."""

import json
import os

import fuzz_grammar
import numpy as np
import pytest
from click.testing import CliRunner
from conftest import mix, rest_slow, write_csv, write_cube
from unmix_cli.main import cli

import unmix
from unmix.devices import simulated

pytestmark = pytest.mark.skipif(simulated(), reason="commands, not kernels")
L = 20
COMMANDS = {
    "run l1": "--method nnls --l1 0.1 --device cpu",
    "run rows": "--method nnls --rows auto --device cpu",
    "run uncertainty": "--method nnls --uncertainty --residual --certificate --device cpu",
    "check": "",
    "nmf": "-n 2 --steps 20 --device cpu",
    "match continuum": "--continuum",
    "match sid": "--distance sid",
    "mesma": "--average likelihood --device cpu",
    "count": "--criterion all",
    "mnf": "",
    "endmembers": "-n 3",
    "rows": "--method nnls",
}
# The others compile a search of their own.
QUICK = ("path", "run uncertainty", "check", "match sid", "count", "mnf", "endmembers")
WITH_LIBRARY = ("path", "run", "check", "match", "mesma", "rows")
WRITES = ("run", "nmf", "match", "mesma", "mnf", "endmembers", "rows")


def scenes():
    """By name: constant, flat, huge, tiny, denormal and negative values, one pixel, one band, infinities, NaN of any bits."""
    random, E, mixed = mix(0, (6, 8), L, 4, (0.1, 1.1))
    infinite, signalling = mixed.copy(), mixed.astype(np.float32)
    infinite[random.random(mixed.shape) < 0.1] = np.inf
    infinite[3] = np.inf
    signalling.view(np.uint32)[2, 3] = 0x7FA00000
    return E, {
        "constant": np.tile(E[:, 0], (6, 8, 1)),
        "flat": np.full((6, 8, L), 0.3),
        "zero": np.zeros((6, 8, L)),
        "huge": mixed * 1e160,
        "largest": mixed * 1e307,
        "tiny": mixed * 1e-170,
        "denormal": mixed * 1e-310,
        "negative": -mixed,
        "one pixel": mixed[:1, :1],
        "one line": mixed[:1],
        "one band": mixed[..., :1],
        "infinite": infinite,
        "float32 denormal": (mixed * 1e-40).astype(np.float32),
        "float32 large": (mixed * 1e38).astype(np.float32),
        "signalling NaN": signalling,
    }


@pytest.mark.parametrize("words", rest_slow(COMMANDS, *QUICK))
def test_every_command(tmp_path, words):
    E, every = scenes()
    name = words.split()[0]
    for kind, Y in every.items():
        waves = 400.0 + 20 * np.arange(Y.shape[2])
        field = "{" + ", ".join(map(str, waves)) + "}"
        cube = write_cube(tmp_path / f"{kind.replace(' ', '_')}.hdr", Y, wavelength=field)
        library = write_csv(tmp_path / "e.csv", E[: Y.shape[2]], wavelengths=waves)
        arguments = [name, cube, *(["-e", library] if name in WITH_LIBRARY else []), *COMMANDS[words].split()]
        arguments += ["--overwrite"] if name in WRITES else []
        result = CliRunner().invoke(cli, list(map(str, arguments)), standalone_mode=False)
        assert isinstance(result.exception, unmix.UnmixError | SystemExit | None), (kind, result.exception)
        assert "noise is nan" not in result.output
        if "--json" in arguments and result.exception is None:
            json.loads(result.stdout, parse_constant=pytest.fail)


@pytest.mark.slow
@pytest.mark.night
def test_files_after_their_grammars(tmp_path):
    """`make fuzz` has more; UNMIX_SEED draws others."""
    ends, findings = fuzz_grammar.fuzz(tmp_path, 5000, int(os.environ.get("UNMIX_SEED", "0")))
    assert findings == []
    assert {kind for kind, code in ends if code == 0} == {
        *fuzz_grammar.GRAMMARS,
        fuzz_grammar.SCENE,
    }  # each is read by some command


@pytest.mark.parametrize(
    ("code", "printed", "said", "new", "found"),
    [
        (0, '{"a": 1}', "", {"o/a": b""}, 0),
        (3, "", "unmix: error: x", {}, 0),
        (-14, "", "", {}, 1),
        (-11, "", "", {}, 1),
        (99, "", "", {}, 1),
        (3, "", "unmix: error: this should not happen", {}, 1),
        (3, "", "", {}, 1),
        (0, '{"a": Infinity}', "", {}, 1),
        (0, "", "x.py:1: RuntimeWarning: overflow", {}, 1),
        (0, "", "", {"elsewhere": b""}, 1),
        (0, "", "", {"o/a.part": b""}, 1),
        (3, "", "unmix: error: x", {"o/a": b""}, 1),
        (0, "", "", {"in": b"2"}, 1),
    ],
)
def test_what_the_grammars_find(code, printed, said, new, found):
    before = {"in": b"1"}
    assert len(list(fuzz_grammar.faults(["info", "--json"], code, printed, said, before, before | new))) == found
