"""MESMA: the best of all models with at most one spectrum of each class, for one pixel, and the proof of the choice.

A model is some spectra of as many classes; shade takes up the rest. Bands are touched once a pixel, not once a model:
with the products ``f = Eᵀy`` of a model's spectra and W, the inverse of the Cholesky factor of their Gram matrix, its
squared error is ``|y|² − |W f|²``, and its abundances are ``Wᵀ W f``. All models are fitted for sixteen pixels at once;
only one that beats a pixel's second best so far is compared with its best.

`MESMA` (Roberts et al. 1998) is least squares with limits that reject models. Under the limits ``exact``, a >= 0 and a
sum of at most one, no search is needed either: the optimum of a model is the equality optimum of one of its faces (some
of its spectra, with the sum free or one), and a face's optimum that is feasible is a feasible point of the model. So
the best of all models is the best of all feasible faces.
"""
