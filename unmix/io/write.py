"""Positioned writes: a block at its place, all of it."""

import os

import numpy as np


def write_all(descriptor: int, values: np.ndarray, where: int) -> None:
    """Write an array at a place in a file, all of it."""
    block = values.reshape(-1).view(np.uint8)
    done = 0
    while done < len(block):
        done += os.pwrite(descriptor, block[done : done + 2**30].data, where + done)
