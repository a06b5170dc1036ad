"""Whether the abundances of a run with a penalty on rows (`l21`) are the optimum of all pixels together."""

from typing import Any

import numpy as np

from ...io import Bands, Cube, read_pixels
from ...library import Endmembers
from ...problem.ridge import Ridge
from .maps import Maps, Verdict

# The largest duality gap, relative to the cost.
LARGEST_GAP = 1e-5
FLOAT32_ROUNDING = 2.0**-24


def check_rows(
    maps: Maps, report: dict[str, Any], scene: Cube, bands: Bands, library: Endmembers, everything: bool, verdict: Verdict
) -> tuple[Bands, Endmembers]:  # fmt: skip
    """Return bands and endmembers with what abundances cost beside the residual; with ``everything`` check the rows, too."""
    ridge = Ridge(np.array(report["l21"]["costs"]), bands, library)
    fault = fault_of_rows(maps, report, scene, ridge) if everything else None
    verdict.faults += [] if fault is None else [f"{maps.stem}_abundance: {fault}"]
    return ridge.raised()


def fault_of_rows(maps: Maps, report: dict[str, Any], scene: Cube, ridge: Ridge) -> str | None:
    """Return what is wrong with the rows of all abundances that were written, or None.

    The duality gap is computed from them and the cube alone, for the endmembers that were kept: the others are not among the outputs.
    """
    if "index" in maps:
        return None
    E, l21 = ridge.endmembers.matrix, float(report["l21"]["lambda"])
    k = E.shape[1]
    rows, duals, left, explained = np.zeros(k), np.zeros(k), 0.0, 0.0
    for line in range(scene.lines):
        Y, masked = read_pixels(scene, ridge.bands, report["nodata"], line)
        Y, A = Y[~masked], maps.line("abundance", line).T[~masked].astype(float)
        R = Y - A @ E.T
        W = R @ E
        rows += np.square(A).sum(axis=0)
        duals += np.square(np.maximum(W, 0.0)).sum(axis=0)
        left += float(np.square(R).sum())
        explained += float((A * W).sum())
    lengths = np.sqrt(rows)
    cost = 0.5 * left + l21 * float(lengths.sum())
    # Maps are float32: that moves the dual e_jᵀr of a row by no more than this, which is not small against a small λ.
    blur = np.abs(E.T @ E) @ lengths * FLOAT32_ROUNDING
    s = min(1.0, l21 / max(l21, float((np.sqrt(duals) - blur).max(initial=0.0))))
    gap = 0.5 * left * (1.0 - s) ** 2 + l21 * float(lengths.sum()) - s * explained - float(lengths @ blur)
    if not gap <= LARGEST_GAP * cost:
        return f"the rows are no optimum: their cost may be {gap / cost:.1e} of it too large (`l21`)"
    if abs(cost - report["l21"]["objective"]) > LARGEST_GAP * cost:
        return f"the cost of the rows is {cost:.9g}, not {report['l21']['objective']:.9g}"
    return None
