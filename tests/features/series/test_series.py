"""Series: slopes of pixels against numpy.polyfit, dates without values, what cannot be a series."""

import json

import numpy as np
import pytest
import scipy.stats
from conftest import refused, write_csv, write_cube
from test_cli import unmix as command

import unmix
from unmix.io.cube import by_pixel, read_lines

DATES = ("20190703", "20200628", "20210711", "20240706")


@pytest.fixture
def runs(tmp_path):
    """Runs of one place at four dates, of which one has a cloud; abundances (dates, lines, samples, endmembers)."""
    random = np.random.default_rng(2)
    E = random.uniform(0.1, 0.9, (9, 3))
    library, found = write_csv(tmp_path / "e.csv", E), []
    for k, date in enumerate(DATES):
        A = random.dirichlet(np.ones(3), (5, 7))
        Y = A @ E.T
        if k == 1:
            Y[:2] = -9
        path = write_cube(tmp_path / f"site_{date}.hdr", Y, data_ignore_value=-9)
        unmix.run(path, endmembers=library, method="fcls", out_dir=tmp_path / "maps")
        found.append(np.where((Y == -9).all(axis=2)[..., None], np.nan, A))
    return tmp_path / "maps", np.stack(found)


def test_slopes_are_those_of_polyfit(runs, tmp_path):
    folder, A = runs
    rows = unmix.series(folder, out=tmp_path / "trend.hdr")
    cube = unmix.open_cube(tmp_path / "trend.hdr")
    found = by_pixel(read_lines(cube, slice(0, cube.lines)), cube.interleave).astype(float)
    years = (np.array([f"{d[:4]}-{d[4:6]}-{d[6:]}" for d in DATES], "M8[D]") - np.datetime64("2019-07-03")).astype(
        float
    ) / 365.25
    for line, sample, band in np.ndindex(*A.shape[1:]):
        y = A[:, line, sample, band]
        there = np.isfinite(y)
        (slope, _), covariance = np.polyfit(years[there], y[there], 1, cov=True)
        assert found[line, sample, band] == pytest.approx(slope, abs=1e-6)
        assert found[line, sample, 3 + band] == pytest.approx(np.sqrt(covariance[0, 0]), abs=1e-6)
    means = [found[..., band].mean() for band in range(3)]
    assert [row["change"] for row in rows] == pytest.approx(means, abs=1e-6)
    assert [row["pixels"] for row in rows] == [35] * 3 and rows[0]["dates"][0] == "2019-07-03"
    limit = scipy.stats.t.ppf(0.975, len(DATES) - 2)
    falling = (found[..., :3] < -limit * found[..., 3:]).sum(axis=(0, 1))
    assert [row["falling"] for row in rows] == falling.tolist()


def test_pixels_with_fewer_dates(runs):
    folder, _ = runs
    two = unmix.series([folder / f"site_{date}" for date in DATES[:2]], kind="abundance")
    assert [row["pixels"] for row in two] == [21] * 3 and all(row["falling"] is row["rising"] is None for row in two)


def test_the_command(runs, tmp_path):
    folder, _ = runs
    assert command("series", folder, "-o", tmp_path / "trend.hdr")[0].count("a year in 35 pixels") == 3
    assert len(json.loads(command("series", folder, "--json")[0])) == 3
    assert "exists" in command("series", folder, "-o", tmp_path / "trend.hdr", code=1)[1]
    for word, said in (("rmse", "is no map of abundance, fraction"), ("abundance", "a year in 35 pixels")):
        files = [folder / f"site_{date}_{word}.hdr" for date in DATES]
        assert said in "".join(command("series", *files, code=2 * (word == "rmse")))


def test_means_over_time(runs, tmp_path, caplog):
    """Of the pixels that have values at all dates, in the order of time; a graph and a table of them; a season is no trend."""
    folder, A = runs
    stems = [folder / f"site_{date}" for date in (DATES[2], *DATES[:2], DATES[3])]
    rows = unmix.series(stems, out=tmp_path / "m.html")
    for b, row in enumerate(rows):
        assert row["means"] == pytest.approx(A[:, 2:, :, b].mean(axis=(1, 2)), abs=1e-6)
        assert row["pixels_of_means"] == 21 and row["dates"] == sorted(row["dates"])
    page = (tmp_path / "m.html").read_text()
    assert (
        page.count("<polyline") == 3
        and "21 pixels with values at all dates" in page
        and f"{rows[0]['means'][1]:.4f}" in page
    )
    assert ">2021<" in page and "the dates span" not in caplog.text
    assert unmix.series(stems, out=tmp_path / "t.hdr") == rows
    unmix.series([folder / f"site_{date}" for date in DATES[:2]], out=tmp_path / "s.html")
    assert "days after 2019-07-03" in (tmp_path / "s.html").read_text() and "the dates span 361 days" in caplog.text


def test_what_is_no_series(runs, tmp_path):
    folder, _ = runs
    refused(unmix.MethodError, "two dates", unmix.series, folder / f"site_{DATES[0]}")
    refused(unmix.MethodError, "name a page", unmix.series, folder, out=tmp_path / "page.png")
    random = np.random.default_rng(0)
    for name, shape, fault in (("plain", (5, 7, 9), "no date"), ("other_20250101", (5, 6, 9), "another grid")):
        path = write_cube(tmp_path / f"{name}.hdr", random.uniform(0.1, 0.9, shape))
        unmix.run(path, endmembers=tmp_path / "e.csv", method="fcls", out_dir=tmp_path / name)
        refused(unmix.UnmixError, fault, unmix.series, [folder, tmp_path / name / name])
