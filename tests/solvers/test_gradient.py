"""Derivatives of abundances: against finite differences in extended precision, and by torch and JAX where they are installed."""

import importlib.util

import numpy as np
import pytest
from conftest import refused

import unmix
from unmix.arrays.others.gradient import CASES, Operands, is_smooth, pull_back


def scene(case, N=12, L=9, p=5, seed=3):
    """Pixels (N, L), endmembers (L, p), weights (N, L) and the derivatives of a loss (N, p)."""
    random = np.random.default_rng(seed)
    E = random.uniform(0.1, 0.9, (L, p))
    shares = random.dirichlet(np.full(p + 1, 0.4), N)[:, :p] if case.has_shade else random.dirichlet(np.full(p, 0.4), N)
    if case.has_shade:
        shares[: N // 3] *= 1.3 / shares[: N // 3].sum(axis=1, keepdims=True)  # no shade in these
    Y = shares @ E.T + 0.05 * random.standard_normal((N, L))
    return Y, E, 10.0 ** random.uniform(-0.5, 0.5, (N, L)), random.standard_normal((N, p))


def on_support(case, y, E, w, inside, has_sum):
    """The optimum with a known support, by elimination in extended precision."""
    columns = np.flatnonzero(inside)
    A, k = E[:, columns].astype(np.longdouble), len(columns)
    M, right = np.zeros((k + has_sum, k + has_sum), np.longdouble), np.zeros(k + has_sum, np.longdouble)
    M[:k, :k], right[:k] = A.T @ (w[:, None] * A), A.T @ (w * y)
    if has_sum:
        M[k, :k], M[:k, k], right[k] = 1.0, 1.0, 1.0
    for i in range(len(M)):
        pivot = i + int(np.argmax(np.abs(M[i:, i])))
        M[[i, pivot]], right[[i, pivot]] = M[[pivot, i]], right[[pivot, i]]
        for j in range(i + 1, len(M)):
            share = M[j, i] / M[i, i]
            M[j] -= share * M[i]
            right[j] -= share * right[i]
    x = np.zeros(len(M), np.longdouble)
    for i in reversed(range(len(M))):
        x[i] = (right[i] - M[i, i + 1 :] @ x[i + 1 :]) / M[i, i]
    a = np.zeros(E.shape[1], np.longdouble)
    a[columns] = x[:k]
    return a


def differences(loss, values, step=1e-7):
    """The derivatives of a loss by values, central differences in extended precision."""
    values, out = np.asarray(values, np.longdouble), np.zeros(values.shape)
    for at in np.ndindex(values.shape):
        up, down = values.copy(), values.copy()
        up[at] += step
        down[at] -= step
        out[at] = (loss(up) - loss(down)) / (2 * np.longdouble(step))
    return out


@pytest.mark.parametrize("method", CASES)
@pytest.mark.parametrize("weighted", [False, True])
def test_derivatives_are_those_of_the_optimum(method, weighted):
    if weighted and method in ("ucls", "scls"):
        pytest.skip("weights are for a >= 0")
    case = CASES[method]
    Y, E, w, g = scene(case)
    own = {"weights": w} if weighted else {}
    found = unmix.solve(Y, E, method=method, **own)
    w = w if weighted else None
    given = Operands(np, Y, E, w, found.abundances)
    assert is_smooth(case, given, found.kappa, found.delta).all()
    dY, dE, dw = pull_back(case, given, g)
    ones = np.ones_like(Y)
    a = found.abundances
    inside = a != 0.0 if case.nonnegative else np.ones_like(a, bool)
    has_sum = np.full(len(Y), case.sum_to_one)
    if case.has_shade:
        has_sum = 1.0 - a.sum(axis=1) < 1e-9
        assert 0 < has_sum.sum() < len(Y)

    def loss(n, y, E, w):
        return g[n] @ on_support(case, y, E, w, inside[n], bool(has_sum[n]))

    of_E = np.zeros_like(E)
    for n in range(len(Y)):
        weights = (ones if w is None else w)[n]
        np.testing.assert_allclose(dY[n], differences(lambda y: loss(n, y, E, weights), Y[n]), rtol=1e-8, atol=1e-9)  # noqa: B023
        of_E += differences(lambda E: loss(n, Y[n], E, weights), E)  # noqa: B023
        if w is not None:
            np.testing.assert_allclose(dw[n], differences(lambda w: loss(n, Y[n], E, w), w[n]), rtol=1e-7, atol=1e-9)  # noqa: B023
    np.testing.assert_allclose(dE, of_E, rtol=1e-7, atol=1e-8)


def test_no_derivative_is_invented():
    """Where an endmember may enter at once, where the optimum is not unique, and where a pixel was not solved."""
    E = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    Y = np.array([[0.5, 0.4, 0.0, 0.1], [0.5, 0.4, -0.1, 0.0], [np.nan, 1, 1, 1], [0.2, 0.3, 0.4, 0.0]])
    found = unmix.solve(Y, E, method="nnls")
    given = Operands(np, np.nan_to_num(Y), E, None, found.abundances)
    assert list(is_smooth(CASES["nnls"], given, found.kappa, found.delta)) == [False, True, False, True]
    twice = np.column_stack([E, E[:, 0]])
    batch = unmix.nnls(twice, Y[3])
    one = Operands(np, Y[3:], twice, None, batch.x)
    assert not is_smooth(CASES["nnls"], one, batch.kappa, batch.delta).any()
    allowed = np.array([[True, True, False]])
    batch = unmix.nnls(E, Y[3], allowed=allowed)
    one = Operands(np, Y[3:], E, None, batch.x)
    assert not is_smooth(CASES["nnls"], one, batch.kappa, batch.delta).any()
    assert is_smooth(CASES["nnls"], one._replace(allowed=allowed), batch.kappa, batch.delta).all()


def test_pixels_without_derivatives_add_nothing():
    """Not even NaN, of pixels, weights or what a loss says of abundances of 0."""
    from unmix.arrays.others.autograd import smooth_part

    case = CASES["fcls"]
    Y, E, w, g = scene(case)
    found = unmix.solve(Y, E, method="fcls", weights=w)
    a, g = found.abundances, np.where(found.abundances == 0.0, -np.inf, g)
    smooth = np.arange(len(Y)) != 2
    _, expected, _ = pull_back(case, Operands(np, Y[smooth], E, w[smooth], a[smooth]), g[smooth])
    Y[2], w[2], a[2], g[2] = np.nan, np.nan, -9999.0, np.inf
    dY, dE, dw = pull_back(case, *smooth_part(Operands(np, Y, E, w, a), g, smooth))
    np.testing.assert_allclose(dE, expected, rtol=1e-12, atol=1e-13)
    assert not dY[2].any() and not dw[2].any()


def test_shade_that_is_about_to_enter_is_a_kink():
    random = np.random.default_rng(8)
    E = random.uniform(0.1, 0.9, (30, 4))
    A = random.dirichlet(np.ones(4), 60)  # of a sum of one: no shade, and nothing that keeps it out
    for noise, share in ((0.0, 0.0), (0.02, 0.9)):
        Y = A @ E.T + noise * random.standard_normal((60, 30))
        found = unmix.solve(Y, E, method="pcls")
        smooth = is_smooth(CASES["pcls"], Operands(np, Y, E, None, found.abundances), found.kappa, found.delta)
        assert smooth.mean() >= share and (noise or not smooth[found.abundances.sum(axis=1) > 1 - 1e-9].any())


has_torch = pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="torch is not installed")
has_jax = pytest.mark.skipif(not importlib.util.find_spec("jax"), reason="JAX is not installed")


@has_torch
@pytest.mark.parametrize("place", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("method", ["nnls", "fcls", "pcls"])
def test_torch_differentiates(method, place):
    import torch

    Y, E, w, g = scene(CASES[method])
    tensors = [torch.from_numpy(one).to(place).requires_grad_() for one in (Y, E)]
    found = unmix.solve(*tensors, method=method)
    assert found.smooth.all() and found.abundances.device.type == place
    (found.abundances * torch.from_numpy(g).to(place)).sum().backward()
    here = unmix.solve(Y, E, method=method)
    np.testing.assert_allclose(found.abundances.detach().cpu(), here.abundances, atol=1e-12)
    dY, dE, _ = pull_back(CASES[method], Operands(np, Y, E, None, here.abundances), g)
    for tensor, expected in zip(tensors, (dY, dE)):
        np.testing.assert_allclose(tensor.grad.cpu(), expected, rtol=1e-7, atol=1e-9)
    if place == "cpu":
        weights = torch.from_numpy(w).requires_grad_()
        assert torch.autograd.gradcheck(
            lambda *a: unmix.solve(*a[:2], method=method, weights=a[2]).abundances, (*tensors, weights)
        )
    with torch.no_grad():
        assert unmix.solve(*tensors, method=method).smooth is None
    refused(unmix.MethodError, "no derivatives with `normalize`", unmix.solve, *tensors, method="nnls", normalize="sum")


@has_torch
def test_torch_differentiates_systems_of_their_own():
    import torch

    random = np.random.default_rng(6)
    A, B = (torch.from_numpy(random.random(shape)).requires_grad_() for shape in ((3, 8, 4), (6, 8)))
    which, allowed = np.array([0, 1, 2, 0, 1, 2]), random.random((6, 4)) < 0.8
    assert torch.autograd.gradcheck(lambda A, B: unmix.nnls(A, B, dictionary=which, allowed=allowed).x, (A, B))
    assert unmix.nnls(A[0], B).smooth.shape == (6,)
    assert torch.autograd.gradcheck(
        lambda A, B: unmix.nnls(A, B, dictionary=np.zeros(6, int)).x, (A[0].detach().requires_grad_(), B)
    )
    one = unmix.solve(B[0].detach(), A[0].detach(), method="nnls")
    assert one.rmse.shape == one.valid.shape == () and isinstance(one.valid, torch.Tensor)


@has_jax
def test_jax_differentiates():
    import jax

    jax.config.update("jax_enable_x64", True)
    for method in ("nnls", "fcls", "pcls"):
        Y, E, _, g = scene(CASES[method])

        def loss(Y, E):
            return (unmix.solve(Y, E, method=method).abundances * g).sum()  # noqa: B023

        found = jax.jit(jax.grad(loss, argnums=(0, 1)))(Y, E)
        dY, dE, _ = pull_back(CASES[method], Operands(np, Y, E, None, unmix.solve(Y, E, method=method).abundances), g)
        np.testing.assert_allclose(found[0], dY, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(found[1], dE, rtol=1e-7, atol=1e-9)
    batched = jax.vmap(lambda y: unmix.nnls(E, y[None]).x[0])(Y)
    np.testing.assert_allclose(batched, unmix.nnls(E, Y).x, atol=1e-12)
    assert isinstance(unmix.solve(jax.numpy.asarray(Y), E).abundances, jax.Array)
    with pytest.raises(unmix.MethodError, match="no derivatives with `l1`"):
        jax.jit(lambda Y: unmix.solve(Y, E, method="nnls", l1=0.1).abundances)(Y)


@has_jax
def test_jax_of_fewer_digits_is_honest():
    """δ covers what float32 loses; derivatives are computed in float64 all the same."""
    import jax

    jax.config.update("jax_enable_x64", False)
    try:
        Y, E, _, g = scene(CASES["fcls"], N=40)
        known = unmix.solve(Y.astype(np.float32), E, method="fcls")
        found = unmix.solve(jax.numpy.asarray(Y), E, method="fcls")
        off = np.linalg.norm(np.asarray(found.abundances, float) - known.abundances, axis=1)
        assert found.abundances.dtype == np.float32 and np.all(off <= np.asarray(found.delta, float)) and off.max() > 0
        assert len(unmix.nnls(E * 1e-18, jax.numpy.asarray(np.abs(Y) * 1e22)).failed) == 40
        E32 = E.astype(np.float32)
        dE = jax.grad(lambda E: (unmix.solve(Y.astype(np.float32), E, method="fcls").abundances * g).sum())(E32)
        given = unmix.solve(Y.astype(np.float32), E32, method="fcls").abundances
        expected = pull_back(
            CASES["fcls"], Operands(np, Y.astype(np.float32).astype(float), E32.astype(float), None, given), g
        )[1]
        np.testing.assert_allclose(dE, expected, rtol=1e-4, atol=1e-4)
        refused(unmix.InputError, "while JAX traces", lambda: jax.jit(lambda Y: unmix.solve(Y, E[:3]).abundances)(Y))
        refused(unmix.MethodError, "JAX traces this array", lambda: jax.jit(lambda Y: unmix.poisson(Y, E).x)(Y))
    finally:
        jax.config.update("jax_enable_x64", True)
