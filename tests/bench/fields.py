"""The cases of docs/nnls.md at the sizes of their fields, beside scipy and, where it is installed, jaxnnls.

``python tests/bench/fields.py`` prints a line of JSON for each: µs a problem of `unmix.nnls` with all cores, and of
scipy's nnls, one after the other (some of them; weights, columns and matrices by NumPy included); the share that is
certified with a finite δ, and in κ alone; and by how much the cost of scipy's answer, and that of ours, is above the
lower of both, relative, at most.
"""

import importlib
import importlib.util
import time

import numpy as np
from common import say, seconds_of
from scipy.optimize import nnls

import unmix


def cases(random):
    """Yield name, A, B and what each problem has of its own."""
    signatures = random.dirichlet(np.full(96, 0.3), 65).T
    allowed = random.random((65_536, 65)) < 0.3
    counts = random.poisson((random.gamma(0.5, 300, allowed.shape) * allowed) @ signatures.T)
    yield "mutations, 65 536 of 96 x 65", signatures, counts.astype(float), {"allowed": allowed}
    pulse = np.exp(-0.5 * ((np.arange(10)[:, None] - np.arange(10)) / 1.3) ** 2)
    root = np.linalg.cholesky(0.05 * np.exp(-np.abs(np.subtract.outer(np.arange(10), np.arange(10)))))
    A = np.linalg.solve(random.uniform(1, 3, (50_000, 1, 1)) * root, np.broadcast_to(pulse, (50_000, 10, 10)))
    B = (A @ random.exponential(1.0, (50_000, 10, 1)))[..., 0] + random.standard_normal((50_000, 10))
    yield "calorimeter, 50 000 of 10 x 10", A, B, {}
    directions, which = random.random((200, 90, 145)), random.integers(0, 200, 20_000)
    truth = random.random((20_000, 145)) * (random.random((20_000, 145)) < 0.03)
    signal = np.einsum("nij,nj->ni", directions[which], truth) + 0.01 * random.standard_normal((20_000, 90))
    yield "diffusion, 20 000 of 90 x 145", directions, signal, {"dictionary": which}
    templates = np.abs(np.cumsum(random.standard_normal((4000, 12)), axis=0)) + 1
    sigma = random.uniform(0.05, 1.0, (5000, 4000))
    flux = random.exponential(1.0, (5000, 12)) @ templates.T + sigma * random.standard_normal(sigma.shape)
    yield "galaxies, 5000 of 4000 x 12", templates, flux, {"weights": sigma**-2}
    blur = np.exp(-0.5 * (np.subtract.outer(np.linspace(0, 1, 2000), np.linspace(0, 1, 1290)) / 0.002) ** 2)
    source = random.exponential(1.0, 1290) * (random.random(1290) < 0.3)
    yield "lens, 1 of 2000 x 1290", blur, (blur @ source + 0.05 * random.standard_normal(2000))[None], {}


def own_of(A, B, own, i):
    """Return matrix and right-hand side of one problem, for scipy, and its columns."""
    matrix = A[own["dictionary"][i]] if "dictionary" in own else A[i] if A.ndim == 3 else A
    root = own["weights"][i] ** 0.5 if "weights" in own else np.ones(len(matrix))
    columns = np.flatnonzero(own["allowed"][i]) if "allowed" in own else np.arange(matrix.shape[1])
    return matrix[:, columns] * root[:, None], B[i] * root, columns


def main() -> None:
    for name, A, B, own in cases(np.random.default_rng(0)):
        unmix.nnls(A[:2] if A.ndim == 3 and not own else A, B[:2], **{key: values[:2] for key, values in own.items()})
        seconds, found = seconds_of(1, unmix.nnls, A, B, **own)
        ours = seconds / len(B)
        few, spent, worse = min(len(B), 300), 0.0, [0.0, 0.0]
        for i in range(few):
            began = time.perf_counter()
            matrix, right, columns = own_of(A, B, own, i)
            try:
                x = nnls(matrix, right, maxiter=100 * matrix.shape[1])[0]
            except RuntimeError:
                x = np.zeros(len(columns))
            spent += time.perf_counter() - began
            costs = [float(np.square(matrix @ one - right).sum()) for one in (found.x[i, columns], x)]
            worse = [max(w, cost / max(min(costs), 1e-300) - 1.0) for w, cost in zip(worse, costs)]
        line = {
            "case": name,
            "us": round(1e6 * ours, 2),
            "scipy us": round(1e6 * spent / few, 1),
            "certified": float(((found.kappa <= 1e-10) & np.isfinite(found.delta)).mean()),
            "fits": float((found.kappa <= 1e-10).mean()),
            "ours above": f"{worse[0]:.1e}",
            "scipy above": f"{worse[1]:.1e}",
        }
        if importlib.util.find_spec("jaxnnls") and A.ndim == 2 and not own:
            line["jaxnnls us"] = round(1e6 * of_jaxnnls(A, B[0]), 1)
        say(line)


def of_jaxnnls(A, b):
    """Return the seconds of jaxnnls for one problem, compiled."""
    import jax

    jax.config.update("jax_enable_x64", True)
    jaxnnls = importlib.import_module("jaxnnls")  # which asks for the type once
    solve = jax.jit(lambda Q, q: jaxnnls.solve_nnls(Q, q)[0])
    Q, q = A.T @ A, A.T @ b
    return seconds_of(3, lambda: solve(Q, q).block_until_ready())[0]


if __name__ == "__main__":
    main()
