"""Readers, one module for each family of formats."""
