"""The fast path of a GPU against the CPU, on scenes of a few warps; `simulated_warps` gives the simulator what it lacks."""

import zlib
from dataclasses import replace

import definitions
import numpy as np
import pytest
from conftest import mix

import unmix
from unmix.blocks import BlockPlan
from unmix.certificate import CERTIFIED, FARTHEST, MASKED, PARTLY, SOLVED
from unmix.devices import Cpu, Line, count_gpus, simulated
from unmix.devices.cuda import Cuda
from unmix.io import Bands
from unmix.library import Endmembers
from unmix.methods import choose
from unmix.problem import plan_problem
from unmix.summary import count_block

pytestmark = [
    pytest.mark.sim,
    pytest.mark.skipif(count_gpus() == 0, reason="neither a GPU nor the simulator"),
]
AXES = {"bip": (0, 1, 2), "bil": (0, 2, 1), "bsq": (2, 0, 1)}


@pytest.fixture
def generation(monkeypatch):
    """Sets the generation of the simulated GPU, which by itself is too old for the fast path; a real one is what it is."""

    def choose_generation(capability):
        if simulated():
            from numba.cuda.simulator.cudadrv.devices import FakeCUDADevice

            monkeypatch.setattr(FakeCUDADevice, "compute_capability", capability)

    choose_generation((9, 0))
    return choose_generation


def make_scene(method, kind, interleave, p, bands, samples=20, lines=1, bad=(), gain=1.0, nodata=None, alike=0.0):
    """A block of noisy mixtures as it is stored, and its problem; ``alike``: how far two of the endmembers are apart."""
    random = np.random.default_rng([p, bands])
    index = np.setdiff1d(np.arange(bands), bad)
    E = random.random((len(index), p)) + 0.1
    if alike:
        E[:, 1] = E[:, 0] + alike * random.standard_normal(len(index))
    A = random.dirichlet(np.full(p, 0.3), (lines, samples))
    if method == "nnls":
        A *= random.uniform(0.3, 2.0, (lines, samples, 1))
    Y = A @ E.T + 0.02 * random.standard_normal((lines, samples, len(index)))
    cube = random.random((lines, samples, bands))
    offset = 0.05 if gain != 1.0 else 0.0
    cube[:, :, index] = (Y - offset) / gain
    integer = np.dtype(kind).kind != "f"
    if integer:
        scale = 4000.0 if gain == 1.0 else 1.0
        cube = np.round(cube * scale).clip(np.iinfo(kind).min, np.iinfo(kind).max)
        E *= scale
    raw = cube.astype(kind)
    if nodata is not None:
        raw[0, 2] = nodata
        raw[0, 5, index[3]] = nodata
        raw[0, 6, list(bad)] = nodata  # of no account
        raw[0, 7, index[1:]] = nodata
        if not integer:
            raw[-1, 9, index[-1]] = np.inf
            raw[-1, 17, index] = np.nan
    ones = np.ones(len(index))
    library = Endmembers(tuple(map(str, range(p))), E, None, source="E")
    stored = {"bands": Bands(index, gain * ones, offset * ones), "nodata": nodata, "interleave": interleave}
    found = replace(plan_problem(library, *choose(method, None)), **stored)
    return found, np.ascontiguousarray(raw.transpose(AXES[interleave]))


def solve_block(machine, problem, raw, lines, samples, residual=False, real=np.float64, counted=None):
    """All results of a block, and its counts."""
    line = Line(samples, raw.nbytes // lines, residual, real, raw.dtype, counted=counted)
    try:
        slot = machine.open(problem, line, BlockPlan(lines, lines, 1))[0]
        slot.buffer[:] = raw.view(np.uint8).ravel()
        slot.hold(slice(0, lines), slot.buffer.view(raw.dtype).reshape(raw.shape))
        machine.submit(slot)
        machine.wait(slot)
        if slot.counts is not None:  # then results stay on the GPU
            machine.device_slots[id(slot)].bring_rest(slot)
        counts = slot.counts and type(slot.counts)(*(np.array(values) for values in slot.counts))
        return {name: np.array(values) for name, values in slot.results.items()}, counts
    finally:
        machine.close()


def solve_fast(problem, *block, **options):
    """The same by the fast path, or by the one for many endmembers."""
    from unmix.solvers.pixels.cuda_fast.driver import FastSolver
    from unmix.solvers.pixels.cuda_many.driver import ManySolver

    machine = Cuda(0)
    few = problem.E.shape[1] <= 32 and problem.condition <= 1e7
    assert machine.solver_for(problem, 20) is (FastSolver if few else ManySolver)
    return solve_block(machine, problem, *block, **options)


def case(words, p, bands, **more):
    """The words of `make_scene`."""
    return dict(zip(("method", "kind", "interleave"), words.split())) | {"p": p, "bands": bands} | more


CASES = {
    "int16 bip": case("fcls int16 bip", 3, 40, samples=21, lines=2),
    "int16 bip before sm_90": case("nnls int16 bip", 8, 16),
    "float32 bil nodata": case("fcls float32 bil", 9, 37, lines=2, nodata=-5.0),
    "uint16 bsq bad bands": case("nnls uint16 bsq", 2, 70, bad=(0, 5, *range(32, 64)), gain=0.0001, nodata=65535),
    "uint16 bip bad bands": case("fcls uint16 bip", 5, 24, bad=(3, 23), gain=0.0001, nodata=65535),
    "float64 bip alike": case("nnls float64 bip", 11, 19, alike=0.001),
    "int32 bip": case("fcls int32 bip", 14, 20, samples=36),
    "float32 bsq": case("fcls float32 bsq", 18, 25, samples=18),
    "nearly one": case("nnls float64 bip", 6, 18, alike=1e-06),
    "no condition": case("fcls float64 bip", 5, 18, alike=1e-09),
    "many": case("nnls uint16 bip", 33, 36, bad=(3,), nodata=65535, samples=12),
    "many before sm_90": case("fcls float32 bsq", 41, 45, nodata=-5.0, samples=18),
    "many alike": case("nnls float64 bip", 33, 40, alike=0.001, samples=8),
    "float64 bil": case("nnls float64 bil", 27, 33, samples=18),
}  # one at least for every row of `GROUPS`


@pytest.mark.parametrize("name", list(CASES))
def test_against_the_cpu(generation, name):
    case = {"samples": 20, "lines": 1} | CASES[name]
    generation((8, 0) if "before" in name else (9, 0))
    problem, raw = make_scene(**case)
    block = problem, raw, case["lines"], case["samples"], case["interleave"] != "bip"
    cpu, _ = solve_block(Cpu(1), *block)
    gpu, _ = solve_fast(*block)

    np.testing.assert_array_equal(gpu["state"], cpu["state"])
    good = cpu["state"] == SOLVED
    assert set(cpu["state"].ravel()) == ({MASKED, PARTLY, SOLVED} if "nodata" in case else {SOLVED})
    assert max(cpu["kappa"][good].max(), gpu["kappa"][good].max()) <= CERTIFIED
    # Where two endmembers are alike the tableau loses digits, and the host solves again what is further than FARTHEST.
    alike = problem.condition > 1e3
    assert cpu["delta"][good].max() <= FARTHEST and gpu["delta"][good].max() <= (1e-3 if alike else 1e-9)
    apart = 1e-7 if problem.condition > 1e5 else 1e-9 if alike else 1e-12
    np.testing.assert_allclose(gpu["abundance"], cpu["abundance"], rtol=0, atol=apart)
    np.testing.assert_array_equal(gpu["abundance"] == 0, cpu["abundance"] == 0)
    for field in ("kappa", "delta"):
        np.testing.assert_array_equal(gpu[field][~good], cpu[field][~good])
    np.testing.assert_allclose(gpu["rmse"], cpu["rmse"], rtol=1e-10)
    np.testing.assert_allclose(gpu["relative"], cpu["relative"], rtol=1e-6)
    np.testing.assert_allclose(gpu["residual"], cpu["residual"], rtol=0, atol=1e-12 * max(1.0, problem.norms.max()))
    assert np.all(gpu["steps"][good] >= 0) and np.all(gpu["steps"][~good] == -9999)


@pytest.mark.parametrize("method", ["nnls", "fcls"])
def test_stages(generation, monkeypatch, method):
    """Pixels that need more columns than a stage has room for go on in the next, the last in global memory."""
    from unmix.solvers.pixels.cuda_many import driver, search
    from unmix.solvers.pixels.cuda_many.tableau import Stage

    stages = Stage(24, "tiles", 96, 4), Stage(32, "tiles", 96, 4), Stage(256, "global", None, 2)
    problem, raw = make_scene(method, "float64", "bip", 40, 60, 4)
    cpu, _ = solve_block(Cpu(1), problem, raw, 1, 4)
    sizes = (cpu["abundance"] > 0).sum(1)
    assert sizes.min() < 28 and sizes.max() > 26
    for module in (search, driver):
        monkeypatch.setattr(module, "STAGES", stages)
    monkeypatch.setattr(search, "WHOLE", ())
    gpu, _ = solve_fast(problem, raw, 1, 4)
    np.testing.assert_allclose(gpu["abundance"], cpu["abundance"], rtol=0, atol=1e-11)


def test_a_worn_tableau_is_swept_afresh(generation):
    """Pivots on two spectra alike to 1e-7 cost digits, which the sum of the abundances shows."""
    problem, raw = make_scene("fcls", "float64", "bip", 36, 50, 6, alike=1e-7)
    gpu, _ = solve_fast(problem, raw, 1, 6)
    assert np.abs(gpu["abundance"].sum(axis=1) - 1).max() < 1e-14 and gpu["kappa"].max() < 1e-14


@pytest.mark.skipif(not simulated(), reason="constants of compiled code, which is kept")
@pytest.mark.parametrize("method", ["nnls", "fcls"])
def test_refined_and_cold_starts(generation, monkeypatch, method):
    """Refined abundances are those of their equations, whatever the tableau; with every pixel cold, too."""
    from unmix.solvers.pixels.cuda_fast import active_set, driver

    problem, raw = make_scene(method, "float64", "bip", 6, 40, alike=1e-4)
    cpu, _ = solve_block(Cpu(1), problem, raw, 1, 20)
    for refined_above, spoilt_above in ((np.inf, np.inf), (0.0, np.inf), (0.0, 0.0)):
        driver.search_kernel.cache_clear()
        monkeypatch.setattr(active_set, "REFINED_ABOVE", refined_above)
        monkeypatch.setattr(active_set, "SPOILT_ABOVE", spoilt_above)
        gpu, _ = solve_fast(problem, raw, 1, 20)
        is_near = np.abs(gpu["abundance"] - cpu["abundance"]).max() < 1e-9
        assert is_near == (gpu["kappa"].max() <= CERTIFIED) == (refined_above == 0.0)
    driver.search_kernel.cache_clear()


class Given:
    """A search that finds what it was given; launched as a kernel."""

    def __init__(self, A):
        self.A = A

    def __getitem__(self, configuration):
        return lambda plan, work, steps: work.a.copy_to_device(self.A, stream=configuration[2])


@pytest.mark.parametrize("method", ["nnls", "fcls"])
@pytest.mark.parametrize("p", [5, 9])
def test_certificate_against_the_definition(generation, monkeypatch, method, p):
    """Of abundances that are no answers, where rounding does not decide."""
    from unmix.solvers.pixels.cuda_fast import driver

    problem, raw = make_scene(method, "float64", "bip", p, 15)
    random = np.random.default_rng(1)
    A = random.random((20, p)) * (random.random((20, p)) < 0.7)
    A[3, 1] = -0.1
    monkeypatch.setattr(driver, "search_kernel", lambda *case: Given(A))
    found, _ = solve_fast(problem, raw, 1, 20)
    for n in range(20):
        E, y = problem.endmembers.matrix, raw[0, n]
        expected = definitions.of_pixel(E, y, A[n], method == "fcls", True)
        got = [found[name][0, n] for name in ("rmse", "kappa", "delta")]
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-14)


def test_counts(generation, monkeypatch):
    monkeypatch.setattr("unmix.devices.cuda.counts_here", lambda: True)
    case = {"samples": 20} | CASES["float32 bil nodata"]
    problem, raw = make_scene(**case)
    block = problem, raw, case["lines"], case["samples"], False, np.float32
    cpu, gpu = count_block(solve_block(Cpu(1), *block)[0]), solve_fast(*block, counted=FARTHEST)
    results, found = gpu
    own = count_block(results, CERTIFIED, FARTHEST)
    assert found.pixels.tolist() == own.pixels.tolist() == cpu.pixels.tolist()
    for name in ("worst", "misfit", "most", "there", "outside"):
        np.testing.assert_array_equal(getattr(found, name), getattr(own, name), name)
    for name in ("misfit", "there", "outside"):
        np.testing.assert_array_equal(getattr(found, name), getattr(cpu, name), name)
    np.testing.assert_array_equal(found.steps[:, : own.steps.shape[1]], own.steps)
    np.testing.assert_allclose(found.sums, own.sums, rtol=1e-12)
    for name in ("abundance", "rmse"):
        assert getattr(found, name).tolist() == [zlib.crc32(line.tobytes()) for line in results[name]]


def test_a_solve_of_arrays(generation):
    """Through `unmix.solve`, in several stretches of a line, the last of them short."""
    _, E, Y = mix(2, 67, 12, 4, (0.1, 1.1), noise=0.02, alpha=0.4)
    cpu, gpu = (unmix.solve(Y, E, device=name) for name in ("cpu", "cuda"))
    np.testing.assert_allclose(gpu.abundances, cpu.abundances, rtol=0, atol=1e-12)
    assert gpu.kappa.max() <= CERTIFIED and gpu.delta.max() <= 1e-9
