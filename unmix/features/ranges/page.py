"""The part of a run's report about proved ranges."""

from ...pages import VIRIDIS
from ...pages.parts import text
from ...pages.scene_page import MOST_DEVIATIONS, small_maps
from ...runs.files.finished import FinishedRun


def section(run: FinishedRun) -> str:
    """Return the section on proved ranges: words, and maps of the ends of the largest sums or abundances."""
    found = run.report["ranges"]
    if not run.has("range"):
        return ""
    cube = run.open("range")
    names = [str(one["name"]) for one in found["each"]][: cube.bands // 2]
    means = {
        str(one.get("name")): float(one.get("mean") or 0.0)
        for by in ("abundances", "classes")
        for one in run.report.get(by, [])
    }
    size = [means.get(name, 0.0) for name in names]
    chosen = sorted(sorted(range(len(size)), key=lambda c: -size[c])[:MOST_DEVIATIONS])
    bands = [2 * c + end for c in chosen for end in (0, 1)]
    titles = [f"{names[b // 2]} {('lower', 'upper')[b % 2]}" for b in bands]
    return f"<h2>Ranges</h2><p>{text(found.get('said', ''))}</p>{small_maps(cube, bands, titles, VIRIDIS, 1.0)}"
