"""Define each result once, slow and obvious, in numpy and scipy: the tests compare runs with these definitions.

Nothing here imports the package, so that no fault of a solver or of a kernel can excuse itself.
"""
