"""Solve every pixel of a scene: the solvers of `unmix run` and `unmix.solve`."""
