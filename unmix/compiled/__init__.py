"""Compile code for a CPU or a GPU; nothing here depends on spectra."""
