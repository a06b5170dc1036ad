"""Random attributes of the CF conventions: values are those that xarray decodes, to one unit in the last place."""

import uuid

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmix import CubeError
from unmix.scene import ReadOptions, open_scene

xarray = pytest.importorskip("xarray")
pytest.importorskip("h5netcdf")
SHAPE = 3, 4, 5  # bands, lines, samples
TYPES = "i1", "u1", "i2", "u2", "i4", "u4", "f4", "f8"


@st.composite
def packed(draw):
    """Draw stored numbers and their attributes."""
    dtype = np.dtype(draw(st.sampled_from(TYPES)))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    if dtype.kind == "f":
        values = random.normal(0, 10, SHAPE).astype(dtype)
    else:
        info = np.iinfo(dtype)
        values = random.integers(max(info.min, -300), min(info.max, 300), SHAPE, dtype, endpoint=True)
    attributes = {}
    if dtype.kind in "iu" and draw(st.integers(0, 3)) == 0:
        attributes["_Unsigned"] = "true" if dtype.kind == "i" else "false"
    if draw(st.booleans()):
        attributes["scale_factor"] = draw(st.sampled_from([1e-4, 0.5, 2.0, -0.01, 1 / 3]))
    if draw(st.booleans()):
        attributes["add_offset"] = draw(st.sampled_from([0.0, -0.1, 273.15, 1e6]))
    chosen = values.ravel()[random.integers(values.size, size=2)]
    kind = draw(st.sampled_from(["", "_FillValue", "missing_value", "both"]))
    for name, value in zip(("_FillValue", "missing_value"), (chosen[0], chosen[0 if kind == "both" else 1])):
        # Of unsigned numbers xarray takes `_FillValue` for signed, netCDF4 and unmix `missing_value`, too.
        if kind in (name, "both") and not (name == "missing_value" and "_Unsigned" in attributes):
            attributes[name] = value
    # xarray 2026.9 swaps the bytes of an unsigned fill value of another byte order.
    return values, attributes, draw(st.booleans()) and "_Unsigned" not in attributes


@given(packed())
@settings(max_examples=40)
def test_values_are_those_of_xarray(tmp_path_factory, drawn):
    check(tmp_path_factory, *drawn)


@pytest.mark.night
@pytest.mark.slow
@given(packed())
@settings(max_examples=400)
def test_values_of_many(tmp_path_factory, drawn):
    check(tmp_path_factory, *drawn)


def check(tmp_path_factory, values, attributes, is_big_endian):
    path = tmp_path_factory.getbasetemp() / f"{uuid.uuid4()}.nc"
    with h5py.File(path, "w") as file:
        data = file.create_dataset("r", data=values, dtype=values.dtype.newbyteorder(">" if is_big_endian else "<"))
        for k, (name, size) in enumerate(zip(("band", "y", "x"), SHAPE)):
            file[name] = np.arange(size) + 0.5
            file[name].make_scale(name)
            data.dims[k].attach_scale(file[name])
        data.attrs.update(attributes)
    with xarray.open_dataset(path, engine="h5netcdf", decode_times=False) as dataset:
        expected = dataset["r"].values.astype(float).transpose(1, 2, 0).reshape(-1, SHAPE[0])
    if (
        values.dtype.itemsize == 1
        and attributes.get("_Unsigned", "true" if values.dtype.kind == "u" else "false") == "false"
    ):
        with pytest.raises(CubeError, match="is of type"):  # a type that ENVI does not have
            open_scene(path, ReadOptions())
        return
    scene = open_scene(path, ReadOptions())
    Y, masked = zip(*(scene.read(line) for line in range(SHAPE[1])))
    Y, masked = np.concatenate(Y), np.concatenate(masked)
    np.testing.assert_array_equal(masked, np.isnan(expected).any(axis=1))
    path.unlink()
    good = ~masked
    # float32 alone is decoded in float32 by xarray.
    rtol = 2.0**-22 if values.dtype == np.float32 else 2.0**-51
    np.testing.assert_allclose(Y[good], expected[good], rtol=rtol, atol=rtol * abs(attributes.get("add_offset", 0.0)))
