"""Maps that runs make of abundances, by their definitions in `reference`: for scenes of float64 in memory, by the record of a run."""

import json
from pathlib import Path

import numpy as np
from conftest import read_map
from reference.abundances import METHODS, of_pixels
from reference.draws import (
    drawn_spectra,
    factor_by_definition,
    noise_by_definition,
    normals_by_definition,
    over_draws,
)
from reference.fractions import NODATA, Classes, weights_of
from reference.uncertainty import covariance, deviations_of_sums, pooled_by_definition, without_unsure

from unmix.library import load


def noise_in(path):
    """Return the last number of each line that has one, (L,); None without a file."""
    if path is None or str(path) == "auto":
        return None
    found = [line.split(",")[-1] for line in Path(path).read_text().split("\n") if line.strip()]
    return np.array([float(word) for word in found if word.strip()[:1].isdigit()])


class Solved:
    """A finished run of a scene Y (lines, samples, L): its record, its endmembers, and its abundances (lines, samples, p) by scipy."""

    def __init__(self, stem, Y, noise=None):
        self.stem, self.Y, self.noise = stem, Y, noise
        self.report = json.loads(stem.with_name(stem.name + "_run.json").read_text())
        library, self.asked = load(stem.with_name(stem.name + "_endmembers.csv")), self.report["asked"]
        self.method, self.E = self.report["method"], library.matrix
        self.has_shade = self.method == "pcls"
        self.name = "fcls" if self.has_shade else self.method
        kind = self.report.get("normalize", "none")
        self.normalized = kind != "none" or bool(self.asked.get("shade_normalize"))
        self.shade = self.has_shade and kind == "none"
        self.w = weights_of(self.E, "sum" if kind == "none" else kind, self.has_shade)
        materials = len(library.names) - self.has_shade
        kinds = library.classes if self.asked.get("by") or "draws" in self.asked else None
        kinds = library.names if kinds is None and kind != "none" else kinds
        self.classes = None if kinds is None else Classes.of(kinds[:materials], self.w, self.normalized)
        self.masked = read_map(stem, "rmse")[..., 0] == NODATA
        self.A = of_pixels(METHODS[self.name], Y.reshape(-1, Y.shape[-1]), self.E).reshape(*Y.shape[:2], -1)

    def check_deviations(self):
        """Compare STEM_sigma with the deviations of each pixel, where these are known."""
        written, (sum_to_one, bounded) = read_map(self.stem, "sigma").astype(float), self.flags
        shared = self.pooled()
        for at in zip(*np.nonzero(~self.masked)):
            a, y, found = self.A[at], self.Y[at], written[at]
            if bounded and a[a > 0].min(initial=1.0) < 1e-6:
                continue  # which belongs to the support of one solution, and not to that of another
            F, C, alone = covariance(self.E, y, a, self.noise, sum_to_one, bounded)
            own, square = len(y) - len(F) + sum_to_one, np.square(y - self.E @ a).sum()
            if self.noise is None and shared(square, own) is None:
                assert (found == NODATA).all(), at
            elif self.classes is not None and self.classes.normalized and not self.w @ a > 0:
                assert (found[: len(self.classes.names)] == NODATA).all(), at
            elif C is not None and (
                self.noise is not None or np.linalg.norm(y - self.E @ a) > 1e-6 * np.linalg.norm(y)
            ):
                if self.noise is None and own > 0:
                    of_own = shared(square, own) / np.sqrt(square / own)
                    C, alone = C * of_own**2, alone * of_own
                expected, sure = np.sqrt(np.diag(C)), a.copy()
                sure[F] = without_unsure(a[F], C) if bounded else a[F]
                moved = np.where(sure[F] == 0, 0.0, sure[F] - a[F])
                if self.classes is not None:
                    expected = np.append(*deviations_of_sums(self.classes, a, F, C, alone))
                    before, after = (
                        np.append(*(part[0] for part in self.classes.sums(one[None]))) for one in (a, sure)
                    )
                    moved = np.where(after == 0, 0.0, after - before)
                expected = np.hypot(expected, moved)
                if self.classes is not None:
                    F = [*range(len(self.classes.names)), len(self.classes.names) + self.shade]
                off = np.abs(found[F] - expected) > 1e-4 * expected + 1e-7 * np.abs(a).max(initial=0.0)
                assert not off.any(), (at, found[F], expected)

    def pooled(self):
        """The noise of the scene's pixels by their residuals, as a function; see `pooled_by_definition`."""
        A, Y = self.A[~self.masked], self.Y[~self.masked]
        free = np.count_nonzero(A, axis=1) if self.flags[1] else np.full(len(A), A.shape[1])
        return pooled_by_definition(np.square(Y - A @ self.E.T).sum(axis=1), Y.shape[1] - free + self.flags[0])

    @property
    def flags(self):
        """Whether abundances sum to one, and whether none is below 0."""
        return self.name in ("scls", "fcls"), self.name in ("nnls", "fcls")

    def check_draws(self):
        """Compare STEM_average of plain draws with means and deviations over the same draws, each solved by scipy."""
        asked, classes, seed = self.asked["draws"], self.classes, self.asked["draws"]["seed"]
        materials = self.E.shape[1] - self.has_shade
        sets = drawn_spectra(classes.members, asked["spectra"] or materials, asked["draws"], seed)
        rest, (lines, samples) = np.arange(materials, self.E.shape[1]), np.nonzero(~self.masked)
        Y, A = self.Y[~self.masked], self.A[~self.masked]
        size = np.ones(len(Y)) if self.noise is not None else noise_by_definition(Y, self.E, A, self.flags[0])
        noises = (
            [
                size[:, None] * (normals_by_definition(seed, draw, lines, samples, F.shape[1]) @ F.T)
                for draw, F in enumerate(
                    factor_by_definition(self.E[:, np.append(one, rest)], self.noise) for one in sets
                )
            ]
            if asked["has_noise"]
            else None
        )
        expected = over_draws(
            Y, self.E, classes, sets, noises, lambda y, E: of_pixels(METHODS[self.name], y, E), self.shade
        )
        np.testing.assert_allclose(read_map(self.stem, "average")[~self.masked], expected, rtol=1e-5, atol=2e-7)

    def check_fractions(self):
        """Compare STEM_fraction with the sums by class where there is light."""
        sums, total = self.classes.sums(self.A[~self.masked])
        expected = np.column_stack([sums, *([1 - total] if self.shade else []), total])
        lit = total > 1e-4
        np.testing.assert_allclose(
            read_map(self.stem, "fraction")[~self.masked][lit], expected[lit], rtol=2e-5, atol=2e-5
        )
