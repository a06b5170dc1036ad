"""`unmix info`: what a cube is."""

import json
from pathlib import Path
from typing import Any

import click

from . import options
from .main import tell


@click.command("info")
@click.argument("cube", type=click.Path(path_type=Path))
@options.located
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def command(cube: Path, as_json: bool, dataset: str | None, wavelengths: str | None) -> None:
    """What CUBE is: size, type, interleave, wavelengths, bad bands, nodata, scale, map. Reads the header only."""
    from unmix import open_cube

    facts = describe(open_cube(cube, dataset, wavelengths))
    if as_json:
        click.echo(json.dumps(facts))
        return
    width = max(len(key) for key in facts)
    for key, value in facts.items():
        if value is not None and value != []:
            tell(f"{key.replace('_', ' '):{width}}  {short(value)}")


def describe(scene: Any) -> dict[str, Any]:
    """The facts, ready for JSON."""
    waves, good = scene.wavelengths, scene.good_bands
    return {
        "path": str(scene.path),
        "format": scene.format,
        "lines": scene.lines,
        "samples": scene.samples,
        "bands": scene.bands,
        "data_type": scene.dtype.name,
        "interleave": scene.layout,
        **scene.storage(),
        "bytes": scene.lines * scene.samples * scene.bands * scene.dtype.itemsize,
        "wavelengths_nm": None if waves is None else [float(wave) for wave in waves],
        "fwhm_nm": None if scene.fwhm is None else [float(width) for width in scene.fwhm],
        "bad_bands": None if good is None else [b + 1 for b in range(scene.bands) if not good[b]],
        "nodata": scene.nodata,
        "gain": None if scene.gain is None else [float(gain) for gain in scene.gain],
        "offset": None if scene.offset is None else [float(offset) for offset in scene.offset],
        "map_info": scene.fields.get("map info"),
        "coordinate_system": scene.fields.get("coordinate system string"),
        "problems": scene.problems,
    }


def short(value: Any) -> str:
    """A value on one line: long lists by their ends."""
    if isinstance(value, list):
        if len(set(map(str, value))) == 1 and len(value) > 1:
            return f"{value[0]} (all {len(value)})"
        ends = ", ".join(map(str, value)) if len(value) <= 6 else f"{value[0]}, {value[1]}, … {value[-1]}"
        return f"{ends} ({len(value)})" if len(value) > 6 else ends
    return " ".join(str(value).split())
