"""The part of a run's report about standard deviations."""

from ...io.cube import band_names
from ...pages import VIRIDIS, ramp, views_of
from ...pages.parts import figure, legend, text
from ...pages.scene_page import HIGHEST_VALIDITY, MOST_DEVIATIONS, SIDES, small_maps
from ...runs.files.finished import FinishedRun


def section(run: FinishedRun) -> str:
    """Return the section on standard deviations: text, the map of validity, and maps of the largest bands."""
    trust = run.report["uncertainty"]
    if not run.has("sigma"):
        return ""
    cube, by = run.open("sigma"), "classes" if run.has("fraction") else "abundances"
    names = band_names(cube)  # its own: those of a run without a method have a scale beside the abundances
    means = [float(one.get("mean") or 0.0) for one in run.report.get(by, [])]
    chosen = sorted(sorted(range(min(len(means), cube.bands - 1)), key=lambda b: -means[b])[:MOST_DEVIATIONS])
    validity = views_of(cube, [cube.bands - 1], names[-1:], SIDES[2][1], 0.0, HIGHEST_VALIDITY)[0]
    return (
        f"<h2>Uncertainty</h2><p>{text(trust.get('said', ''))}</p><div "
        f'class="maps">{figure(validity, ramp(VIRIDIS), "")}</div>'
        f"{legend(ramp(VIRIDIS), '0', f'{HIGHEST_VALIDITY:g} and above')}"
        + small_maps(cube, chosen, [f"σ of {names[b]}" for b in chosen])
    )
