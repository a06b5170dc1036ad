"""Maps of a run as layers of napari; a double click prints a pixel's abundances."""

import numpy as np

import unmix

COLOURS = ("red", "green", "blue", "yellow", "magenta", "cyan")


def show(viewer, stem):
    """Add the abundances of a run to a napari viewer, as light of different colours, and its RMSE."""
    maps = unmix.read(stem)
    for name, colour in zip(maps["endmember"].values, COLOURS):
        abundance = maps["abundance"].sel(endmember=name).values
        viewer.add_image(abundance, name=str(name), colormap=colour, blending="additive", contrast_limits=(0, 1))
    viewer.add_image(maps["rmse"].values, name="rmse", colormap="magma", visible=False)

    def spectrum(viewer, event):
        line, sample = (round(place) for place in event.position[-2:])
        if not (0 <= line < maps.sizes["y"] and 0 <= sample < maps.sizes["x"]):
            return None
        a = maps["abundance"][line, sample].values
        print(f"line {line}, sample {sample}:", dict(zip(maps["endmember"].values, a.round(3))))
        return maps["spectra"].values @ np.nan_to_num(a)  # as the run modelled it

    viewer.mouse_double_click_callbacks.append(spectrum)
    return spectrum
