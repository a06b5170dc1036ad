"""The part of a run's report about standard deviations."""

from ...io.cube import band_names
from ...pages import MAGMA, VIRIDIS, ramp, thin_bands, views_of
from ...pages.parts import figure, legend, text
from ...pages.scene_page import HIGHEST_VALIDITY, MOST_DEVIATIONS, SIDES, SIGMA_SIDE, usual
from ...runs.files.finished import FinishedRun


def section(run: FinishedRun) -> str:
    """Return the section on standard deviations: words, the map of their validity, and maps for the largest sums or abundances."""
    trust = run.report["uncertainty"]
    if not run.has("sigma"):
        return ""
    cube, colours = run.open("sigma"), ramp(MAGMA)
    by = "classes" if run.has("fraction") else "abundances"
    names = band_names(cube)  # its own: those of a run without a method have a scale beside the abundances
    means = [float(one.get("mean") or 0.0) for one in run.report.get(by, [])]
    chosen = sorted(sorted(range(min(len(means), cube.bands - 1)), key=lambda b: -means[b])[:MOST_DEVIATIONS])
    high = usual(thin_bands(cube, chosen, SIGMA_SIDE), 98, 1.0)
    validity = views_of(cube, [cube.bands - 1], names[-1:], SIDES[2][1], 0.0, HIGHEST_VALIDITY)[0]
    views = views_of(cube, chosen, [f"σ of {names[b]}" for b in chosen], SIGMA_SIDE, 0.0, high)
    shown = "".join(figure(view, colours, f"mean {view.mean:.3g}") for view in views)
    return (
        f'<h2>Uncertainty</h2><p>{text(trust.get("said", ""))}</p><div class="maps">{figure(validity, ramp(VIRIDIS), "")}</div>'
        f'{legend(ramp(VIRIDIS), "0", f"{HIGHEST_VALIDITY:g} and above")}<div class="maps">{shown}</div>'
        f"{legend(colours, '0', f'{high:.3g} and above')}"
    )
