"""What a run's record says of its pixels, counted again from its maps."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..certificate import CERTIFIED
from ..io.export import NODATA
from ..summary import THERE

# Sums of float32 in another order, and figures that a map holds in float32.
TOLERANCE = 1e-5
# A line of a map by name and number, float32 (bands, samples).
Line = Callable[[str, int], np.ndarray]


def recounted(report: dict[str, Any], line_of: Line, top: bool, certificate: bool) -> Iterator[tuple[str, Any, Any]]:
    """What the record says beside what its maps hold: name, said and found; numbers that a map cannot show are left out.

    Parameters
    ----------
    report : dict
        The record.
    line_of : callable
    top : bool
        Whether only the largest abundances were written, so that nothing can be said of each endmember.
    certificate : bool
        Whether κ and δ were written.
    """
    pixels, lines = report["pixels"], int(report["lines"])
    solved, largest = 0, 0.0
    p = len(report["endmembers"]["names"])
    sums, most, there = np.zeros(p), np.full(p, -np.inf), np.zeros(p, int)
    kappas, deltas = [], []
    for line in range(lines):
        rmse = line_of("rmse", line)[0]
        good = rmse != NODATA
        solved += int(good.sum())
        largest = max(largest, float(rmse[good].max(initial=0)))
        if not top:
            a = line_of("abundance", line)[:, good].astype(float)
            sums += a.sum(axis=1)
            most = np.maximum(most, a.max(axis=1, initial=-np.inf))
            there += (a > THERE).sum(axis=1)
        if certificate:
            proof = line_of("certificate", line)[:, good]
            kappas.append(proof[0])
            deltas.append(proof[1])
    yield "pixels solved", pixels["solved"], solved
    yield "pixels masked", pixels["masked"] + pixels["partly_nodata"], pixels["all"] - solved
    yield (
        "pixels certified, fit certified and failed",
        sum(pixels[key] for key in ("certified", "fit_certified", "failed")),
        solved,
    )
    yield "certified", report["certified"], pixels["failed"] == 0
    yield "maximum_rmse", report["fit"]["maximum_rmse"], largest
    yield "relative_rmse_histogram", sum(report["fit"]["relative_rmse_histogram"]["counts"]) <= solved, True
    for j, said in enumerate(report["abundances"] if not top and solved else ()):
        name = f"abundances of {said['name']}: "
        yield name + "mean", said["mean"], sums[j] / solved
        yield name + "maximum", said["maximum"], most[j]
        yield name + "share_above_1_percent", said["share_above_1_percent"], there[j] / solved
    if certificate:
        kappa, delta = np.concatenate(kappas), np.concatenate(deltas)
        yield "worst_kappa", report["worst_kappa"], float(kappa.max(initial=0))
        yield "worst_delta", report["worst_delta"], float(delta.max(initial=0))
        for edge in (1 - TOLERANCE, 1 + TOLERANCE):  # a pixel on the edge may be on either side of it in float32
            fine = kappa <= CERTIFIED * edge
            close = fine & (delta <= report["max_delta"] * edge)
            low = edge < 1
            failed, certified = int((~fine).sum()), int(close.sum())
            yield "pixels failed", (min if low else max)(pixels["failed"], failed), failed if low else pixels["failed"]
            yield "pixels certified", (max if low else min)(pixels["certified"], certified), pixels["certified"]


def differs(said: Any, found: Any) -> bool:
    """Whether two figures are not the same to rounding; None stands for one that is not finite."""
    if said is None:
        return bool(np.isfinite(found))
    if isinstance(said, bool | int):
        return bool(said != found)
    return not abs(float(said) - found) <= TOLERANCE * max(abs(found), 1e-30)
