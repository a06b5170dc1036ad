"""The pipeline: its clocks, and the bare copy that a run is set beside."""

import time

import numpy as np

from unmix.blocks import BlockPlan
from unmix.devices import Cpu, Line
from unmix.library import Endmembers
from unmix.methods import choose
from unmix.pipeline import BusyTimer, Seconds
from unmix.problem import plan_problem


def test_hidden_is_what_the_longest_stage_covers():
    assert Seconds(reading=1, copying=2, solving=4, writing=1, total=4).hidden() == 1.0
    assert Seconds(reading=1, copying=2, solving=4, writing=1, total=8).hidden() == 0.0
    assert Seconds(reading=1, copying=2, solving=4, writing=1, total=6).hidden() == 0.5
    assert Seconds(solving=4, total=4).hidden() is None


def test_time_within_is_counted_once():
    busy = BusyTimer()
    began = time.perf_counter()
    with busy, busy:
        time.sleep(0.02)
    assert 0.02 <= busy.seconds <= time.perf_counter() - began


def test_a_device_that_does_not_solve_leaves_a_block_as_it_was():
    library = Endmembers(("a", "b"), np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), None)
    problem = plan_problem(library, *choose("fcls", None))
    machine = Cpu(1)
    try:
        slot = machine.open(problem, Line(5, 5 * 3 * 8), BlockPlan(2, 2, 1))[0]
        slot.hold(slice(0, 2), np.ones((2, 5, 3)))
        for machine.solves in (False, True):
            slot.results["abundance"][:] = 7
            machine.submit(slot)
            machine.wait(slot)
            assert bool(np.all(slot.results["abundance"] == 7)) is not machine.solves
        assert np.allclose(slot.results["abundance"], 0.5)
    finally:
        machine.close()
