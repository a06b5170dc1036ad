"""The rule of `auto`: whether a GPU saves a job more time than its start costs.

A job on a GPU begins with a CUDA context and the loading of kernels, whatever its size; what it saves grows with the pixels, and with
fewer cores. Scenes of one command share the start. The rule knows the fast searches alone: every other job goes to the GPU, as it may
take a CPU hours. It looks at the command, the scene and this machine alone, so that the same command takes the same device when it goes
on after an interruption.
"""

from typing import NamedTuple

# Seconds to start a process on a GPU that a CPU does not need, and beyond that of each scene. (H100, 16 cores, 2 million pixels x 224
# bands with given endmembers: a process takes 1.4 s on the GPU and 0.8 to 1.1 on its host, whose solving and writing take 0.45 s more;
# of 100 x 100 pixels 0.93 and 0.57 s, of which the context is 0.25.)
START, OF_A_SCENE = 0.9, 0.1
# Seconds of one core that a GPU saves: a pixel and band that is solved and written (the same runs), and a product of two of a pixel's
# bands where endmembers are extracted (by vca, on an H200 2.5 to 3.2 s and 3.8 to 3.9 on its host; by defaults 3.4 to 3.6 and 3.5 to
# 3.9). Per endmember the search takes more: the time of 9 is the unit.
OF_A_BAND, OF_A_PRODUCT, USUAL_COUNT = 1.6e-8, 1.7e-10, 9
# Endmembers up to which pixels are solved by the fast searches.
MOST_FAST = 32


class Work(NamedTuple):
    """The size and kind of a job, before it begins.

    Attributes
    ----------
    pixels, bands : int
        Of a scene.
    endmembers : int, optional
        None where their number is not known yet.
    extracts : bool
        Whether they are extracted from the scene.
    is_plain : bool
        Whether pixels are solved by the fast searches, for nothing but their abundances.
    """

    pixels: int
    bands: int
    endmembers: int | None
    extracts: bool
    is_plain: bool

    def saved(self, threads: int) -> float:
        """Return the seconds that a GPU which has started saves beside so many threads; infinite where no rule is known."""
        p = USUAL_COUNT if self.endmembers is None else self.endmembers
        if not self.is_plain or p > MOST_FAST:
            return float("inf")
        of_a_pixel = OF_A_BAND * self.bands * (1.0 + p / USUAL_COUNT) / 2.0
        of_a_pixel += OF_A_PRODUCT * self.bands**2 * self.extracts
        return max(0.0, self.pixels * of_a_pixel / threads - OF_A_SCENE)
