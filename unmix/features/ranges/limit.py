"""Which mixtures fit a pixel, for ranges."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...errors import MethodError

if TYPE_CHECKING:
    import numpy as np

# The share of a pixel's length up to which residuals always fit: below it the bounds of a pixel without noise are
# rounding.
ALWAYS_FITS = 1e-8
# The largest RMSE above the best whose square is finite, and the largest confidence whose quantile is.
LARGEST_WITHIN, LARGEST_CONFIDENCE = 1e140, 1.0 - 1e-12


@dataclass(frozen=True)
class FitLimit:
    """Up to which misfit a mixture fits; one of ``within`` and ``confidence`` is given.

    Attributes
    ----------
    within : float or None
        By how much RMSE may exceed the best mixture's.
    confidence : float or None
        A share: |r|² of the bands in units of their noise may be above the best mixture's by at most a limit
        with this coverage (`calibration.Calibration`).
    simultaneous : bool
        Whether |r|² may instead be up to the quantile of χ² with a degree of freedom for each band: all ranges of a
        pixel then hold together, and there may be no mixture that fits.

    Raises
    ------
    MethodError
        If a number is out of range, or not exactly one of the two is given.
    """

    within: float | None = None
    confidence: float | None = None
    simultaneous: bool = False

    def __post_init__(self) -> None:
        if (self.within is None) == (self.confidence is None):
            raise MethodError("ranges need one of `within`, an RMSE, and `confidence`, a share such as 0.95")
        if self.within == math.inf:
            raise MethodError("`within` all: ranges need an RMSE, above 0")
        if self.within is not None and not 0 < self.within < LARGEST_WITHIN:
            raise MethodError(f"`within` {self.within:g}: must be above 0, and below {LARGEST_WITHIN:g}")
        if self.confidence is not None and not 0 < self.confidence <= LARGEST_CONFIDENCE:
            raise MethodError(f"`confidence` {self.confidence:.16g}: must be above 0, and below 1 by at least 1e-12")
        if self.simultaneous and self.confidence is None:
            raise MethodError("`simultaneous` is for `confidence`")

    @classmethod
    def of(cls, options: Any) -> "FitLimit":
        """Return the limit that the options of a run ask for; `MethodError` without one, or with two."""
        return cls(None if options.within is None else options.rmse_within, options.confidence, options.simultaneous)

    def most(self, squares: "np.ndarray", L: int, above: "np.ndarray | None" = None) -> "np.ndarray":
        """Return the largest |r|² (n,) of mixtures that fit, from the best mixtures' ``squares`` (n,) over L bands."""
        import numpy as np  # not for `unmix --help`
        from scipy.special import chdtri  # slow to import

        if self.within is not None:
            return np.asarray(np.square(np.sqrt(squares) + self.within * np.sqrt(L)))
        assert self.confidence is not None
        if self.simultaneous:
            return np.full(len(squares), chdtri(L, 1.0 - self.confidence))
        # above, (n,), are the limits of a `Calibration`.
        assert above is not None
        return np.asarray(squares + above)

    def widened(self, known: "np.ndarray") -> "np.ndarray":
        """Return the factors (n,) by which limits grow where noise has ``known`` (n,) degrees of freedom."""
        import numpy as np
        from scipy.special import ndtri, stdtrit

        assert self.confidence is not None
        share = 0.5 + 0.5 * self.confidence
        with np.errstate(invalid="ignore"):
            return np.square(np.nan_to_num(stdtrit(np.maximum(known, 1.0), share)) / ndtri(share))

    @property
    def words(self) -> str:
        """The limit in words."""
        if self.within is not None:
            return f"all mixtures within {self.within:g} of the RMSE of the best"
        together = ", simultaneous" if self.simultaneous else ", one at a time"
        return f"{100 * (self.confidence or 0.0):g} % confidence{together}"
