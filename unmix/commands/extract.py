"""`extract`: one set of endmembers from one scene or from many."""

import logging
import os
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from ..blocks import parse_size
from ..endmembers import extract_bundles, extract_from, named
from ..endmembers.quality import said_of
from ..errors import CubeError, MethodError
from ..io import Scene, Watch, counted
from ..library import Endmembers
from ..methods import Extraction
from ..outputs.names import LIBRARY, folder_for, inputs_of, of_a_run, refuse_inputs
from ..runs.files.endmembers import refuse_to_save, save_library
from ..scene import ReadOptions, open_scene

log = logging.getLogger("unmix")

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
# The name of a set of several scenes, where none is given.
NAME = "scenes"
# Scenes are on the same bands if their centres differ by no more than this share of the distance of neighbouring bands:
# spectrometers are calibrated anew, and their bands move by some tenths of a nanometre.
SAME_BAND = 0.1


def extract(
    cubes: Paths, *, subsets: int | None = None, memory: str | int = "1G", threads: int | None = None, **how: Any
) -> Endmembers:
    """Extract one set of endmembers from all pixels of one scene or of many.

    Parameters
    ----------
    cubes : path-like or sequence of path-like
        The scenes. Several must be on the same bands and in the same unit.
    subsets : int, optional
        Extract several spectra of each material, with it as their class; see `unmix.endmembers.extract_bundles`. Not
        with ``refine`` off, ``smooth`` or ``outside``.
    memory : str or int
        Bound on the memory for blocks, such as "2G".
    threads : int, optional
        CPU threads; default is all.
    **how
        ``count`` ("auto"), ``extract`` ("auto"), ``refine``, ``smooth``, ``outside``, ``outliers`` and ``seed``: see
        `unmix.methods.Extraction`. Others: see `unmix.ReadOptions`; for all scenes.

    Returns
    -------
    Endmembers
        The spectra are the columns of ``matrix`` (L, p), in the unit of the scaled scenes; ``pixels`` and, of several,
        ``scenes`` say where each is from.

    Raises
    ------
    MethodError
        For an option that is not known or does not fit.
    CubeError
        Where a scene cannot be read, or is on other bands or in another unit than the first.
    """
    own = {name: how.pop(name) for name in list(how) if name in {field.name for field in fields(Extraction)}}
    scenes = open_all(cubes, ReadOptions(**how))
    return extracted(scenes, Extraction(**own), subsets, parse_size(str(memory)), threads)


def extract_to(
    cubes: Paths,
    *,
    out_dir: Path | None,
    name: str | None,
    overwrite: bool,
    memory: str,
    threads: int | None,
    how: Extraction,
    listed: Path | None = None,
    subsets: int | None = None,
    **reading: Any,
) -> list[Path]:
    """Extract endmembers and write ``NAME_endmembers`` .csv, .sli and .hdr; return their paths."""
    # By default they are beside the scene and begin like it; those of several scenes begin with `NAME`, in the current
    # folder. ``listed`` is the file that names the scenes.
    scenes = open_all(cubes, ReadOptions(**reading))
    several, first = len(scenes) > 1, scenes[0].cube
    folder = folder_for(out_dir, None if several else first.path)
    stem = name if name is not None else (NAME if several else first.stem)
    if os.sep in stem or not stem.strip("."):
        raise MethodError(f"`name` {stem}: is no name of a file; `out_dir` is the folder")
    watches = [Watch(scene.cube) for scene in scenes]
    inputs = [entry for scene in scenes for entry in inputs_of(scene.cube)] + inputs_of(list=listed)
    refuse_inputs(of_a_run(folder, stem, LIBRARY), inputs)
    refuse_to_save(folder, stem, overwrite)
    library = extracted(scenes, how, subsets, parse_size(memory), threads)
    materials = tuple(dict.fromkeys(library.classes or library.names))
    if library.simplex is not None and "omega" in library.simplex:
        log.info(
            f"{named(scenes)}: the simplex of these {len(materials)} pixels is the largest that exchanging one of them "
            "can reach "
            f"(best ratio of volumes {library.simplex['omega']:.9f}; from {library.simplex['agree']} of "
            f"{counted(library.simplex['starts'], 'set')} of pixels that exchanges began with)"
        )
    if library.simplex is not None and "below" in library.simplex:
        log.info(f"{named(scenes)}: the simplex leaves {library.simplex['below']:.3f} coordinates a pixel below 0")
    for line in said_of(materials, library.quality or {}):
        log.info(line)
    return save_library(library, folder, stem, overwrite, watches)


def extracted(
    scenes: list[Scene], how: Extraction, subsets: int | None, budget: int, threads: int | None
) -> Endmembers:
    """Return one set of endmembers, or bundles where there are ``subsets``; see `extract`."""
    if subsets is None:
        return extract_from(scenes, how, budget, threads)[0]
    plain = {"extract": ("auto", "vca", "nfindr"), "refine": (True,), "smooth": (0,), "outside": (None,)}
    for name, values in plain.items():
        if getattr(how, name) not in values:
            raise MethodError(f"`{name}` is not for `subsets`, which are of pixels by nfindr")
    return extract_bundles(scenes, how, subsets, budget, threads)[0]


def open_all(cubes: Paths, reading: ReadOptions) -> list[Scene]:
    """Open scenes; `CubeError` where one cannot be read, or is on other bands than the first."""
    paths = [cubes] if isinstance(cubes, str | os.PathLike) else list(cubes)
    if not paths:
        raise MethodError("no scene is given")
    scenes = [open_scene(path, reading, True).to_extract_from() for path in paths]
    for scene in scenes[1:]:
        refuse_other_bands(scenes[0], scene)
    return scenes


def refuse_other_bands(one: Scene, other: Scene) -> None:
    """Raise `CubeError` where two scenes are not on the same bands."""
    a, b = (scene.bands.index for scene in (one, other))
    if len(a) != len(b):
        raise CubeError(
            f"{other.cube.path}: {len(b)} bands in use, {one.cube.path} has {len(a)}; scenes of one set must be on the "
            "same bands"
        )
    left, right = one.cube.wavelengths, other.cube.wavelengths
    if left is None or right is None:
        if (left is None) != (right is None):
            lacking = one if left is None else other
            log.warning(f"{lacking.cube.path}: has no wavelengths; its bands are taken to be those of the other scenes")
        return
    spacing = np.abs(np.gradient(left[a])) if len(a) > 1 else np.full(1, np.inf)
    moved = np.abs(left[a] - right[b]) > SAME_BAND * spacing
    if moved.any():
        k = int(moved.argmax())
        raise CubeError(
            f"{other.cube.path}: its band {b[k] + 1} is at {right[b[k]]:g} nm, that of {one.cube.path} at "
            f"{left[a[k]]:g} nm; scenes of "
            "one set must be on the same bands"
        )
