"""What is made of finished runs: comparisons, other formats, STAC items."""
