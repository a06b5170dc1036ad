"""Open scenes and maps in xarray, and unmix there: ``xarray.open_dataset(path, engine="unmix")``,
``dataset.unmix.solve(E)``, `read`.

The values are read when they are used, a block of lines at a time, and with ``chunks=`` by dask's workers.
"""

import itertools
import logging
import math
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray
from xarray.backends import BackendArray, BackendEntrypoint
from xarray.core import indexing

import unmix

from ...arrays.pixels import solve
from ...errors import CubeError, LibraryError, MethodError
from ...io import Bands, Cube, Scene, as_stored, band_names, bytes_per_line, cut, read_blocks
from ...io.formats.header import axis_in_nanometres, centres_of, geotransform
from ...library import Endmembers, load_for, of_frame
from ...methods import WITHOUT_METHOD, normalization_without_method
from ...runs.files.finished import FinishedRun
from ...scene import SCALE_PIXELS, ReadOptions, open_scene, ratio_of_sizes
from ...settings.maps import MAPS

log = logging.getLogger("unmix")

# The variable that holds a scene's values.
VALUES = "spectra"
# The core dimension of what pixels may have of their own, by the names of `unmix.solve`'s arguments.
OWN = {"weights": "band", "allowed": "endmember", "start": "endmember"}
# Fields of a run's record that its dataset has as attributes.
ATTRIBUTES = ("method", "solver", "certified", "version", "created")


class SceneArray(BackendArray):
    """The values of a scene (lines, samples, bands), scaled, NaN where there is no value; read when indexed."""

    def __init__(self, scene: Scene) -> None:
        cube, bands, _ = self.scene = scene
        self.shape = cube.lines, cube.samples, len(bands.index)
        # As precise as `unmix.run`: float32 holds stored values of few bits, but not their products with a scale such
        # as 1e-4, and similar endmembers magnify the rounding: abundances were off by 6.6e-6 at cond(E) 1458, where δ
        # was 2e-9.
        is_short = cube.dtype.itemsize <= 2 or cube.dtype == np.float32
        is_scaled = np.any(bands.gain != 1.0) or np.any(bands.offset != 0.0)
        self.dtype = np.dtype(np.float32 if is_short and not is_scaled else np.float64)

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.BASIC, self.read)

    def read(self, key: tuple[Any, ...]) -> np.ndarray:
        """Return a part of the values; ``key`` has an integer or a slice for each axis."""
        lines = range(self.shape[0])[key[0]] if isinstance(key[0], slice) else range(key[0], key[0] + 1)
        chosen = np.atleast_1d(np.arange(self.shape[2])[key[2]])
        part = self.scene._replace(bands=self.scene.bands.only(chosen))
        out = np.empty((len(lines), self.shape[1], len(chosen)), self.dtype)
        first, last = (min(lines), max(lines) + 1) if out.size else (0, 0)
        wanted = np.array(lines, int)
        blocks = cut(part.cube, 2**24, slice(first, last))
        holds = [block for block in blocks if np.any((wanted >= block.start) & (wanted < block.stop))]
        for block, raw in read_blocks(part.cube, holds):
            here = np.flatnonzero((wanted >= block.start) & (wanted < block.stop))
            values = np.where(part.missing(raw, each=True), np.nan, part.spectra(raw))
            out[here] = values.reshape(-1, *out.shape[1:])[wanted[here] - block.start]
        out = out[:, key[1]]
        out = out if isinstance(key[2], slice) else out[..., 0]
        return out if isinstance(key[0], slice) else out[0]


def lazily(scene: Scene, dimension: str) -> xarray.Variable:
    """Return the values of a scene, which are read when they are used; ``dimension`` is the dimension of its bands."""
    cube = scene.cube
    chunk = {"y": min(cube.lines, max(cube.lines_together, 2**26 // bytes_per_line(cube)))}
    values = indexing.LazilyIndexedArray(SceneArray(scene))
    return xarray.Variable(("y", "x", dimension), values, encoding={"preferred_chunks": chunk})


class SceneEngine(BackendEntrypoint):
    """The engine ``unmix`` of `xarray.open_dataset`: every format that `unmix.run` reads."""

    description = "Open hyperspectral scenes: ENVI, GeoTIFF, MATLAB and products in HDF5 or NetCDF-4"
    open_dataset_parameters = ("filename_or_obj", "drop_variables")

    def open_dataset(
        self, filename_or_obj: Any, *, drop_variables: str | Iterable[str] | None = None, **reading: Any
    ) -> xarray.Dataset:
        """Open a scene; see `unmix.ReadOptions` for ``reading``, where ``bands`` is "all" by default.

        Returns
        -------
        Dataset
            ``spectra`` (y, x, band), scaled, NaN where there is no value, float64, or float32 where that holds the
            values exactly; as coordinates ``band`` (from 1), ``wavelength`` and ``fwhm`` (nm) and ``good`` where the
            file has them, ``x`` and ``y`` where it has a map that is not rotated.

        Raises
        ------
        CubeError, MethodError
            As `unmix.run`.
        """
        scene = open_scene(os.fspath(filename_or_obj), ReadOptions(**({"bands": "all"} | reading)))
        (cube, bands, _), variable = scene, lazily(scene, "band")
        coordinates: dict[str, Any] = {"band": ("band", bands.index + 1)}
        for name, values, units in (
            ("wavelength", cube.wavelengths, "nm"),
            ("fwhm", cube.fwhm, "nm"),
            ("good", cube.good_bands, ""),
        ):
            if values is not None:
                coordinates[name] = ("band", values[bands.index], {"units": units} if units else {})
        coordinates |= axes_of_array(cube)
        dataset = on_map(xarray.Dataset({VALUES: variable}, coordinates, {"source": str(cube.path)}))
        left_out = [drop_variables] if isinstance(drop_variables, str) else list(drop_variables or [])
        return dataset.drop_vars([name for name in left_out if name in dataset])

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Return False: only the engine's name opens a file with it, since other engines read the same endings."""
        return False


def on_map(dataset: xarray.Dataset) -> xarray.Dataset:
    """Return a dataset whose variables name the coordinate with its system, as CF asks for; others as they are."""
    if "spatial_ref" in dataset.coords:
        for values in dataset.data_vars.values():
            if {"y", "x"} <= set(values.dims):
                values.attrs["grid_mapping"] = "spatial_ref"
    return dataset


def axes_of_array(cube: Cube) -> dict[str, Any]:
    """Return the coordinates x and y of the pixels' centres, if the map info has them and the map is not rotated."""
    transform = geotransform(cube.fields.get("map info", ""))
    places = None if transform is None else centres_of(transform, cube.lines, cube.samples)
    if places is None:
        return {}
    ways = ("projection_x_coordinate", "projection_y_coordinate")
    if cube.fields["map info"].strip().lower().startswith("geographic"):
        ways = ("longitude", "latitude")
    axes = {axis: (axis, places[k], {"standard_name": way}) for axis, k, way in zip("xy", (1, 0), ways)}
    wkt = " ".join(cube.fields.get("coordinate system string", "").strip("{} \n").split())
    return axes | ({"spatial_ref": ((), 0, {"crs_wkt": wkt})} if wkt else {})


def read(path: str | os.PathLike[str]) -> xarray.Dataset:
    """Open all maps of a finished run as one dataset; their values are read when they are used.

    Parameters
    ----------
    path : path-like
        The beginning of the outputs' names, such as ``maps/cube``, one of the outputs, or the scene beside them.

    Returns
    -------
    Dataset
        A variable for each map, (y, x), or with its bands by name (y, x, …), NaN where there is no value: ``abundance``
        (y, x, endmember), ``rmse``, ``fraction``, ``sigma``, …; of ranges ``range_lower`` and ``range_upper`` (y, x,
        quantity). ``spectra`` (band, endmember) are the endmembers. Coordinates: names, ``wavelength`` (nm), and ``x``
        and ``y`` where the maps have a place that is not rotated. Attributes: ``source``, ``method``, ``solver``,
        ``certified``, ``version``, ``created``.

    Raises
    ------
    OutputError
        Where there is no finished run of that name.
    CubeError, LibraryError
        Where a map or the endmembers cannot be read.
    """
    run = FinishedRun.of(Path(path))
    report = run.report
    attributes: dict[str, Any] = {"source": str(report["input"]["path"])}
    known = {name: report[name] for name in ATTRIBUTES if isinstance(report.get(name), str | int | float)}
    attributes |= {name: int(value) if isinstance(value, bool) else value for name, value in known.items()}
    found = xarray.Dataset(attrs=attributes)
    for name in filter(run.has, MAPS):
        cube = run.open(name)
        found = found.assign_coords(axes_of_array(cube)).assign(variables_of(run, name, cube))
    ends = run.endmembers()
    variable = xarray.Variable(("band", "endmember"), ends.matrix)
    found = on_map(found.assign_coords(endmember=list(ends.names)).assign({VALUES: variable}))
    return found if ends.wavelengths is None else found.assign_coords(wavelength=("band", ends.wavelengths))


def variables_of(run: FinishedRun, name: str, cube: Cube) -> dict[str, xarray.DataArray]:
    """Return the variables that a map becomes."""
    is_each = name == "abundance" and not run.has("index")
    dimension = "endmember" if is_each else "rank" if name in ("abundance", "index") else f"{name}_band"
    nodata = 0.0 if MAPS[name].is_of_classes else cube.nodata
    values = lazily(Scene(cube, Bands.of(np.arange(cube.bands)), nodata), dimension)
    names = run.band_names(name, cube.bands) if name in ("abundance", "fraction") else band_names(cube)
    whole = xarray.DataArray(values, attrs={"description": cube.fields.get("description", "").strip("{} ")})
    if MAPS[name].is_of_classes or len(MAPS[name].bands) == 1:
        return {name: whole.isel({dimension: 0}, drop=True)}
    if name == "range":
        ends = {
            end: whole.isel({dimension: slice(k, None, 2)}).rename({dimension: "quantity"})
            for k, end in enumerate(("lower", "upper"))
        }
        each = [text.removesuffix(" lower") for text in names[::2]]
        return {f"range_{end}": values.assign_coords(quantity=each) for end, values in ends.items()}
    return {name: whole.assign_coords({dimension: range(1, cube.bands + 1) if dimension == "rank" else names})}


class Unmixing:
    """``dataset.unmix``: unmix a dataset with a variable ``spectra`` that has the dimension ``band``.

    Stored values that the variable's attributes ``_FillValue`` and ``missing_value`` name are no values.
    """

    def __init__(self, dataset: xarray.Dataset) -> None:
        self.dataset = dataset

    @property
    def values(self) -> xarray.DataArray:
        """Return the variable ``spectra``, NaN where a stored value means none; `CubeError` without this variable."""
        if VALUES not in self.dataset or "band" not in self.dataset[VALUES].dims:
            found = ", ".join(
                f"{name} ({', '.join(map(str, one.dims))})" for name, one in self.dataset.data_vars.items()
            )
            raise CubeError(
                f"no variable '{VALUES}' with the dimension 'band'; rename what there is ({found or 'nothing'}), "
                "wavelengths (nm) as a coordinate wavelength"
            )
        values = self.dataset[VALUES]
        given = [
            np.ravel(values.attrs[name]).tolist() for name in ("_FillValue", "missing_value") if name in values.attrs
        ]
        stored = (as_stored(float(fill), values.dtype, VALUES, []) for fill in itertools.chain(*given))
        lost = [fill for fill in stored if fill is not None]
        return values.where(~values.isin(lost)) if lost else values

    def library(self, library: str | os.PathLike[str] | Endmembers, **how: Any) -> Endmembers:
        """Return a library's spectra at the dataset's bands, by its coordinates ``wavelength``, or ``band``, and ``fwhm``.

        Parameters
        ----------
        library : path-like, Endmembers or DataFrame
            A file or folder of any kind that `unmix.run` takes, what `unmix.load_library` and `unmix.extract`
            return, or a spectrum a column with wavelengths as its index. Units are as the coordinates' attribute
            ``units`` has them, else by size, nm or µm.
        **how
            As for `unmix.run`: ``classes``, ``scale``, ``select``, ``complete``, ``across_gaps``.

        Raises
        ------
        CubeError
            Where a coordinate is not a number for each band.
        LibraryError
            Where the library cannot be read, or does not cover the bands.
        """
        L, known, problems = self.values.sizes["band"], self.dataset.coords, list[str]()
        numbers = "band" in known and known["band"].dtype.kind in "iuf"
        # Where there is no other axis, wavelengths may name the bands; numbers that only count are left out below.
        names = ["band" if "wavelength" not in known and numbers else "wavelength", "fwhm"]
        axis = [np.asarray(known[name].values, float) if name in known else None for name in names]
        for name, each in zip(names, axis):
            if each is not None and each.shape != (L,):
                raise CubeError(f"the dataset's {name} has shape {each.shape}, but there are {L} bands")
        units = str(known[names[0]].attrs.get("units", "")) if names[0] in known else ""
        source = Path(str(self.dataset.attrs.get("source", "dataset")))
        waves, fwhm = axis_in_nanometres(axis[0], axis[1], units, source, problems)
        for problem in problems if names[0] == "wavelength" or waves is not None else ():
            log.warning(problem)
        cube = Cube(
            source,
            "dataset",
            "xarray",
            1,
            1,
            L,
            np.dtype(np.float64),
            "bip",
            wavelengths=waves,
            fwhm=fwhm,
        )
        try:
            return load_for(of_frame(library), Scene(cube, Bands.of(np.arange(L)), None), **how)
        except LibraryError as error:
            axis_here = "give it a coordinate named wavelength, and perhaps fwhm, along its bands"
            raise LibraryError(str(error).replace("name its wavelengths with `wavelengths`", axis_here)) from None

    def endmembers_of(self, E: Any) -> tuple[np.ndarray, Sequence[str], tuple[str, ...] | None]:
        """Return endmembers (L, p), names and classes of an array, or of a library with its scale checked."""
        if isinstance(E := of_frame(E), str | os.PathLike | Endmembers):
            found = self.library(E)
            self.check_scale(found)
            return found.matrix, found.names, found.classes
        matrix = np.asarray(E, float)
        return matrix, list(map(str, range(1, matrix.shape[-1] + 1))), None

    def check_scale(self, library: Endmembers) -> None:
        """Compare the sizes of pixels and spectra on a sample, as a run does; `CubeError` where they differ."""
        values = self.values
        sides = {name: size for name, size in values.sizes.items() if name != "band"}
        step = max(1, math.ceil((math.prod(sides.values()) / SCALE_PIXELS) ** (1 / max(1, len(sides)))))
        Y = values.isel({name: slice(None, None, step) for name in sides}).transpose(..., "band").values
        Y = Y.reshape(-1, Y.shape[-1]).astype(float)
        lengths = np.sqrt(np.square(Y[np.isfinite(Y).all(axis=1)]).sum(axis=1))
        ratio = ratio_of_sizes(lengths, library.matrix)
        if ratio is not None:
            raise CubeError(
                f"its pixels are {ratio:.3g} times as large as the spectra of {library.source}: divide its values, or "
                "the library's "
                f"(`library(…, scale={10.0 ** -np.round(np.log10(ratio)):g})`); spectra given as an array are taken as "
                "they are"
            )

    def solve(self, E: Any, names: Sequence[str] | None = None, **options: Any) -> xarray.Dataset:
        """Solve every pixel; lazily, chunk by chunk, where the dataset has chunks.

        Parameters
        ----------
        E : array-like of shape (L, p), path-like, Endmembers or DataFrame
            Endmembers, one per column, at the dataset's bands and in its unit; or a library, see `library`.
        names : sequence of str, optional
            Names of the endmembers; default is those of the library, or 1 to p.
        **options
            Arguments of `unmix.solve`: ``method``, ``solver``, ``normalize``, ``device``, ``threads``; ``weights``,
            ``allowed`` and ``start`` of all pixels as arrays, or of each as a DataArray with the dimension ``band`` or
            ``endmember``; pixels whose weights are not finite are left out. The default ``method`` is as in
            `unmix.run`: fractions by nnls.

        Returns
        -------
        Dataset
            ``abundance`` (…, endmember) and ``rmse``, ``kappa`` and ``delta`` (…), float64; NaN where a pixel misses a
            band. With ``normalize`` also ``scale``.
        """
        if "method" not in options:
            is_extracted = isinstance(E, Endmembers) and E.pixels is not None
            options = {"method": WITHOUT_METHOD, "normalize": normalization_without_method(not is_extracted), **options}
            log.info(f"without `method`: {options['method']} with `normalize` {options['normalize']}, as a run")
        E, own_names, _ = self.endmembers_of(E)
        p = E.shape[1]
        own = {name: options.pop(name) for name in OWN if isinstance(options.get(name), xarray.DataArray)}
        names_of = ["rmse", "kappa", "delta"] + ["scale"] * (options.get("normalize", "none") != "none")

        def solved(block: np.ndarray, *each: np.ndarray) -> np.ndarray:
            given, block = dict(zip(own, each)), block.astype(np.float64)
            if "weights" in given:  # a pixel whose weights are not known is left out, as in a run
                known = np.isfinite(given["weights"]).all(axis=-1, keepdims=True)
                block = np.where(known, block, np.nan)
            answer = solve(block, E, **(options | given))
            parts = [answer.abundances, *(values[..., None] for values in (answer.rmse, answer.kappa, answer.delta))]
            parts += [] if answer.scale is None else [answer.scale[..., None]]
            return np.where(answer.valid[..., None], np.concatenate(parts, axis=-1), np.nan)

        every = self.each_pixel(solved, p + len(names_of), own)
        found = every.isel(value=slice(0, p)).rename(value="endmember")
        found = found.assign_coords(endmember=list(names or own_names))
        rest = {name: every.isel(value=p + k, drop=True) for k, name in enumerate(names_of)}
        return on_map(xarray.Dataset({"abundance": found, **rest}))

    def ranges(self, E: Any, classes: Sequence[str] | None = None, **options: Any) -> xarray.Dataset:
        """Find the proved ranges of every pixel; lazily, chunk by chunk, where the dataset has chunks.

        Parameters
        ----------
        E : array-like of shape (L, p), path-like, Endmembers or DataFrame
            Spectra, one per column, at the dataset's bands and in its unit; or a library, see `library`.
        classes : sequence of str, optional
            The class of each spectrum: ranges are those of the sums by class then. Default is those of the library, if
            it has some.
        **options
            Arguments of `unmix.ranges`: ``method``, ``within``, ``confidence``, ``noise``, ``normalize``, …

        Returns
        -------
        Dataset
            ``lower``, ``upper``, ``lower_reached``, ``upper_reached`` (…, quantity) and ``limit`` (…), as
            `unmix.Ranges` has them.
        """
        E, own_names, own_classes = self.endmembers_of(E)
        classes = own_classes if classes is None else classes
        names = list(dict.fromkeys(classes or own_names))
        ends = ("lower", "upper", "lower_reached", "upper_reached")

        def found(block: np.ndarray) -> np.ndarray:
            answer = unmix.ranges(block.astype(np.float64), E, classes, **options)
            return np.concatenate([*(getattr(answer, end) for end in ends), answer.limit[..., None]], axis=-1)

        k = len(names)
        every = self.each_pixel(found, 4 * k + 1)
        parts = {
            end: every.isel(value=slice(i * k, (i + 1) * k)).rename(value="quantity").assign_coords(quantity=names)
            for i, end in enumerate(ends)
        }
        return xarray.Dataset({**parts, "limit": every.isel(value=4 * k, drop=True)})

    def each_pixel(
        self, function: Callable[..., np.ndarray], width: int, own: dict[str, xarray.DataArray] | None = None
    ) -> xarray.DataArray:
        """Return ``width`` numbers by ``function`` for each pixel (…, L), float64, along the dimension ``value``."""
        values, own = self.values, own or {}
        values = values.transpose(..., "band")
        # ``own`` arrays have a row for each pixel; see `OWN`.
        parts, dimensions = [values], ["band"]
        for name, each in own.items():
            missing = {OWN[name], *values.dims[:-1]} - set(each.dims)
            if missing:
                raise MethodError(
                    f"`{name}` is a DataArray without the dimension {', '.join(sorted(map(str, missing)))}"
                )
            parts.append(each.transpose(*values.dims[:-1], OWN[name]))
            dimensions.append(OWN[name])
        parts = [each.chunk({name: -1}) if each.chunks else each for name, each in zip(dimensions, parts)]
        every: xarray.DataArray = xarray.apply_ufunc(
            function,
            *parts,
            input_core_dims=[[name] for name in dimensions],
            output_core_dims=[["value"]],
            dask="parallelized",
            output_dtypes=[np.float64],
            dask_gufunc_kwargs={"output_sizes": {"value": width}},
        )
        return every


if not hasattr(xarray.Dataset, "unmix"):  # the package was imported before xarray
    xarray.register_dataset_accessor("unmix")(Unmixing)  # type: ignore[no-untyped-call]
