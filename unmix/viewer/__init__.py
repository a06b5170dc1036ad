"""Look at scenes and finished runs in a browser on this machine: pictures, spectra and values are read as they are asked for."""
