"""`unmix warm`: compile before the runs."""

from dataclasses import asdict

import click

from unmix.features import features
from unmix.io.fields import DTYPES
from unmix.methods import METHODS

from . import options, unmixing
from .main import print_json, print_out


@click.command("warm")
@options.value(
    "--method methods",
    "Methods of run, mesma, nmf, or fractions: those of runs without --method. May be repeated, like the next three.",
    type=(*METHODS, "fractions", "mesma", *(word for one in features() for word in one.warms)),
    multiple=True,
    default=("fractions", "fcls", "nnls"),
)
@options.value(
    "--dtype dtypes",
    "Data type of the scenes.",
    type=tuple(map(str, DTYPES.values())),
    multiple=True,
    default=("int16", "float32"),
)
@options.value(
    "--interleave interleaves",
    "Interleave of the scenes.",
    type=("bil", "bip", "bsq"),
    multiple=True,
    default=("bil", "bip", "bsq"),
)
@options.value(
    "-n --count counts",
    "Number of endmembers: on a GPU each has code of its own; on a CPU one up to 16, 32, 48 and 64 "
    "each, and one above, are enough.",
    type=click.IntRange(1, 500),
    multiple=True,
    default=(5,),
    metavar="N",
)
@unmixing.device
@options.as_json
@options.log_options
def command(
    methods: tuple[str, ...],
    dtypes: tuple[str, ...],
    interleaves: tuple[str, ...],
    counts: tuple[int, ...],
    device: str,
    gpu_memory: str,
    as_json: bool,
    verbose: bool,
    quiet: bool,
    log_file: str | None,
) -> int:
    """Compile what runs will need, so that a thousand array jobs do not begin with it.

    The code is kept on disk (unmix env shows where); nodes that share the folder, and have the same processor or GPU,
    share the code.
    """
    from unmix.commands.warm import WAS_THERE, warm

    options.set_up_log(verbose, quiet or not verbose, log_file)
    for case in warm(methods, dtypes, interleaves, counts, device):
        if as_json:
            print_json(asdict(case))
            continue
        did = f"compiled in {case.seconds:.1f} s" if case.seconds > WAS_THERE else "was there"
        print_out(
            f"{case.method:7} {case.dtype:8} {case.interleave}  {case.count:3} endmembers on {case.device}: {did}"
        )
    return 0
