"""Verify the abundances of a run with a penalty on rows (`l21`): whether they are the optimum of all pixels together."""

from ...reference.penalties import Rows
from .maps import Maps
from .solved import SolvedScene

# The largest duality gap, relative to the cost.
LARGEST_GAP = 1e-5
FLOAT32_ROUNDING = 2.0**-24


def fault_of_rows(maps: Maps, solved: SolvedScene) -> str | None:
    """Return the fault of the rows of all abundances that were written, or None.

    The duality gap is computed from them and the cube alone, for the endmembers that were kept: the others are not among the outputs.
    """
    if "index" in maps:
        return None
    rows, about = Rows(solved.library.matrix), solved.report["l21"]
    for line in range(solved.cube.lines):
        Y, masked = solved.pixels(line)
        rows.add(Y[~masked], maps.line("abundance", line).T[~masked].astype(float))
    cost, gap = rows.cost(float(about["lambda"])), rows.gap(float(about["lambda"]), FLOAT32_ROUNDING)
    if not gap <= LARGEST_GAP:
        return f"the rows are no optimum: their cost may be {gap:.1e} of it too large (`l21`)"
    if abs(cost - about["objective"]) > LARGEST_GAP * cost:
        return f"the cost of the rows is {cost:.9g}, not {about['objective']:.9g}"
    return None
