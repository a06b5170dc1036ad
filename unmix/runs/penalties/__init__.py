"""Sparse regression of scenes: a penalty on each pixel's sum of abundances, or on the rows of all pixels together."""
