"""Define the average over models: each model by least squares of its own, its volume by a determinant, in plain numpy."""

import itertools
import math

import numpy as np

from unmix.features.average.models import STEPS, ModelTable


def models_of(table: ModelTable):
    """Yield the number of each set, and spectra and the steps with and without shade of each of its models."""
    for s, k in enumerate(table.sizes):
        n = STEPS + 3 * k
        for m in range(table.begin[s + 1] - table.begin[s]):
            spectra = table.spectra[table.spectra_at[s] + m * k :][:k]
            numbers = table.more[table.more_at[s] + m * n :][:n]
            yield s, spectra, numbers[STEPS : STEPS + k], numbers[STEPS + k : STEPS + 2 * k]


def least_square(y: np.ndarray, E: np.ndarray, kinds: np.ndarray, shade: bool) -> float:
    """Return the least χ² of a mixture of one spectrum of each class, by all faces of all models."""
    best = float(y @ y) if shade else np.inf
    members = [np.flatnonzero(kinds == c) for c in range(kinds.max() + 1)]
    for k in range(1, len(members) + 1):
        for one in itertools.combinations(members, k):
            for columns in itertools.product(*one):
                A = E[:, list(columns)]
                last, rest = A[:, -1:], A[:, :-1] - A[:, -1:]
                free = np.linalg.lstsq(A, y, rcond=None)[0]
                held = np.linalg.lstsq(rest, y - last[:, 0], rcond=None)[0] if k > 1 else np.empty(0)
                held = np.append(held, 1 - held.sum())
                for a in ([free] if shade and free.sum() <= 1 else []) + [held]:
                    if a.min() >= 0:
                        best = min(best, float(np.sum((y - A @ a) ** 2)))
    return best


def averages(y, E, kinds, table: ModelTable, prior, variance: float, alike: float):
    """Return mean and deviation of the classes, shade and their sum for one pixel."""
    best = least_square(y, E, kinds, table.shade)
    misfit = best / len(y)
    noise = misfit if misfit > variance * (1 + 3 * math.sqrt(2 / len(y))) else variance
    sigma = math.sqrt(noise * alike + 1e-15 * float(y @ y))
    classes = int(kinds.max()) + 1
    weight, mean, square = 0.0, np.zeros(classes + 1), np.zeros(classes + 1)
    counts = np.diff(table.begin)
    for s, spectra, with_shade, without in models_of(table):
        A, k = E[:, spectra], len(spectra)
        for part, steps in ((0, with_shade), (1, without)):
            if part == 0 and not table.shade:
                continue
            # The plane: all fractions, or all but the last, which is what the others lack to one.
            basis = np.eye(k) if part == 0 else np.vstack([np.eye(k - 1), -np.ones(k - 1)])
            start = np.zeros(k) if part == 0 else np.eye(k)[-1]
            B = A @ basis
            z = np.linalg.lstsq(B, y - A @ start, rcond=None)[0] if basis.shape[1] else np.empty(0)
            optimum = start + basis @ z
            chi = float(np.sum((y - A @ optimum) ** 2))
            if (chi - best) / (2 * sigma**2) >= 60:
                continue
            spread = basis @ np.linalg.inv(B.T @ B) @ basis.T if basis.shape[1] else np.zeros((k, k))
            n = basis.shape[1]
            volume = math.factorial(n) * (2 * math.pi) ** (n / 2) * sigma**n / math.sqrt(np.linalg.det(B.T @ B))
            share = prior[s, part] * volume * math.exp(-(chi - best) / (2 * sigma**2)) / counts[s]
            samples = [optimum + sign * sigma * steps for sign in (1, -1)]
            inside = [a.min() >= 0 and (part == 1 or a.sum() <= 1) for a in samples]
            for a, is_inside in zip(samples, inside):
                if not is_inside:
                    continue
                own = optimum if all(inside) else a
                w = share / 2
                values = np.zeros(classes + 1)
                np.add.at(values, kinds[spectra], own)
                values[-1] = own.sum()
                more = np.zeros(classes + 1)
                if all(inside):
                    np.add.at(more, kinds[spectra], sigma**2 * np.diag(spread))
                    more[-1] = sigma**2 * spread.sum()
                weight, mean, square = weight + w, mean + w * values, square + w * (values**2 + more)
    mean, square = mean / weight, square / weight
    deviation = np.sqrt(np.maximum(square - mean**2, 0))
    return np.insert(mean, classes, 1 - mean[-1]), np.insert(deviation, classes, deviation[-1])
