"""`unmix synth`: make a synthetic scene with known truth."""

from pathlib import Path

import click

from unmix.errors import printable

from . import options
from .main import print_out

TYPES = ["uint8", "int16", "int32", "float32", "float64", "uint16", "uint32", "int64", "uint64"]


@click.command("synth")
@click.argument("out", type=click.Path(path_type=Path, dir_okay=False), metavar="OUT.hdr")
@click.option("--lines", default=100, show_default=True, help="Number of lines.")
@click.option("--samples", default=100, show_default=True, help="Number of samples in a line.")
@click.option("--bands", default=224, show_default=True, help="Number of bands, from 400 to 2500 nm.")
@click.option("-n", "--count", default=5, show_default=True, help="Number of endmembers.")
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Seed of random numbers; the same seed gives the same bytes.",
)
@click.option(
    "--snr", default="40", show_default=True, metavar="DB", help="Signal-to-noise ratio in dB, or none for no noise."
)
@click.option("--pure", is_flag=True, help="Put one pure pixel of each endmember into the scene.")
@click.option(
    "--dtype", type=options.one_of(TYPES), default="int16", show_default=True, help="Data type of stored values."
)
@click.option(
    "--interleave",
    type=options.one_of(["bip", "bil", "bsq"]),
    default="bil",
    show_default=True,
    help="Interleave of the cube.",
)
@click.option(
    "--byte-order",
    type=options.one_of(["little", "big"]),
    default="little",
    show_default=True,
    help="Byte order of stored values.",
)
@click.option(
    "--memory",
    default="256M",
    show_default=True,
    metavar="SIZE",
    help="Bound on the memory for blocks, such as 256M or 2G.",
)
@click.option("--overwrite", is_flag=True, help="Replace files that exist.")
def command(
    out: Path,
    lines: int,
    samples: int,
    bands: int,
    count: int,
    seed: int,
    snr: str,
    pure: bool,
    dtype: str,
    interleave: str,
    byte_order: str,
    memory: str,
    overwrite: bool,
) -> None:
    """Make a scene OUT.img with header OUT.hdr, and its truth: OUT_truth_abundance and OUT_truth_endmembers.

    Spectra are smooth continua with absorption features; abundances are patchy and sparse, mostly 2 to 5 in a pixel.
    """
    from unmix.blocks import parse_size
    from unmix.jobs.synth import Scene, synthesise

    try:
        decibels = None if snr == "none" else float(snr)
    except ValueError:
        raise click.UsageError(f"--snr {snr}: write a number in dB, or none") from None
    scene = Scene(lines, samples, bands, count, seed, decibels, pure, dtype, interleave, byte_order)
    words = [
        f"unmix synth {printable(out.name)} --lines {lines} --samples {samples} --bands {bands} -n {count} --seed {seed}"
    ]
    words += [f"--snr {snr}", *(["--pure"] if pure else [])]
    words += [f"--dtype {dtype} --interleave {interleave} --byte-order {byte_order}"]
    for path in synthesise(out, scene, overwrite, parse_size(memory), " ".join(words)):
        print_out(str(path))
