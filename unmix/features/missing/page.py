"""The part of a run's report about what is missing."""

import numpy as np

from ...pages.parts import bars, chart_of, hex_of, keys, percent, table, text
from ...runs.files.finished import FinishedRun


def section(run: FinishedRun) -> str:
    """Return the section on a missing spectrum: text, the mean of its pixels, their residual, and their places."""
    found = run.report["missing"]
    if not found["spectrum"]:
        return ""
    values = np.column_stack([found["spectrum"], found["unexplained"]])
    colours, names = [hex_of(1), hex_of(2)], ("mean of these pixels", "its residual")
    chart = chart_of(run, values, names, colours, "spectrum that is missing")
    rows = [(text(one["name"]), percent(one["misfit"])) for one in found.get("candidates", [])]
    candidates = table(("spectrum", "median misfit with it"), rows, 1) if rows else ""
    return (
        f"<h2>What is missing</h2><p>{text(found['said'])}</p>{chart}<p class=quiet>{keys(colours, names)} by the "
        "endmembers, at unit "
        f"length</p>{bars(found['of_lines'], 0, int(run.report['lines']), 'lines of these pixels')}{candidates}"
    )
