"""The pipeline's clocks: what ran behind what."""

import time

from unmix.pipeline import Busy, Seconds


def test_hidden_is_what_the_longest_stage_covers():
    assert Seconds(reading=1, copying=2, solving=4, writing=1, total=4).hidden() == 1.0
    assert Seconds(reading=1, copying=2, solving=4, writing=1, total=8).hidden() == 0.0
    assert Seconds(reading=1, copying=2, solving=4, writing=1, total=6).hidden() == 0.5
    assert Seconds(solving=4, total=4).hidden() is None


def test_time_within_is_counted_once():
    busy = Busy()
    began = time.perf_counter()
    with busy, busy:
        time.sleep(0.02)
    assert 0.02 <= busy.seconds <= time.perf_counter() - began
