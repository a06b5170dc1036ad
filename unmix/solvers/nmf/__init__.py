"""Nonnegative matrix factorisation."""
