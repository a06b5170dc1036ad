"""Unmix many scenes on a Dask cluster."""

from .. import Feature

FEATURE = Feature(
    "cluster",
    commands={"batch": "Unmix many scenes on many machines."},
    public={"batch": "batch"},
)
# Seconds to wait for a first worker.
WORKER_SECONDS = 600
