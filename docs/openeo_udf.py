"""A user-defined function of openEO: abundances of a library in place of bands, certified or missing."""

import numpy as np
import xarray
from openeo.udf import XarrayDataCube

import unmix


def apply_datacube(cube: XarrayDataCube, context: dict) -> XarrayDataCube:
    """Return abundances in place of bands; ``context`` has the spectra by name, and the method."""
    scene = cube.get_array().transpose(..., "bands")
    names, spectra = zip(*context["spectra"].items())
    pixels = scene.values.reshape(-1, scene.sizes["bands"]).astype(float)
    known = np.isfinite(pixels).all(axis=1)
    abundances = np.full((len(pixels), len(names)), np.nan)
    if known.any():
        found = unmix.solve(pixels[known], np.array(spectra, float).T, method=context.get("method", "fcls"))
        abundances[known] = np.where((found.delta <= 1e-4)[:, None], found.abundances, np.nan)
    values = abundances.reshape(*scene.shape[:-1], len(names))
    others = {name: scene.coords[name] for name in scene.dims[:-1] if name in scene.coords}
    found = xarray.DataArray(values, dims=scene.dims, coords=others | {"bands": list(names)})
    return XarrayDataCube(found.transpose(*cube.get_array().dims))
