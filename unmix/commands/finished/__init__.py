"""Products of finished runs: comparisons, other formats, STAC items."""
