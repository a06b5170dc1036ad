"""The solvers: two update verbs, one pixel's arithmetic, one tile of pixels, and a driver for each kind of device."""
