"""Least-squares systems and quadratic programmes of files, beside scenes."""

from .. import Feature

FEATURE = Feature(
    "systems",
    commands={"solve": "Solve non-negative least squares and quadratic programmes."},
    public={"nnqp": "nnqp", "Programme": "nnqp"},
)
