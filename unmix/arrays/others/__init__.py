"""Take the arrays of others, and solve those that are on a GPU where they are, in the caller's stream."""
