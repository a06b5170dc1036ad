"""Pixels whose abundances are alike between neighbours: steps of the search, and the bound on its error."""
