"""Match spectra with those of a library: by angle or by information, as they are or without their continuum."""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import LibraryError, MethodError
from .spectra import Endmembers, each_once
from .to_bands import FINER, MOST_SHIFT_OF_EQUAL, nearest, resample, spacing

log = logging.getLogger("unmix")
# Spectra that a warning names.
MOST_NAMED = 5
# Least share of a spectrum's channels that a library's spectrum must have to be compared.
LEAST_SHARE = 0.5
# The angle (rad) beyond which the nearest spectrum is hardly the same material.
FAR = math.radians(10)
# A match is ambiguous if the next one's distance is at most this many times its own.
AMBIGUOUS = 1.1


@dataclass(frozen=True)
class Match:
    """A matching library spectrum: its class ("" for none), and its angle (rad) or divergence to the other spectrum."""

    name: str
    kind: str
    distance: float


def at_height_one(spectra: np.ndarray) -> np.ndarray:
    """Return spectra (L, p) over their largest magnitudes, so that squares are finite; NaN for 0 or infinite."""
    heights = np.abs(spectra).max(axis=0)
    out = np.full(spectra.shape, np.nan)
    return np.divide(spectra, heights, out=out, where=(heights > 0) & (heights < np.inf))


def angles(spectra: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Return the angles (p,) in radians between spectra (L, p) and a known one (L,), all `at_height_one`."""
    # By their cosines: a fifth of the time of half chords, and rounding of up to 1e-7 where spectra are equal. Imported
    # here, since few runs ask for it.
    from spectral import spectral_angles

    return np.asarray(spectral_angles(spectra.T[None], known[None])[0, :, 0])


def divergences(spectra: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Return the information divergences (p,) of spectra (L, p) from one (L,) (Chang 2000); NaN for values ≤ 0."""
    positive = (spectra > 0).all(axis=0) & (known > 0).all()
    p, q = np.where(positive, spectra, 1.0), np.where(known > 0, known, 1.0)[:, None]
    p, q = p / p.sum(axis=0), q / q.sum(axis=0)
    return np.where(positive, ((p - q) * (np.log(p) - np.log(q))).sum(axis=0), np.nan)


MEASURES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {"sam": angles, "sid": divergences}


def without_continuum(waves: np.ndarray, spectrum: np.ndarray) -> np.ndarray:
    """Return a spectrum (L,) over its upper convex hull; NaN where that is not above 0, or any value not finite."""
    order = np.argsort(waves, kind="stable")
    x, y = waves[order], at_height_one(spectrum[order, None])[:, 0]
    if not np.isfinite(y).all():
        return np.full(len(x), np.nan)
    hull: list[int] = []
    for n in range(len(x)):
        while len(hull) > 1 and (y[hull[-1]] - y[hull[-2]]) * (x[n] - x[hull[-2]]) <= (y[n] - y[hull[-2]]) * (
            x[hull[-1]] - x[hull[-2]]
        ):
            hull.pop()
        hull.append(n)
    continuum = np.interp(x, x[hull], y[hull])
    out = np.empty(len(x))
    out[order] = np.divide(y, continuum, out=np.full(len(x), np.nan), where=continuum > 0)
    return out


def on_axis(library: Endmembers, spectra: Endmembers) -> np.ndarray:
    """Return a library (L, N) on the channels of spectra; NaN where it has no value there."""
    valid = np.where(library.valid, library.matrix, np.nan)
    if library.wavelengths is None or spectra.wavelengths is None:
        if len(valid) != len(spectra.matrix):
            raise LibraryError(
                f"{library.source}: {len(valid)} channels, but {spectra.source} has {len(spectra.matrix)}; "
                "and one of them has no wavelengths"
            )
        return valid
    waves = spectra.wavelengths
    widths = spacing(waves) if spectra.fwhm is None else spectra.fwhm
    rows = nearest(library.wavelengths, waves)
    equal = np.abs(library.wavelengths[rows] - waves) <= MOST_SHIFT_OF_EQUAL * widths
    if min(len(waves), len(library.wavelengths)) > 1:
        equal &= spacing(library.wavelengths)[rows] >= FINER * spacing(waves)
    found = valid[rows]
    inside = (waves >= library.wavelengths.min()) & (waves <= library.wavelengths.max())
    found[~equal] = np.nan
    other = ~equal & inside
    if other.any():
        found[other] = resample(library, waves[other], widths[other])
    return found


@dataclass(frozen=True)
class Comparable:
    """The spectra of a library that can be compared with spectra on given channels.

    Attributes
    ----------
    names, kinds : list of str
        Their names and classes, "" for none.
    known : list of (array (L,) of bool, array)
        Of each the channels that it has, and its values there, without its continuum if that is wanted,
        `at_height_one`.
    waves : array (L,) or None
        The wavelengths of the channels.
    measure : callable
    continuum : bool
    """

    names: list[str]
    kinds: list[str]
    known: list[tuple[np.ndarray, np.ndarray]]
    waves: np.ndarray | None
    measure: Callable[[np.ndarray, np.ndarray], np.ndarray]
    continuum: bool

    @classmethod
    def of(cls, spectra: Endmembers, parts: Sequence[Endmembers], distance: str, continuum: bool) -> "Comparable":
        """Bring a library to the channels of spectra; arguments and errors as of `match`."""
        if distance not in MEASURES:
            raise MethodError(f"`distance` '{distance}': there is {' and '.join(MEASURES)}")
        if continuum and spectra.wavelengths is None:
            raise MethodError(f"`continuum`: {spectra.source} has no wavelengths")
        names, kinds, known = [], [], []
        for part in parts:
            matrix = on_axis(part, spectra)
            for n, name in enumerate(part.names):
                has = np.isfinite(matrix[:, n])
                if has.sum() < max(2, LEAST_SHARE * len(has)):
                    continue
                values = matrix[has, n]
                if continuum:
                    assert spectra.wavelengths is not None
                    values = without_continuum(spectra.wavelengths[has], values)
                names.append(name)
                kinds.append(part.classes[n] if part.classes else "")
                known.append((has, at_height_one(values[:, None])[:, 0]))
        return cls(names, kinds, known, spectra.wavelengths, MEASURES[distance], continuum)

    def distances(self, matrix: np.ndarray) -> np.ndarray:
        """Return distances (N, p) of N library spectra to spectra (L, p) on its channels; NaN where undefined."""
        found = np.full((len(self.known), matrix.shape[1]), np.nan)
        plain: dict[bytes, np.ndarray] = {}
        for n, (has, values) in enumerate(self.known):
            key = has.tobytes()  # most spectra have the same channels
            if key not in plain:
                plain[key] = self.as_compared(matrix, has)
            found[n] = self.measure(plain[key], values)
        return found

    def as_compared(self, matrix: np.ndarray, has: np.ndarray) -> np.ndarray:
        """Return spectra (L, p) at the channels ``has``, bool (L,): `at_height_one`, perhaps without continua."""
        if not self.continuum:
            return at_height_one(matrix[has])
        assert self.waves is not None
        return at_height_one(np.stack([without_continuum(self.waves[has], column) for column in matrix[has].T], axis=1))


def match(
    spectra: Endmembers, parts: Sequence[Endmembers], distance: str = "sam", continuum: bool = False
) -> list[list[Match]]:
    """Return each spectrum's matches in a library, nearest first, by spectral angle or information divergence."""
    library = Comparable.of(spectra, parts, distance, continuum)
    found: list[list[Match]] = [[] for _ in spectra.names]
    for name, kind, distances in zip(library.names, library.kinds, library.distances(spectra.matrix)):
        for i, one in enumerate(distances):
            if np.isfinite(one):
                found[i].append(Match(name, kind, float(one)))
    for i, matches in enumerate(found):
        if not matches:
            raise LibraryError(
                f"{parts[0].source}: none of its spectra can be compared with '{spectra.names[i]}' of {spectra.source}"
            )
        matches.sort(key=lambda one: one.distance)
    far = [name for name, matches in zip(spectra.names, found) if matches[0].distance > FAR]
    if far and distance == "sam":
        log.warning(
            f"{spectra.source}: {', '.join(far[:MOST_NAMED])}{', …' * (len(far) > MOST_NAMED)}: over "
            f"{math.degrees(FAR):.0f}° from all of {parts[0].source}: names are unlikely; are bands without signal left "
            "out, and continua? `max_distance` leaves far ones without a name"
        )
    return found


def is_ambiguous(matches: Sequence[Match]) -> bool:
    """Return whether the second of a spectrum's matches is nearly as near as the first."""
    return len(matches) > 1 and matches[1].distance <= AMBIGUOUS * matches[0].distance


def within(found: Sequence[Sequence[Match]], limit: float) -> list[list[Match]]:
    """Return the matches that are no farther than a limit, in radians or of the divergence."""
    return [[one for one in matches if one.distance <= limit] for matches in found]


def names_of(found: Sequence[Sequence[Match]], own: Sequence[str] = ()) -> tuple[str, ...]:
    """Return distinct names: the match's, ``A or B`` where the match is ambiguous, ``own`` without a match."""
    return each_once(
        [
            own[i] if not one else f"{one[0].name} or {one[1].name}" if is_ambiguous(one) else one[0].name
            for i, one in enumerate(found)
        ]
    )
