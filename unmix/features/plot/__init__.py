"""Plots of spectra and of maps."""

from .. import Feature

FEATURE = Feature(
    "plot",
    commands={"plot": "Draw spectra of libraries, runs and pixels, or maps of a run."},
    public={"plot": "spectra"},
)
