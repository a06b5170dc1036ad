"""Selection of bands by orthogonal projections."""
