"""A cost ½ρ_j a_j² of each abundance beside the residual, as further bands that no file holds."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ..io import Bands
from ..library import Endmembers


class Ridge(NamedTuple):
    """Costs ρ of k abundances, and bands and endmembers without the bands that stand for them."""

    costs: np.ndarray  # (k,)
    bands: Bands
    endmembers: Endmembers

    def raised(self) -> tuple[Bands, Endmembers]:
        """Return bands and endmembers with these bands; see `with_ridge`."""
        return with_ridge(*self[1:], self.costs)


def with_ridge(bands: Bands, endmembers: Endmembers, costs: np.ndarray) -> tuple[Bands, Endmembers]:
    """Return bands and endmembers of least squares with the costs ρ: a band for each endmember, where it is √ρ_j and all else 0.

    These bands are read from the first one in use, with gain 0, so that solvers and certificate need not know of them.

    Parameters
    ----------
    bands : Bands
        L bands in use.
    endmembers : Endmembers
        ``matrix`` (L, k).
    costs : array (k,), float64
        ρ, above 0.

    Returns
    -------
    bands : Bands
        Of L + k.
    endmembers : Endmembers
        ``matrix`` (L + k, k).
    """
    k, zeros = len(costs), np.zeros(len(costs))
    index = np.concatenate([bands.index, np.repeat(bands.index[:1], k)])
    more = Bands(index, np.concatenate([bands.gain, zeros]), np.concatenate([bands.offset, zeros]))
    return more, replace(endmembers, matrix=np.vstack([endmembers.matrix, np.diag(np.sqrt(costs))]))
