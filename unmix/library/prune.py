"""Prune a library: choose the spectra of each class that model the others best, from their products alone.

Each spectrum i models each other one j by least squares, ``f = e_iᵀe_j / e_iᵀe_i``, which is then held within limits;
what is missing is shade. All that follows is made of the RMSE of these models, of the angles between spectra, and of
whether a model is within the limits (Roberts et al. 1997).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import LibraryError, MethodError
from .classes import NO_CLASSES
from .spectra import Endmembers, angles_between


@dataclass(frozen=True)
class ErrorSquare:
    """How N spectra model each other: row i is the model, column j the spectrum that is modelled.

    Attributes
    ----------
    rmse : array (N, N), float64
    angle : array (N, N), float64
        In radians.
    models : array (N, N), bool
        Whether fraction and RMSE are within the limits; True on the diagonal.
    same : array (N, N), bool
        Whether two spectra are equal in every channel.
    """

    rmse: np.ndarray
    angle: np.ndarray
    models: np.ndarray
    same: np.ndarray


def square(E: np.ndarray, low: float = -0.05, high: float = 1.05, most: float = 0.025) -> ErrorSquare:
    """Return how the columns of E (L, N), none zero, model each other; ``most`` is the largest RMSE, in E's unit."""
    N = E.shape[1]
    G = E.T @ E
    fraction = G / np.diag(G)[:, None]
    held = np.clip(fraction, low, high)
    # From residuals, not from G: of spectra that are alike G keeps half the digits.
    rmse = np.stack([np.sqrt(np.square(E - held[i] * E[:, [i]]).mean(axis=0)) for i in range(N)])
    np.fill_diagonal(rmse, 0.0)
    models = (fraction == held) & (rmse <= most)
    np.fill_diagonal(models, True)
    same = np.array([(E[:, [i]] == E).all(axis=0) for i in range(N)])
    return ErrorSquare(rmse, angles_between(E, E), models, same)


def mean_of_others(values: np.ndarray, table: ErrorSquare, kinds: Sequence[str]) -> np.ndarray:
    """Return each spectrum's mean of ``values[i]`` over unequal members of its class, 0 without any."""
    kind = np.asarray(kinds)
    others = (kind[:, None] == kind) & ~table.same
    counts = others.sum(axis=1)
    return np.where(others, values, 0.0).sum(axis=1) / np.maximum(counts, 1)


def least(values: np.ndarray, kinds: Sequence[str], count: int | None) -> list[int]:
    """Return the ``count`` spectra of each class with the least values, 1 by default; of equal values the first."""
    chosen: list[int] = []
    for name in dict.fromkeys(kinds):
        members = [j for j, kind in enumerate(kinds) if kind == name]
        chosen += sorted(members, key=lambda j: (values[j], j))[: count or 1]
    return sorted(chosen)


def by_ear(table: ErrorSquare, kinds: Sequence[str], count: int | None) -> list[int]:
    """Choose by the endmember average RMSE (Dennison and Roberts 2003) of a spectrum's models of its class."""
    return least(mean_of_others(table.rmse, table, kinds), kinds, count)


def by_masa(table: ErrorSquare, kinds: Sequence[str], count: int | None) -> list[int]:
    """Choose by the minimum average spectral angle to the class (Dennison et al. 2004)."""
    return least(mean_of_others(table.angle, table, kinds), kinds, count)


def kappa_of_model(kinds: np.ndarray, classified: np.ndarray, classes: int) -> np.ndarray:
    """Return Cohen's κ of classifications (M, N) of spectra of classes ``kinds`` (N,); class ``classes`` is none."""
    M, N = classified.shape
    agree = (classified == kinds).mean(axis=1)
    chance = np.zeros(M)
    for c in range(classes):
        chance += (kinds == c).sum() / N * (classified == c).mean(axis=1)
    return (agree - chance) / np.where(chance < 1, 1 - chance, 1)


def by_ies(table: ErrorSquare, kinds: Sequence[str], count: int | None) -> list[int]:
    """Add and remove in turn the spectrum that raises Cohen's κ most, until none does (Roth et al. 2012)."""
    if count is not None:
        raise MethodError("`count`: ies chooses how many by itself")
    names = list(dict.fromkeys(kinds))
    kind = np.array([names.index(name) for name in kinds])
    rmse = np.where(table.models, table.rmse, np.inf)
    chosen: list[int] = []
    best = -np.inf

    def classify(some: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Return the least RMSE for each spectrum, and the class of the model."""
        errors = rmse[list(some)]
        nearest = errors.argmin(axis=0)
        lowest = errors[nearest, np.arange(len(kind))]
        return lowest, np.where(np.isfinite(lowest), kind[list(some)][nearest], len(names))

    while True:
        changed = False
        free = [i for i in range(len(kind)) if i not in chosen]
        lowest, now = classify(chosen) if chosen else (np.full(len(kind), np.inf), np.full(len(kind), len(names)))
        if free:
            kappas = kappa_of_model(kind, np.where(rmse[free] < lowest, kind[free][:, None], now), len(names))
            if kappas.max() > best:
                best, changed = float(kappas.max()), True
                chosen = sorted([*chosen, free[int(kappas.argmax())]])
        if len(chosen) > 1:
            without = np.array([classify([j for j in chosen if j != i])[1] for i in chosen])
            kappas = kappa_of_model(kind, without, len(names))
            if kappas.max() > best:
                best, changed = float(kappas.max()), True
                chosen.remove(chosen[int(kappas.argmax())])
        if not changed:
            return chosen


Pruner = Callable[[ErrorSquare, Sequence[str], int | None], list[int]]
PRUNERS: dict[str, Pruner] = {"ear": by_ear, "masa": by_masa, "ies": by_ies}


def prune(
    library: Endmembers,
    rule: str,
    count: int | None = None,
    low: float = -0.05,
    high: float = 1.05,
    most: float = 0.025,
) -> tuple[Endmembers, list[dict[str, object]]]:
    """Choose spectra of a library with classes by a rule of `PRUNERS`; return them and facts about every spectrum."""
    if rule not in PRUNERS:
        raise MethodError(f"`rule` '{rule}': there is {', '.join(PRUNERS)}")
    if library.classes is None:
        raise LibraryError(f"{library.source}: {NO_CLASSES}")
    E = library.matrix[library.valid.all(axis=1)]
    zero = np.flatnonzero(~E.any(axis=0))
    if not len(E) or len(zero):
        fault = f"'{library.names[zero[0]]}' is zero" if len(E) else "no channel has a value of every spectrum"
        raise LibraryError(f"{library.source}: {fault}")
    table, kinds = square(E, low, high, most), library.classes
    chosen = PRUNERS[rule](table, kinds, count)
    ear, masa = mean_of_others(table.rmse, table, kinds), mean_of_others(table.angle, table, kinds)
    kind = np.asarray(kinds)
    same = kind[:, None] == kind
    inside, outside = ((table.models & where).sum(axis=1) for where in (same & ~np.eye(len(kind), dtype=bool), ~same))
    facts: list[dict[str, object]] = [
        {
            "name": name,
            "class": kinds[j],
            "ear": float(ear[j]),
            "masa": float(masa[j]),
            "models_in_class": int(inside[j]),
            "models_outside": int(outside[j]),
            "kept": j in chosen,
        }
        for j, name in enumerate(library.names)
    ]
    return library.take(chosen), facts
