"""Open scenes in xarray, and unmix them there: ``xarray.open_dataset(path, engine="unmix")`` and ``dataset.unmix.solve(E)``.

The values are read when they are used, a block of lines at a time, and with ``chunks=`` by dask's workers.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import xarray
from xarray.backends import BackendArray, BackendEntrypoint
from xarray.core import indexing

from .arrays.pixels import solve
from .arrays.ranges import ranges
from .io import Cube, Scene, bytes_per_line, cut, read_blocks
from .io.formats.header import centres_of, geotransform
from .scene import ReadOptions, open_scene

# The variable that holds a scene's values.
VALUES = "spectra"


class SceneArray(BackendArray):
    """The values of a scene, (lines, samples, bands), scaled and with NaN where there is no value; read when indexed."""

    def __init__(self, scene: Scene) -> None:
        cube, bands, _ = self.scene = scene
        self.shape = cube.lines, cube.samples, len(bands.index)
        # As precise as `unmix.run`: float32 holds stored values of few bits, but not their products with a scale such as 1e-4,
        # and similar endmembers magnify the rounding: abundances were off by 6.6e-6 at cond(E) 1458, where δ was 2e-9.
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


class SceneEngine(BackendEntrypoint):
    """The engine ``unmix`` of `xarray.open_dataset`: every format that `unmix.run` reads."""

    description = "Open hyperspectral scenes: ENVI, GeoTIFF, MATLAB and products in HDF5 or NetCDF-4"
    open_dataset_parameters = ("filename_or_obj", "drop_variables")

    def open_dataset(
        self, filename_or_obj: Any, *, drop_variables: str | Iterable[str] | None = None, **reading: Any
    ) -> xarray.Dataset:
        """Open a scene; see `unmix.ReadOptions` for ``reading``, of which ``bands`` is "all" by default.

        Returns
        -------
        Dataset
            ``spectra`` (y, x, band), scaled, NaN where there is no value, float64, or float32 where that holds the values exactly; as
            coordinates ``band`` (from 1), ``wavelength`` and ``fwhm`` (nm) and ``good`` where the file has them, ``x`` and ``y`` where
            it has a map that is not rotated.

        Raises
        ------
        CubeError, MethodError
            As `unmix.run`.
        """
        scene = open_scene(os.fspath(filename_or_obj), ReadOptions(**({"bands": "all"} | reading)))
        lazy, (cube, bands, _) = indexing.LazilyIndexedArray(SceneArray(scene)), scene
        chunk = {"y": min(cube.lines, max(cube.lines_together, 2**26 // bytes_per_line(cube)))}
        variable = xarray.Variable(("y", "x", "band"), lazy, encoding={"preferred_chunks": chunk})
        coordinates: dict[str, Any] = {"band": ("band", bands.index + 1)}
        for name, values, units in (
            ("wavelength", cube.wavelengths, "nm"),
            ("fwhm", cube.fwhm, "nm"),
            ("good", cube.good_bands, ""),
        ):
            if values is not None:
                coordinates[name] = ("band", values[bands.index], {"units": units} if units else {})
        coordinates |= axes_of(cube)
        dataset = xarray.Dataset({VALUES: variable}, coordinates, {"source": str(cube.path)})
        left_out = [drop_variables] if isinstance(drop_variables, str) else list(drop_variables or [])
        return dataset.drop_vars([name for name in left_out if name in dataset])

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Return False: only the engine's name opens a file with it, since other engines read the same endings."""
        return False


def axes_of(cube: Cube) -> dict[str, Any]:
    """Return the coordinates x and y of the pixels' centres, if the map info has them and the map is not rotated."""
    transform = geotransform(cube.fields.get("map info", ""))
    places = None if transform is None else centres_of(transform, cube.lines, cube.samples)
    if places is None:
        return {}
    axes = {"x": ("x", places[1]), "y": ("y", places[0])}
    wkt = " ".join(cube.fields.get("coordinate system string", "").strip("{} \n").split())
    return axes | ({"spatial_ref": ((), 0, {"crs_wkt": wkt})} if wkt else {})


@xarray.register_dataset_accessor("unmix")  # type: ignore[no-untyped-call]
class Unmixing:
    """``dataset.unmix``: unmix a dataset with a variable ``spectra`` whose last axis is ``band``."""

    def __init__(self, dataset: xarray.Dataset) -> None:
        self.dataset = dataset

    def solve(self, E: Any, names: Sequence[str] | None = None, **options: Any) -> xarray.Dataset:
        """Solve every pixel; lazily, chunk by chunk, where the dataset has chunks.

        Parameters
        ----------
        E : array-like of shape (L, p)
            Endmembers, one per column, at the dataset's bands and in its unit.
        names : sequence of str, optional
            Names of the endmembers; default is 1 to p.
        **options
            Arguments of `unmix.solve`: ``method``, ``solver``, ``normalize``, ``device``, ``threads``.

        Returns
        -------
        Dataset
            ``abundance`` (…, endmember) and ``rmse``, ``kappa`` and ``delta`` (…), float64; NaN where a pixel misses a band. With
            ``normalize`` also ``scale``.
        """
        E = np.asarray(E, float)
        p = E.shape[1]
        names_of = ["rmse", "kappa", "delta"] + ["scale"] * (options.get("normalize", "none") != "none")

        def solved(block: np.ndarray) -> np.ndarray:
            answer = solve(block.astype(np.float64), E, **options)
            parts = [answer.abundances, *(values[..., None] for values in (answer.rmse, answer.kappa, answer.delta))]
            parts += [] if answer.scale is None else [answer.scale[..., None]]
            return np.where(answer.valid[..., None], np.concatenate(parts, axis=-1), np.nan)

        every = self.each_pixel(solved, p + len(names_of))
        found = every.isel(value=slice(0, p)).rename(value="endmember")
        found = found.assign_coords(endmember=list(names or map(str, range(1, p + 1))))
        rest = {name: every.isel(value=p + k, drop=True) for k, name in enumerate(names_of)}
        return xarray.Dataset({"abundance": found, **rest})

    def ranges(self, E: Any, classes: Sequence[str] | None = None, **options: Any) -> xarray.Dataset:
        """Find the proved ranges of every pixel; lazily, chunk by chunk, where the dataset has chunks.

        Parameters
        ----------
        E : array-like of shape (L, p)
            A library, one spectrum per column, at the dataset's bands and in its unit.
        classes : sequence of str, optional
            The class of each spectrum: ranges are those of the sums by class then.
        **options
            Arguments of `unmix.ranges`: ``method``, ``within``, ``confidence``, ``noise``, ``normalize``, …

        Returns
        -------
        Dataset
            ``lower``, ``upper``, ``lower_reached``, ``upper_reached`` (…, quantity) and ``limit`` (…), as `unmix.Ranges` has them.
        """
        E = np.asarray(E, float)
        names = list(dict.fromkeys(classes or map(str, range(1, E.shape[1] + 1))))
        ends = ("lower", "upper", "lower_reached", "upper_reached")

        def found(block: np.ndarray) -> np.ndarray:
            answer = ranges(block.astype(np.float64), E, classes, **options)
            return np.concatenate([*(getattr(answer, end) for end in ends), answer.limit[..., None]], axis=-1)

        k = len(names)
        every = self.each_pixel(found, 4 * k + 1)
        parts = {
            end: every.isel(value=slice(i * k, (i + 1) * k)).rename(value="quantity").assign_coords(quantity=names)
            for i, end in enumerate(ends)
        }
        return xarray.Dataset({**parts, "limit": every.isel(value=4 * k, drop=True)})

    def each_pixel(self, function: Callable[[np.ndarray], np.ndarray], width: int) -> xarray.DataArray:
        """Return what a function makes of pixels (…, L): ``width`` numbers each, float64, along the dimension ``value``."""
        values = self.dataset[VALUES]
        values = values.chunk({"band": -1}) if values.chunks else values
        every: xarray.DataArray = xarray.apply_ufunc(
            function, values, input_core_dims=[["band"]], output_core_dims=[["value"]], dask="parallelized",
            output_dtypes=[np.float64], dask_gufunc_kwargs={"output_sizes": {"value": width}},
        )  # fmt: skip
        return every
