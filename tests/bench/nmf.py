"""Paper 002's benchmark, 512 x 30 x 3445 and 200 steps, beside scikit-learn; and Jasper and Samson beside VCA and fcls.

``python tests/bench/nmf.py [cpu|cuda]`` prints a line of JSON for each row. Times are from arrays in memory to arrays
in memory, the median of five runs after one that warms up; the loss after every 25 steps is compared with
scikit-learn's ``solver="mu"`` from the same start (cpu only: it takes minutes). The spectrogram is synthetic: sparse
non-negative factors and noise.
"""

import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
from common import DATA, matched, say, seconds_of, stored

import unmix
from unmix.features.nmf.arrays import FactorPlan, engine_for, filled_factor
from unmix.library import load

REPEATS = 5
SHAPE = 3445, 30, 512  # pixels (frames), sources, bands
SKLEARN = {"kl": "kullback-leibler", "frobenius": "frobenius"}


def start():
    """X and where to begin."""
    random = np.random.default_rng(0)
    N, p, L = SHAPE
    X = random.random((N, p)) ** 3 @ random.random((p, L)) ** 3 + 0.01 * random.random((N, L))
    return X.astype("f4"), (random.random((L, p)) + 0.1).astype("f4"), (random.random((N, p)) + 0.1).astype("f4")


def loss_of(X, E, A, loss):
    """In float64."""
    X, model = X.astype(float), A.astype(float) @ E.astype(float).T
    return float((X * np.log(X / model) - X + model).sum()) if loss == "kl" else float(0.5 * np.square(X - model).sum())


def steps_alone(X, E, A, loss, device):
    """Seconds of 200 steps with everything in place: what Arun Kumar et al. time."""
    engine = engine_for((len(X), *E.shape), FactorPlan(loss), device != "cpu", None)
    block = engine.hold(*filled_factor(engine, X, A))
    engine.begin(E)
    engine.steps(block, 3)
    taken, _ = seconds_of(REPEATS, engine.steps, block, 200)
    engine.close()
    return taken


def beside_sklearn(X, E, A, loss):
    """Its seconds for 200 steps in both precisions, and how far losses are apart every 25."""
    from sklearn.decomposition import non_negative_factorization

    def theirs(kind, steps):
        return non_negative_factorization(
            X.astype(kind),
            A.astype(kind),
            E.T.astype(kind, order="C"),
            n_components=E.shape[1],
            init="custom",
            solver="mu",
            beta_loss=SKLEARN[loss],
            max_iter=steps,
            tol=0,
        )

    row = {}
    for kind in ("f4", "f8"):
        row[f"sklearn_{kind}_s"] = round(seconds_of(REPEATS, theirs, kind, 200)[0], 4)
    apart = []
    for steps in range(25, 201, 25):
        ours = unmix.nmf(X, E, A, loss=loss, steps=steps, every=steps, tol=0).costs[-1][1]
        W, H, _ = theirs("f8", steps)
        other = loss_of(X, H.T, W, loss)
        apart.append(abs(ours - other) / other)
    return row | {"worst_apart": max(apart)}


def scenes():
    """Angles and abundance RMSE to the reference: VCA and fcls, then factorisations that begin with VCA."""
    for name, scale in (("jasper", 5000.0), ("samson", None)):
        folder = DATA / name
        truth = load(folder / f"{name}_truth_endmembers.csv").matrix
        reference = stored(folder / f"{name}_truth_abundance.hdr").reshape(-1, truth.shape[1])
        ways = [("vca + fcls", None, 0)] + [
            (f"nmf {loss}{', sum to one' * one}", loss, one) for loss in SKLEARN for one in (0, 1)
        ]
        for way, loss, one in ways:
            with tempfile.TemporaryDirectory() as out:
                same = {"count": truth.shape[1], "scale": scale, "out_dir": out, "device": "cpu"}
                if loss is None:
                    unmix.run(folder / f"{name}.hdr", **same)
                else:
                    unmix.nmf_scene(folder / f"{name}.hdr", loss=loss, sum_to_one=bool(one), steps=500, **same)
                E, A = (
                    load(Path(out) / f"{name}_endmembers.csv").matrix,
                    stored(Path(out) / f"{name}_abundance.hdr").reshape(-1, truth.shape[1]),
                )
            theirs, ours, angles = matched(E, truth)
            share = A / np.maximum(A.sum(axis=1, keepdims=True), 1e-9)
            yield {
                "scene": name,
                "way": way,
                "mean_angle": float(angles[theirs, ours].mean()),
                "abundance_rmse": float(np.sqrt(np.square(share[:, ours] - reference[:, theirs]).mean())),
            }


def main():
    """Every row."""
    warnings.simplefilter("ignore")
    device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
    X, E, A = start()
    for loss in SKLEARN:
        seconds, found = seconds_of(REPEATS, unmix.nmf, X, E, A, loss=loss, tol=0, every=200, device=device)
        row = {
            "loss": loss,
            "device": device,
            "seconds": round(seconds, 5),
            "found": found.costs[-1][1],
            "apart_from_float64": abs(loss_of(X, found.E, found.A, loss) / found.costs[-1][1] - 1),
        }
        looked, _ = seconds_of(REPEATS, unmix.nmf, X, E, A, loss=loss, tol=0, every=25, device=device)
        row |= {
            "seconds_looking_every_25": round(looked, 5),
            "steps_alone": round(steps_alone(X, E, A, loss, device), 5),
        }
        say(row | (beside_sklearn(X, E, A, loss) if device == "cpu" else {}))
    if device == "cpu":
        say(scenes())


if __name__ == "__main__":
    main()
