"""Options of commands that unmix scenes, in groups."""

import click

from unmix.io.export import FORMATS
from unmix.methods import CHOSEN_BY, METHODS, NORMALIZATIONS, SOLVERS

from . import options

method = options.combine(
    click.option(
        "--method",
        type=options.one_of(METHODS),
        default=None,
        help="The constraints on abundances: "
        + "; ".join(f"{m.name}: {m.summary}" for m in METHODS.values())
        + ".  [default: nnls, and fractions that do not depend on brightness: --normalize length, or sum with -e, and --extract cone; "
        "fcls where the brightness of a scene does not vary]",
    ),
    click.option(
        "--solver",
        type=options.one_of(SOLVERS),
        default=None,
        help="The algorithm: "
        + "; ".join(f"{s.name}: {s.summary}" for s in SOLVERS.values())
        + ".  [default: direct for ucls and scls, else active-set]",
    ),
)

complete = click.option(
    "--complete",
    is_flag=True,
    help="Leave out spectra of the library that have no value at a band in use, and say how many.",
)

classes = options.combine(
    click.option(
        "--classes",
        metavar="[FILE:]COLUMN",
        help="Take the classes of the spectra from a column of the library, a CSV file, or of FILE, a CSV table with their names.  "
        "[default: the library's own]",
    ),
    click.option("--library-scale", type=float, metavar="F", help="Divide the values of the library by F."),
)

library = options.combine(
    click.option(
        "-e",
        "--endmembers",
        type=options.Input(),
        metavar="FILE",
        help="Spectral library to use: a CSV, ENVI or MATLAB file, a USGS or ECOSTRESS text file, or a folder of such text files.  "
        "run extracts endmembers from the cube without it.",
    ),
    click.option(
        "--select",
        metavar="A,B*,...",
        help="Use only the spectra of -e with these names or classes; * and ? are wildcards, !A leaves A out.",
    ),
    complete,
    classes,
    options.across_gaps,
)

names = click.option(
    "--names",
    type=options.Input(),
    metavar="LIBRARY",
    help="Where pixels have a spectrum in common that no mixture of the endmembers has, name the spectrum of this library that "
    "explains it: in the log, the record and the report. Not for --l1 and --l21.  [default: what --select leaves out of -e]",
)

shade = click.option(
    "--shade",
    type=options.Input(),
    metavar="FILE",
    help="For pcls and mesma: a library whose one spectrum is that of shade.  [default: zero in all bands]",
)

tie = click.option(
    "--tie",
    metavar="A-B,...",
    help="Subtract from the bands in each of these windows of wavelengths, in nm, the first of them, in pixels and library, and leave "
    "that one out: 650-800,2030-2300.",
)

sums = options.combine(
    click.option(
        "--by",
        type=options.one_of(["class"]),
        default=None,
        help="Also write the sums of the abundances by class, and the brightness (the sum of all, without shade), STEM_fraction.",
    ),
    shade,
)

weights = options.combine(
    click.option(
        "--weights",
        metavar="FILE",
        help="Weigh the bands, in pixels and library: a number for each band, a number a line; or noise, for the inverse of --noise. "
        "Their scale has no effect. RMSE and certificate are those of the weighted bands; the RMSE without weights goes to "
        "STEM_unweighted.",
    ),
)

normalize = options.combine(
    click.option(
        "--normalize",
        type=options.one_of(NORMALIZATIONS),
        default=None,
        help="For nnls and pcls: write fractions that sum to one in place of abundances, and what they were divided by, STEM_scale. "
        "sum: shares of the area, where the brightness of the spectra is right; length: shares of spectra of unit length, for "
        "extracted ones. Neither depends on the brightness of a pixel. Shade takes no part.  [default: none with --method]",
    ),
)

sparse = options.combine(
    click.option(
        "--l1",
        type=options.NumberOr(CHOSEN_BY),
        metavar="LAMBDA",
        help="For nnls: a penalty on the sum of abundances, to the optimum of half the squared residual plus LAMBDA times the sum, in "
        "the unit of the scaled cube: few spectra of a large library. auto: the one with the least expected error of the "
        "fit, discrepancy: the one that leaves as much as there is noise, by --noise or the scene (another pass). unmix path shows "
        "what each does.",
    ),
    click.option(
        "--l1-weights",
        metavar="FILE",
        help="For --l1: how much each endmember counts in the sum, a number a line.  [default: 1 each]",
    ),
    click.option(
        "--l21",
        type=options.NumberOr(("auto",)),
        metavar="LAMBDA",
        help="For nnls: a penalty on the lengths of the rows of abundances, LAMBDA times the root of the sum of squares of each "
        "endmember over the scene: few spectra of a large library for all pixels together. Only these are written. Some 20 passes "
        "over the cube. auto: the LAMBDA with the least expected error of the fit.",
    ),
)

at_most = click.option(
    "--at-most",
    type=click.IntRange(1),
    metavar="K",
    help="For nnls: use at most K endmembers in each pixel: those that no exchange of one for another betters, each solved to its "
    "optimum and certified. On the CPU.",
)

uncertainty = options.combine(
    click.option(
        "--uncertainty",
        is_flag=True,
        help="Also write the standard deviation that noise gives each abundance, or with --by each sum by class, and its validity "
        "(right to 5 % above 3), STEM_sigma.",
    ),
    click.option(
        "--noise",
        default="auto",
        metavar="FILE",
        help="For --uncertainty, --monte-carlo, --weights noise, --l1 auto and discrepancy, --l21 auto: the noise of each band, "
        "a number a line, "
        "in the unit of the scaled cube; or, for "
        "--uncertainty, a cube with that of each pixel, as EMIT's RFLUNCERT, to which --scale applies too; auto takes "
        "what each pixel's residual shows, model errors included; none draws spectra alone. {stem} and {dir} as for --mask-out.",
        show_default=True,
    ),
    click.option(
        "--monte-carlo",
        type=click.IntRange(2),
        metavar="N",
        help="With --by class: also write mean and standard deviation of each sum over N random draws of spectra and noise, "
        "STEM_montecarlo. Computed on the CPU; --seed chooses the draws.",
    ),
    click.option(
        "--draw-spectra",
        type=click.IntRange(1),
        metavar="K",
        help="For --monte-carlo: spectra of a draw, as even over the classes as can be.  [default: all, so that noise alone varies]",
    ),
)

shade_normalize = options.combine(
    click.option(
        "--shade-normalize",
        is_flag=True,
        help="Divide the sums by class by the brightness, which takes shade out; -9999 where it is 0.",
    ),
    click.option(
        "--class-map",
        is_flag=True,
        help="Also write the class with the largest sum of each pixel, STEM_class: bytes, an ENVI Classification with names and "
        "colours; 0 is none.",
    ),
)

device = options.combine(
    click.option(
        "--device",
        default="auto",
        metavar="NAME",
        show_default=True,
        help="Where to compute: auto (the first GPU, else the CPU), cpu, cuda, cuda:K, cuda:K,L or cuda:all.",
    ),
    options.gpu_memory,
)

running = options.combine(
    options.outputs,
    click.option(
        "--work-dir",
        type=options.Local(file_okay=False),
        metavar="DIR",
        help="With --out-dir s3://...: keep unfinished maps, and finished ones until they are uploaded, in DIR.  [default: a "
        "folder of the user's in TMPDIR]",
    ),
    click.option("--skip-existing", is_flag=True, help="Skip scenes that are already finished with the same options."),
    options.budget,
    click.option(
        "--streams",
        type=click.IntRange(1),
        default=4,
        metavar="K",
        show_default=True,
        help="Blocks of lines in memory at a time, for each device.",
    ),
    click.option("--residual", is_flag=True, help="Also write the residual cube y - E a, STEM_residual."),
    click.option(
        "--certificate",
        is_flag=True,
        help="Also write kappa, delta and the number of steps of each pixel, STEM_certificate.",
    ),
    click.option(
        "--max-delta",
        type=float,
        default=1e-4,
        metavar="D",
        show_default=True,
        help="Certify a pixel if its abundances are proved to be within D of the optimum; of others only the fit can be certified.",
    ),
    click.option(
        "-f",
        "--format",
        type=options.FormatName(FORMATS),
        default="envi",
        show_default=True,
        help="File format of the maps: "
        + "; ".join(f"{f.name}: {f.summary}" for f in FORMATS.values())
        + ". Names of GDAL's drivers will do.",
    ),
    click.option(
        "--tag",
        metavar="KEY=VALUE",
        multiple=True,
        help="Write this into the headers of all maps, as tag KEY, beside version, options and digests. May be given several times.",
    ),
    click.option(
        "--rgb",
        metavar="A,B,C",
        help="Endmembers or classes that are red, green and blue in STEM_browse.png.  [default: the three with the largest sums]",
    ),
    click.option(
        "--quantize",
        type=float,
        metavar="STEP",
        help="Write abundances, sums by class and residuals as 16-bit integers of this step, 1e-4 for example and at most 0.1, "
        "with scale and offset in the header; 65535 is no data. A value that does not fit is an error. "
        "For residuals STEP is of reflectance from 0 to 1.",
    ),
    click.option(
        "--no-browse", "browse", is_flag=True, flag_value=False, default=True, help="Write no STEM_browse.png."
    ),
)

selected_maps = options.combine(
    click.option(
        "--top",
        type=click.IntRange(1),
        metavar="K",
        help="Write only the K largest abundances of each pixel, STEM_abundance, and the numbers of their endmembers, STEM_index.",
    ),
    click.option(
        "--ortho",
        is_flag=True,
        help="Also write the maps of a swath orthorectified by its lookup table (EMIT), STEM_abundance_ortho and so on.",
    ),
)

every = options.combine(
    method,
    library,
    names,
    sums,
    shade_normalize,
    normalize,
    weights,
    sparse,
    at_most,
    uncertainty,
    options.extraction,
    click.option(
        "--extract-mask",
        metavar="FILE[:BAND]",
        help="Extract endmembers only from pixels where this raster is not 0 or nodata; all are unmixed. Names as for --mask.",
    ),
    device,
    running,
    selected_maps,
    options.reading,
    tie,
)
