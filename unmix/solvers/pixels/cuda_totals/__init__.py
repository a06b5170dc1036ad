"""What a GPU makes of the results of a block before they leave it: totals, checksums, and the integers that are stored."""
