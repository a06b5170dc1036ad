"""Images of a scene that are no abundances: components, purity, the nearest spectrum of a library."""
