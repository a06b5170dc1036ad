"""Tell poorly fitted pixels from merely dark ones, whose relative RMSE is large by noise alone."""

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
    """Return the share of a sample's poorly fitted pixels that are faint; 0 if none, or if residuals are no noise."""
    # The ``look`` is without constraints; ``lengths`` |y| and ``rmse`` (N,) of the run are in the same unit.
    bands = look.Y.shape[1]
    poor = rmse * np.sqrt(bands) > POOR * lengths
    free = np.linalg.norm(look.left, axis=1) * lengths / np.sqrt(max(1, bands - look.unit.shape[1]))
    faint = poor & (rmse <= MOST_RMSE * np.median(rmse)) & (rmse <= MOST_OF_FREE * free)
    if faint.sum() < FEWEST_FAINT or (
        has_smooth_noise(look.unit, look.Y) and noise_in_sample(look.left[faint], look.unit) is None
    ):
        return 0.0
    return float(faint.sum() / poor.sum())
