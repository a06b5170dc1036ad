"""What a GPU adds up, its CRC-32 of lines and its integers, against the host's own."""

import zlib

import numpy as np
import pytest
from conftest import mix, write_csv, write_cube
from test_certificate import masked

import unmix
from unmix.certificate import CERTIFIED, FARTHEST, MASKED, NODATA, PARTLY, SOLVED
from unmix.commands.verify import verify
from unmix.devices import count_gpus
from unmix.summary import Summary, count_block

pytestmark = [
    pytest.mark.sim,
    pytest.mark.skipif(count_gpus() == 0, reason="neither a GPU nor the simulator"),
]


def results_of(n, samples, **more):
    """Results of a block in which all is well, and nothing else."""
    plane = n, samples
    return {
        "rmse": np.full(plane, 0.1, np.float32),
        "relative": np.full(plane, 0.01, np.float32),
        "kappa": np.full(plane, 1e-15),
        "delta": np.full(plane, 1e-9),
        "steps": np.ones(plane, np.int32),
        "state": np.full(plane, SOLVED, np.uint8),
    } | more


@pytest.mark.parametrize("samples", [1, 127, 300])
def test_against_the_host(samples):
    from unmix.compiled.cuda import cuda
    from unmix.solvers.pixels.cuda_totals.totals import Counter, CountsOnGpu, count_shapes

    random = np.random.default_rng(samples)
    n, p = 2, 2
    state = random.choice([SOLVED, SOLVED, SOLVED, PARTLY, MASKED], (n, samples)).astype(np.uint8)
    kappa = 10.0 ** random.uniform(-16, -9, (n, samples))
    delta = 10.0 ** random.uniform(-12, -5, (n, samples))
    kappa[random.random((n, samples)) < 0.02] = np.nan
    kappa[random.random((n, samples)) < 0.02] = random.choice([0.0, 1e-30, 0.25, 0.5, 1.0, 3.0])
    results = {
        "abundance": random.random((n, p, samples)).astype(np.float32),
        "rmse": random.random((n, samples)).astype(np.float32),
        "relative": (10.0 ** random.uniform(-6, 2, (n, samples)) * random.choice([1, 1, -1], (n, samples))).astype(
            np.float32
        ),
        "kappa": kappa,
        "delta": delta,
        "steps": random.integers(0, 30, (n, samples)).astype(np.int32),
        "state": state,
    }
    masked(results)
    counts = CountsOnGpu(*(cuda.device_array(shape, kind) for kind, shape in count_shapes(n, p)))
    on_gpu = {name: cuda.to_device(values) for name, values in results.items()}
    Counter(p, samples, FARTHEST).launch(on_gpu, counts, {}, {}, 0)
    found = CountsOnGpu(*(values.copy_to_host() for values in counts))

    own = count_block(results, CERTIFIED, FARTHEST)
    good = (kappa <= CERTIFIED) & (delta <= FARTHEST)
    assert found.pixels[:, :3].tolist() == own.pixels[:, :3].tolist()
    assert found.pixels[:, 3].tolist() == ((state == SOLVED) & ~good).sum(axis=1).tolist()
    for name in ("worst", "misfit", "kappas", "most", "there", "outside"):
        np.testing.assert_array_equal(getattr(found, name), getattr(own, name), name)
    np.testing.assert_array_equal(
        np.trim_zeros(found.steps.sum(axis=0), "b"), np.trim_zeros(own.steps.sum(axis=0), "b")
    )
    bins = [*[0.0], *2.0 ** np.arange(-63, 0), np.inf]  # an octave each, and what is beyond
    for line in range(n):
        ours = np.nan_to_num(kappa[line][state[line] == SOLVED], nan=1e300)
        assert own.kappas[line].tolist() == np.histogram(ours, bins)[0].tolist()
    np.testing.assert_allclose(found.sums, own.sums, rtol=1e-12)
    for name, checks in (("abundance", found.abundance), ("rmse", found.rmse)):
        assert checks.tolist() == [zlib.crc32(line.tobytes()) for line in results[name]]


@pytest.mark.parametrize(
    "samples", [1, 7, 129]
)  # lines of an odd number of integers, and of fewer than threads, among them
@pytest.mark.parametrize("step, offset", [(1e-4, 0.0), (0.1, -3276.7), (3e-7, -0.01)])
def test_integers_are_those_of_the_host(samples, step, offset):
    from unmix.compiled.cuda import cuda
    from unmix.solvers.pixels.cuda_totals.totals import Checker, encode
    from unmix.steps import BLANK, MOST_STEPS, to_integers

    random, n, p = np.random.default_rng(samples), 3, 5
    values = (offset + step * random.uniform(0, MOST_STEPS, (n, p, samples))).astype(np.float32)
    halves = offset + step * (
        random.integers(0, MOST_STEPS, p) + 0.5
    )  # half a step from two integers, as near as float32 has it
    values[0, :, 0] = halves
    values[1, 0, 0] = NODATA
    odd = [-np.inf, np.inf, np.nan, offset - step, offset + step * (MOST_STEPS + 2)]
    values[2, :, -1] = odd
    expected, misfits = np.empty(values.shape, np.uint16), []
    for line in range(n):
        misfits.append(to_integers(values[line].reshape(-1), expected[line].reshape(-1), step, offset) >= 0)
    stored, pixels = cuda.device_array(values.shape, np.uint16), cuda.to_device(np.zeros((n, 4), np.int32))
    encode(cuda.to_device(values), step, offset, stored, pixels, 0)
    found = stored.copy_to_host()
    np.testing.assert_array_equal(found, expected)
    assert found[1, 0, 0] == BLANK and misfits == [False, False, True]
    assert pixels.copy_to_host()[:, 3].tolist() == [0, 0, len(odd)]
    checks = cuda.device_array(n, np.uint32)
    Checker(p * samples, 16).launch(stored, checks, 0)
    assert checks.copy_to_host().tolist() == [zlib.crc32(line.tobytes()) for line in expected]


def test_fractions_are_counted_in_place_of_abundances():
    """Where abundances become fractions, sums, the worst δ and the CRCs are those of the fractions."""
    from unmix.compiled.cuda import cuda
    from unmix.library.fractions import Normalization
    from unmix.solvers.pixels.cuda_totals.totals import Counter, CountsOnGpu, count_shapes

    random, n, p, samples = np.random.default_rng(2), 2, 3, 9
    plane, shares = (n, samples), Normalization("length", np.array([0.5, 1.0, 2.0]))
    results = results_of(*plane, abundance=random.random((n, p, samples)))
    fractions, _, far = shares.replaced(results["abundance"], results["delta"], results["state"] == SOLVED, 1, -9999.0)
    made = {
        "abundance": cuda.device_array((n, p, samples), np.float32),
        "scale": cuda.device_array(plane, np.float32),
        "delta": cuda.device_array(plane, np.float64),
    }
    counts = CountsOnGpu(*(cuda.device_array(shape, kind) for kind, shape in count_shapes(n, p)))
    on_gpu = {name: cuda.to_device(values) for name, values in results.items()}
    Counter(p, samples, FARTHEST, shares=shares.shares).launch(on_gpu, counts, {}, made, 0)
    np.testing.assert_allclose(made["abundance"].copy_to_host(), fractions, rtol=1e-6)
    np.testing.assert_allclose(counts.sums.copy_to_host(), fractions.sum(axis=2), rtol=1e-6)
    np.testing.assert_allclose(counts.worst.copy_to_host()[:, 1], far.max(axis=1), rtol=1e-12)
    stored = made["abundance"].copy_to_host()
    assert counts.abundance.copy_to_host().tolist() == [zlib.crc32(stored[line].tobytes()) for line in range(n)]


def test_what_is_checked_is_what_is_stored():
    """Integers of one map, float32 of the others; a value that does not fit is a doubtful pixel of its line."""
    from unmix.compiled.cuda import cuda
    from unmix.solvers.pixels.cuda_totals.totals import Counter, CountsOnGpu, count_shapes
    from unmix.steps import to_integers

    random, n, p, L, samples = np.random.default_rng(1), 3, 3, 4, 7
    shapes = {"abundance": (n, p, samples), "rmse": (n, samples), "residual": (n, L, samples)}
    results = results_of(n, samples, **{key: random.random(shape).astype(np.float32) for key, shape in shapes.items()})
    results["abundance"][1, 2, 4] = 7.0
    on_gpu = {name: cuda.to_device(values) for name, values in results.items()}
    counts = CountsOnGpu(*(cuda.device_array(shape, kind) for kind, shape in count_shapes(n, p)))
    integers = {"abundance": cuda.device_array((n, p, samples), np.uint16)}
    Counter(p, samples, FARTHEST, L, {"abundance": (1e-4, 0.0)}).launch(on_gpu, counts, integers, {}, 0)
    stored = np.empty((n, p, samples), np.uint16)
    to_integers(results["abundance"].reshape(-1), stored.reshape(-1), 1e-4, 0.0)
    np.testing.assert_array_equal(integers["abundance"].copy_to_host(), stored)
    for name, written in (("abundance", stored), ("rmse", results["rmse"]), ("residual", results["residual"])):
        assert getattr(counts, name).copy_to_host().tolist() == [zlib.crc32(line.tobytes()) for line in written]
    assert counts.pixels.copy_to_host()[:, 3].tolist() == [0, 1, 0]


@pytest.mark.parametrize(("method", "p"), [("fcls", 3), ("nnls", 34), ("scls", 3)])
def test_a_whole_run_whose_results_a_gpu_counts(tmp_path, monkeypatch, method, p):
    """By each kind of solver; `verify` counts again in the maps, and compares the checksums and the host's record."""
    random, E, Y = mix(p, (4, 3), 40, p, (0.1, 1.1), alpha=0.2)
    cube = Y + 0.01 * random.random((4, 3, 40))
    cube[1, 2] = np.nan
    path, library = write_cube(tmp_path / "x.hdr", cube.astype(np.float32), "bil"), write_csv(tmp_path / "e.csv", E)
    how = {"endmembers": library, "method": method, "residual": True, "quantize": 1e-3, "memory": "64K"}
    how |= {"browse": False}
    counted, records, take = [], [], Summary.take
    monkeypatch.setattr(
        Summary, "take", lambda self, counts, pixels: (counted.append(type(counts)), take(self, counts, pixels))
    )
    for by_gpu in (False, True):
        monkeypatch.setattr("unmix.devices.cuda.counts_here", lambda by_gpu=by_gpu: by_gpu)
        out = tmp_path / f"by {by_gpu}"
        report = unmix.run(path, device="cuda", out_dir=out, **how)
        differ = ("seconds", "hidden", "ended", "pixels_per_second", "digests", "digest", "asked", "options")
        records.append({name: value for name, value in report.items() if name not in differ})
        assert {kind.__module__.rpartition(".")[2] for kind in counted} == {"totals" if by_gpu else "summary"}
        assert verify(out / "x", everything=True).faults == []  # which may count on the CPU
        counted.clear()
    ours, theirs = (dict(leaves(record)) for record in records)
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():  # sums are added in another order
        assert theirs[name] == (pytest.approx(value, rel=1e-12) if isinstance(value, float) else value), name
    assert records[0]["pixels"]["solved"] == 11 and (p == 3 or max(map(int, records[0]["steps"])) > 2)


def leaves(record, name=""):
    """Yield the values of a record of any depth, with their names."""
    for key, value in record.items() if isinstance(record, dict) else enumerate(record):
        if isinstance(value, dict | list):
            yield from leaves(value, f"{name}.{key}")
        else:
            yield f"{name}.{key}", value
