"""`unmix library merge`, `table` and `rename`."""

from pathlib import Path

import click

from . import options
from .library import IN, LIBRARY, OUT, SELECT, command, load_selected, only_part, written
from .main import print_out


@command.command("merge")
@click.argument("libraries", nargs=-1, required=True, type=IN, metavar="LIBRARY...")
@OUT
@options.overwrite
def merge(libraries: tuple[Path, ...], out: Path, overwrite: bool) -> None:
    """Put the spectra of libraries with the same channels together in OUT (.csv, or .sli with .hdr)."""
    from unmix.library import load_parts
    from unmix.library.classes import merged_libraries
    from unmix.outputs.names import inputs_of

    inputs = [pair for path in libraries for pair in inputs_of(library=path)]
    parts = [part for path in libraries for part in load_parts(path)]
    for name in written(merged_libraries(parts), out, overwrite, inputs):
        print_out(name)


@command.command("table")
@LIBRARY
@click.argument("table", type=options.Local(dir_okay=False))
@SELECT
@options.flag("--overwrite", "Replace TABLE.")
def table(library: Path, table: Path, select: str | None, overwrite: bool) -> None:
    """Write TABLE, a CSV file with a row for each spectrum of LIBRARY, to fill in new names and classes; see rename."""
    from unmix.library.classes import COLUMNS, table_of
    from unmix.maps.plain_map import table_text
    from unmix.outputs.atomic import titled, write_whole
    from unmix.outputs.names import inputs_of, refuse_inputs

    rows = [row for part in load_selected(library, select) for row in table_of(part)]
    refuse_inputs([table], inputs_of(library=library))
    print_out(
        str(write_whole({table: table_text(COLUMNS, rows).encode()}, overwrite, "another name", titled(COLUMNS))[0])
    )


@command.command("rename")
@LIBRARY
@click.argument("table", type=IN)
@OUT
@options.overwrite
def rename(library: Path, table: Path, out: Path, overwrite: bool) -> None:
    """Write OUT: LIBRARY with the new names and classes of TABLE, a CSV file with the columns name, and new name or
    class.

    unmix library table writes one. Cells that are empty, and spectra that are not in it, stay as they are.
    """
    from unmix.commands.regions import read_file
    from unmix.library.classes import renamed
    from unmix.outputs.names import inputs_of

    spectra = only_part(load_selected(library, None), library, False)
    changed = renamed(spectra, table, read_file(table))
    for path in written(changed, out, overwrite, inputs_of(library=library) + inputs_of(library=table)):
        print_out(path)
