"""Write a block at its position in a file, completely."""

import os

import numpy as np


def write_all(descriptor: int, values: np.ndarray, where: int) -> None:
    """Write an array at a byte offset of a file, completely."""
    block = values.reshape(-1).view(np.uint8)
    done = 0
    while done < len(block):
        done += os.pwrite(descriptor, block[done : done + 2**30].data, where + done)
