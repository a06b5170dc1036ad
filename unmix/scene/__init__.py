"""How a scene is read: the file, the lines, samples, pixels and bands in use, and the meaning of stored values."""

import contextlib
import functools
import logging
import os
import re
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import CubeError, MethodError, say_once
from ..io import (
    Changed,
    Cube,
    Mask,
    Scene,
    Tied,
    Window,
    absolute,
    as_stored,
    band_names,
    bytes_per_line,
    counted,
    document_of,
    in_ranges,
    is_file,
    located,
    open_cube,
    parted,
)
from ..io.cube import Screen
from ..io.formats.envi import EXTENSIONS, TIFF_EXTENSIONS
from ..later import later
from ..settings import described, names_where
from ..settings.presets import AUTO, PRESETS, preset_in_words, preset_of
from ..settings.reading import ReadSettings
from .bands import choose_bands, first_bands, parse_bands, part_of
from .sample import SAMPLE, SCALE_PIXELS, Survey, sampled_spectra, survey, warn_of_fill

log = logging.getLogger("unmix")
# Bands of a mask that a message names.
MOST_SAID = 12
freed, load_spectra = later(__package__, "free:Freed"), later("unmix.library", "files:load_for")
albedo_of, geometry_of = (later(__package__, f"albedo:{name}") for name in ("Albedo", "geometry_of"))
nearest = later("unmix.io", "nearest:nearest")
check_scale, ratio_of_sizes, said_of_scales, scale_fault, unit_of_library = (
    later(__package__, f"scale:{name}")
    for name in ("check_scale", "ratio_of_sizes", "said_of_scales", "scale_fault", "unit_of_library")
)
both_places, placed = (later("unmix.io", f"ground:{name}") for name in ("both_places", "placed"))

# Bands of a photograph of 8 bits, with or without alpha.
PHOTO_BANDS = (3, 4)
# Placeholders in mask names, filled in for each scene: {stem}, {dir}, and {stem:RFL=MASK} for the stem with another
# word.
OF_SCENE = re.compile(r"\{(stem|dir)(?::([^=}]+)=([^}]*))?\}")
# File endings that a scene's stem is without.
ENDINGS = (*EXTENSIONS[1:], *TIFF_EXTENSIONS, ".hdr", ".nc", ".h5", ".he5", ".hdf5", ".mat", ".zarr")
# Files that accompany a scene but are not one, by format, and the parameter that takes them.
COMPANIONS = {"EMIT L2A mask": "mask_out", "EMIT L2A uncertainty": "noise"}
# Options that name one mask each.
SINGLE_MASKS = names_where(ReadSettings, is_path=True)
# Most bytes that a line of a scene may have.
LONGEST_LINE = 2**30


@described
@dataclass(frozen=True)
class ReadOptions(ReadSettings):
    """How to read a scene; for what is left out, the file's own metadata is used.

    In the names of masks ``{stem}`` and ``{dir}`` stand for the scene's; see `name_for`.
    """

    def __post_init__(self) -> None:
        if self.preset not in (None, AUTO):
            self.fill_in()
        given = (self.mask_out,) if isinstance(self.mask_out, str) else tuple(self.mask_out)
        object.__setattr__(self, "mask_out", given)
        if isinstance(self.nodata, str):  # nan, from a record
            object.__setattr__(self, "nodata", float(self.nodata))

    def fill_in(self) -> None:
        """Set the options of the preset that are not given; `MethodError` where there is no such preset."""
        if self.preset not in PRESETS:
            raise MethodError(f"`preset` {self.preset}: is none of {AUTO}, {', '.join(PRESETS)}")
        defaults = {one.name: one.default for one in fields(self)}
        own = PRESETS[self.preset]
        if "offset" in own and self.offset is None and self.scale not in (None, own["scale"]):
            raise MethodError(
                f"`preset` {self.preset} has `scale` {own['scale']:.12g} with `offset` {own['offset']:g}; another "
                "needs `offset`, too"
            )
        for name, value in own.items():
            if getattr(self, name) == defaults[name]:
                object.__setattr__(self, name, value)

    @property
    def changes(self) -> bool:
        """Whether bands are changed (`unmix.io.window.Changed`)."""
        return self.tie is not None or self.albedo is not None or self.free is not None

    @property
    def masks(self) -> list[tuple[str, str]]:
        """The masks, each with the option that names it."""
        single = [(getattr(self, option), option) for option in SINGLE_MASKS if getattr(self, option) is not None]
        return single + [(mask, "mask_out") for mask in self.mask_out]

    def for_scene(self, path: str | os.PathLike[str]) -> "ReadOptions":
        """Return the options with preset and masks' names of one scene; see `name_for`.

        Raises
        ------
        MethodError
            Where the scene's name fits no known sensor, or a mask's name cannot be made of it.
        """
        if self.preset == AUTO:
            name = file_of_spec(path).name
            found = preset_of(name) or preset_of(name, open_cube(path, self.dataset, self.wavelengths).format)
            if found is None:
                raise MethodError(
                    f"{located(path)}: `preset` auto: name and format are like those of no sensor; name a preset, or "
                    "give none"
                )
            given = [one.name for one in fields(self) if getattr(self, one.name) != one.default]
            both = [f"your `{name}` in place of its own" for name in given if name in PRESETS[found]]
            say_once(f"{located(path)}: preset {found}: {', '.join([preset_in_words(found, given), *both])}")
            return replace(self, preset=found).for_scene(path)
        if not self.masks:
            return self
        try:
            single = {option: name_for(text, path) for text, option in self.masks if option in SINGLE_MASKS}
            return replace(
                self,
                **single,  # type: ignore[arg-type]
                mask_out=tuple(name_for(text, path) for text in self.mask_out),
            )
        except MethodError as error:
            if self.preset is None or self.mask_out != PRESETS[self.preset].get("mask_out"):
                raise
            raise MethodError(
                f"{error} (`preset` {self.preset} names the masks so); name them with `mask_out`"
            ) from None

    def to_dict(self) -> dict[str, Any]:
        """Return the options that differ from the defaults, with absolute paths, for ``run.json``."""
        values = asdict(self.with_absolute_paths())
        return {f.name: values[f.name] for f in fields(self) if values[f.name] != f.default}

    def with_absolute_paths(self) -> "ReadOptions":
        """Return the options with the paths of masks and wavelengths absolute.

        They are for a process in another working directory.
        """
        paths: dict[str, Any] = {option: absolute_mask(text) for text, option in self.masks if option in SINGLE_MASKS}
        paths["mask_out"] = tuple(map(absolute_mask, self.mask_out))
        if self.wavelengths is not None and is_file(self.wavelengths):  # else a name inside the cube's file
            paths["wavelengths"] = absolute(self.wavelengths)
        if self.free is not None:
            paths["free"] = absolute(self.free)
        return replace(self, **paths)


def folder_of(out_dir: str | os.PathLike[str] | None, path: str | os.PathLike[str]) -> Any:
    """Return ``out_dir`` with ``{stem}`` and ``{dir}`` replaced; ``{dir}`` begins below the working directory."""
    if out_dir is None or "{" not in str(out_dir):
        return out_dir
    scene, here = file_of_spec(path), Path.cwd()
    if isinstance(scene, Path) and scene.is_absolute() and "{dir}" in str(out_dir):
        if scene.is_relative_to(here):
            return located(name_for(str(out_dir), scene.relative_to(here)))
        say_once(
            f"{{dir}} is the whole path of scenes that are not below {here}; begin in the folder above the archive"
        )
    return located(name_for(str(out_dir), path))


def file_of_spec(path: str | os.PathLike[str]) -> Path:
    """Return the path of a scene; where a document names the scene, the path of its file."""
    document = document_of(path)
    with contextlib.suppress(CubeError):  # said where the scene is opened, of this scene alone
        return located(path) if document is None else open_cube(path).path
    return located(path) if document is None else document[0]


def name_for(text: str, path: str | os.PathLike[str]) -> str:
    """Return a scene's file name: ``{stem}`` is its stem, ``{stem:A=B}`` that with B for A, ``{dir}`` its folder."""
    scene = file_of_spec(path) if OF_SCENE.search(text) else located(path)
    plain = Path(scene.name.removesuffix(".gz").removesuffix(".zip"))
    own = {"stem": plain.stem if plain.suffix.lower() in ENDINGS else plain.name, "dir": str(scene.parent)}

    def part(found: re.Match[str]) -> str:
        kind, old, new = found.groups()
        if old is None:
            return own[kind]
        if old not in own[kind]:
            raise MethodError(f"{scene}: '{found[0]}': there is no '{old}' in {own[kind]}")
        return own[kind].replace(old, new)

    name = OF_SCENE.sub(part, text)
    other = re.search(r"\{[^{}]*\}", OF_SCENE.sub("", text))
    if other and not os.path.lexists(name) and not os.path.lexists(parted(name)[0]):
        raise MethodError(f"'{text}': {other[0]} stands for nothing; use {{stem}}, {{dir}} or {{stem:OLD=NEW}}")
    return name


def open_scene(path: str | os.PathLike[str], reading: ReadOptions = ReadOptions(), extracts: bool = False) -> Scene:
    """Open a cube, choose its bands, gain, offset, nodata value and part; log problems as warnings."""
    if reading.extract_mask is not None and not extracts:
        raise MethodError("`extract_mask` is for the extraction of endmembers; use `mask`")
    reading = reading.for_scene(path)
    cube, nodata = open_part(path, reading)
    if "classification" in cube.fields.get("file type", "").lower():
        raise CubeError(f"{cube.path}: is a map of classes, and no scene; name the cube that it was made from")
    which = "good" if reading.bands == "auto" else reading.bands
    bands = choose_bands(cube, which, reading.scale, reading.ignore_nm, reading.only_nm, reading.offset)
    if reading.bands == "auto":
        faults = survey(Scene(cube, bands, nodata)).faults()
        kept = np.setdiff1d(bands.index, [band for numbers in faults.values() for band in numbers])
        if len(kept) == 0:
            raise CubeError(
                f"{cube.path}: all bands in use are dead, constant or out of physical range; set `bands` to all to use "
                "them anyway"
            )
        for fault, numbers in faults.items():
            if numbers:
                log.info(f"{cube.path}: {counted(len(numbers), 'band')} left out ({fault}): {in_ranges(numbers)}")
        bands = bands.only(np.isin(bands.index, kept))
    bad = [] if which != "good" or cube.good_bands is None else np.flatnonzero(~cube.good_bands).tolist()
    if bad:
        log.info(f"{cube.path}: {counted(len(bad), 'band')} left out (marked bad): {in_ranges(bad)}")
    own = PRESETS.get(preset_of(cube.path.name) or "", {})
    is_offset = reading.offset is not None or bands.offset.any()
    if own.get("offset") and not is_offset and np.allclose(bands.gain * own["scale"], 1.0):
        log.warning(
            f"{cube.path}: by its name it may have an offset, which is not taken off: `offset` {own['offset']:g} does, "
            "`offset` 0 where there is none"
        )
    if cube.dtype == np.uint8 and cube.bands in PHOTO_BANDS and cube.wavelengths is None and cube.gain is None:
        say_once(
            f"{cube.path}: if it is a photograph, its values are no light: decode them first (sRGB: about the power 2.2)",
            logging.WARNING,
        )
    zero_gain = bands.index[bands.gain == 0]
    if len(zero_gain):
        raise CubeError(
            f"{cube.path}: the gain of bands {in_ranges(zero_gain.tolist())} is 0, so all their values would be equal; "
            "leave them "
            "out with `bands`, or set `scale`"
        )
    if not reading.changes:
        return Scene(cube, bands, nodata)
    part = cube if isinstance(cube, Window) else Window(cube, slice(0, cube.lines), slice(0, cube.samples), nodata)
    whole = Scene(part, bands, nodata)
    changed: Changed
    if reading.albedo is not None:
        changed = albedo_of(whole, reading.albedo)
    elif reading.free is not None:
        changed = freed(whole, load_spectra(reading.free, whole))
    else:
        assert reading.tie is not None
        changed = Tied(whole, first_bands(cube, bands, reading.tie))
    return Scene(changed, changed.changed_bands, None)


def open_pixels(path: str | os.PathLike[str], reading: ReadOptions) -> Cube:
    """Open the scene that `open_scene` returns, where its bands are known already."""
    return open_scene(path, reading, True).cube if reading.changes else open_part(path, reading)[0]


def open_part(path: str | os.PathLike[str], reading: ReadOptions) -> tuple[Cube, float | None]:
    """Open the part of a scene that lines, samples and masks select; return it and its nodata value as stored."""
    reading = reading.for_scene(path)
    cube = open_cube(path, reading.dataset, reading.wavelengths)
    if cube.format in COMPANIONS and reading.dataset is None:
        raise CubeError(
            f"{cube.path}: is {cube.format} and no scene; it belongs to one, with `{COMPANIONS[cube.format]}`"
        )
    if bytes_per_line(cube) > LONGEST_LINE:
        raise CubeError(
            f"{cube.path}: one line has {bytes_per_line(cube)} bytes, more than any scene; are "
            " lines, samples, bands and interleave right?"
        )
    problems = list(cube.problems)
    if reading.nodata is not None:
        cube.screen = None  # it replaces what the file says of missing values
    nodata = cube.nodata if reading.nodata is None else as_stored(reading.nodata, cube.dtype, "`nodata`", problems)
    if reading.valid_max is not None:
        nodata = cube.nodata = limited(cube, nodata, reading.valid_max)
    for problem in problems:
        log.warning(problem)
    masks = [laid_over(open_mask(*named), cube, reading) for named in reading.masks]
    if cube.mask is not None:
        masks.append(Mask(cube.mask, 0))
    if reading.lines is reading.samples is reading.bbox is None and not masks:
        return cube, nodata
    lines, samples = part_of(cube, reading.lines, reading.samples, reading.bbox)
    part = Window(cube, lines, samples, nodata, masks)
    for problem in part.problems[len(cube.problems) :]:
        log.warning(problem)
    return part, part.nodata


def limited(cube: Cube, nodata: float | None, most: float) -> float | None:
    """Read stored values of a cube above ``most`` as no data; return what stands for that."""
    own = cube.screen
    if nodata is None and cube.dtype.kind in "iu":
        nodata = float(np.iinfo(cube.dtype).max)  # above it, too, or no value is

    def misses(values: np.ndarray) -> np.ndarray:
        return (values > most) | (False if own is None else own.misses(values))

    cube.screen = Screen(misses, float("nan") if nodata is None else nodata)
    return nodata


def laid_over(mask: Mask, scene: Cube, reading: ReadOptions) -> Mask:
    """Return a mask of another size on the scene's grid; unchanged if it has the scene's or part's size, or no map."""
    lines, samples = part_of(scene, reading.lines, reading.samples, reading.bbox)
    sizes = {(scene.lines, scene.samples), (lines.stop - lines.start, samples.stop - samples.start)}
    is_out = mask.option == "mask_out"
    at, to = placed(mask.cube), placed(scene)
    is_turned = at is not None and to is not None and at[5] * to[5] < 0  # the lines of one go north
    size = mask.cube.lines, mask.cube.samples
    is_apart = size == (scene.lines, scene.samples) and both_places(mask.cube, scene) != ""
    is_one = size in sizes and not is_turned and not is_apart
    found = None if is_one else nearest(mask.cube, scene, outside=float(is_out))
    if found is None:
        return mask
    beyond = 1.0 - np.mean(found.places[0] >= 0) * np.mean(found.places[1] >= 0)
    more = f"; {beyond:.0%} of the pixels are beyond it, and left out" if beyond else ""
    say_once(f"{mask.cube.path}: is on another grid; pixels have its value at their centres{more}")
    return mask._replace(cube=found)


def mask_of(text: str) -> tuple[Path, str]:
    """Split ``FILE`` or ``FILE:BAND`` into the file and the band's number, from 1, or name."""
    if not text:
        raise MethodError("`mask`: name a file")
    path, band = parted(text)
    if os.sep in band and is_file(path):
        raise MethodError(f"`mask`: {band} is no band of {path}; write its pixels to a raster of their own, as 0 and 1")
    return (path, band) if band and os.sep not in text.rpartition(":")[2] else (located(text), "1")


def absolute_mask(text: str) -> str:
    """Return ``FILE:BAND`` with the file's absolute path."""
    path, band = mask_of(text)
    return f"{absolute_name(path)}:{band}"


def absolute_name(name: str | os.PathLike[str]) -> str:
    """Return the absolute path of a file; as it is where it begins with the folder of each scene (`name_for`)."""
    text = os.fspath(name)
    return text if text.startswith("{dir}") else absolute(text)


def open_mask(text: str, option: str) -> Mask:
    """Open ``FILE`` or ``FILE:BAND``, a number from 1 or a name, for a mask option of `ReadOptions`."""
    path, band = mask_of(text)
    cube = open_cube(path)
    if band.isascii() and band.isdigit() and len(band) < 8:
        if int(band) < 1:
            raise MethodError(f"`{option}` {text}: bands count from 1")
        if int(band) > cube.bands:
            raise CubeError(f"{cube.path}: has {cube.bands} bands; `{option}` asks for band {band}")
        return Mask(cube, int(band) - 1, option)
    names = [name.casefold() for name in band_names(cube)]
    if band.casefold() not in names:
        some, more = ", ".join(band_names(cube)[:MOST_SAID]), ", …" * (cube.bands > MOST_SAID)
        raise MethodError(f"`{option}` {text}: {path} has no band '{band}'; it has {some}{more}")
    return Mask(cube, names.index(band.casefold()), option)
