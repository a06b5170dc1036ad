"""The part of a run's report about its draws."""

from ...io.cube import band_names
from ...pages import MAGMA, ramp, thin_bands, views_of
from ...pages.parts import figure, legend, text
from ...pages.scene_page import MOST_DEVIATIONS, SIGMA_SIDE, usual
from ...runs.files.finished import FinishedRun


def section(run: FinishedRun) -> str:
    """Return the section on draws of spectra and noise: maps of the deviations of the largest sums."""
    cube, colours = run.open("montecarlo"), ramp(MAGMA)
    names, half, classes = band_names(cube), cube.bands // 2, len(run.report.get("classes") or [])
    count = min(half, classes or half)  # without shade and brightness
    means = [view.mean for view in views_of(cube, range(count), names[:count], SIGMA_SIDE)]
    chosen = [half + b for b in sorted(range(count), key=lambda b: -means[b])[:MOST_DEVIATIONS]]
    high = usual(thin_bands(cube, chosen, SIGMA_SIDE), 98, 1.0)
    views = views_of(cube, chosen, [names[b] for b in chosen], SIGMA_SIDE, 0.0, high)
    shown = "".join(figure(view, colours, f"mean {view.mean:.3g}") for view in views)
    said = f"Over random draws of spectra and noise: {cube.fields.get('description', '').strip('{} ')}."
    ends = legend(colours, "0", f"{high:.3g} and above")
    return f'<h2>Draws</h2><p class="quiet">{text(said)}</p><div class="maps">{shown}</div>{ends}'
