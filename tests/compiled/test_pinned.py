"""Page-locked memory of a GPU's blocks: whole pages, used again, never more than a run wants; with a stand-in for the driver."""

import contextlib
from types import SimpleNamespace

import numpy as np
import pytest

from unmix.devices import pinned
from unmix.devices.pinned import LARGE, PAGE, PinnedMemory

# In place of LARGE: pages are touched as they are locked.
SMALL = 2**18


class Driver:
    """Notes which stretches of memory are locked; they may not share a page."""

    def __init__(self, refuses=False):
        self.refuses, self.locked, self.peak = refuses, {}, 0

    def current_context(self):
        return SimpleNamespace(mempin=self.mempin)

    def mempin(self, owner, address, size):
        if self.refuses:
            raise RuntimeError("no")
        assert address % PAGE == 0 == size % PAGE
        assert all(address + size <= at or at + length <= address for at, length in self.locked.values())
        first = owner.ctypes.data
        assert first <= address and address + size <= first + owner.nbytes
        lock = Lock(self, owner)
        self.locked[id(lock)] = address, size
        self.peak = max(self.peak, sum(length for _, length in self.locked.values()))
        return lock

    @staticmethod
    def pinned_array(shape, dtype):
        return np.empty(shape, dtype)


class Lock:
    """Unlocks when it goes."""

    def __init__(self, driver, owner):
        self.driver, self.owner = driver, owner

    def __del__(self):
        with contextlib.suppress(KeyError):
            del self.driver.locked[id(self)]


def test_arrays_are_whole_and_apart():
    driver = Driver()
    memory = PinnedMemory(driver)
    shapes = [((3, LARGE), np.uint8), ((LARGE // 4 + 1,), np.float32), ((7, LARGE // 8, 1), np.float64)]
    shapes += [((0, 5, 4), np.float32)]
    arrays = [memory.array(*each) for each in shapes]
    for k, (values, (shape, kind)) in enumerate(zip(arrays, shapes)):
        assert values.shape == shape and values.dtype == kind and values.flags.c_contiguous
        values[...] = k
    assert all((values == k).all() for k, values in enumerate(arrays))
    assert len(driver.locked) == 3
    assert memory.array(1000, np.uint8).shape == (1000,) and len(driver.locked) == 3  # small ones are the driver's own


def test_the_next_run_uses_them_again():
    driver = Driver()
    memory = PinnedMemory(driver)
    first = {memory.array((LARGE + k,), np.uint8).ctypes.data for k in (0, 1, 1)}
    memory.keep()
    again = {memory.array((LARGE + k,), np.uint8).ctypes.data for k in (1, 0, 1)}
    assert again == first and len(driver.locked) == 3


def test_what_is_not_wanted_again_goes_before_more_is_locked(monkeypatch):
    monkeypatch.setattr(pinned, "LARGE", SMALL)
    driver = Driver()
    memory = PinnedMemory(driver)
    for size in (2 * SMALL, 3 * SMALL):
        for _ in range(4):
            memory.array((size,), np.uint8)
        memory.keep()
    assert driver.peak <= 4 * (3 * SMALL + PAGE) and len(driver.locked) == 4
    memory.close()
    assert not driver.locked


@pytest.mark.parametrize("cores", [1, 3])
def test_where_memory_cannot_be_locked_the_driver_allocates(monkeypatch, cores):
    monkeypatch.setattr(pinned, "cores", lambda: cores)
    values = PinnedMemory(Driver(refuses=True)).array((5, LARGE), np.uint8)
    values[...] = 1
    assert values.sum() == values.size
