"""Whether the pixels of a scene lie on a plane that misses zero, but for noise: then its brightness does not vary.

Amounts of p materials that sum to one lie on a plane of p − 1 dimensions; amounts of any sum fill p dimensions. So what
the p − 1 principal components around the mean leave of the pixels is more, by the noise of one dimension, than what the
p strongest components around zero leave. Where brightness or spectra vary, it is more by what they vary by.
"""

import numpy as np

from .statistics import Moments

# The excess of a plane, in units of the noise of one dimension, up to which brightness does not vary. It was 0.94 to
# 1.22 on 56 flat synthetic scenes of 20 to 45 dB, and at least 3.4 on 132 scenes that vary, at their number of
# materials.
FLAT = 1.25
# A direction holds more than noise where its power is this many times the largest that noise alone has in large
# scenes.
ABOVE_NOISE = 1.05
# Directions with signal beyond this many times those that differ less between neighbours are hardly all of materials.
FAR_MORE = 1.5


class Plane:
    """How well planes and subspaces explain the pixels of a scene.

    Attributes
    ----------
    around_zero, around_mean : array (L,), float64
        The eigenvalues of the second moment and of the covariance, the largest first.
    edge : float
        The largest power of a direction of noise alone, in units of the mean one (Marčenko and Pastur 1967).
    signal : int
        Dimensions with more power than that.
    """

    def __init__(self, moments: Moments) -> None:
        self.around_zero, self.around_mean = (
            np.maximum(values[::-1], 0.0) for values in (moments.powers, moments.axes[0])
        )
        L = len(self.around_zero)
        self.edge = ABOVE_NOISE * (1.0 + (L / max(1, moments.pixels)) ** 0.5) ** 2
        # values may be of float32
        self.rounding = float(L * np.finfo(np.float32).eps ** 2 * self.around_zero[0])
        self.signal = L // 2
        for _ in range(L):
            noise = self.noise(self.signal)
            signal = min(int(np.count_nonzero(self.around_zero > self.edge * noise)), L - 1)
            if signal == self.signal:
                break
            self.signal = signal

    def noise(self, p: int) -> float:
        """Return the mean power of a dimension outside of the p strongest ones."""
        rest = float(self.around_zero[p:].sum()) / max(1, len(self.around_zero) - p)
        return max(rest, self.rounding)

    def excess(self, p: int) -> float:
        """Return how much more a plane of p materials leaves than p dimensions, in units of a dimension's noise."""
        return float(self.around_mean[p - 1 :].sum() - self.around_zero[p:].sum()) / self.noise(p)

    def is_flat(self, p: int) -> bool:
        """Return whether p materials, whose brightness does not vary, explain the pixels as well as if it did."""
        if not 2 <= p < len(self.around_zero) or self.excess(p) > FLAT:
            return False
        # Any plane fits dimensions without signal: pixels must lie on one in those with signal, but for a direction
        # as weak as noise.
        return not 2 <= self.signal < p or self.excess(self.signal) <= 1.0 + self.edge

    def count(self, most: int, spatial: int = 0) -> int | None:
        """Count the materials, at most ``most`` + 1, of a scene whose brightness does not vary; else None."""
        # ``spatial``: the number of dimensions with more signal than the difference of neighbouring pixels.
        p = min(most, self.signal, len(self.around_zero) // 2)  # noise of few bands is hardly a plane's
        if p > FAR_MORE * spatial > 0:  # directions that neighbours share are of stripes, say: a plane without them?
            p = next((k for k in range(max(2, spatial), spatial + 3) if self.excess(k) <= FLAT), p)
        if p >= 2 and self.excess(p) <= FLAT:
            return p
        # One more material may be weaker than the strongest direction of noise alone. Where spectra vary, too, a
        # further direction hides in noise, but then neighbours, which vary alike, tell fewer dimensions than there are:
        # on 186 such scenes always.
        return p + 1 if 2 <= p == self.signal <= spatial and self.is_flat(p + 1) else None
