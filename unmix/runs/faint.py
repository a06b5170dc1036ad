"""Tell pixels that are fitted poorly from those that are merely dark: a small signal has a large relative RMSE by noise alone."""

import numpy as np

from ..summary import POOR
from .look import Look, has_smooth_noise, noise_in_sample

# A pixel is faint where its RMSE is at most this many times the median, and at most this many times what it has without
# constraints: then neither a spectrum that is missing nor a constraint is the cause. Of 88 synthetic scenes (3 to 5
# endmembers, white noise, 10 to 200 bands, a tenth of the pixels dark, a twentieth with a spectrum that is missing), at
# 2 99 to 100 % of the dark poorly fitted pixels are faint, and 0.4 to 1.1 % of those that lack a spectrum; at 1.5 of
# ten bands 90 %, and at 3 1.8 to 5 % of those that lack one.
MOST_RMSE, MOST_OF_FREE = 2.0, 1.5
# Fewest faint pixels whose residuals are tested for noise.
FEWEST_FAINT = 8


def faint_part(look: Look, lengths: np.ndarray, rmse: np.ndarray) -> float:
    """Return the part of the poorly fitted pixels of a sample that are faint; 0 where none is, or their residuals are
    not noise.

    Parameters
    ----------
    look : Look
        At the pixels, without constraints.
    lengths, rmse : arrays (N,), float64
        The lengths |y| of the pixels, and the RMSE of the run, in the same unit.
    """
    bands = look.Y.shape[1]
    poor = rmse * np.sqrt(bands) > POOR * lengths
    free = np.linalg.norm(look.left, axis=1) * lengths / np.sqrt(max(1, bands - look.unit.shape[1]))
    faint = poor & (rmse <= MOST_RMSE * np.median(rmse)) & (rmse <= MOST_OF_FREE * free)
    if faint.sum() < FEWEST_FAINT or (
        has_smooth_noise(look.unit, look.Y) and noise_in_sample(look.left[faint], look.unit) is None
    ):
        return 0.0
    return float(faint.sum() / poor.sum())
