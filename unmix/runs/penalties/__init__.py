"""Penalties of scenes: on each pixel's sum of abundances, or on differences between neighbours."""
