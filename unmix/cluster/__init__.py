"""Unmix many scenes, or the parts of one, on a Dask cluster."""
