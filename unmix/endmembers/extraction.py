"""Extract endmembers from the pixels of scenes by an algorithm's name, with their places and quality."""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..blocks import cores
from ..errors import CubeError, MethodError
from ..io import Scene
from ..later import later
from ..library import Endmembers
from ..methods import Extraction
from ..scene.signal import warn_of_bands
from .nfindr import SEEDS, Simplex, nfindr, refined_vca
from .passes import Passes, named, names_of, signal_of_all
from .quality import quality_of
from .scan import Gpu
from .statistics import Moments
from .vca import vca

if TYPE_CHECKING:
    from .auto import Likely
    from .counts import Counts
    from .sampled import Means
    from .sisal import Enclosing

log = logging.getLogger("unmix")

sample_of = later(__package__, "sampled:Sampled.of")
without_outliers, without_odd = (later(__package__, f"outliers:without_{what}") for what in ("outliers", "odd"))
is_noisy, averaged = (later(__package__, f"averaged:{name}") for name in ("is_noisy", "averaged"))
counts_of, capped, counted = (later(__package__, f"counts:{name}") for name in ("counts_of", "capped", "Counts.of"))
bundles, grouped = later(__package__, "bundles:bundles"), later(__package__, "bundles:grouped")
# By name, and whether the pixels that VCA picks are exchanged.
EXTRACTORS: dict[tuple[str, bool], Callable[..., Any]] = {
    ("vca", True): refined_vca,
    ("vca", False): vca,
    ("spa", True): later(__package__, "spa:spa"),
    ("spa", False): later(__package__, "spa:spa"),
    ("atgp", True): later(__package__, "spa:spa"),
    ("nfindr", True): nfindr,
    ("sisal", True): later(__package__, "sisal:sisal"),
    ("cone", True): later(__package__, "auto:cone"),
    ("auto", True): later(__package__, "auto:auto"),
}
SEEDED = ("vca", "nfindr", "sisal", "cone", "auto")
# Ways to extract that need a sample of the scene, of flat scenes at the end.
SAMPLED = ("cone", "auto")
# Most pixels averaged into an extracted endmember: their places are in ``run.json``.
MOST_PUREST = 10_000
# Pixels at less than this distance are ordinary.
LEAST_DISTANCE = 2.0
# The most parts of a scene that have endmembers of their own.
MOST_SUBSETS = 1000
# Extractors that support `smooth`.
SMOOTHED = (("vca", True), ("nfindr", True))
# Negative values up to this share of the largest value are rounding of 0.
NEGATIVE_ROUNDING = 1e-9


class Begun(NamedTuple):
    """The input of an extraction: passes, moments, number of endmembers, its counts, and the record of outliers."""

    passes: Passes
    moments: Moments
    p: int
    counts: "Counts | None"
    left_out: dict[str, Any]

    @classmethod
    def of(
        cls,
        scenes: Sequence[Scene],
        how: Extraction,
        needs_simplex: str | None,
        budget: int,
        threads: int | None,
        gpu: Gpu | None = None,
    ) -> "Begun":
        """Begin, without outliers if so asked; `MethodError` or `CubeError` where nothing can be extracted."""
        refuse_extraction(how)
        if len(scenes[0].bands.index) < 2:
            raise CubeError(
                f"{named(scenes)}: has one band in use, of which no mixture is told: stack files of a band each"
            )
        passes, left_out = Passes(scenes, budget, threads or cores(), 1, gpu=gpu), dict[str, Any]()
        with ThreadPoolExecutor(1, "sample") as pool:
            needs_sample = how.extract in SAMPLED and not how.outliers
            sampled = pool.submit(sample_of, passes) if needs_sample else None  # beside the sums
            found = signal_of_all(scenes, budget, threads, gpu)
            plain = counted(found) if sampled is not None and how.count == "auto" else None  # while the sample is read
        if sampled is not None:
            sampled.result()  # GDAL tells of a damaged block once, and reads zeros after that
        if how.outliers:
            scenes, about = without_outliers(scenes, found, how.outliers, budget, threads or cores())
            left_out = {"outliers": about}
        elif how.outliers is None and any(map(len, found.odd)):
            (scenes, about), plain = without_odd(scenes, found.odd), None
            left_out = {"odd": about}
        if left_out:
            found = signal_of_all(scenes, budget, threads, gpu)
            passes = Passes(scenes, budget, threads or cores(), 3 if how.outliers else 2, gpu=gpu)
        warn_of_bands(scenes[0], found.pixels, found.mean, found.covariance)
        counts = counts_of(passes, found, plain) if how.count == "auto" else None
        p = int(how.count) if counts is None else capped(named(scenes), counts)
        refuse_count(p, needs_simplex, how.smooth, found)
        if how.extract == "auto" and is_noisy(found, p):
            log.info(f"{named(scenes)}: noise is strong: endmembers are extracted from means of 3 x 3 pixels")
            scenes, left_out = [averaged(scene) for scene in scenes], left_out | {"averaged": 3}
            found = signal_of_all(scenes, budget, threads, gpu)
            passes = Passes(scenes, budget, threads or cores(), passes.made + 1, gpu=gpu)
        return cls(passes, found, p, counts, left_out)

    def extracted(self, extract: Callable[..., Any], seed: int, *arguments: Any, **options: Any) -> Any:
        """Return the result of an algorithm; `CubeError` if there is no room for its scratch file."""
        try:
            return extract(self.moments, self.p, seed, self.passes.budget // 2, self.passes, *arguments, **options)
        except OSError as error:
            raise CubeError(
                f"{named(self.passes.scenes)}: no room for a scratch file: {error.strerror}; set TMPDIR to a larger "
                "disk, or raise "
                "`memory`"
            ) from None

    def library(
        self, matrix: np.ndarray, source: str, places: Sequence[int] | None, quality: dict[str, Any], **others: Any
    ) -> Endmembers:
        """Return spectra (L, p) as endmembers; ``places`` are their pixels, if any, ``others`` further fields."""
        passes, scenes = self.passes, self.passes.scenes
        fields: dict[str, Any] = {
            "names": tuple(f"endmember {j + 1}" for j in range(matrix.shape[1])),
            "matrix": matrix,
            "source": source,
            "wavelengths": scenes[0].wavelengths,
            "counted": None if self.counts is None else self.counts.to_dict(),
            "quality": quality | self.left_out,
        }
        if places is not None:
            fields["pixels"] = tuple(map(tuple, passes.positions(places)))
            if len(scenes) > 1:
                fields["scenes"] = tuple(names_of(scenes)[passes.locate(place)[0]] for place in places)
        return Endmembers(**fields | others)

    def too_few(self, count: int, by: str = "") -> CubeError:
        """Return the error where there are too few distinct spectra."""
        return CubeError(
            f"{named(self.passes.scenes)}: has only {count} distinct spectra{by}, not {self.p}; lower `count`"
        )


def extract_from(
    scenes: Sequence[Scene], how: Extraction, budget: int, threads: int | None = None, gpu: Gpu | None = None
) -> tuple[Endmembers, int]:
    """Extract endmembers (L, p) from scenes on the same bands; return them and the number of passes over the files."""
    extract, smooth, seed = str(how.extract), how.smooth, how.seed
    begun = Begun.of(
        scenes, how, "smooth" if smooth else "extract" if extract == "sisal" else None, budget, threads, gpu
    )
    passes = begun.passes
    given = {"smooth": smooth or None, "outside": how.outside}
    more = {name: value for name, value in given.items() if value is not None}
    found, chosen = begun.extracted(EXTRACTORS[extract, how.refine], seed, **more), None
    if hasattr(found, "best"):
        chosen, found = found, found.best.found
        log.info(f"{named(passes.scenes)}: {chosen}")
    of_pixels = found if isinstance(found, list) else getattr(found, "places", None)
    # Two means may share their purest pixel, and still differ.
    if of_pixels is not None and not hasattr(found, "spectra") and len(set(of_pixels)) < begun.p:
        raise begun.too_few(len(set(of_pixels)), f" by {extract}")
    # The published algorithms return the pixel projected to the signal subspace. The pixel itself exists in the scene,
    # and its bytes do not depend on the eigensolver.
    matrix, about, words = described(found, passes)
    source = f"{extract}{'' if chosen is None else f': {chosen.best.name}'}"
    source += f" (seed {seed})" if extract in SEEDED else ""
    about = about if chosen is None else (about or {}) | chosen.to_dict()
    quality = quality_of(matrix, getattr(found, "use", None))
    return begun.library(matrix, source + words, of_pixels, quality, simplex=about), passes.made


def described(
    found: "Simplex | Enclosing | Likely | Means | list[int]", passes: Passes
) -> tuple[np.ndarray, dict[str, Any] | None, str]:
    """Return an algorithm's spectra (L, p), their entry in ``run.json``, and words to add to their source."""
    if isinstance(found, list):
        return spectra_of(passes, found), None, ""
    if isinstance(found, Simplex) and found.purest:
        matrix = np.stack([passes.mean(some) for some in found.purest], axis=1)
        words = f", means of the {len(found.purest[0])} purest pixels"
        return np.ascontiguousarray(matrix), found.to_dict() | listed(found.purest, passes), words
    if isinstance(found, Simplex):
        return spectra_of(passes, found.places), found.to_dict(), ""
    purest: list[list[int]] | None = getattr(found, "purest", None)  # of means
    if purest is not None:
        return found.spectra, found.to_dict() | listed(purest, passes), ""
    warn_of_negative(found.spectra, passes.scenes)
    return found.spectra, found.to_dict(), ""


def extract_bundles(
    scenes: Sequence[Scene], how: Extraction, subsets: int, budget: int, threads: int | None = None
) -> tuple[Endmembers, int]:
    """Extract N-FINDR's pixels of a scene and of ``subsets`` parts of it; return them and the number of passes."""
    begun = Begun.of(scenes, how, "subsets", budget, threads)
    passes, p, pixels = begun.passes, begun.p, begun.moments.pixels
    if not 2 <= subsets <= MOST_SUBSETS or subsets * p > pixels:
        raise MethodError(f"`subsets` {subsets}: must be from 2 to {min(MOST_SUBSETS, pixels // p)} for {p} endmembers")
    found = begun.extracted(bundles, how.seed, subsets)
    if isinstance(found, list):
        raise begun.too_few(len(set(found)))
    whole = spectra_of(passes, found.simplex.places)
    parts = [places for places in found.parts if len(places) == p]
    groups, consensus = grouped(whole, [spectra_of(passes, places) for places in parts])
    quality = quality_of(whole)
    # ``found`` is the share of parts that found the material, ``spread`` the median angle in degrees.
    for one, said in zip(quality["each"], consensus):
        one |= {"found": said["found"] * len(parts) / subsets, "spread": said["angle"]}
    names, kinds, places = [], [], []
    for k, (corner, group) in enumerate(zip(found.simplex.places, groups)):
        others = dict.fromkeys(parts[number][j] for number, j in group)
        own = [corner, *(place for place in others if place not in found.simplex.places)]
        names += [f"endmember {k + 1}" + (f".{n}" if n else "") for n in range(len(own))]
        kinds += [f"endmember {k + 1}"] * len(own)
        places += own
    return begun.library(
        spectra_of(passes, places),
        f"nfindr (seed {how.seed}) of the scene and {subsets} parts of it",
        places,
        quality,
        names=tuple(names),
        classes=tuple(kinds),
        simplex=found.simplex.to_dict(),
    ), passes.made


def spectra_of(passes: Passes, places: Sequence[int]) -> np.ndarray:
    """Return the spectra of some pixels, (L, n)."""
    return np.ascontiguousarray(np.stack([passes.mean([place]) for place in places], axis=1))


def warn_of_negative(spectra: np.ndarray, scenes: Sequence[Scene]) -> None:
    """Warn where the corners (L, p) of a simplex around scenes are negative, as no reflectance is."""
    below = (spectra < -NEGATIVE_ROUNDING * np.abs(spectra).max()).sum(axis=0)
    if below.any():
        j = int(spectra.min(axis=0).argmin())
        log.warning(
            f"{named(scenes)}: endmember {j + 1} is negative in {below[j]} of {len(spectra)} bands, down to "
            f"{spectra[:, j].min():.3g}: no pixel is near it; nfindr, or sisal with a larger `outside`, keeps to the "
            "pixels"
        )


def refuse_extraction(how: Extraction) -> None:
    """Raise `MethodError` where an extraction is not known, or its options contradict each other."""
    names_known, kind = dict.fromkeys(name for name, _ in EXTRACTORS), (how.extract, how.refine)
    if how.extract not in names_known:
        raise MethodError(f"unknown extraction '{how.extract}'; there are {', '.join(names_known)}")
    if kind not in EXTRACTORS:
        raise MethodError(f"`refine`: {how.extract} always exchanges pixels; only vca can be left as it is")
    if how.smooth and kind not in SMOOTHED:
        raise MethodError(
            "`smooth` is for the corners of the largest simplex; use `extract` nfindr, or vca with `refine`"
        )
    if how.outside is not None and how.extract != "sisal":
        raise MethodError("`outside` is for `extract` sisal")
    if how.outside is not None and not 0.001 <= how.outside <= 1:
        raise MethodError(f"`outside` {how.outside:g}: must be from 0.001 to 1")
    if how.outliers and not LEAST_DISTANCE <= float(how.outliers) < np.inf:
        raise MethodError(
            f"`outliers` {how.outliers:g}: must be 0 or a number from {LEAST_DISTANCE:g} on; others are at 1 on average"
        )
    if not 0 <= how.smooth <= MOST_PUREST:
        raise MethodError(f"`smooth` {how.smooth}: must be from 0 to {MOST_PUREST} pixels")
    if not (isinstance(how.seed, int) and 0 <= how.seed < SEEDS):
        raise MethodError(f"`seed` {how.seed}: must be a whole number from 0 to 2^63 - 1")


def refuse_count(p: int, needs_simplex: str | None, smooth: int, scene_moments: Moments) -> None:
    """Raise `MethodError` where p is above the bands or pixels, or is 1 though an option needs a simplex."""
    L, pixels = len(scene_moments.mean), scene_moments.pixels
    if not 1 <= p <= min(L, pixels):
        raise MethodError(f"`count` {p}: must be from 1 to {min(L, pixels)} (bands and valid pixels in use)")
    if needs_simplex and p == 1:
        raise MethodError(f"`{needs_simplex}`: one endmember has no simplex")
    if p * smooth > pixels:
        raise MethodError(f"`smooth` {smooth}: {pixels} valid pixels are too few for {p} endmembers")


def listed(purest: Sequence[Sequence[int]], passes: Passes) -> dict[str, Any]:
    """Return for ``run.json`` line and sample in the whole scene of the pixels that each endmember is the mean of."""
    return {"purest": [passes.positions(some) for some in purest]}
