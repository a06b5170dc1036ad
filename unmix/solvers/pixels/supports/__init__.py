"""Exact search that starts at the support of the pixel before, which is the answer for half of the pixels of a scene.

On a support S, the optimum and the duals beside it are linear in ``f = Eᵀy``: ``x = B f``, where column k of B is that
of the swept Gram matrix for k in S, and a unit vector for the others; under Σa = 1 a constant is added. So a pixel
costs |S| columns of p numbers. They are made from the Gram matrix alone, in ascending order, when a support is first an
answer, and kept in a table. The abundances of a pixel depend on its support alone, not on the pixels before it or on
the way of the search.

From a support that is not the answer the search goes on by pivots on a copy of its columns. A pixel that does not end,
or that needs nearly dependent columns, is left to another search.

A vector holds neighbouring columns of one pixel here, where other searches hold one column of neighbouring pixels: no
pixel waits for the pivots of another.
"""
