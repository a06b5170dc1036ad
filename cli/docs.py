"""Make the pages and tables of docs/ that derive from the code: ``python -m unmix_cli.docs docs``."""

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import click

from .help import group_of
from .main import cli

HEAD = """# The command line

Made by `make docs` from the commands themselves. Results go to stdout, messages to stderr; [How to](howto.md#exit-codes) has the exit
codes. Below the block of a command are its [shared options](#shared-options). All commands have `-h` and `--help`.
"""
SHARED_HEAD = """## Shared options

The line above a block names the commands that have its options.
"""
MOST_TAKERS = 6  # commands that the line above a block names; of more it names three
Record = tuple[str, str]  # an option as help shows it: how it is written, and what it does


def command_line_page() -> str:
    """Return the page of the command line, as Markdown."""
    whole = click.Context(cli, info_name="unmix", max_content_width=100, terminal_width=100, **cli.context_settings)
    contexts = list(commands(cli, whole))
    takers: dict[Record, list[str]] = {}
    groups: dict[str, dict[Record, str]] = {}
    for context in contexts:
        for option, record in options_of(context):
            takers.setdefault(record, []).append(context.command_path.removeprefix("unmix "))
            if len(takers[record]) == 2:
                groups.setdefault(group_of(option), {})[record] = name_of(option)
    sections = [section(context, groups) for context in contexts]
    return "\n".join([HEAD, *sections, SHARED_HEAD, *(shared_group(*each, takers) for each in groups.items())])


def commands(command: click.Command, context: click.Context) -> Iterator[click.Context]:
    """Yield the context of a command, and those of all commands below it."""
    yield context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from commands(below, click.Context(below, info_name=name, parent=context))


def options_of(context: click.Context) -> Iterator[tuple[click.Option, Record]]:
    """Yield the options of a command that its help shows, without ``--help``."""
    for parameter in context.command.get_params(context):
        record = parameter.get_help_record(context)
        if isinstance(parameter, click.Option) and record is not None and "--help" not in parameter.opts:
            yield parameter, record


def name_of(option: click.Option) -> str:
    """Return the long name of an option, as Markdown."""
    return f"`{max(option.opts, key=len)}`"


def section(context: click.Context, groups: dict[str, dict[Record, str]]) -> str:
    """Return the help of a command with the options that it alone has, and a line for each group of shared ones."""
    command, formatter = context.command, context.make_formatter()
    command.format_usage(context, formatter)
    command.format_help_text(context, formatter)
    own: list[Record] = []
    by_group: dict[str, list[str]] = {}
    for option, record in options_of(context):
        if record in groups.get(group_of(option), ()):
            by_group.setdefault(group_of(option), []).append(name_of(option))
        else:
            own.append(record)
    if own:
        with formatter.section("Options"):
            formatter.write_dl(own)
    if isinstance(command, click.Group):
        command.format_commands(context, formatter)
    level = "##" if context.command_path.count(" ") < 2 else "###"
    links = "".join(
        f"- [{group}](#{anchor(group)}){those_of(names, list(groups[group].values()))}\n"
        for group, names in by_group.items()
    )
    return f"{level} {context.command_path}\n\n{block(formatter)}" + (f"\n{links}" if links else "")


def those_of(names: list[str], all_names: list[str]) -> str:
    """Return text on which options of a group a command has: empty if all, else the names or those it lacks."""
    lacking = [name for name in dict.fromkeys(all_names) if name not in names]
    if not lacking:
        return ""
    return f": all but {', '.join(lacking)}" if len(lacking) < len(names) else f": {', '.join(names)}"


def shared_group(group: str, records: Iterable[Record], takers: dict[Record, list[str]]) -> str:
    """Return the help of shared options of one group, in a block for each set of commands that has them."""
    text = f"### {group}\n"
    together: dict[tuple[str, ...], list[Record]] = {}
    for record in records:
        together.setdefault(tuple(takers[record]), []).append(record)
    for names, some in together.items():
        formatter = click.HelpFormatter(width=100)
        formatter.write_dl(some)
        named = ", ".join(names) if len(names) <= MOST_TAKERS else f"{', '.join(names[:3])} and {len(names) - 3} others"
        text += f"\n{named}:\n\n{block(formatter)}"
    return text


def block(formatter: click.HelpFormatter) -> str:
    """Return the text of a formatter as a Markdown block of code."""
    return f"```\n{formatter.getvalue().rstrip()}\n```\n"


def anchor(heading: str) -> str:
    """Return the anchor of a heading, as GitHub and Sphinx make it."""
    return "".join(letter for letter in heading.lower() if letter.isalnum() or letter in " -").replace(" ", "-")


FORMATS_HEAD = """# Formats

Made by `make docs` from the tables of the code. `unmix` recognises a file by its content, not by its name; `unmix info` shows the
format.

## Cubes

"""
FORMATS_TAIL = """
One cube is read alike from every format (`tests/io/test_cells.py` checks each cell of this table):

| format | fill | scale | offset | unsigned | order of axes |
| --- | --- | --- | --- | --- | --- |
| ENVI | `data ignore value` | `data gain values`, `reflectance scale factor` | `data offset values` | `data type` | `interleave` |
| GeoTIFF | nodata | scale | offset | type | interleave |
| HDF5 | `_FillValue`, `missing_value`, `valid_range` | `scale_factor` | `add_offset` | type, `_Unsigned` | `/path:byx`, names |
| NetCDF | as HDF5 | `scale_factor` | `add_offset` | type, `_Unsigned` | names of dimensions |
| Zarr v2 | as HDF5, `fill_value` of xarray | `scale_factor` | `add_offset` | type, `_Unsigned` | `_ARRAY_DIMENSIONS`, `/path:byx` |
| Zarr v3 | as HDF5 | `scale_factor` | `add_offset` | type, `_Unsigned` | `dimension_names`, `/path:byx` |
| MATLAB v5 | NaN, `--nodata` | none: `--scale` | none | type | `NAME:byx`, its wavelengths |
| MATLAB v7.3 | NaN, `--nodata` | none: `--scale` | none | type | `NAME:byx`, its wavelengths |

`--scale` and `--nodata` replace those of a file. Nodata is decided on the stored values.

HDF5 and GeoTIFF are read in blocks of whole chunks or tiles where `--memory` allows; else a warning says how often each is
decompressed. Some files cannot be read by lines: gzip-compressed ENVI, MATLAB, HDF5 with its axes in another order, chunks or tiles of
which the lines of one take more than 64 MiB. They are inflated once, to a scratch file in `TMPDIR`, which needs room for the cube.
Decoding, of TIFF too, takes up to 0.5 GB beside `--memory`.
"""


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Return a Markdown table."""
    lines = [f"| {' | '.join(cell.replace('|', ' ') for cell in line)} |\n" for line in (head, *rows)]
    return "".join([lines[0], "|---" * len(head) + "|\n", *lines[1:]])


def formats_page() -> str:
    """Return the page of formats, as Markdown."""
    from unmix.io import kinds
    from unmix.io.export import FORMATS as OUTPUTS
    from unmix.library.files import FORMATS as LIBRARIES

    cubes = [(kind.name, kind.cube, kind.axis, kind.place, kind.fill) for kind in kinds()]
    libraries = [(row.name, row.what) for row in LIBRARIES]
    outputs = [
        (f"`--format {row.name}`", row.summary, ", ".join(f"`{e}`" for e in row.endings)) for row in OUTPUTS.values()
    ]
    return (
        FORMATS_HEAD
        + table(("format", "cube", "wavelengths, FWHM, good bands", "map", "fill and scale"), cubes)
        + FORMATS_TAIL
        + "\n## Libraries\n\nFor `-e` and `unmix library`; asked in this order.\n\n"
        + table(("format", "what"), libraries)
        + "\n## Maps\n\n"
        + table(("option", "what", "files of a map"), outputs)
        + "\nGeoTIFF and HDF5 are made from the finished ENVI work file, read back and compared. GDAL finds the map of an HDF5 file\n"
        "as `NETCDF:STEM_abundance.h5:abundance`.\n" + ZARR + QUANTIZE
    )


ZARR = """
A map in Zarr has chunks of a band and 256 × 256 pixels, compressed by zstd, and consolidated metadata, for `xarray.open_zarr`.
GDAL 3.10 does not read Zarr v3 as it was finally specified ("Unsupported codec: bytes"). A server of plain HTTP lists nothing:
there a store needs consolidated metadata, or `--dataset` the array's path.
"""
QUANTIZE = """
`--quantize STEP` (at most 0.1) stores abundances, sums, ranges (rounded outwards), means and residuals as unsigned 16-bit
integers: a value is offset + STEP × integer, and 65535 is no data. The offset is 0, or −32767 steps where values may be negative
(residuals, `ucls`, `scls`, `mesma`). A value that does not fit ends the run with an error. STEP of residuals is that of
reflectance from 0 to 1, in other units as many powers of ten larger. The header has gain and offset, and all commands of unmix
apply them.
"""


def design_page() -> str:
    """Return docs/design.md with its table of folders of the package made anew."""
    root = Path(__file__).parents[1]
    folders = [path.parent for path in root.glob("unmix/*/__init__.py")]
    rows = [
        (f"`{folder.relative_to(root)}/`", first_line(folder / "__init__.py")) for folder in [root / "cli", *folders]
    ]
    return with_table("design.md", "folders", table(("where", "what"), sorted(rows)))


def sensors_page() -> str:
    """Return docs/sensors.md with its table of presets made anew."""
    from unmix.settings.presets import PRESETS, preset_in_words

    rows = [(f"`{name}`", f"`{preset_in_words(name)}`") for name in PRESETS]
    return with_table("sensors.md", "presets", table(("`--preset`", "sets"), rows))


def with_table(name: str, what: str, made: str) -> str:
    """Return a page of docs/ with another table between its comments."""
    page = (Path(__file__).parents[1] / "docs" / name).read_text(encoding="utf-8")
    between = rf"(?<=<!-- {what} -->).*(?=<!-- end of {what} -->)"
    return re.sub(between, lambda _: f"\n\n{made}\n", page, flags=re.DOTALL)


def first_line(path: Path) -> str:
    """Return the first line of a module's docstring."""
    return (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n")[0].replace("``", "`")


def schema_of_records() -> str:
    """Return the schema of ``run.json``, which the package reads itself."""
    from unmix.outputs.names import SCHEMA

    return SCHEMA.read_text(encoding="utf-8")


PAGES = {
    "cli.md": command_line_page,
    "formats.md": formats_page,
    "design.md": design_page,
    "sensors.md": sensors_page,
    "run.schema.json": schema_of_records,
}


if __name__ == "__main__":
    for name, page in PAGES.items():
        Path(sys.argv[1], name).write_text(page(), encoding="utf-8")
