"""Plots of spectra."""

from .. import Feature

FEATURE = Feature(
    "plot",
    commands={"plot": "Draw spectra of libraries, runs and pixels."},
    public={"plot": "spectra"},
)
