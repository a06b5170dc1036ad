"""A module for each family of formats."""
