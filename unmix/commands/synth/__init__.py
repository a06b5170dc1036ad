"""Make synthetic scenes with known truth, streamed to disk; a seed gives the same bytes whatever the blocks."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...blocks import plan_blocks
from ...errors import MethodError
from ...io import DTYPES, INTERLEAVES, open_new, write_all, write_new
from ...io.formats.header import axis_fields, image_header
from ...library import Endmembers
from ...outputs import named_together, refuse_headers_of_others

CODES = {dtype.name: code for code, dtype in DTYPES.items()}
FIRST_NM, LAST_NM = 400.0, 2500.0
# Sizes of the patches in pixels, and their weights.
OCTAVES = ((48, 1.0), (12, 0.4), (3, 0.08))


@dataclass(frozen=True)
class SyntheticScene:
    """The settings of a synthetic scene.

    Attributes
    ----------
    lines, samples, bands, count : int
        The size of the scene; the number of endmembers.
    seed : int
    snr : float or None
        Signal to noise in dB; None is without noise.
    pure : bool
        Put a pure pixel of each endmember into the scene.
    dtype, interleave, byte_order : str
        A key of `CODES`; bip, bil or bsq; little or big. Integers hold reflectance times a scale factor that the header
        names.
    """

    lines: int = 100
    samples: int = 100
    bands: int = 224
    count: int = 5
    seed: int = 0
    snr: float | None = 40.0
    pure: bool = False
    dtype: str = "int16"
    interleave: str = "bil"
    byte_order: str = "little"

    def check(self) -> None:
        """Raise `MethodError` where the scene cannot be made."""
        if min(self.lines, self.samples, self.bands, self.count) < 1:
            raise MethodError("lines, samples, bands and count must be at least 1")
        if self.count > self.bands:
            raise MethodError(f"{self.count} endmembers need at least as many bands, not {self.bands}")
        if self.pure and self.count > self.lines * self.samples:
            raise MethodError(f"{self.count} pure pixels do not fit into {self.lines * self.samples} pixels")
        refuse_noise(self.seed, self.snr)
        if self.dtype not in CODES or self.interleave not in INTERLEAVES or self.byte_order not in ("little", "big"):
            raise MethodError(f"cannot write {self.dtype}, {self.interleave}, {self.byte_order}-endian")

    @property
    def scale(self) -> float:
        """Return the value that reflectance 1 is stored as."""
        kind = np.dtype(self.dtype)
        return 1.0 if kind.kind == "f" else (200.0 if kind.itemsize == 1 else 10000.0)


def refuse_noise(seed: int, snr: float | None) -> None:
    """Raise `MethodError` where there is no such seed, or noise."""
    if seed < 0 or (snr is not None and not -200 < snr < 1000):
        raise MethodError(f"seed {seed}, SNR {snr}: a seed from 0, and dB from -200 to 1000 or none")


def endmember_spectra(bands: int, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return wavelengths (bands,) in nm and random reflectance spectra (bands, count), between 0.01 and 0.95."""
    random = np.random.Generator(np.random.PCG64([seed, 0]))
    waves = np.linspace(FIRST_NM, LAST_NM, bands)
    x = np.linspace(0.0, 1.0, bands)
    E = np.empty((bands, count))
    for j in range(count):
        level, slope = random.uniform(0.15, 0.7), random.uniform(-0.3, 0.3)
        continuum = level + slope * (x - 0.5)
        for order in range(1, 4):
            continuum += random.normal(0, 0.08 / order) * np.cos(np.pi * order * x + random.uniform(0, np.pi))
        for _ in range(int(random.integers(2, 6))):
            centre, width, depth = random.uniform(0, 1), random.uniform(0.01, 0.08), random.uniform(0.1, 0.7)
            continuum *= 1 - depth * np.exp(-0.5 * ((x - centre) / width) ** 2)
        E[:, j] = np.clip(continuum, 0.01, 0.95)
    return waves, E


class Fields:
    """Smooth random fields, one an endmember and one for how mixed pixels are, for any lines from the seed alone."""

    def __init__(self, scene: SyntheticScene) -> None:
        self.scene = scene

    def lattice(self, octave: int, lines: range) -> np.ndarray:
        """Return lines of an octave's lattice, (count + 1, len(lines), points); each line has a seed of its own."""
        points = self.scene.samples // OCTAVES[octave][0] + 2
        rows = [
            np.random.Generator(np.random.PCG64([self.scene.seed, 1, octave, line])).standard_normal(
                (self.scene.count + 1, points)
            )
            for line in lines
        ]
        return np.stack(rows, axis=1)

    def abundances(self, lines: slice) -> np.ndarray:
        """Return sparse, spatially correlated abundances, (n, samples, p): the fields projected onto the simplex."""
        n, p = lines.stop - lines.start, self.scene.count
        total = np.zeros((p + 1, n, self.scene.samples))
        for octave, (size, weight) in enumerate(OCTAVES):
            first = lines.start // size
            lattice = self.lattice(octave, range(first, (lines.stop - 1) // size + 2))
            places = np.arange(lines.start, lines.stop)
            total += weight * interpolate(lattice, size, places, first, self.scene.samples)
        mixing = np.exp(0.9 * total[p])  # small: patches have one or two endmembers; large: many
        A = project_onto_simplex(np.moveaxis(total[:p] / (0.35 * mixing), 0, -1).reshape(-1, p))
        if self.scene.pure:
            for j in range(p):
                place = (j + 1) * self.scene.lines * self.scene.samples // (p + 1)
                line, sample = divmod(place, self.scene.samples)
                if lines.start <= line < lines.stop:
                    A[(line - lines.start) * self.scene.samples + sample] = np.eye(p)[j]
        return A.reshape(n, self.scene.samples, p)


def interpolate(lattice: np.ndarray, size: int, lines: np.ndarray, first: int, samples: int) -> np.ndarray:
    """Interpolate smoothly in a lattice whose lines begin at ``first``; return (fields, lines, samples)."""

    def weights(places: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        t = (places % size) / size
        t = t * t * (3 - 2 * t)
        return places // size, 1 - t, t

    across, left, right = weights(np.arange(samples))
    down, above, below = weights(lines)
    rows = lattice[:, :, across] * left + lattice[:, :, across + 1] * right
    return rows[:, down - first] * above[:, None] + rows[:, down - first + 1] * below[:, None]


def project_onto_simplex(values: np.ndarray) -> np.ndarray:
    """Return the nearest point of the simplex to each row (Held, Wolfe and Crowder 1974); most entries are zero."""
    n, p = values.shape
    ordered = -np.sort(-values, axis=1)
    sums = np.cumsum(ordered, axis=1) - 1
    size = np.count_nonzero(ordered - sums / np.arange(1, p + 1) > 0, axis=1)
    shift = sums[np.arange(n), size - 1] / size
    projected = np.maximum(values - shift[:, None], 0)
    return projected / projected.sum(axis=1, keepdims=True)


def synthesise(
    path: Path, scene: SyntheticScene, overwrite: bool = False, memory: int = 2**28, command: str = ""
) -> list[Path]:
    """Write a synthetic scene, ``X.hdr`` and ``.img``, its true abundances and endmembers; return the files."""
    # A block takes at most ``memory`` bytes, but is at least one line; ``command`` is for the description.
    scene.check()
    names = [".img", ".hdr", "_truth_abundance.img", "_truth_abundance.hdr"]
    names += ["_truth_endmembers.sli", "_truth_endmembers.hdr", "_truth_endmembers.csv"]
    return written_scene(
        stem_of_scene(path), names, lambda parts: write_files(scene, parts, memory, command), overwrite
    )


def stem_of_scene(path: Path) -> Path:
    """Return the common beginning of the names of a scene's files, from its header's path or the beginning itself."""
    return path.with_name(path.name[:-4]) if path.suffix.lower() == ".hdr" else path


def written_scene(
    stem: Path, names: list[str], write: Callable[[dict[str, Path]], None], overwrite: bool
) -> list[Path]:
    """Return the files ``STEM`` + name, which ``write`` makes under other names first, all or none."""
    finals = [stem.with_name(stem.name + name) for name in names]
    refuse_headers_of_others(finals)
    with named_together(finals, overwrite, "another name") as parts:
        write(dict(zip(names, parts)))
    return finals


def write_files(scene: SyntheticScene, parts: dict[str, Path], memory: int, command: str) -> None:
    """Write all files under the names that they have meanwhile."""
    waves, E = endmember_spectra(scene.bands, scene.count, scene.seed)
    names = tuple(f"material {j + 1}" for j in range(scene.count))
    Endmembers(names, E, waves).write(
        parts["_truth_endmembers.csv"], parts["_truth_endmembers.sli"], parts["_truth_endmembers.hdr"]
    )
    patches = Fields(scene)
    kind = np.dtype(scene.dtype).newbyteorder(">" if scene.byte_order == "big" else "<")
    # A pixel needs its abundances a few times over, its spectrum in float64, float32 and as stored.
    per_line = scene.samples * (8 * 8 * (scene.count + 1) + 24 * scene.bands)
    block_plan = plan_blocks(scene.lines, per_line, max(memory, per_line), 1)
    with open_new(parts[".img"]) as cube, open_new(parts["_truth_abundance.img"]) as truth:
        os.ftruncate(cube.fileno(), scene.lines * scene.samples * scene.bands * kind.itemsize)
        for lines in block_plan:
            A = patches.abundances(lines)
            truth.write(np.ascontiguousarray(A.transpose(0, 2, 1), "<f4").tobytes())
            write_block(cube.fileno(), scene, lines, stored_block(scene, A, E, lines, kind))
    description, code = command or "synthetic scene by unmix", CODES[scene.dtype]
    fields = axis_fields(waves) | ({"reflectance scale factor": int(scene.scale)} if scene.scale != 1.0 else {})
    big, n, m = scene.byte_order == "big", scene.lines, scene.samples
    write_new(parts[".hdr"], image_header(n, m, scene.bands, code, description, fields, scene.interleave, big))
    of_truth = image_header(n, m, scene.count, CODES["float32"], description, {"band names": list(names)})
    write_new(parts["_truth_abundance.hdr"], of_truth)


def stored_block(scene: SyntheticScene, A: np.ndarray, E: np.ndarray, lines: slice, kind: np.dtype) -> np.ndarray:
    """Return pixels as they are stored, (n, samples, bands): ``A Eᵀ`` with noise, scaled and rounded."""
    Y = A @ E.T
    if scene.snr is not None:
        sigma = np.sqrt(np.square(E).mean() / 10 ** (scene.snr / 10))
        for i, line in enumerate(range(lines.start, lines.stop)):
            random = np.random.Generator(np.random.PCG64([scene.seed, 2, line]))  # seeded by line, whatever the blocks
            Y[i] += sigma * random.standard_normal((scene.samples, scene.bands), np.float32)
    Y *= scene.scale
    if kind.kind != "f":
        limits = np.iinfo(kind)
        Y = np.clip(np.rint(Y, out=Y), float(limits.min), min(float(limits.max), 2.0**53), out=Y)
    return Y.astype(kind)


def write_block(descriptor: int, scene: SyntheticScene, lines: slice, values: np.ndarray) -> None:
    """Write values (n, samples, bands) to their place in the file, by the scene's interleave."""
    samples, bands = values.shape[1:]
    size = values.dtype.itemsize
    if scene.interleave == "bsq":
        for b in range(bands):
            offset = (b * scene.lines + lines.start) * samples * size
            write_all(descriptor, np.ascontiguousarray(values[:, :, b]), offset)
        return
    if scene.interleave == "bil":
        values = values.transpose(0, 2, 1)
    write_all(descriptor, np.ascontiguousarray(values), lines.start * samples * bands * size)
