"""`unmix info`: show the facts in a cube's headers."""

from pathlib import Path
from typing import Any

import click

from unmix.settings.presets import preset_of

from . import archive, options

# Digits shown of a number; --json has all.
DIGITS = 7


@click.command("info")
@click.argument("cubes", nargs=-1, required=True, metavar="CUBE...", type=options.Input())
@options.opening
@options.declared("scale", "offset")
@options.as_json
def command(
    cubes: tuple[Path, ...],
    as_json: bool,
    dataset: str | None,
    wavelengths: str | None,
    scale: float | None,
    offset: float | None,
) -> int:
    """Show each CUBE's size, data type, interleave, wavelengths, bad bands, nodata, scale and map; reads headers only.

    Of a file with several dates it shows the first.
    """
    from unmix import open_cube
    from unmix.scene.bands import choose_bands

    def show(number: int, cube: Path) -> None:
        (first, *_), dates = archive.scenes_in(cube, dataset)
        opened = open_cube(first, dataset, wavelengths)
        facts = describe(opened) | ({"dates": dates} if dates else {})
        if scale is not None or offset is not None:
            bands = choose_bands(opened, "all", scale, offset=offset)
            facts |= {"gain": bands.gain.tolist(), "offset": bands.offset.tolist()}
        options.show(facts, as_json, [*([""] if number else []), *rows_of(facts)])

    return archive.for_each(cubes, show)


def rows_of(facts: dict[str, Any]) -> list[str]:
    """Return a line for each fact that is known."""
    known = {name: value for name, value in facts.items() if value is not None and value not in ([], "")}
    return options.named_rows({name: format_value(value) for name, value in known.items()})


def describe(scene: Any) -> dict[str, Any]:
    """Return the facts about a cube, ready for JSON."""

    def numbers(of_bands: Any) -> list[float] | None:
        return None if of_bands is None else [float(number) for number in of_bands]

    good = scene.good_bands
    return {
        "path": str(scene.path),
        "format": scene.format,
        "lines": scene.lines,
        "samples": scene.samples,
        "bands": scene.bands,
        "data_type": scene.dtype.name,
        "interleave": scene.interleave,
        **scene.storage(),
        "bytes": scene.lines * scene.samples * scene.bands * scene.dtype.itemsize,
        "wavelengths_nm": numbers(scene.wavelengths),
        "fwhm_nm": numbers(scene.fwhm),
        "bad_bands": None if good is None else [b + 1 for b in range(scene.bands) if not good[b]],
        "nodata": scene.nodata,
        "gain": numbers(scene.gain),
        "offset": numbers(scene.offset),
        "map_info": scene.fields.get("map info"),
        "coordinate_system": scene.fields.get("coordinate system string"),
        "preset": preset_of(scene.path.name, scene.format),
        "problems": scene.problems,
    }


def format_value(value: Any) -> str:
    """Return a value as text on one line, with long lists shortened to their ends."""
    if isinstance(value, list):
        if len(set(map(str, value))) == 1 and len(value) > 1:
            return f"{format_value(value[0])} (all {len(value)})"
        words = [format_value(item) for item in value]
        ends = ", ".join(words) if len(words) <= 6 else f"{words[0]}, {words[1]}, … {words[-1]}"
        return f"{ends} ({len(words)})" if len(words) > 6 else ends
    # Rounded, because a wavelength of 0.3756 µm is 375.59999999999997 nm in float64.
    return f"{value:.{DIGITS}g}" if isinstance(value, float) else " ".join(str(value).split())
