"""`unmix compare`: how two runs differ, or a run and a truth."""

import json
from pathlib import Path
from typing import Any

import click

from . import options
from .main import print_out


@click.command("compare")
@click.argument("a", type=options.Local())
@click.argument("b", type=options.Local())
@click.option(
    "--map",
    "kind",
    type=options.one_of(["abundance", "fraction"]),
    default=None,
    help="The maps of runs to compare.  [default: that of the file named, else abundance, or fraction where a run has none]",
)
@click.option(
    "-o",
    "--out",
    type=options.Local(),
    metavar="FILE",
    help="Write a page with the maps of both and their differences, too: one HTML file.",
)
@click.option("--overwrite", is_flag=True, help="Replace the file that -o names even if it is no such page.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON on stdout.")
def command(a: Path, b: Path, kind: str | None, out: Path | None, overwrite: bool, as_json: bool) -> int:
    """Compare the abundances of two runs, or of a run and a truth: of each endmember its RMSE, its largest difference and where.

    A and B are the common beginnings of runs' outputs, or one of them, or rasters of abundances (x_truth_abundance.hdr, beside which
    x_truth_endmembers.csv has the spectra). Endmembers are matched by their spectral angles; differences are A - B. Of runs over
    parts of a scene (--lines, --bbox) the pixels that both have are compared.
    """
    from unmix import compare

    found = compare(a, b, kind, out=out, overwrite=overwrite)
    click.echo(json.dumps(found)) if as_json else show(found)
    return 0


def show(found: dict[str, Any]) -> None:
    """Print a comparison for people."""
    pixels = found["pixels"]
    rest = [f"{pixels[key]} only in {key[-1].upper()}" for key in ("only_a", "only_b") if pixels[key]]
    print_out(f"{pixels['compared']} pixels compared" + "".join(f", {words}" for words in rest))
    head = ("A", "B", "angle", "RMSE", "mean", "largest", "at line, sample")
    rows = [
        (
            pair["a"], pair["b"], "" if pair["angle"] is None else f"{pair['angle']:.3f}°", f"{pair['rmse']:.2e}",
            f"{pair['mean_difference']:+.2e}", f"{pair['largest_difference']:+.2e}",
            "" if pair["line"] is None else f"{pair['line']}, {pair['sample']}",
        )
        for pair in found["pairs"]
    ]  # fmt: skip
    wide = [max(len(row[k]) for row in (head, *rows)) for k in range(len(head))]
    for row in (head, *rows):
        print_out(
            "  ".join(cell.ljust(size) if k < 2 else cell.rjust(size) for k, (cell, size) in enumerate(zip(row, wide)))
        )
    for key in ("only_a", "only_b"):
        if found[key]:
            print_out(f"without a partner in {'B' if key == 'only_a' else 'A'}: {', '.join(found[key])}")
    certified = [f"{name} {count}" for name, count in zip("AB", found["certified"]) if count is not None]
    if certified:
        print_out(f"pixels certified: {', '.join(certified)}")
    sre = "" if found["sre"] is None else f", SRE {found['sre']:.1f} dB"
    print_out(f"RMSE {found['rmse']:.3e}{sre}; matched by {found['matched_by']}")
