"""How code is compiled, for a CPU and for a GPU; it knows no spectra."""
