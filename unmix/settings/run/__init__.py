"""What is solved, with which endmembers, and what is written where."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ...features.runs import in_runs
from ...io.export import FORMATS
from ...methods import BOUNDED, LARGEST_THRESHOLD, METHODS, NORMALIZATIONS, SOLVERS
from .. import same, setting
from ..extraction import ExtractSettings

if TYPE_CHECKING:
    from ...library import Endmembers


of_endmembers, of_model, of_outputs, of_machine = (
    partial(setting, group=group) for group in ("Endmembers", "Model", "Outputs", "Machine")
)

# The solver that searches.
_SEARCH = ("active-set",)
# Options that do not go with what each pixel has of its own, and options that penalties on differences of neighbours
# rule out.
_OWN = {"likelihood": ""}
_ALONE = dict.fromkeys(("top", "weights", "likelihood"), "") | {
    "certificate": "which is of each pixel, and all are proved together: run.json has the duality gap",
}
_AS_THEY_ARE = dict.fromkeys(("tv", "laplacian"), "whose proof needs the abundances as they are")


@dataclass(frozen=True)
class RunSettings(*(one.settings for one in in_runs().values())):  # type: ignore[misc]
    """The options of `unmix.options.Options`, but for how the scene is read and how MESMA chooses."""

    method: str | None = of_model(
        None,
        "outputs",
        "Constraints on abundances: " + "; ".join(f"{m.name}: {m.constraint.words}" for m in METHODS.values()) + ".",
        choices=tuple(METHODS),
        unset="fractions that do not depend on brightness: nnls with `normalize` length (with `endmembers`: sum) and "
        "`extract` "
        "auto; fcls where the brightness of a scene does not vary",
        is_first=True,
    )
    solver: str | None = of_model(
        None,
        "outputs",
        "Algorithm: " + "; ".join(f"{s.name}: {s.summary}" for s in SOLVERS.values()) + ".",
        choices=tuple(SOLVERS),
        unset="direct for ucls and scls, else active-set",
    )
    endmembers: "str | os.PathLike[str] | Endmembers | None" = of_endmembers(
        None,
        "contents",
        "Spectral library: CSV, ENVI, MATLAB, text of the USGS or ECOSTRESS, or a folder of such text. Without it "
        "endmembers are "
        "extracted from the cube.",
        "FILE",
        kind="input",
        short="-e",
        is_path=True,
        is_first=True,
    )
    select: str | None = of_endmembers(
        None,
        "contents",
        "Use only spectra with these names or classes; * and ? are wildcards, !A leaves A out.",
        "A,B*,...",
        is_of_library="chooses spectra of",
    )
    complete: bool = of_endmembers(
        False,
        "contents",
        "Leave out spectra without a value at a band in use, and say how many.",
        is_of_library="leaves out spectra of",
    )
    classes: str | None = of_endmembers(
        None,
        "contents",
        "Column with the classes of the spectra: of the library, a CSV file, or of FILE, a CSV table with their names, "
        "alone where its "
        "column is class, or the only one beside the names.",
        "[FILE:]COLUMN",
        is_of_library="names the classes of",
        unset="the library's own",
        is_first=True,
    )
    library_scale: float | None = of_endmembers(
        None,
        "contents",
        "Divide the values of the library by F.",
        "F",
        kind="number",
        is_of_library="scales",
        above=1e-30,
        below=1e30,
    )
    across_gaps: bool = of_endmembers(
        False,
        "contents",
        "Resample the library by straight lines across gaps in its channels.",
        is_of_library="resamples",
        unset="a band in a gap is an error",
    )
    by: str | None = of_outputs(
        None,
        "values",
        "Also write the sums of abundances by class, and the brightness (the sum of all but shade): STEM_fraction.",
        choices=("class",),
        is_of_library="sums by the classes of",
        is_first=True,
    )
    shade: str | os.PathLike[str] | None = of_model(
        None,
        "contents",
        "For pcls and mesma: a library whose one spectrum is that of shade.",
        "FILE",
        kind="input",
        is_path=True,
        unset="zero in all bands",
        methods=("pcls", "mesma"),
    )
    shade_normalize: bool = of_outputs(
        False,
        "values",
        "Divide the sums by class by the brightness, which takes shade out; -9999 where it is 0.",
        needs=("by class",),
    )
    weights: str | os.PathLike[str] | None = of_model(
        None,
        "contents",
        "Weights of the bands, one a line, in pixels and library; or noise: the inverse of `noise`, of a cube its "
        "median. RMSE and certificate are of weighted bands; STEM_unweighted has the RMSE without weights.",
        "FILE",
        is_path=True,
        is_of_scene=True,
        choices=("noise",),
        noise="of pixels",
        excludes={"mesma": "whose thresholds are in the unit of the bands", "likelihood": ""},
    )
    likelihood: str = of_model(
        "gaussian",
        "values",
        "The noise that the best mixture is most likely under: gaussian, which makes it that of least squares, or for "
        "nnls poisson: "
        "pixels and library are counts of photons.",
        choices=("gaussian", "poisson"),
        methods=("nnls",),
        solvers=_SEARCH,
    )
    background: str | os.PathLike[str] | None = of_model(
        None,
        "contents",
        "For `likelihood` poisson: counts of each band that are there in any case, one a line.",
        "FILE",
        is_path=True,
        needs=("likelihood poisson",),
    )
    l1: float | None = of_model(
        None,
        "values",
        "For nnls: add LAMBDA times the sum of abundances to half the squared residual, so that pixels use few spectra "
        "of a large "
        "library; `rows` and `at_most` do so without making abundances smaller.",
        "LAMBDA",
        kind="number",
        least=0,
        below=LARGEST_THRESHOLD,
        methods=("nnls",),
        solvers=_SEARCH,
        excludes=_OWN,
    )
    tv: float | str | None = of_model(
        None,
        "values",
        "For nnls, fcls and pcls: add LAMBDA times the sizes of all differences between abundances of neighbours "
        "(total variation) to "
        "half the squared residual, which takes noise out and keeps edges. Proved is the cost of the whole scene, no "
        "pixel "
        "alone. auto: the least expected error.",
        "LAMBDA",
        kind="number",
        choices=("auto",),
        noise="of bands",
        above=0,
        below=LARGEST_THRESHOLD,
        methods=BOUNDED,
        solvers=_SEARCH,
        excludes=_ALONE,
    )
    laplacian: float | str | None = of_model(
        None,
        "values",
        "The same with half the squares of the differences, which makes edges soft.",
        "LAMBDA",
        kind="number",
        choices=("auto",),
        noise="of bands",
        above=0,
        below=LARGEST_THRESHOLD,
        methods=BOUNDED,
        solvers=_SEARCH,
        excludes={"tv": ""} | _ALONE,
    )
    normalize: str | None = of_model(
        None,
        "values",
        "For nnls and pcls: write fractions that sum to one in place of abundances, and their divisor, STEM_scale. "
        "sum: shares of "
        "the area, if the spectra are as bright as the materials; length: shares of spectra of unit length, for "
        "extracted ones; "
        "max: shares of spectra whose maximum is 1 (the 95th percentile of their bands), as some published truths are.",
        choices=tuple(NORMALIZATIONS),
        unset="none with `method`",
        excludes=_AS_THEY_ARE | {"likelihood": "", "shade_normalize": "which divides sums by class by their sum"},
    )
    class_map: bool = of_outputs(
        False,
        "values",
        "With `by` class (`classes` name makes each spectrum its own): also write the number of the class with the "
        "largest sum, 0 for "
        "none: STEM_class, an ENVI Classification. A column `color` (brown, #8b4513) of the library or of the table of "
        "`classes` "
        "colours it.",
        needs=("by class",),
    )
    noise: str | os.PathLike[str] = of_outputs(
        "auto",
        "contents",
        "Noise of each band, the last number of a line, in the unit of the scaled cube; for `uncertainty` also a cube, "
        "as EMIT's "
        "RFLUNCERT. auto: from each pixel's residual, model errors included; none: draw spectra alone. For "
        "`uncertainty`, "
        "`confidence`, `average`, `weights` noise, `rows`, `tv`, `laplacian` auto. {stem} and {dir} as for "
        "`mask_out`.",
        "FILE",
        is_path=True,
        is_of_scene=True,
        choices=("auto", "none"),
        excludes={"mesma": "whose deviations are of the choice; use `unmix run`"},
    )
    within: float | str | None = of_outputs(
        None,
        "values",
        "For `ranges`: mixtures fit whose RMSE is at most this much above that of the best.",
        "RMSE",
        needs=("ranges",),
        excludes=_OWN,
    )
    count: int | str | None = same(ExtractSettings, "count", None)
    extract: str | None = same(ExtractSettings, "extract")
    refine: bool = same(ExtractSettings, "refine")
    smooth: int = same(ExtractSettings, "smooth")
    outside: float | None = same(ExtractSettings, "outside")
    outliers: float | None = same(ExtractSettings, "outliers")
    seed: int = same(ExtractSettings, "seed")
    out_dir: str | os.PathLike[str] | None = of_outputs(
        None,
        "nothing",
        "Folder for outputs; of run, batch and mesma also s3://BUCKET/PREFIX. {stem} and {dir} are each scene's: "
        "'maps/{dir}' has the "
        "folders of an archive again, below that in which the command is given.",
        "DIR",
        kind="folder",
        short="-o",
        unset="the folder of the cube",
        is_first=True,
    )
    work_dir: str | os.PathLike[str] | None = of_outputs(
        None,
        "nothing",
        "With `out_dir` s3://...: folder for maps until they are uploaded.",
        "DIR",
        kind="local folder",
        unset="in TMPDIR",
    )
    overwrite: bool = of_outputs(
        False,
        "nothing",
        "Replace outputs that exist, if unmix wrote them.",
        is_first=True,
        excludes={"skip_existing": ""},
    )
    skip_existing: bool = of_outputs(
        False, "nothing", "Skip scenes that are already finished with the same options.", is_first=True
    )
    device: str = of_machine(
        "auto",
        "nothing",
        "Where to compute: auto (the first GPU, else the CPU), cpu, cuda, cuda:K, cuda:K,L or cuda:all.",
        "NAME",
        is_first=True,
    )
    memory: str | int = of_machine(
        "1G",
        "nothing",
        "Bound on memory for blocks, such as 256M or 2G; beside it the program takes 0.2 GB, and up to 0.5 to decode "
        "TIFF and HDF5.",
        "SIZE",
    )
    gpu_memory: str | int = of_machine("4G", "nothing", "Bound on the memory that is used of each GPU.", "SIZE")
    threads: int | None = of_machine(
        None,
        "nothing",
        "Number of CPU threads.",
        "K",
        kind="whole",
        least=1,
        unset="all cores",
    )
    streams: int = of_machine(
        4,
        "nothing",
        "Blocks in memory at a time, for each device.",
        "K",
        kind="whole",
        least=1,
    )
    residual: bool = of_outputs(False, "outputs", "Also write the residuals y - E a: STEM_residual.")
    certificate: bool = of_outputs(
        False,
        "outputs",
        "Also write kappa, delta and number of steps of each pixel: STEM_certificate.",
    )
    format: str = of_outputs(
        "envi",
        "outputs",
        "File format of the maps: raw ENVI, GeoTIFF, cloud-optimized GeoTIFF, NetCDF-4 with CF conventions, named .h5 "
        "or .nc, or "
        "Zarr v3 in a ZIP archive. Names of GDAL's drivers will do.",
        choices=tuple(FORMATS),
        short="-f",
        is_first=True,
    )
    ortho: bool = of_outputs(
        False,
        "values",
        "Also write the maps of a swath orthorectified by its lookup table (EMIT): STEM_abundance_ortho and so on.",
        excludes={"mesma": "whose maps are of models and classes"},
    )
    quantize: float | None = of_outputs(
        None,
        "values",
        "Write abundances, sums by class, ranges and residuals as 16-bit integers of this step, such as 1e-4, at most "
        "0.1; 65535 is "
        "no data. Ranges are rounded outwards. A value that does not fit is an error. For per cent as bytes use unmix "
        "export.",
        "STEP",
        kind="number",
        above=0,
        most=0.1,
        excludes=_AS_THEY_ARE,
    )
    top: int | None = of_outputs(
        None,
        "values",
        "Write only the K largest abundances of each pixel, and the numbers of their endmembers, STEM_index.",
        "K",
        kind="whole",
        least=1,
        excludes={"mesma": "whose maps are of models and classes"},
    )
    browse: bool = of_outputs(True, "outputs", "Write no STEM_browse.png.", switch="no_browse")
    rgb: str | None = of_outputs(
        None,
        "outputs",
        "Endmembers or classes shown as red, green and blue in STEM_browse.png.",
        "A,B,C",
        unset="those with the largest sums",
        excludes={"top": "whose largest abundance has its endmember's colour"},
    )
    tag: Sequence[str] = of_outputs(
        (),
        "outputs",
        "Write this into the headers of all maps. May be repeated.",
        "KEY=VALUE",
    )
    dry_run: bool = of_machine(False, "nothing", "Show what would be done; write nothing.")
    max_delta: float = of_outputs(
        1e-4,
        "values",
        "Certify a pixel if its abundances are proved to be within D of the optimum; else only its fit.",
        "D",
        kind="number",
        above=0,
    )
