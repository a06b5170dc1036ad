"""`unmix synth`: make a synthetic scene with known truth."""

from collections.abc import Sequence
from pathlib import Path

import click

from unmix.errors import printable

from . import options
from .main import print_out

FILE_OPTIONS = ("dtype", "interleave", "byte_order", "memory")
TYPES = ("uint8", "int16", "int32", "float32", "float64", "uint16", "uint32", "int64", "uint64")


@click.command("synth")
@click.argument("out", type=options.Local(dir_okay=False), metavar="OUT")
@options.value(
    "--like",
    "Kind of scene.",
    type=("envi", "emit"),
    default="envi",
)
@options.value("--lines", "Lines.", default=100, metavar="N")
@options.value("--samples", "Samples in a line.", default=100, metavar="N")
@options.value("--bands", "Bands, from 400 to 2500 nm.", default=224, metavar="N")
@options.value("-n --count", "Endmembers.", default=5, metavar="N")
@options.value("--seed", "Seed; the same seed gives the same bytes.", type=click.IntRange(0), default=0, metavar="S")
@options.value(
    "--snr",
    "Signal-to-noise ratio in dB, of the mean square of the endmembers, or none for no noise.",
    default="40",
    metavar="DB",
)
@options.flag("--pure", "Make sure that each endmember has a pure pixel, as without it most have.")
@options.value("--dtype", "Data type.", type=TYPES, default="int16")
@options.value("--interleave", "Interleave.", type=("bip", "bil", "bsq"), default="bil")
@options.value("--byte-order", "Byte order.", type=("little", "big"), default="little")
@options.option("memory", default="256M")
@options.overwrite
def command(
    out: Path,
    like: str,
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
    """Make a scene OUT.img with header OUT.hdr, and its truth, OUT_truth_abundance and OUT_truth_endmembers.

    Spectra are smooth continua with absorption features; abundances are patchy and sparse: a quarter to three fifths of the pixels are
    pure, most others hold 2 to 5.

    --like emit: a granule OUT.nc of soil, green and dry vegetation, with lookup table and a cloud, OUT_uncertainty.nc,
    OUT_mask.nc, a library of 24 spectra OUT_library.csv, and OUT_truth_fraction. Takes --lines, --samples and --seed.
    """
    if like == "emit":
        from unmix.commands.synth.emit import Granule, synthesise_emit

        refuse_options_of_envi(like, ("bands", "count", "snr", "pure", *FILE_OPTIONS))
        granule = out if out.suffix else out.with_suffix(".nc")
        for path in synthesise_emit(granule, Granule(lines, samples, seed), overwrite):
            print_out(str(path))
        return
    from unmix.blocks import parse_size
    from unmix.commands.synth import SyntheticScene, synthesise

    try:
        decibels = None if snr == "none" else float(snr)
    except ValueError:
        raise click.UsageError(f"--snr {snr}: write a number in dB, or none") from None
    scene = SyntheticScene(lines, samples, bands, count, seed, decibels, pure, dtype, interleave, byte_order)
    said = (
        f"unmix synth {printable(out.name)} --lines {lines} --samples {samples} --bands {bands} -n {count} --seed "
        f"{seed} --snr {snr}"
        f"{' --pure' * pure} --dtype {dtype} --interleave {interleave} --byte-order {byte_order}"
    )
    for path in synthesise(out, scene, overwrite, parse_size(memory), said):
        print_out(str(path))


def refuse_options_of_envi(like: str, names: Sequence[str]) -> None:
    """Raise `click.UsageError` if an option is given that does not affect such a scene."""
    context = click.get_current_context()
    for name in names:
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name.replace('_', '-')} is not for --like {like}, whose scenes are all alike")
