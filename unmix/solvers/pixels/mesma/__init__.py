"""MESMA: the best of all models with at most one spectrum of each class, for one pixel, and the proof of the choice.

A model is one, two or three spectra of as many classes; shade takes up the rest. Bands are touched once a pixel, not once a model: all
pixels share a row of four numbers for each model, a row of the inverted Cholesky factor of its Gram matrix. With t, their product with
Eᵀy, the squared error is that of the spectra before the last less t², and the abundances are theirs plus t times the row. One loop
computes both for every model; what is handed on is only a model that betters the second best so far.

`MESMA` (Roberts et al. 1998) is least squares with limits that reject models. Under the limits ``exact``, a >= 0 and a sum of at most
one, no search is needed either: the optimum of a model is the equality optimum of one of its faces (some of its spectra, with the sum
free or one), and a face's optimum that is feasible is a feasible point of the model. So the best of all models is the best of all
feasible faces.
"""
