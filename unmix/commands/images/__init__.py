"""Images of a scene other than abundances: components, purity, the nearest spectrum of a library."""
