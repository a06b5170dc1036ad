"""Take the arrays of others, and solve arrays on a GPU where they are, in the caller's stream."""
