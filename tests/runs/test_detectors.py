"""Advice on wavelengths that are off and on steps between detectors: where they are made, and nowhere else."""

import numpy as np
import pytest
from conftest import write_csv, write_cube

import unmix

WAVES = np.linspace(400.0, 1000.0, 80)


def spectra(waves):
    """Three smooth spectra with absorptions."""
    bumps = [(520.0, 60.0), (680.0, 30.0), (900.0, 90.0)]
    return np.stack(
        [0.5 + 0.1 * k - 0.25 * np.exp(-(((waves - at) / wide) ** 2)) for k, (at, wide) in enumerate(bumps)], axis=1
    )


def said(folder, waves, change, caplog):
    random = np.random.default_rng(3)
    A = random.dirichlet(np.ones(3), (12, 15))
    Y = change(A @ spectra(waves).T) + 0.001 * random.standard_normal((12, 15, 80))
    path = write_cube(folder / "s.hdr", Y.astype(np.float32), wavelength=WAVES)
    write_csv(folder / "e.csv", spectra(WAVES), WAVES.tolist())
    unmix.run(path, endmembers=folder / "e.csv", method="fcls", device="cpu", out_dir=folder / "o", overwrite=True)
    return [one.message for one in caplog.records if "mean residual" in one.message]


@pytest.mark.parametrize(("shift", "word"), [(4.0, "4"), (-3.0, "3")])
def test_a_shift_of_the_wavelengths(tmp_path, caplog, shift, word):
    (message,) = said(tmp_path, WAVES + shift, lambda Y: Y, caplog)
    size = float(message.split(" nm too ")[0].split()[-1])
    assert size == pytest.approx(abs(shift), rel=0.4) and f"too {'small' if shift > 0 else 'large'}" in message and word


def test_a_step_between_detectors(tmp_path, caplog):
    def with_step(Y):
        Y[..., 40:] += 0.04
        return Y

    (message,) = said(tmp_path, WAVES, with_step, caplog)
    assert f"a step at {WAVES[40]:.5g} nm" in message


def test_a_sound_scene(tmp_path, caplog):
    assert not said(tmp_path, WAVES, lambda Y: Y, caplog)


@pytest.mark.real
@pytest.mark.parametrize("name", ["jasper", "samson"])
@pytest.mark.parametrize("method", ["nnls", "fcls"])
def test_real_scenes(tmp_path, caplog, data, name, method):
    library = data / name / f"{name}_truth_endmembers.csv"
    unmix.run(data / name / f"{name}.hdr", endmembers=library, method=method, device="cpu", out_dir=tmp_path)
    assert "mean residual" not in caplog.text
