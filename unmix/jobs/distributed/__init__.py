"""Many scenes, or the parts of one, on a cluster."""
