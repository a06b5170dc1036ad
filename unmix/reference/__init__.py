"""Define each result once, slow and obvious, in numpy and scipy: `unmix verify` and the tests compare runs with these definitions.

Nothing here imports anything else of the package, so that no fault of a solver or of a kernel can excuse itself.
"""
