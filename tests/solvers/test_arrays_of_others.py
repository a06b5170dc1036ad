"""Arrays of others: those of the host, and those on a GPU, which are solved where they are."""

import importlib
import types

import numpy as np
import pytest
from conftest import mix, refused

import unmix
from unmix.arrays.others.kinds import TORCH
from unmix.devices import count_gpus, simulated
from unmix.errors import CubeError, InputError, MethodError


def scene(N=37, L=24, p=5, seed=2):
    """Pixels (N, L), one of which has a NaN, and endmembers (L, p)."""
    _, E, Y = mix(seed, N, L, p, noise=0.02, alpha=0.4)
    Y[3, 5] = np.nan
    return Y, E


def numba_array(values):
    """An array on the GPU, or in the simulator."""
    from unmix.compiled.cuda import cuda

    return cuda.to_device(values)


def maker(name):
    """A function that brings an array of the host onto the GPU, as another library's."""
    if name == "numba":
        return numba_array
    module = pytest.importorskip(name)
    if name == "torch":
        return lambda values: module.from_numpy(np.ascontiguousarray(values)).cuda()
    if name == "jax":
        module.config.update("jax_enable_x64", True)
        return lambda values: module.device_put(values, module.devices("gpu")[0])
    return module.asarray


def host(array):
    """An array of the host."""
    return np.asarray(
        array.cpu()
        if hasattr(array, "cpu")
        else array.get()
        if hasattr(array, "get")
        else array.copy_to_host()
        if hasattr(array, "copy_to_host")
        else array
    )


def alike(there, here, names):
    """Whether answers on a GPU are those of the host, to their bounds."""
    for name in names:
        a, b = host(getattr(there, name)), getattr(here, name)
        assert a.shape == b.shape and a.dtype == b.dtype, name
        if name not in ("delta", "steps", "kappa"):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12, err_msg=name)
    assert np.all(host(there.kappa)[np.isfinite(here.kappa)] <= 1e-10)
    finite = np.isfinite(here.delta)
    assert np.all(np.isfinite(host(there.delta)[finite]))


FIELDS = ("abundances", "rmse", "kappa", "delta", "steps", "valid")
LIBRARIES = ["numba", *(pytest.param(name, marks=pytest.mark.gpu) for name in ("torch", "cupy", "jax"))]


@pytest.mark.sim
@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize("method", ["nnls", "fcls", "pcls"])
@pytest.mark.parametrize("whole", [False, True])
def test_pixels_on_a_gpu_are_solved_there(name, method, whole, monkeypatch):
    """Small batches are recorded; of large ones, or here of any, as many as fit are launched at a time."""
    if not count_gpus():
        pytest.skip("no CUDA GPU here; `make test-sim` runs this in the simulator")
    if not whole:
        from unmix.arrays.others import held, pixels

        monkeypatch.setattr(held, "MOST_COPIED", 0)
        monkeypatch.setattr(pixels, "MOST_PIXELS", 4 if simulated() else 133)
    elif simulated():
        pytest.skip("nothing is recorded in the simulator")
    there = maker(name)
    Y, E = scene(6 if simulated() else 500)
    E = E * (1.0 + whole)  # no solver is held from another case
    here = unmix.solve(Y, E, method=method)
    for _ in range(1 if simulated() else 3):  # recorded, then replayed
        found = unmix.solve(there(Y), E, method=method)
        assert type(found.abundances).__name__ == type(there(Y)).__name__
        alike(found, here, FIELDS)
    if not simulated():
        alike(
            unmix.solve(there(Y.reshape(20, 25, -1)), there(E), method=method),
            unmix.solve(Y.reshape(20, 25, -1), E, method=method),
            FIELDS,
        )
        counts = np.round(1e4 * np.nan_to_num(Y)).astype(np.int16)
        alike(unmix.solve(there(counts), 1e4 * E, method=method), unmix.solve(counts, 1e4 * E, method=method), FIELDS)


@pytest.mark.sim
@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize("method", ["nnls", "fcls"])
def test_pixels_on_a_gpu_with_weights_and_allowed_endmembers(name, method):
    """By way of the host, and answered in kind."""
    if not count_gpus():
        pytest.skip("no CUDA GPU here; `make test-sim` runs this in the simulator")
    there = maker(name)
    Y, E = scene(5 if simulated() else 200)
    random = np.random.default_rng(6)
    own = {"weights": 10.0 ** random.uniform(-1, 1, Y.shape), "allowed": random.random((len(Y), E.shape[1])) < 0.8}
    own["allowed"][:, 0] = True
    found = unmix.solve(there(Y), E, method=method, **{key: there(one) for key, one in own.items()})
    assert type(found.abundances).__name__ == type(there(Y)).__name__
    alike(found, unmix.solve(Y, E, method=method, **own), FIELDS)


@pytest.mark.sim
@pytest.mark.parametrize("name", LIBRARIES)
def test_systems_on_a_gpu_are_solved_there(name):
    if not count_gpus():
        pytest.skip("no CUDA GPU here; `make test-sim` runs this in the simulator")
    there, random = maker(name), np.random.default_rng(4)
    N, m, n = (4, 7, 3) if simulated() else (300, 40, 12)
    A, B = random.random((m, n)), random.random((N, m))
    weights, allowed = 10.0 ** random.uniform(-2, 2, (N, m)), random.random((N, n)) < 0.8
    several, which = random.random((3, m, n)), random.integers(0, 3, N)
    start = random.random((N, n)) * (random.random((N, n)) < 0.5)
    names = ("x", "rmse", "kappa", "delta", "steps")
    cases = [(A, {}), (A, {"weights": weights, "allowed": allowed, "start": start}), (several, {"dictionary": which})]
    for matrix, own in cases[1:] if simulated() else [*cases, (random.random((N, m, n)), {"weights": weights[0]})]:
        here = unmix.nnls(matrix, B, **own)
        for _ in range(1 if simulated() else 2):
            found = unmix.nnls(there(matrix), there(B), **{key: there(value) for key, value in own.items()})
            alike(found, here, names)
    assert len(found.failed) == 0


@pytest.mark.sim
def test_what_is_wrong_there_is_not_certified_or_said():
    if not count_gpus():
        pytest.skip("no CUDA GPU here; `make test-sim` runs this in the simulator")
    random = np.random.default_rng(5)
    A, B = random.random((2, 6, 3)), random.random((4, 6))
    B[1, 2] = np.nan
    weights = np.ones((4, 6))
    weights[2, 0] = -1.0
    found = unmix.nnls(numba_array(A), numba_array(B), weights=numba_array(weights), dictionary=np.array([0, 1, 0, 7]))
    assert list(found.failed) == [1, 2, 3]
    Y, E = scene(4)
    refused(CubeError, "for E of 24 bands", lambda: unmix.solve(numba_array(Y[:, :5].copy()), E))
    with pytest.raises(InputError, match="right-hand side is a row of 6"):
        unmix.nnls(numba_array(A), numba_array(B[:, :4].copy()))
    with pytest.raises(InputError, match="allowed must be"):
        unmix.nnls(numba_array(A), numba_array(B), allowed=np.ones((3, 3), bool), dictionary=np.zeros(4, int))
    refused(MethodError, "the arrays are on cuda:0", lambda: unmix.solve(numba_array(Y), E, device="cpu"))
    refused(MethodError, "`at_most`", lambda: unmix.solve(numba_array(Y), E, method="nnls", at_most=2))


class Tensor:
    """As much of a tensor of torch as is used of one of the CPU."""

    __module__ = "torch"

    def __init__(self, values):
        self.values, self.device = values, types.SimpleNamespace(type="cpu")
        self.dtype, self.requires_grad = values.dtype.name, False

    def detach(self):
        return self

    cpu = detach

    def to(self, device):
        return self

    def numpy(self):
        return self.values


def test_tensors_of_the_host_stay_tensors(monkeypatch):
    torch = types.SimpleNamespace(from_numpy=Tensor)
    monkeypatch.setitem(vars(TORCH), "module", torch)  # SciPy asks a module of this name in sys.modules for more
    monkeypatch.setitem(vars(TORCH), "names", {"float64": "float64", "int32": "int32"})
    Y, E = scene()
    for call, B in (
        (lambda Y: unmix.solve(Y, E, method="nnls"), Y),
        (lambda B: unmix.nnls(Tensor(E), B), np.nan_to_num(Y)),
    ):
        here, found = call(B), call(Tensor(B))
        for name in vars(here):
            one = getattr(found, name)
            same = getattr(here, name)
            assert (
                isinstance(one, Tensor) and np.array_equal(one.values, same, equal_nan=same.dtype.kind == "f")
                if isinstance(same, np.ndarray)
                else one == same
            )
    elsewhere = Tensor(Y)
    elsewhere.device.type = "mps"
    refused(unmix.DeviceError, "NVIDIA", unmix.solve, elsewhere, E)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["torch", "cupy"])
def test_a_call_works_in_the_callers_stream(name):
    """Pixels that a stream is still to write are read in that stream, after they are written."""
    module = pytest.importorskip(name)
    Y, E = scene(2000)
    Y = np.nan_to_num(Y)
    here = unmix.solve(Y, E).abundances
    there = maker(name)(Y)
    unmix.solve(there, E)
    stream = module.cuda.Stream()
    with module.cuda.stream(stream) if name == "torch" else stream:
        for _ in range(3):
            late = module.zeros_like(there)
            for _ in range(200):
                late = late + there / 200
            again = unmix.solve(late, E).abundances * 1.0
    stream.synchronize()
    np.testing.assert_allclose(host(again), here, atol=1e-9)


@pytest.mark.gpu
def test_views_of_any_strides_and_type_are_read():
    torch = pytest.importorskip("torch")
    Y, E = scene(300)
    Y = np.nan_to_num(Y)
    here = unmix.solve(Y, E).abundances
    wide = torch.from_numpy(np.repeat(Y.T, 2, axis=0)).cuda()
    np.testing.assert_allclose(host(unmix.solve(wide[::2].T, E).abundances), here, atol=1e-9)
    half = torch.from_numpy(Y).cuda().half()
    found = unmix.solve(half, E)
    np.testing.assert_allclose(host(found.abundances), unmix.solve(host(half).astype(float), E).abundances, atol=1e-9)
    strided = importlib.import_module("numba.cuda").as_cuda_array(wide[::2].T)
    np.testing.assert_allclose(unmix.solve(strided, E).abundances.copy_to_host(), here, atol=1e-9)


@pytest.mark.gpu
def test_solvers_are_held_in_bounded_memory(monkeypatch):
    from unmix.arrays.others import held

    held.SHELF.clear()
    Y, E = scene(20)
    for count in range(1, 12):
        unmix.solve(numba_array(Y[:count]), E)
    assert len(held.SHELF) == held.MOST_HELD
    monkeypatch.setattr(held, "MOST_BYTES", 0)
    large, _ = scene(50_000)
    unmix.solve(numba_array(large), E)
    unmix.solve(numba_array(large[:40_000]), E)
    assert len(held.SHELF) == 1 and next(iter(held.SHELF.values())).bytes > 0
