"""Recount from a run's maps the numbers of pixels in its record."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...certificate import CERTIFIED
from ...features.runs import searches
from ...io.fields import NODATA
from ...summary import THERE
from .maps import Maps

# Relative difference of two correct numbers: float32 sums are taken in another order, and maps hold float32 of the record's float64.
RECOUNT_TOLERANCE = 1e-5


def recounted(report: dict[str, Any], maps: Maps, top: bool, certificate: bool) -> Iterator[tuple[str, Any, Any]]:
    """Yield each number of the record that the maps determine: its name, the recorded value and the one counted in the maps.

    Parameters
    ----------
    report : dict
        The record.
    maps : Maps
    top : bool
        Whether only the largest abundances were written, so that those of each endmember cannot be counted.
    certificate : bool
        Whether κ and δ were written.
    """
    pixels, lines = report["pixels"], int(report["lines"])
    solved, largest = 0, 0.0
    p = len(report["endmembers"]["names"])
    counts = np.zeros(p + 1, int)
    sums, maxima, present = np.zeros(p), np.full(p, -np.inf), np.zeros((3, p), int)
    blur, line_of = maps.blur("abundance"), maps.line
    kappas, deltas = [], []
    for line in range(lines):
        rmse = line_of("rmse", line)[0]
        is_solved = rmse != NODATA
        solved += int(is_solved.sum())
        largest = max(largest, float(rmse[is_solved].max(initial=0)))
        if not top:
            a = line_of("abundance", line)[:, is_solved].astype(float)
            sums += a.sum(axis=1)
            counts += np.bincount((a > 0).sum(axis=0), minlength=p + 1)
            maxima = np.maximum(maxima, a.max(axis=1, initial=-np.inf))
            present += [(a > THERE + off).sum(axis=1) for off in (0.0, blur, -blur)]
        if certificate:
            certificates = line_of("certificate", line)[:, is_solved]
            kappas.append(certificates[0])
            deltas.append(certificates[1])
    yield "pixels solved", pixels["solved"], solved
    yield "pixels masked", pixels["masked"] + pixels["partly_nodata"], pixels["all"] - solved
    if "spatial" not in report:  # whose pixels are proved together
        proofs = sum(pixels[key] for key in ("certified", "fit_certified", "failed"))
        yield "pixels certified, fit certified and failed", proofs, solved
        yield "certified", report["certified"], pixels["failed"] == 0
    yield "maximum_rmse", report["fit"]["maximum_rmse"], largest
    yield "relative_rmse_histogram", sum(report["fit"]["relative_rmse_histogram"]["counts"]) <= solved, True
    for name, search in searches().items() if not top and not blur else ():
        if name in report.get("asked", {}):
            yield from search.recounted(report[name], counts)
    if "kappa_histogram" in report:  # runs of older versions have none
        yield "kappa_histogram", sum(report["kappa_histogram"]["counts"]), solved
    for j, recorded in enumerate(report["abundances"] if not top and solved else ()):
        name = f"abundances of {recorded['name']}: "
        shares = present[:, j] / solved
        yield name + "mean", recorded["mean"], nearest(recorded["mean"], sums[j] / solved, blur)
        yield name + "maximum", recorded["maximum"], nearest(recorded["maximum"], maxima[j], blur)
        share = recorded["share_above_1_percent"]
        yield name + "share_above_1_percent", share, share if shares[1] <= share <= shares[2] else shares[0]
    if certificate:
        kappa, delta = np.concatenate(kappas), np.concatenate(deltas)
        yield "worst_kappa", report["worst_kappa"], float(kappa.max(initial=0))
        yield "worst_delta", report["worst_delta"], float(delta.max(initial=0))
        # A pixel at the limit may be on either side of it in float32.
        for edge in (1 - RECOUNT_TOLERANCE, 1 + RECOUNT_TOLERANCE):
            kappa_small = kappa <= CERTIFIED * edge
            both_small = kappa_small & (delta <= report["max_delta"] * edge)
            low = edge < 1
            failed, certified = int((~kappa_small).sum()), int(both_small.sum())
            yield "pixels failed", (min if low else max)(pixels["failed"], failed), failed if low else pixels["failed"]
            yield "pixels certified", (max if low else min)(pixels["certified"], certified), pixels["certified"]


def nearest(said: Any, found: float, blur: float) -> float:
    """Clip the recorded number to the counted one ± ``blur``; the counted one where there is no blur."""
    return float(np.clip(said, found - blur, found + blur)) if blur and said is not None else found


def differs(said: Any, found: Any) -> bool:
    """Return whether a recorded and a counted number differ by more than rounding; None is recorded for one that is not finite."""
    if said is None:
        return bool(np.isfinite(found))
    if isinstance(said, bool | int):
        return bool(said != found)
    return not abs(float(said) - found) <= RECOUNT_TOLERANCE * max(abs(found), 1e-30)
