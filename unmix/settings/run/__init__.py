"""What is solved, with which endmembers, and what is written where."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ...io.export import FORMATS
from ...methods import CHOSEN_BY, METHODS, NORMALIZATIONS, SOLVERS
from .. import same, setting
from ..extraction import ExtractSettings

if TYPE_CHECKING:
    from ...library import Endmembers


of_endmembers, of_model, of_outputs, of_machine = (
    partial(setting, group=group) for group in ("Endmembers", "Model", "Outputs", "Machine")
)


@dataclass(frozen=True)
class RunSettings:
    """The options of `unmix.options.Options`, but for how the scene is read and how MESMA chooses."""

    method: str | None = of_model(
        None, "outputs",
        "The constraints on abundances: " + "; ".join(f"{m.name}: {m.constraint.words}" for m in METHODS.values()) + ".",
        choices=tuple(METHODS),
        unset="fractions that do not depend on brightness: nnls with `normalize` length, or sum with `endmembers`, and "
        "`extract` cone; fcls where the brightness of a scene does not vary",
        is_first=True,
    )  # fmt: skip
    solver: str | None = of_model(
        None, "outputs",
        "The algorithm: " + "; ".join(f"{s.name}: {s.summary}" for s in SOLVERS.values()) + ".",
        choices=tuple(SOLVERS), unset="direct for ucls and scls, else active-set",
    )  # fmt: skip
    endmembers: "str | os.PathLike[str] | Endmembers | None" = of_endmembers(
        None, "contents",
        "Spectral library: CSV, ENVI, MATLAB, text of the USGS or ECOSTRESS, or a folder of such text. Without it run extracts "
        "endmembers from the cube.",
        "FILE", kind="input", short="-e", is_path=True,
        is_first=True,
    )  # fmt: skip
    select: str | None = of_endmembers(
        None, "contents",
        "Use only the spectra with these names or classes; * and ? are wildcards, !A leaves A out.",
        "A,B*,...", is_of_library="chooses spectra of",
    )  # fmt: skip
    complete: bool = of_endmembers(
        False, "contents",
        "Leave out spectra of the library that have no value at a band in use, and say how many.",
        is_of_library="leaves out spectra of",
    )  # fmt: skip
    classes: str | None = of_endmembers(
        None, "contents",
        "Take the classes of the spectra from a column of the library, a CSV file, or of FILE, a CSV table with their names.",
        "[FILE:]COLUMN", is_of_library="names the classes of", unset="the library's own",
    )  # fmt: skip
    library_scale: float | None = of_endmembers(
        None, "contents",
        "Divide the values of the library by F.",
        "F", kind="number", is_of_library="scales",
    )  # fmt: skip
    across_gaps: bool = of_endmembers(
        False, "contents",
        "Resample the library by straight lines across gaps in its channels.",
        is_of_library="resamples", unset="a band in a gap is an error",
    )  # fmt: skip
    names: "str | os.PathLike[str] | Endmembers | None" = of_endmembers(
        None, "contents",
        "Where pixels share a spectrum that no mixture of the endmembers has, name it after this library: in log, record and "
        "report. Not for `l1` and `l21`.",
        "LIBRARY", kind="input", is_path=True, unset="what `select` leaves out of `endmembers`",
    )  # fmt: skip
    by: str | None = of_outputs(
        None, "values",
        "Also write the sums of the abundances by class, and the brightness (the sum of all, without shade), STEM_fraction.",
        choices=("class",), is_of_library="sums by the classes of",
        is_first=True,
    )  # fmt: skip
    shade: str | os.PathLike[str] | None = of_model(
        None, "contents",
        "For pcls and mesma: a library whose one spectrum is that of shade.",
        "FILE", kind="input", is_path=True, unset="zero in all bands",
    )  # fmt: skip
    shade_normalize: bool = of_outputs(
        False, "values",
        "Divide the sums by class by the brightness, which takes shade out; -9999 where it is 0.",
    )  # fmt: skip
    weights: str | os.PathLike[str] | None = of_model(
        None, "contents",
        "Weigh the bands, in pixels and library: a number for each band, one a line; or noise, for the inverse of `noise`. Their "
        "scale has no effect. RMSE and certificate are of the weighted bands; the RMSE without weights goes to STEM_unweighted.",
        "FILE", is_path=True, choices=("noise",),
    )  # fmt: skip
    l1: float | str | None = of_model(
        None, "values",
        "For nnls: minimise half the squared residual plus LAMBDA times the sum of abundances, in the unit of the scaled cube: few "
        "spectra of a large library. auto: the least expected error of the fit; discrepancy: a residual as large as the noise, by "
        "`noise` or the scene (another pass). unmix path shows what each does.",
        "LAMBDA", kind="number", choices=CHOSEN_BY,
    )  # fmt: skip
    l1_weights: str | os.PathLike[str] | None = of_model(
        None, "contents",
        "For `l1`: how much each endmember counts in the sum, a number a line.",
        "FILE", is_path=True, unset="1 each",
    )  # fmt: skip
    l21: float | str | None = of_model(
        None, "values",
        "For nnls: a penalty on each endmember over the scene, LAMBDA times the root of the sum of its squared abundances: few "
        "spectra of a large library for all pixels together. Only these are written. Some 20 passes over the cube. auto: the "
        "least expected error of the fit.",
        "LAMBDA", kind="number", choices=("auto",),
    )  # fmt: skip
    at_most: int | None = of_model(
        None, "values",
        "For nnls: use at most K endmembers in each pixel, so that no exchange of one for another fits better; certified. On the "
        "CPU.",
        "K", kind="whole", least=1,
    )  # fmt: skip
    normalize: str | None = of_model(
        None, "values",
        "For nnls and pcls: write fractions that sum to one in place of abundances, and their divisor, STEM_scale. "
        "sum: shares of the area, where the brightness of the spectra is right; length: shares of spectra of unit length, for "
        "extracted ones. Neither depends on the brightness of a pixel. Shade takes no part.",
        choices=tuple(NORMALIZATIONS), unset="none with `method`",
    )  # fmt: skip
    class_map: bool = of_outputs(
        False, "values",
        "Also write the class with the largest sum of each pixel, STEM_class: bytes, an ENVI Classification with names and "
        "colours; 0 is none.",
    )  # fmt: skip
    uncertainty: bool = of_outputs(
        False, "values",
        "Also write the standard deviation that noise gives each abundance, or with `by` each sum by class, and its validity "
        "(right to 5 % above 3), STEM_sigma.",
    )  # fmt: skip
    noise: str | os.PathLike[str] = of_outputs(
        "auto", "contents",
        "For `uncertainty`, `monte_carlo`, `weights` noise, `l1` auto and discrepancy, `l21` auto: the noise of each band, a "
        "number a line, in the unit of the scaled cube; or, for `uncertainty`, a cube with that of each pixel, as EMIT's "
        "RFLUNCERT (`scale` applies); auto: from each pixel's residual, model errors included; none: draw spectra alone. {stem} "
        "and {dir} as for `mask_out`.",
        "FILE", is_path=True, choices=("auto", "none"),
    )  # fmt: skip
    within: float | str | None = of_outputs(
        None, "values",
        "For `uncertainty`: by how much the RMSE of a model may be larger than that of the chosen one.",
        "RMSE|all", unset="half of `fusion`",
    )  # fmt: skip
    monte_carlo: int | None = of_outputs(
        None, "values",
        "With `by` class: also write mean and standard deviation of each sum over N random draws of spectra and noise, "
        "STEM_montecarlo. Computed on the CPU; `seed` chooses the draws.",
        "N", kind="whole", least=2,
    )  # fmt: skip
    draw_spectra: int | None = of_outputs(
        None, "values",
        "For `monte_carlo`: spectra of a draw, as even over the classes as can be.",
        "K", kind="whole", least=1, unset="all, so that noise alone varies",
    )  # fmt: skip
    count: int | str | None = same(ExtractSettings, "count", None)
    extract: str | None = same(ExtractSettings, "extract")
    refine: bool = same(ExtractSettings, "refine")
    restarts: int | None = same(ExtractSettings, "restarts")
    smooth: int = same(ExtractSettings, "smooth")
    outside: float | None = same(ExtractSettings, "outside")
    outliers: float | None = same(ExtractSettings, "outliers")
    seed: int = same(ExtractSettings, "seed")
    out_dir: str | os.PathLike[str] | None = of_outputs(
        None, "nothing",
        "Folder for outputs; run, batch and mesma also upload to s3://BUCKET/PREFIX.",
        "DIR", kind="folder", short="-o", unset="the folder of the cube",
        is_first=True,
    )  # fmt: skip
    work_dir: str | os.PathLike[str] | None = of_outputs(
        None, "nothing",
        "With `out_dir` s3://...: keep unfinished maps, and finished ones until they are uploaded, in DIR.",
        "DIR", kind="local folder", unset="a folder of the user's in TMPDIR",
    )  # fmt: skip
    overwrite: bool = of_outputs(False, "nothing", "Replace outputs that exist, if unmix wrote them.", is_first=True)
    skip_existing: bool = of_outputs(
        False, "nothing", "Skip scenes that are already finished with the same options.", is_first=True
    )
    device: str = of_machine(
        "auto", "nothing",
        "Where to compute: auto (the first GPU, else the CPU), cpu, cuda, cuda:K, cuda:K,L or cuda:all.",
        "NAME",
        is_first=True,
    )  # fmt: skip
    memory: str | int = of_machine("1G", "nothing", "Bound on the memory for blocks, such as 256M or 2G.", "SIZE")
    gpu_memory: str | int = of_machine("1G", "nothing", "Bound on the memory for blocks on each GPU.", "SIZE")
    threads: int | None = of_machine(
        None, "nothing",
        "Number of CPU threads.",
        "K", kind="whole", least=1, unset="all cores",
    )  # fmt: skip
    streams: int = of_machine(
        4, "nothing",
        "Blocks of lines in memory at a time, for each device.",
        "K", kind="whole", least=1,
    )  # fmt: skip
    residual: bool = of_outputs(False, "outputs", "Also write the residual cube y - E a, STEM_residual.")
    certificate: bool = of_outputs(
        False, "outputs",
        "Also write kappa, delta and the number of steps of each pixel, STEM_certificate.",
    )  # fmt: skip
    format: str = of_outputs(
        "envi", "outputs",
        "File format of the maps: "
        + "; ".join(f"{f.name}: {f.summary}" for f in FORMATS.values())
        + ". Names of GDAL's drivers will do.",
        choices=tuple(FORMATS), short="-f", is_first=True,
    )  # fmt: skip
    ortho: bool = of_outputs(
        False, "values",
        "Also write the maps of a swath orthorectified by its lookup table (EMIT), STEM_abundance_ortho and so on.",
    )  # fmt: skip
    quantize: float | None = of_outputs(
        None, "values",
        "Write abundances, sums by class and residuals as 16-bit integers of this step (at most 0.1), such as 1e-4, with scale and "
        "offset in the header; 65535 is no data. A value that does not fit is an error. For residuals STEP is of "
        "reflectance from 0 to 1.",
        "STEP", kind="number",
    )  # fmt: skip
    top: int | None = of_outputs(
        None, "values",
        "Write only the K largest abundances of each pixel, STEM_abundance, and the numbers of their endmembers, STEM_index.",
        "K", kind="whole", least=1,
    )  # fmt: skip
    browse: bool = of_outputs(True, "outputs", "Write no STEM_browse.png.", switch="no_browse")
    rgb: str | None = of_outputs(
        None, "outputs",
        "Endmembers or classes that are red, green and blue in STEM_browse.png.",
        "A,B,C", unset="the three with the largest sums",
    )  # fmt: skip
    tag: Sequence[str] = of_outputs(
        (), "outputs",
        "Write this into the headers of all maps, as tag KEY, beside version, options and digests. May be given several times.",
        "KEY=VALUE",
    )  # fmt: skip
    dry_run: bool = of_machine(False, "nothing", "Show what would be done, and write nothing.")
    max_delta: float = of_outputs(
        1e-4, "values",
        "Certify a pixel if its abundances are proved to be within D of the optimum; of others only the fit can be certified.",
        "D", kind="number",
    )  # fmt: skip
