"""The part of a run's report about proved ranges."""

from ...pages import VIRIDIS, ramp, views_of
from ...pages.parts import figure, legend, text
from ...pages.scene_page import MOST_DEVIATIONS, SIGMA_SIDE
from ...runs.files.finished import FinishedRun


def section(run: FinishedRun) -> str:
    """Return the section on proved ranges: words, and maps of the ends of the largest sums or abundances."""
    found = run.report["ranges"]
    if not run.has("range"):
        return ""
    cube, colours = run.open("range"), ramp(VIRIDIS)
    names = [str(one["name"]) for one in found["each"]][: cube.bands // 2]
    means = {
        str(one.get("name")): float(one.get("mean") or 0.0)
        for by in ("abundances", "classes")
        for one in run.report.get(by, [])
    }
    size = [means.get(name, 0.0) for name in names]
    chosen = sorted(sorted(range(len(size)), key=lambda c: -size[c])[:MOST_DEVIATIONS])
    bands = [2 * c + end for c in chosen for end in (0, 1)]
    views = views_of(cube, bands, [f"{names[b // 2]} {('lower', 'upper')[b % 2]}" for b in bands], SIGMA_SIDE, 0.0, 1.0)
    shown = "".join(figure(view, colours, f"mean {view.mean:.3g}") for view in views)
    return (
        f'<h2>Ranges</h2><p>{text(found.get("said", ""))}</p><div class="maps">{shown}</div>'
        f"{legend(colours, '0', '1 and above')}"
    )
