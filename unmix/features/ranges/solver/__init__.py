"""The ends of what fits a pixel: the path of optima from its best mixture to the farthest that fits, and the proof of its end."""
