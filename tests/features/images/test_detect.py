"""Matched filter and adaptive cosine estimator: against their definitions in plain NumPy, on synthetic and real scenes."""

import re

import numpy as np
import pytest
from conftest import mix, read_values, refused, write_csv, write_cube
from test_cli import unmix as command

import unmix

AXIS = np.linspace(400.0, 2400.0, 20)
WAVES = "{" + ", ".join(map(str, AXIS)) + "}"


def scores(Y, T, by):
    """The definitions, pixel by pixel."""
    mean, C = Y.mean(axis=0), np.cov(Y.T, bias=True)
    inverse = np.linalg.pinv(C, rcond=1e-10, hermitian=True)
    out = np.empty((len(Y), T.shape[1]))
    for i, y in enumerate(Y):
        for j, t in enumerate(T.T):
            x, s = y - mean, t - mean
            along, size = s @ inverse @ x, s @ inverse @ s
            out[i, j] = along / size if by == "mf" else np.sign(along) * along**2 / (size * (x @ inverse @ x))
    return out


@pytest.fixture
def scene(tmp_path):
    """A background of mixtures with noise, a target in some pixels, and a masked pixel."""
    random, _, Y = mix(4, (12, 15), 20, 4, noise=0.01)
    targets = random.uniform(0.1, 0.9, (20, 2))
    Y[3, 4] = targets[:, 0]
    Y[5, 6] = 0.5 * Y[5, 6] + 0.5 * targets[:, 1]
    Y[0, 0] = -9999
    write_csv(tmp_path / "t.csv", targets, AXIS, names=["one", "two"])
    return write_cube(tmp_path / "s.hdr", Y, wavelength=WAVES, data_ignore_value=-9999), Y, targets


@pytest.mark.parametrize("by", ["mf", "ace"])
@pytest.mark.parametrize("offset", [1e5, 1e7])
def test_an_offset_changes_no_score(tmp_path, by, offset):
    """Directions are a hundredth as strong as others, and far below the offset."""
    random = np.random.default_rng(1)
    Y = offset + random.standard_normal((20, 25, 8)) @ (
        np.diag(10.0 ** -np.linspace(0, 2, 8)) @ random.standard_normal((8, 8))
    )
    target = offset + random.standard_normal((8, 1))
    write_cube(tmp_path / "s.hdr", Y)
    write_csv(tmp_path / "t.csv", target)
    found = unmix.detect(tmp_path / "s.hdr", tmp_path / "t.csv", detector=by, out_dir=tmp_path, scale=1)
    # the mean is rounded to 1e-16 of the offset, which is up to 1e-7 of the weakest deviation
    truth, off = scores((Y - offset).reshape(-1, 8), target - offset, by), 1e-16 * offset / 1e-2
    assert found["rank"] == 8 and abs(found["targets"][0]["largest"] / truth.max() - 1) < 1e-9 + off
    np.testing.assert_allclose(read_values(tmp_path / "s_detect.hdr").ravel(), truth.ravel(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("by", ["mf", "ace"])
@pytest.mark.parametrize("memory", ["1G", "20K"])
def test_the_scores_are_as_defined(tmp_path, scene, by, memory):
    path, Y, targets = scene
    out, _ = command("detect", path, "-e", tmp_path / "t.csv", "--detector", by, "--memory", memory)
    found = read_values(tmp_path / "s_detect.hdr")
    good = Y[..., 0] != -9999
    assert (found[~good] == -9999).all()
    np.testing.assert_allclose(found[good], scores(Y[good], targets, by), rtol=2e-5, atol=2e-6)
    rows = (tmp_path / "s_detect.csv").read_text().splitlines()
    assert rows[0] == "name,largest,line,sample" and rows[1].endswith(",3,4") and rows[2].endswith(",5,6")
    assert f"{found[3, 4, 0]:.4f}"[:5] in out and abs(found[3, 4, 0] - 1) < 1e-5
    assert (tmp_path / "s_detect_places.csv").read_text().startswith("name,score,line,sample,x,y,pixels\n")
    assert "one, two" in " ".join((tmp_path / "s_detect.hdr").read_text().split())


@pytest.mark.parametrize("factor", [1e-4, 0.01, 0.1, 10, 100, 10000])
def test_targets_in_another_unit_are_refused(tmp_path, scene, factor, caplog):
    """Scores of them were about 0; with a scale of one's own they are, after a warning."""
    path, _, targets = scene
    write_csv(tmp_path / "far.csv", factor * targets, AXIS)
    scales = f"`scale` {1 / factor:g}", f"`library_scale` {factor:g}"
    first, other = scales[::-1] if factor >= 10 else scales  # that of the one that is no reflectance
    with pytest.raises(
        unmix.CubeError, match=re.escape(f"{first} (or {other}) brings them together, `scale` 1 keeps them")
    ):
        unmix.detect(path, tmp_path / "far.csv")
    assert not list(tmp_path.glob("*detect*"))
    found = unmix.detect(path, tmp_path / "far.csv", library_scale=factor)
    assert found["targets"][0]["largest"] == pytest.approx(1, abs=1e-4) and not caplog.text
    unmix.detect(path, tmp_path / "far.csv", scale=1, overwrite=True)
    assert "the pixels most like the targets of far.csv are" in caplog.text


def test_dark_targets_and_dark_pixels_are_not_refused(tmp_path, scene):
    """Water of 0.02 in a scene of 0.5; a target in half shade; one that the scene has not."""
    path, Y, targets = scene
    water = np.linspace(0.05, 0.01, 20)
    Y[8:11] = water + 1e-3 * np.random.default_rng(0).standard_normal((3, 15, 20))
    Y[3, 4] = 0.4 * targets[:, 0]
    path = write_cube(tmp_path / "w.hdr", Y, wavelength=WAVES, data_ignore_value=-9999)
    for name, spectra in {
        "w": water[:, None],
        "t": targets[:, :1],
        "x": np.random.default_rng(9).uniform(0, 1, (20, 1)),
    }.items():
        unmix.detect(path, write_csv(tmp_path / f"{name}.csv", spectra, AXIS), overwrite=True)


def test_odd_scenes(tmp_path, scene):
    """Bands that are copies of others; pixels that do not differ; a target that is the mean; an unknown detector."""
    path, Y, _ = scene
    twice = write_cube(tmp_path / "d.hdr", np.concatenate([Y, Y[..., :1]], axis=-1), data_ignore_value=-9999)
    write_csv(tmp_path / "t2.csv", np.random.default_rng(0).random((21, 1)))
    assert unmix.detect(twice, tmp_path / "t2.csv")["rank"] == 20
    flat = write_cube(tmp_path / "f.hdr", np.ones((4, 5, 20)), wavelength=WAVES)
    assert "do not differ" in command("detect", flat, "-e", tmp_path / "t.csv", code=3)[1]
    assert not list(tmp_path.glob("f_detect*"))
    refused(unmix.MethodError, "must be mf or ace", unmix.detect, path, tmp_path / "t.csv", detector="cem")
    command("detect", path, "-e", tmp_path / "t.csv")
    assert "exists already" in command("detect", path, "-e", tmp_path / "t.csv", code=1)[1]
    command("detect", path, "-e", tmp_path / "t.csv", "--overwrite")


@pytest.mark.parametrize("by", ["mf", "ace"])
@pytest.mark.parametrize("memory", ["1G", "20K"])
def test_places_are_groups_that_touch(tmp_path, by, memory):
    """Against scipy's labels of the map, with the coordinates of the best pixel; by the default threshold, and by one's own."""
    from scipy.ndimage import label

    random = np.random.default_rng(6)
    E, target = random.uniform(0.1, 0.9, (20, 4)), random.uniform(0.1, 0.9, 20)
    Y = random.dirichlet(np.ones(4), (40, 30)) @ E.T + 0.01 * random.standard_normal((40, 30, 20))
    for line, sample, share in ((3, 4, 1.0), (4, 5, 0.7), (4, 6, 0.8), (20, 29, 0.9), (21, 0, 0.9), (39, 12, 0.5)):
        Y[line, sample] = (1 - share) * Y[line, sample] + share * target
    path = write_cube(
        tmp_path / "s.hdr", Y, wavelength=WAVES, map_info="{UTM, 1, 1, 500000, 4100000, 2, 3, 11, North, WGS-84}"
    )
    write_csv(tmp_path / "t.csv", target[:, None], AXIS, names=["cloth"])
    for threshold in (None, 0.4):
        found = unmix.detect(
            path, tmp_path / "t.csv", detector=by, memory=memory, threshold=threshold, overwrite=True, lines="2:40"
        )
        score = read_values(tmp_path / "s_detect.hdr")[..., 0].astype(float)
        (limit,) = found["thresholds"]
        groups, count = label(score > limit, np.ones((3, 3)))
        assert len(found["places"]) == count >= 3 and (threshold is None or limit == threshold)
        assert [one["score"] for one in found["places"]] == sorted(
            (one["score"] for one in found["places"]), reverse=True
        )
        for one in found["places"]:
            at = one["line"] - 2, one["sample"]
            of_group = groups == groups[at]
            assert one["pixels"] == of_group.sum()
            assert score[at] == score[of_group].max() == pytest.approx(one["score"], rel=1e-5)
            assert (one["x"], one["y"]) == (500000 + 2 * (at[1] + 0.5), 4100000 - 3 * (one["line"] + 0.5))
        assert {(3, 4), (20, 29), (21, 0)} <= {(one["line"], one["sample"]) for one in found["places"]}
    rows = (tmp_path / "s_detect_places.csv").read_text().splitlines()
    assert len(rows) == 1 + len(found["places"]) and rows[1].startswith("cloth,")


@pytest.mark.parametrize("by", ["mf", "ace"])
def test_a_threshold_that_no_pixel_reaches_is_said(tmp_path, by, caplog):
    """A target within the background's spread: six deviations are more than all of it."""
    random, _, Y = mix(4, (30, 30), 20, 4, noise=0.02)
    write_csv(tmp_path / "t.csv", np.column_stack([Y.mean(axis=(0, 1)) + 0.001, random.uniform(0.1, 0.9, 20) + 0.5]))
    found = unmix.detect(write_cube(tmp_path / "s.hdr", Y), tmp_path / "t.csv", detector=by, out_dir=tmp_path, scale=1)
    said = [record.getMessage() for record in caplog.records if "too near the background" in record.getMessage()]
    assert len(said) == sum(limit >= 1 for limit in found["thresholds"]) == (by == "mf")


@pytest.mark.parametrize("by", ["mf", "ace"])
def test_a_strong_plume_hides_no_weaker_source(tmp_path, by):
    """The deviation of the background is that of most pixels, not of all."""
    random = np.random.default_rng(6)
    Y = 1.0 + 0.01 * random.standard_normal((70, 70, 20)) + 0.05 * random.standard_normal((70, 70, 1))
    target = 1.0 + np.sin(np.arange(20.0))
    Y[10:14, 10:14] += np.sin(np.arange(20.0))
    Y[50:53, 50:53] += 0.12 * np.sin(np.arange(20.0))
    path = write_cube(tmp_path / "s.hdr", Y, wavelength=WAVES)
    write_csv(tmp_path / "t.csv", target[:, None], AXIS, names=["gas"])
    found = unmix.detect(path, tmp_path / "t.csv", detector=by, scale=1)["places"]
    assert [(10 <= one["line"] < 14, 50 <= one["line"] < 53) for one in found] == [(True, False), (False, True)]
