"""Several GPUs: the bytes of one, whatever is in flight; names of devices; one that fails."""

import subprocess
import sys

import pytest
from conftest import refused

import unmix
from unmix.arrays import nnls as systems
from unmix.blocks import BlockPlan
from unmix.commands.synth import SyntheticScene, synthesise
from unmix.devices import Several, choose_device, count_gpus, gpus_named, one_device, simulated
from unmix.devices.cuda import Cuda
from unmix.errors import DeviceError, MethodError
from unmix.features.bands import arrays as selection
from unmix.features.nmf import arrays as factorisation
from unmix.features.systems import nnqp as quadratic

MAPS = ("s_abundance.img", "s_rmse.img", "s_residual.img", "s_certificate.img", "s_abundance.hdr")


@pytest.fixture
def pair():
    """Two GPUs, or the only one twice: streams, buffers and solvers are apart all the same."""
    if not count_gpus():
        pytest.skip("no CUDA GPU here; `make test-sim` runs this in the simulator")
    return lambda *_: Several([Cuda(0), Cuda(1 if count_gpus() > 1 else 0)])


@pytest.mark.sim
@pytest.mark.parametrize("streams, memory", [(1, "1G"), (2, "6k"), (3, "12k")])
def test_same_bytes_as_one(tmp_path, monkeypatch, pair, streams, memory):
    synthesise(tmp_path / "s.hdr", SyntheticScene(11, 5, 12, 3, seed=1))
    how = {"count": 3, "residual": True, "certificate": True, "memory": memory, "streams": streams}
    one = unmix.run(tmp_path / "s.hdr", device="cuda", out_dir=tmp_path / "one", **how)
    monkeypatch.setattr("unmix.runs.executor.choose_device", pair)
    two = unmix.run(tmp_path / "s.hdr", out_dir=tmp_path / "two", **how)
    assert two["device"].startswith("cuda:0,") and one["device"] == "cuda:0"
    assert two["certified"] and two["pixels"] == one["pixels"] and two["pixels"]["rescued"] == 0
    for name in MAPS:
        assert (tmp_path / "two" / name).read_bytes() == (tmp_path / "one" / name).read_bytes(), name


@pytest.mark.sim
def test_blocks_take_turns(tmp_path, monkeypatch, pair):
    """One after the other, from the first: not one GPU's slots and then the other's."""
    synthesise(tmp_path / "s.hdr", SyntheticScene(40, 5, 12, 3, seed=1))
    several, order, lines = pair(), [], []
    for i, gpu in enumerate(several.gpus):
        submit = gpu.submit
        monkeypatch.setattr(
            gpu, "submit", lambda slot, i=i, call=submit: (order.append(i), lines.append(slot.lines), call(slot))
        )
    monkeypatch.setattr("unmix.runs.executor.choose_device", lambda *_: several)
    unmix.run(tmp_path / "s.hdr", out_dir=tmp_path / "o", count=3, memory="6k", streams=2)
    assert order[:4] == [0, 1, 0, 1] and abs(order.count(0) - order.count(1)) <= 1
    assert [line for part in lines for line in range(part.start, part.stop)] == list(range(40))


@pytest.mark.sim
def test_one_that_fails_is_named(tmp_path, monkeypatch, pair):
    synthesise(tmp_path / "s.hdr", SyntheticScene(11, 5, 12, 3, seed=1))
    several = pair()

    def fail(slot):
        raise DeviceError("cuda:1: failed: an illegal address")

    monkeypatch.setattr(several.gpus[1], "submit", fail)
    monkeypatch.setattr("unmix.runs.executor.choose_device", lambda *_: several)
    refused(DeviceError, "cuda:1: failed", unmix.run, tmp_path / "s.hdr", out_dir=tmp_path / "o", count=3, memory="6k")
    assert not list((tmp_path / "o").glob("*.img"))


def test_each_gpu_keeps_to_its_memory():
    """``fit`` is asked for what one holds."""

    class Small:
        name = "cuda:0"

        def fit(self, problem, line, block_plan, memory):
            return BlockPlan(
                block_plan.lines, min(block_plan.lines_per_block, memory // block_plan.slots), block_plan.slots
            )

    several = Several([Small(), Small(), Small()])
    assert several.fit(None, None, BlockPlan(100, 10, 9), 60) == BlockPlan(100, 10, 9)
    assert several.fit(None, None, BlockPlan(100, 10, 8), 15) == BlockPlan(100, 5, 8)
    assert several.fit(None, None, BlockPlan(100, 10, 2), 5) == BlockPlan(100, 5, 2)


@pytest.mark.parametrize("name, found", [("cuda", [0]), ("cuda:3", [3]), ("cuda:2,0", [2, 0]), ("cuda:all", [])])
def test_names(name, found):
    assert gpus_named(name) == found


@pytest.mark.parametrize(
    "name", ["cuda:1,1", "cuda:", "cuda:0,", "cuda:,", "cuda:all,1", "cuda:-1", "cuda:x", "cuda:1.5", "gpu", "cuda:٣"]
)
def test_names_that_are_none(name):
    refused(MethodError, None, gpus_named, name)


def test_none_here_is_said(monkeypatch):
    monkeypatch.setattr("unmix.devices.count_gpus", lambda: 0)
    for name in ("cuda:all", "cuda:0,1", "cuda"):
        refused(DeviceError, "no CUDA GPU here", choose_device, name)
    monkeypatch.setattr("unmix.devices.count_gpus", lambda: 2)
    refused(DeviceError, "only 2 GPUs", choose_device, "cuda:0,2")


@pytest.mark.parametrize("module", [factorisation, quadratic, selection, systems])
def test_what_works_on_one_gpu_says_so(monkeypatch, module):
    """And takes the one that is named: CUDA calls within go to it."""
    assert module.one_device is one_device
    monkeypatch.setattr("unmix.devices.choose_device", lambda *_: Several([]))
    with pytest.raises(MethodError, match="works on one GPU"), one_device("cuda:all"):
        pass


@pytest.mark.sim
def test_a_process_claims_one_gpu():
    if not count_gpus():
        pytest.skip("no CUDA GPU here; `make test-sim` runs this in the simulator")
    code = "from unmix.devices import claim_gpu; print(claim_gpu(3), claim_gpu(3), flush=True); input()"
    others = [subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)]
    said = [others[0].stdout.readline()]
    others.append(
        subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    )
    said.append(others[1].stdout.readline())
    for other in others:
        other.communicate("\n")
    assert said[0] == "0 0\n"
    assert said[1] == "1 1\n" or (not simulated() and count_gpus() == 1)


@pytest.mark.gpu
def test_the_named_gpu_is_current():
    from numba import cuda

    last = count_gpus() - 1
    with one_device(f"cuda:{last}") as machine:
        assert machine.name == f"cuda:{last}"
        assert cuda.get_current_device().id == last
