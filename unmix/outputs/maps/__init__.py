"""Maps: how their values are stored, and images that are written line by line."""
