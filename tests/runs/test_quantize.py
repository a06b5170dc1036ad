"""`--quantize`: maps of 16-bit integers, whose values are those of float32 maps to half a step."""

import h5py
import numpy as np
import pytest
from conftest import mix, read_map, rest_slow, write_csv, write_cube
from hypothesis import given
from hypothesis import strategies as st
from test_cli import unmix as command

import unmix
from unmix.errors import MethodError, OutputError
from unmix.maps.raster import NODATA, encoded, type_of
from unmix.runs.files.finished import FinishedRun

STEP = 1e-4
WAVES = "{" + ", ".join(map(str, range(400, 2400, 170))) + "}"


@pytest.fixture
def scene(tmp_path):
    """A scene with masked pixels, and a library with classes."""
    _, E, values = mix(5, (40, 30), 12, 5, (0, 1), noise=0.01)
    values[3, 4:9] = -1
    header = {"wavelength": WAVES, "data ignore value": "-1"}
    write_cube(tmp_path / "s.hdr", values.astype(np.float32), **header)
    write_csv(tmp_path / "lib.csv", E, range(400, 2400, 170), names=[f"e{j}" for j in range(5)], classes=[*"ababa"])
    return tmp_path


@given(st.lists(st.floats(0, 6.5534), min_size=1, max_size=50), st.sampled_from([1e-4, 1e-3, 0.25]))
def test_values_to_half_a_step(numbers, step):
    kind = type_of("abundance", step)
    values = np.array([*numbers, NODATA], np.float32)
    back = kind.decode(encoded(values, kind, lambda: ""))
    assert back[-1] == NODATA
    assert np.all(np.abs(back[:-1].astype(float) - values[:-1]) <= step * (0.5 + 1e-6) + 6.5 * 6e-8)


@pytest.mark.parametrize("value", [-1e-4, 6.5536, np.nan, np.inf, -np.inf])
def test_what_does_not_fit_is_named(value):
    with pytest.raises(OutputError, match=r"x: .* does not fit steps of 0.0001, which hold 0 to 6.5534; use a larger"):
        encoded(np.array([0.5, value], np.float32), type_of("abundance", STEP), lambda: "x")


@pytest.mark.parametrize(
    ("form", "method"),
    rest_slow(
        [("envi", "scls"), ("netcdf", "fcls"), ("geotiff", "fcls"), ("cog", "fcls"), ("hdf5", "fcls")],
        ("envi", "scls"),
        ("netcdf", "fcls"),
    ),
)
def test_same_values_in_every_format(scene, form, method, device):
    """Abundances, residuals and sums are those of a float32 run to half a step, and verify solves them again."""
    if form in ("geotiff", "cog"):
        pytest.importorskip("rasterio")
    options = {"endmembers": scene / "lib.csv", "method": method, "residual": True, "by": "class", "device": device}
    plain = unmix.run(scene / "s.hdr", out_dir=scene / "plain", **options)
    report = unmix.run(scene / "s.hdr", out_dir=scene / "narrow", quantize=STEP, format=form, **options)
    for name in ("abundance", "residual", "fraction", "rmse"):
        wide, narrow = read_map(scene / "plain/s", name), read_map(scene / "narrow/s", name)
        masked = wide == NODATA
        assert np.array_equal(masked, narrow == NODATA) and masked[3, 4:9].all()
        limit = 0 if name == "rmse" else 0.5 * STEP * (1 + 1e-3)
        assert np.abs(wide.astype(float) - narrow)[~masked].max() <= limit
    assert plain["worst_kappa"] == report["worst_kappa"] and plain["abundances"] == report["abundances"]
    assert report["asked"]["quantize"] == STEP
    command("verify", scene / "narrow/s", "--all")
    command("compare", scene / "narrow/s", scene / "plain/s")
    imread = pytest.importorskip("matplotlib.image").imread
    pictures = [imread(scene / each / "s_browse.png") for each in ("plain", "narrow")]
    assert np.abs(pictures[0] - pictures[1]).max() <= 1.01 / 255


@pytest.mark.parametrize("form", ["geotiff", "netcdf"])
def test_others_read_the_values(scene, form):
    """GDAL, and whoever reads NetCDF by the CF conventions, find scale, offset and nodata where they look for them."""
    rasterio = pytest.importorskip("rasterio") if form == "geotiff" else None
    options = {"endmembers": scene / "lib.csv", "method": "scls", "quantize": STEP, "format": form, "device": "cpu"}
    unmix.run(scene / "s.hdr", out_dir=scene / form, **options)
    expected = read_map(scene / form / "s", "abundance").transpose(2, 0, 1)
    if form == "geotiff":
        with rasterio.open(scene / form / "s_abundance.tif") as opened:
            stored, scale, offset, blank = opened.read(), opened.scales[0], opened.offsets[0], opened.nodata
    else:
        with h5py.File(scene / form / "s_abundance.nc") as opened:
            data = opened["abundance"]
            stored, blank = data[:], data.attrs["_FillValue"][0]
            scale, offset = (float(data.attrs[name]) for name in ("scale_factor", "add_offset"))
    assert stored.dtype == np.uint16 and blank == 65535 and np.array_equal(stored == blank, expected == NODATA)
    np.testing.assert_allclose((stored * scale + offset)[stored != blank], expected[stored != blank], atol=1e-6)


def test_export_keeps_the_steps(scene):
    rasterio = pytest.importorskip("rasterio")
    unmix.run(scene / "s.hdr", out_dir=scene / "q", endmembers=scene / "lib.csv", quantize=STEP, device="cpu")
    command("export", scene / "q/s", "-o", scene / "tif/{stem}", "-f", "geotiff", "--split")
    with rasterio.open(scene / "tif/s/s_abundance_e1.tif") as opened:
        assert opened.scales == (STEP,) and opened.nodata == 65535
        assert np.array_equal(opened.read(1), np.fromfile(scene / "q/s_abundance.img", "<u2").reshape(40, 5, 30)[:, 1])


def test_the_largest_in_steps(scene):
    unmix.run(scene / "s.hdr", out_dir=scene / "q", endmembers=scene / "lib.csv", quantize=STEP, device="cpu", top=2)
    command("verify", scene / "q/s", "--all")
    command("report", scene / "q/s")


def test_one_step_off_is_found(scene):
    """A value that is a step off is no rounding."""
    from unmix.commands.verify import outputs

    unmix.run(scene / "s.hdr", out_dir=scene / "q", endmembers=scene / "lib.csv", quantize=STEP, device="cpu")
    stored = np.fromfile(scene / "q/s_abundance.img", "<u2").reshape(40, 5, 30)
    line, band, sample = np.argwhere((stored > 2000) & (stored < 60000))[0]
    stored[line, band, sample] += 2
    stored.tofile(scene / "q/s_abundance.img")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outputs, "check_digests", lambda *_: None)
        _, err = command("verify", scene / "q/s", "--all", code=1)
    assert f"line {line}, sample {sample}: its abundance does not match the cube" in err


def test_a_value_that_does_not_fit_ends_the_run(scene):
    """The message names the map, and nothing has a final name."""
    _, err = command("run", scene / "s.hdr", "-e", scene / "lib.csv", "--quantize", "1e-6", "-o", scene / "q", code=1)
    (line,) = [line for line in err.splitlines() if "error" in line]
    assert "s_abundance.img" in line and "steps of 1e-06" in line and "--quantize, or none" in line
    assert not (scene / "q").exists() or not list((scene / "q").glob("*.img"))
    for bad in ("0", "-1", "nan", "inf", "0.2"):
        command("run", scene / "s.hdr", "-e", scene / "lib.csv", "--quantize", bad, "-o", scene / "q", code=2)
    with pytest.raises(MethodError, match="tv"):
        unmix.run(scene / "s.hdr", endmembers=scene / "lib.csv", method="nnls", tv=0.1, quantize=STEP)


def test_nothing_is_kept_of_a_run_that_cannot_end(scene):
    """A value that does not fit in a late line: another step may begin at once."""
    values = np.fromfile(scene / "s.img", "<f4").reshape(40, 12, 30)
    values[35] *= 30
    values.tofile(scene / "s.img")
    words = ["run", scene / "s.hdr", "-e", scene / "lib.csv", "--method", "nnls", "--memory", "30000"]
    words += ["-o", scene / "q"]
    _, err = command(*words, "--quantize", "1e-4", code=1)
    assert "does not fit" in err and "lines are done" not in err
    command(*words, "--quantize", "1e-3")


def test_maps_of_others_are_compared_by_their_gains(scene):
    """Each band by its own, of any type."""
    unmix.run(scene / "s.hdr", out_dir=scene / "one", endmembers=scene / "lib.csv", device="cpu")
    truth = read_map(scene / "one/s", "abundance").transpose(0, 2, 1).astype(float)
    gains = np.array([1e-4, 2e-4, 1e-3, 5e-4, 1e-4])[None, :, None]
    stored = np.where(truth == NODATA, -1, np.rint((truth - 0.5) / gains)).astype("<i2")
    fields = {"data gain values": "{1e-4, 2e-4, 1e-3, 5e-4, 1e-4}", "data offset values": "{0.5, 0.5, 0.5, 0.5, 0.5}"}
    names = "{e0, e1, e2, e3, e4}"
    write_cube(
        scene / "t.hdr", stored.transpose(0, 2, 1), "bil", **{"band names": names, "data ignore value": "-1"}, **fields
    )
    pairs = unmix.compare(scene / "one/s", scene / "t.hdr")["pairs"]
    assert max(abs(pair["rmse"]) for pair in pairs) < 5e-4


@pytest.mark.parametrize("words", [{}, pytest.param({"method": "mesma"}, marks=pytest.mark.slow)])
def test_verify_of_steps(scene, words):
    """A map of steps has the same ones when it is made again; tags do not repeat the scaling."""
    from unmix.commands.verify import verify

    unmix.run(scene / "s.hdr", out_dir=scene / "q", endmembers=scene / "lib.csv", quantize=1e-3, device="cpu", **words)
    verdict = verify(scene / "q/s", everything=True)
    assert verdict.faults == [] and verdict.same_bytes
    if words:
        return  # its maps have other names
    command("export", scene / "q/s", "-o", scene / "nc", "-f", "netcdf")
    with h5py.File(scene / "nc/s_abundance.nc") as file:
        assert not [name for name in file.attrs if name.startswith("data_")]
        assert file["abundance"].attrs["scale_factor"] == 1e-3


@pytest.mark.sim
@pytest.mark.parametrize("twins", [False, True], ids=["", "doubtful"])
def test_integers_of_each_device_are_those_of_its_values(tmp_path, device, twins):
    """Also where pixels are solved again on the host, whose lines it then stores."""
    rng = np.random.default_rng(7)
    E = rng.random((12, 3)) + 0.1
    if twins:
        E[:, 2] = E[:, 1] * (1 + 1e-5 * rng.standard_normal(12))
    A = rng.dirichlet(np.ones(3), (6, 7))
    A[::2, :, 2] = 0  # in these lines no pixel is in doubt for the twins
    values = (A @ E.T + 0.01 * rng.standard_normal((6, 7, 12))).astype(np.float32)
    values[3, 2] = -1
    path, library = (
        write_cube(tmp_path / "x.hdr", values, **{"data ignore value": "-1"}),
        write_csv(tmp_path / "e.csv", E),
    )
    options = {"endmembers": library, "device": device, "residual": True, "memory": "20K", "browse": False}
    for name, step in (("wide", None), ("narrow", STEP)):
        report = unmix.run(path, out_dir=tmp_path / name, quantize=step, **options)
        assert report["pixels"]["certified"] == 41
    for name, bands in (("abundance", 3), ("residual", 12)):
        wide = np.fromfile(tmp_path / f"wide/x_{name}.img", "<f4").reshape(6, bands, 7)
        narrow = np.fromfile(tmp_path / f"narrow/x_{name}.img", "<u2").reshape(6, bands, 7)
        assert np.array_equal(narrow, encoded(wide, type_of(name, STEP), lambda: ""))
    command("verify", tmp_path / "narrow/x", "--all")


@pytest.mark.sim
def test_each_device_names_what_does_not_fit(tmp_path, device):
    E = np.eye(3, dtype=np.float32) + 0.1
    values = np.full((4, 6, 3), 0.5, np.float32)
    values[2, 3] = [80, 3, 3]
    path, library = write_cube(tmp_path / "x.hdr", values), write_csv(tmp_path / "e.csv", E)
    with pytest.raises(OutputError, match=r"x_abundance.img: .* does not fit steps of 0.001, which hold 0 to 65.534"):
        unmix.run(path, endmembers=library, method="nnls", device=device, quantize=1e-3, out_dir=tmp_path / "q")
    assert not list((tmp_path / "q").glob("*"))
    unmix.run(path, endmembers=library, method="nnls", device=device, quantize=1e-2, out_dir=tmp_path / "q")


UNITS = [(1, 1.9, 1e-4), (1, 2.1, 1e-3), (10_000, 0.9, 1.0), (1000, 0.25, 0.1), (0.01, 1.0, 1e-6)]


@pytest.mark.parametrize("unit, largest, step", UNITS)
def test_residuals_have_steps_of_the_scene_s_unit(tmp_path, unit, largest, step):
    """So that one option serves reflectance from 0 to 1 and reflectance times 10 000."""
    rng = np.random.default_rng(3)
    E = rng.uniform(0.1, 1, (12, 3))
    E *= largest / E.max()
    values = unit * (rng.dirichlet(np.ones(3), (5, 6)) @ E.T + 0.2 * rng.standard_normal((5, 6, 12)))
    path, library = write_cube(tmp_path / "x.hdr", values), write_csv(tmp_path / "e.csv", unit * E)
    options = {"endmembers": library, "device": "cpu", "residual": True, "method": "fcls"}
    unmix.run(path, out_dir=tmp_path / "wide", **options)
    unmix.run(path, out_dir=tmp_path / "narrow", quantize=STEP, **options)
    cube = FinishedRun.of(tmp_path / "narrow/x").open_stored("residual")
    assert np.all(cube.gain == step) and np.all(cube.offset == -32767 * step)
    wide, narrow = read_map(tmp_path / "wide/x", "residual"), read_map(tmp_path / "narrow/x", "residual")
    assert np.abs(wide.astype(float) - narrow).max() <= 0.501 * step
    command("verify", tmp_path / "narrow/x", "--all")


def test_endmembers_of_zeros_alone(tmp_path):
    """Allowed under the sum to one, refused otherwise; no scale can be told from them."""
    path = write_cube(tmp_path / "x.hdr", np.random.default_rng(0).random((4, 5, 6)))
    library = write_csv(tmp_path / "e.csv", np.zeros((6, 2)))
    words = ["run", path, "-e", library, "--quantize", "1e-4", "--residual", "--device", "cpu", "-o", tmp_path / "o"]
    command(*words, "--method", "fcls")
    assert FinishedRun.of(tmp_path / "o/x").open_stored("residual").gain[0] == STEP
    assert "zero in all bands" in command(*words, "--method", "nnls", "--overwrite", code=3)[1]
