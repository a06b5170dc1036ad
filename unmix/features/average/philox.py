"""Random numbers that depend on a key and a counter alone: Philox 4x32-10 (Salmon et al. 2011).

The same pixel gets the same numbers in any block, thread or order. Source: "Parallel random numbers: as easy as 1, 2,
3".
"""

import math
from typing import Any

import numpy as np

from ...compiled.jit import compiled

ROUNDS = 10
MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
WEYL = np.uint32(0x9E3779B9), np.uint32(0xBB67AE85)
LOW, HALF = np.uint64(0xFFFFFFFF), np.uint64(32)


@compiled
def philox(words: Any) -> None:
    """Replace ``words[:4]``, the counter, by random numbers; ``words[4:]`` is the key; (6,) uint64, 32 bits each."""
    c0, c1, c2, c3, k0, k1 = words[0], words[1], words[2], words[3], words[4], words[5]
    for _ in range(ROUNDS):
        p0, p1 = MULTIPLIERS[0] * c0, MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (p1 >> HALF) ^ c1 ^ k0, p1 & LOW, (p0 >> HALF) ^ c3 ^ k1, p0 & LOW
        k0, k1 = (k0 + np.uint64(WEYL[0])) & LOW, (k1 + np.uint64(WEYL[1])) & LOW
    words[0], words[1], words[2], words[3] = c0, c1, c2, c3


@compiled
def normals(seed: int, draw: int, line: int, sample: int, words: Any, out: Any) -> None:
    """Fill ``out`` (n,), float64, with standard normal numbers of a pixel's draw; ``words`` (6,) uint64 is scratch."""
    # The seed is below 2**63.
    for first in range(0, len(out), 4):
        words[0], words[1] = np.uint64(first // 4), np.uint64(sample)
        words[2], words[3] = np.uint64(line), np.uint64(seed) >> HALF
        words[4], words[5] = np.uint64(seed) & LOW, np.uint64(draw)
        philox(words)
        for half in range(2):  # Box and Muller
            radius = math.sqrt(-2.0 * math.log((np.float64(words[2 * half]) + 0.5) / 2.0**32))
            angle = 2.0 * math.pi * ((np.float64(words[2 * half + 1]) + 0.5) / 2.0**32)
            at = first + 2 * half
            if at < len(out):
                out[at] = radius * math.cos(angle)
            if at + 1 < len(out):
                out[at + 1] = radius * math.sin(angle)
