"""Batches of nonnegative quadratic programmes."""
