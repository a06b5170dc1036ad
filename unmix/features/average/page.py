"""The part of a run's report about averages over models or draws."""

from ...io.cube import band_names
from ...pages import views_of
from ...pages.parts import text
from ...pages.scene_page import MOST_DEVIATIONS, SIGMA_SIDE, small_maps
from ...runs.files.finished import FinishedRun


def section(run: FinishedRun) -> str:
    """Return the section on averages: maps of the deviations of the largest sums."""
    cube = run.open("average")
    names, half, classes = band_names(cube), cube.bands // 2, len(run.report.get("classes") or [])
    count = min(half, classes or half)  # without shade and brightness
    means = [view.mean for view in views_of(cube, range(count), names[:count], SIGMA_SIDE)]
    chosen = [half + b for b in sorted(range(count), key=lambda b: -means[b])[:MOST_DEVIATIONS]]
    said = f"Written are {cube.fields.get('description', '').strip('{} ')}."
    return f'<h2>Averages</h2><p class="quiet">{text(said)}</p>{small_maps(cube, chosen, [names[b] for b in chosen])}'
