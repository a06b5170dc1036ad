"""All options of a run in one class, which `unmix.run`, `unmix.batch` and their workers share."""

import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from ..blocks import parse_size
from ..certificate import MOST_DELTA
from ..errors import MethodError
from ..io.export import OutputFormat, require
from ..io.remote import absolute
from ..library import ClassSums, Endmembers
from ..library.fractions import Normalization
from ..methods import (
    LARGEST_THRESHOLD,
    WITHOUT_METHOD,
    DrawChoice,
    Extraction,
    Method,
    ModelChoice,
    Solver,
    choose,
    normalization_without_method,
    on_cpu,
)  # fmt: skip
from ..scene import ReadOptions, absolute_name, name_for
from .contradictions import OF_EXTRACTION, refuse_contradictions

# What is part of a run's request (`Options.request`) only where it is asked for: a record without it is of a run without it.
WHEN_SET = (
    "refine", "restarts", "smooth", "outside", "outliers", "by", "shade_normalize", "choice", "uncertainty", "within", "class_map",
    "browse", "rgb", "draws", "noise", "weights", "shade", "classes", "tag", "l1", "l21", "quantize", "normalize", "at_most", "names",
)  # fmt: skip
# The options that a method brings with it where they are not given.
WITH_METHOD = {"normalize": "none", "extract": "vca"}
# The method of a run without one whose scene shows how bright its materials are.
METHOD_OF_AREAS: dict[str, Any] = {"method": "fcls", "normalize": "none"}
# In place of the path of a library that has none.
IN_MEMORY = "(a library in memory: name it)"
# Letters of a tag's text: HDF5 allows 64 KiB, and headers are read by people.
LONGEST_TAG = 1000
# Options that change where and how a run works, not what it gives, and those that are given apart.
OF_THIS_RUN = (
    "out_dir", "work_dir", "overwrite", "skip_existing", "dry_run", "device", "memory", "gpu_memory", "threads", "streams",
    "choice", "reading", "left_open",
)  # fmt: skip


@dataclass(frozen=True)
class Options:
    """How scenes are to be unmixed.

    Attributes
    ----------
    method : {"ucls", "scls", "nnls", "fcls", "pcls"}, optional
        The constraints on abundances. Without one it is nnls, with fractions that do not depend on brightness: ``normalize`` "length"
        of endmembers that are extracted, by ``extract`` "cone", and "sum" of those of a library. Where the scene's brightness does not
        vary but for noise, ``extract`` "cone" finds how bright its materials are, and the method is fcls.
    solver : str, optional
        The algorithm; default is the first solver of the method in `unmix.methods.METHODS`.
    endmembers : path-like or Endmembers, optional
        A spectral library; by default ``count`` endmembers are extracted from the scene by ``extract`` with ``seed``.
    select : str, optional
        Names or classes of the spectra of ``endmembers`` to use, ``A,B*``; see `unmix.library.select`.
    complete : bool
        Leave out the spectra of ``endmembers`` that have no value at a band in use.
    classes : str, optional
        Where the classes of the spectra of ``endmembers`` are: ``COLUMN`` of this CSV file, or ``FILE:COLUMN`` of another one with
        their names; default is what the library itself says.
    library_scale : float, optional
        Values of ``endmembers`` are divided by it.
    across_gaps : bool
        Resample ``endmembers`` by straight lines across gaps in their channels; otherwise a band in a gap is an error.
    names : path-like or Endmembers, optional
        A library whose spectra are tried as what the endmembers lack, where pixels have a spectrum in common that no mixture of them
        has; see `unmix.jobs.missing`. Default are the spectra of ``endmembers`` that ``select`` leaves out.
    by : {"class"}, optional
        Also write the sums of the abundances by class, and the sum of all (without shade), to ``STEM_fraction``.
    shade : path-like, optional
        For a method with shade, and for "mesma": the library whose one spectrum is that of shade; default is zero in all bands.
    shade_normalize : bool
        Divide the sums by class by the sum of all, so that shade is taken out; −9999 where that is 0.
    weights : path-like or "noise", optional
        Weights of the bands, which pixels and library are multiplied with: a text file with a number for each band, or the inverse of
        ``noise``. RMSE and residuals in the unit of the bands go to ``STEM_unweighted`` and ``STEM_residual``.
    l1 : float, "auto" or "discrepancy", optional
        For nnls: minimise ``½ |y − E a|² + λ wᵀa``, λ this number: the larger, the fewer endmembers, and the smaller their abundances.
        "auto" chooses the λ for the scene whose fit has the least expected error, "discrepancy" that which leaves as much as there is
        noise: from ``noise``, or from what the scene shows of it.
    l1_weights : path-like, optional
        The weights w: a text file with a number for each endmember; default is 1.
    l21 : float or "auto", optional
        For nnls: minimise ``½ Σ|y − E a|² + λ Σ_j |x_j|`` over all pixels together, λ this number and x_j the abundances of endmember j
        in all of them: the larger, the fewer endmembers there are in the scene. Only these are written. "auto" chooses the λ whose
        fit has the least expected error, from ``noise`` or what the scene shows of it.
    at_most : int, optional
        For nnls: the most endmembers of a pixel. Each is solved to the optimum over those that it has, and no exchange of one of them
        for another one lowers its misfit; where it has fewer, it is at the optimum over all. On the CPU, also for ``device`` "auto".
    normalize : {"none", "sum", "length"}, optional
        For nnls and pcls: write fractions w_j a_j / s in place of abundances a, and the scale ``s = Σ w_k a_k`` to ``STEM_scale``.
        "sum": w is 1, so that fractions are shares of the area; "length": w_j is the length of spectrum j over the bands in use, so
        that they are shares of spectra of unit length. They do not depend on a pixel's brightness. Default is "none" with ``method``.
    class_map : bool
        Also write the class with the largest sum of each pixel, to ``STEM_class``.
    uncertainty : bool
        Also write the standard deviations of the abundances, or with ``by`` of the sums by class, to ``STEM_sigma``. For the method
        "mesma": what the models say that fit nearly as well as the chosen one, to ``STEM_spread``.
    noise : path-like, "auto" or "none"
        The noise that they, or draws, come from: a text file with the standard deviation of each band, for `uncertainty` also a cube
        with that of each pixel, or what each pixel's residual shows; "none" is for draws of spectra alone.
    within : float or "all", optional
        For the method "mesma": by how much the RMSE of these models may be larger; default is half of ``fusion``.
    monte_carlo : int, optional
        Also write mean and standard deviation of each sum by class over so many draws of spectra and noise, to ``STEM_montecarlo``.
    draw_spectra : int, optional
        Spectra of a draw, as even over the classes as can be; default is all.
    choice : ModelChoice, optional
        For the method "mesma": how models are chosen.
    count : int or "auto", optional
        Number of endmembers to extract; "auto", the default, estimates it, as `unmix count` does. Not with ``endmembers``.
    extract : {"vca", "spa", "nfindr", "sisal", "cone"}, optional
        The algorithm that extracts endmembers; default is "vca" with ``method``, else as `unmix.methods.Extraction` says.
    refine, restarts, smooth, outside, outliers
        How they are extracted; see `unmix.methods.Extraction`.
    seed : int
        Seed of what is random: VCA and draws.
    out_dir : path-like, optional
        Folder for outputs, or ``s3://bucket/prefix``; default is the cube's.
    work_dir : path-like, optional
        For outputs to ``s3://``: the folder for maps until they are uploaded; default is one of the user's in the temporary folder.
    overwrite, skip_existing : bool
        Replace outputs that exist, or skip scenes that are finished; without either, existing outputs are an error.
    device : str
        "auto", "cpu", "cuda", "cuda:K", "cuda:K,L" or "cuda:all".
    memory, gpu_memory : str or int
        Bounds on the blocks held in host memory and in the memory of each GPU, such as "256M", or in bytes.
    threads, streams : int
        CPU threads (default: all); blocks in memory at a time, for each device.
    residual, certificate : bool
        Also write the residual cube; also write κ, δ and the number of steps of each pixel.
    format : str
        File format of the maps; a key of `unmix.io.export.FORMATS`.
    ortho : bool
        Also write the maps of a swath orthorectified by its lookup table (EMIT), as ``STEM_abundance_ortho`` and so on.
    quantize : float, optional
        Write abundances, sums by class, means over draws and residuals as 16-bit integers of this step, half the size. The offset is
        0, or where values may be negative −32767 steps; 65535 is no data. For residuals the step is of reflectance from 0 to 1: see
        docs/formats.md. Record and certificate are of the values themselves.
    top : int, optional
        Write only this many abundances of each pixel, the largest first, to ``STEM_abundance``, and the numbers of their endmembers to
        ``STEM_index`` (from 1; 0 where there is none).
    browse : bool
        Also write ``STEM_browse.png``, a picture of the abundances, or with ``by`` of the sums by class.
    rgb : str, optional
        The endmembers or classes that are red, green and blue in it, ``A,B,C``; default are the three with the largest sums.
    tag : sequence of str
        ``KEY=VALUE``: further fields of the headers of all maps, as ``tag KEY``.
    dry_run : bool
        Report what would be done, and write nothing.
    max_delta : float
        A pixel is certified if its abundances are proved to be no further than this from the optimum; of others only the fit can be.
    reading : ReadOptions
        How the scene is read.

    Raises
    ------
    MethodError
        If a value is unknown or invalid, or options contradict each other.
    """

    method: str | None = None
    solver: str | None = None
    endmembers: str | os.PathLike[str] | Endmembers | None = None
    select: str | None = None
    complete: bool = False
    classes: str | None = None
    library_scale: float | None = None
    across_gaps: bool = False
    names: str | os.PathLike[str] | Endmembers | None = None
    by: str | None = None
    shade: str | os.PathLike[str] | None = None
    shade_normalize: bool = False
    weights: str | os.PathLike[str] | None = None
    l1: float | str | None = None
    l1_weights: str | os.PathLike[str] | None = None
    l21: float | str | None = None
    at_most: int | None = None
    normalize: str | None = None
    class_map: bool = False
    uncertainty: bool = False
    noise: str | os.PathLike[str] = "auto"
    within: float | str | None = None
    monte_carlo: int | None = None
    draw_spectra: int | None = None
    choice: ModelChoice | None = None
    count: int | str | None = None
    extract: str | None = None
    refine: bool = True
    restarts: int | None = None
    smooth: int = 0
    outside: float | None = None
    outliers: float | None = None
    seed: int = 0
    out_dir: str | os.PathLike[str] | None = None
    work_dir: str | os.PathLike[str] | None = None
    overwrite: bool = False
    skip_existing: bool = False
    device: str = "auto"
    memory: str | int = "1G"
    gpu_memory: str | int = "1G"
    threads: int | None = None
    streams: int = 4
    residual: bool = False
    certificate: bool = False
    format: str = "envi"
    ortho: bool = False
    quantize: float | None = None
    top: int | None = None
    browse: bool = True
    rgb: str | None = None
    tag: Sequence[str] = ()
    dry_run: bool = False
    max_delta: float = MOST_DELTA
    reading: ReadOptions = field(default_factory=ReadOptions)
    left_open: frozenset[str] = field(default=frozenset(), init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "max_delta", float(self.max_delta))
        self.choose_answer()
        choose(str(self.method), self.solver)
        if self.method == "mesma":
            self.refuse_for_models()
        elif self.choice is not None:
            raise MethodError(f"`{'`, `'.join(vars(self.choice))}`: only for models; use `unmix mesma`")
        object.__setattr__(self, "format", require(self.format).name)
        object.__setattr__(self, "tag", (self.tag,) if isinstance(self.tag, str) else tuple(self.tag))
        refuse_contradictions(self)
        if self.at_most is not None:
            object.__setattr__(self, "device", on_cpu(self.device))
        _ = self.tags
        parse_size(str(self.memory)), parse_size(str(self.gpu_memory))

    def choose_answer(self) -> None:
        """Set ``method``, ``normalize`` and ``extract`` where they are not given; `left_open` has the names of these."""
        names = ("method", *WITH_METHOD)
        object.__setattr__(self, "left_open", frozenset(name for name in names if getattr(self, name) is None))
        chosen: dict[str, Any] = dict(WITH_METHOD)
        if self.method is None:
            has_library = self.endmembers is not None
            chosen["method"] = WITHOUT_METHOD
            if not has_library:
                chosen["extract"] = self.extraction.extract
            if self.l21 is None and not self.shade_normalize:  # which fractions do not go with
                chosen["normalize"] = normalization_without_method(has_library)
        for name in self.left_open:
            object.__setattr__(self, name, chosen[name])

    @property
    def is_open(self) -> bool:
        """Whether the brightness of the scene's materials decides on the method, which `decided` does."""
        is_asked = self.endmembers is not None or self.extract != "cone" or self.normalize == "none"
        return {"method", "normalize"} <= self.left_open and not is_asked

    def decided(self, is_flat: bool) -> "Options":
        """Return the options with the method for a scene whose brightness varies or, if ``is_flat``, does not.

        In a flat scene extracted spectra are as bright as its materials. The method is fcls then; or where something is asked of nnls,
        its fractions are of the area.
        """
        if not self.is_open:
            return self
        asks_nnls = (self.solver, self.l1, self.at_most) != (None, None, None)
        flat: dict[str, Any] = {"normalize": "sum"} if asks_nnls else METHOD_OF_AREAS
        return replace(self, **flat if is_flat else {})

    @property
    def rmse_within(self) -> float:
        """``within`` as a number, infinite for all models; the default is half of ``fusion``."""
        if self.within is None:
            return 0.0 if self.choice is None else 0.5 * self.choice.fusion
        if self.within == "all":
            return math.inf
        is_number = isinstance(self.within, int | float | str) and not isinstance(self.within, bool)
        try:
            number = float(self.within) if is_number and "_" not in str(self.within) else math.nan
        except ValueError:
            return math.nan
        return number if 0 <= number < LARGEST_THRESHOLD else math.nan

    @property
    def tags(self) -> dict[str, str]:
        """``tag`` as fields of a header, ``tag KEY``, which no program takes for its own; `MethodError` where one is malformed."""
        tags: dict[str, str] = {}
        for text in self.tag:
            key, equals, value = (" ".join(part.split()) for part in text.partition("="))
            key = f"tag {' '.join(key.lower().replace('_', ' ').split())}"
            is_name = key.isascii() and key[4:5].isalpha() and key.replace(" ", "").isalnum()
            is_text = 0 < len(value) <= LONGEST_TAG and value.isprintable() and not set(value) & set("{},")
            if not equals or not is_name or not is_text:
                raise MethodError(
                    f"`tag` '{text[:80]}': write KEY=VALUE: letters, digits and spaces, and a text of at most {LONGEST_TAG} letters "
                    "without commas and braces"
                )
            if key in tags:
                raise MethodError(f"`tag` '{text[:80]}': is given twice")
            tags[key] = value
        return tags

    @property
    def extraction(self) -> Extraction:
        """How endmembers are extracted."""
        given = {name: getattr(self, name) for name in ("extract", "seed", *OF_EXTRACTION)}
        return Extraction("auto" if self.count is None else self.count, **given)

    @property
    def draw_choice(self) -> DrawChoice | None:
        """How spectra and noise are drawn, if they are."""
        if self.monte_carlo is None:
            return None
        return DrawChoice(self.monte_carlo, self.draw_spectra, self.seed, self.noise != "none")

    def refuse_for_models(self) -> None:
        """Raise `MethodError` where options do not go with MESMA, and set those that it needs."""
        if self.endmembers is None:
            raise MethodError("mesma needs a library with classes; give one with `endmembers`")
        if self.top is not None or self.ortho:
            raise MethodError("mesma has neither `top` nor `ortho`: its maps are of models and classes")
        object.__setattr__(self, "by", "class")
        object.__setattr__(self, "choice", self.choice or ModelChoice())

    @classmethod
    def of(cls, **words: Any) -> "Options":
        """Make options from keywords of `Options`, `ReadOptions` and, for MESMA, `ModelChoice`; `TypeError` for an unknown one."""
        names = {field.name for field in fields(cls)} - {"reading", "choice"}
        of_models = {field.name for field in fields(ModelChoice)} if words.get("method") == "mesma" else set()
        rest = {name: value for name, value in words.items() if name not in names}
        chosen = ModelChoice(**{name: rest.pop(name) for name in of_models & set(rest)}) if of_models else None
        own = {name: value for name, value in words.items() if name in names}
        chosen = rest.pop("choice", chosen)
        return cls(**own, reading=ReadOptions(**rest), choice=chosen)

    @property
    def method_spec(self) -> Method:
        """The method's entry in the table of methods."""
        return choose(str(self.method), self.solver)[0]

    @property
    def solver_spec(self) -> Solver:
        """The solver's entry in the table of solvers."""
        return choose(str(self.method), self.solver)[1]

    @property
    def needs_float64(self) -> bool:
        """Whether maps are made of the float64 abundances, on the host."""
        return bool(self.derived) or self.l21 is not None

    @property
    def derived(self) -> tuple[str, ...]:
        """The maps of `unmix.jobs.derived` that are written."""
        wanted = {
            "model": self.choice is not None, "fraction": self.by is not None,
            "sigma": self.uncertainty and self.choice is None, "spread": self.uncertainty and self.choice is not None,
            "montecarlo": self.monte_carlo is not None, "class": self.class_map, "unweighted": self.weights is not None,
        }  # fmt: skip
        return tuple(name for name, is_wanted in wanted.items() if is_wanted)

    @property
    def form(self) -> OutputFormat:
        """The entry in the table of output formats."""
        return require(self.format)

    @property
    def budget(self) -> int:
        """``memory`` in bytes."""
        return parse_size(str(self.memory))

    @property
    def gpu_budget(self) -> int:
        """``gpu_memory`` in bytes."""
        return parse_size(str(self.gpu_memory))

    def for_scene(self, path: str | os.PathLike[str]) -> "Options":
        """Return the options with the names of the masks and the noise of one scene; see `unmix.scene.name_for`."""
        noise = name_for(self.noise, path) if isinstance(self.noise, str) else self.noise
        return replace(self, noise=noise, reading=self.reading.for_scene(path))

    def repeatable(self) -> dict[str, Any]:
        """Return the options that differ from the defaults, with absolute paths: all that the same maps of a scene need.

        Where to write and how to compute are left out. A library that was handed over in memory is `IN_MEMORY`, which is no file.
        """
        given = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in OF_THIS_RUN}
        own = {f.name: given[f.name] for f in fields(self) if f.name in given and given[f.name] != f.default}
        for name, value in WITH_METHOD.items():
            if own.get(name) == value:
                del own[name]
        for name in self.left_open if self.is_open else ():
            own.pop(name, None)
        for name in ("endmembers", "names", "shade", "weights", "l1_weights", "noise"):
            if name in own and own[name] not in ("noise", "auto", "none"):
                own[name] = absolute_name(own[name]) if isinstance(own[name], str | os.PathLike) else IN_MEMORY
        if self.classes is not None and ":" in self.classes:
            file, _, column = self.classes.rpartition(":")
            own["classes"] = f"{absolute(file)}:{column}"
        own |= {} if self.choice is None else self.choice.to_dict()
        own |= self.reading.to_dict()
        plain = {
            name: list(value) if isinstance(value, tuple) else value for name, value in own.items() if value is not None
        }
        return {
            name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in plain.items()
        }

    def request(self, library: Endmembers | None, device: str) -> dict[str, Any]:
        """Return everything that outputs depend on, for ``run.json`` and the journal; ``device`` is the device in use.

        A mask is part of the input, and identified by its content (`unmix.io.identity`), not by its name.
        """
        return {
            "method": self.method_spec.name, "solver": self.solver_spec.name,
            "endmembers": None if library is None else library.digest(),
            "count": self.count, "extract": self.extract if library is None else None, "seed": self.seed if library is None else None,
            "residual": self.residual, "certificate": self.certificate, "format": self.format, "ortho": self.ortho, "top": self.top,
            "max_delta": self.max_delta, "device": device.partition(":")[0],
            "reading": {name: value for name, value in self.reading.to_dict().items() if "mask" not in name},
        } | (
            ({} if self.by is None else {"by": self.by, "shade_normalize": self.shade_normalize})
            | ({} if self.choice is None else {"choice": self.choice.to_dict()})
            | ({} if not self.uncertainty else {"uncertainty": True})
            | ({} if not (self.uncertainty and self.choice) else {"within": str(self.rmse_within)})
            | ({} if not self.class_map else {"class_map": True})
            | ({} if self.normalize == "none" else {"normalize": self.normalize})
            | ({} if self.at_most is None else {"at_most": self.at_most})
            | ({} if self.browse else {"browse": False})
            | {name: getattr(self, name) for name in OF_EXTRACTION[1:] if getattr(self, name) != getattr(Extraction, name)}
            | ({"refine": True} if self.refine and library is None and self.extract == "vca" else {})
            | ({} if self.rgb is None else {"rgb": self.rgb})
            | ({"tag": list(self.tag)} if self.tag else {})
            | ({} if self.quantize is None else {"quantize": self.quantize})
            | ({} if self.draw_choice is None else {"draws": asdict(self.draw_choice)})
        )  # fmt: skip

    def sums(self, endmembers: Endmembers, normalization: Normalization | None = None) -> ClassSums | None:
        """Return how abundances, or fractions, are summed by class, if they are; `LibraryError` where there are no classes."""
        if self.by is None:
            return None
        return ClassSums.of(endmembers, self.shade_normalize, self.choice is not None).weighted(normalization)

    def maps(self, L: int, p: int) -> dict[str, int]:
        """Return the maps that are written beside `derived`, with the number of bands of each, for L bands and p endmembers."""
        top = p if self.top is None else min(self.top, p)
        sizes = {"abundance": top, "rmse": 1} if self.choice is None else {"rmse": 1}
        sizes |= {} if self.top is None else {"index": top}
        sizes |= {} if self.normalize == "none" else {"scale": 1}
        sizes |= {"residual": L} if self.residual else {}
        return sizes | ({"certificate": 3} if self.certificate else {})
