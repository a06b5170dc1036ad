"""Reduce the results of a block on a GPU before they leave it: totals, checksums, and the integers that are stored."""
