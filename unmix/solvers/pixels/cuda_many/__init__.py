"""Libraries of more than 32 spectra on a GPU."""
