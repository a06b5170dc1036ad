"""`mnf`: minimum noise fractions of a scene, or the scene again from some of them."""

import os
from typing import Any

import numpy as np

from ...blocks import parse_size, workers_for
from ...endmembers import signal_of
from ...endmembers.counts import PAIRS_A_BAND, SIGNAL, noise_fractions, noise_regression
from ...endmembers.statistics import Moments, projections
from ...errors import CubeError, MethodError
from ...io import NODATA, Cube
from ...io.formats.header import axis_fields
from ...maps.plain_map import new_maps, put_lines, table_text
from ...scene import ReadOptions, open_scene

# Names of the maps: components, or with `inverse` spectra; and the table of them.
IMAGE, AGAIN = "mnf", "denoised"


def mnf(
    cube: str | os.PathLike[str],
    *,
    count: int | None = None,
    inverse: bool = False,
    out_dir: str | os.PathLike[str] | None = None,
    format: str = "envi",
    overwrite: bool = False,
    memory: str | int = "1G",
    threads: int | None = None,
    **reading: Any,
) -> dict[str, Any]:
    """Write the minimum noise fractions of a scene (Green et al. 1988), or the scene again without the others.

    Noise is the part that neighbouring pixels of a line do not share. Each fraction has noise of variance 1.

    Parameters
    ----------
    cube : path-like
    count : int, optional
        How many fractions; default is those with at least as much signal as noise.
    inverse : bool
        Write ``STEM_denoised``, the spectra as these fractions alone have them, in place of ``STEM_mnf``, the
        fractions.
    out_dir : path-like, optional
        Default is the folder of the scene.
    format : str
        One of `unmix.io.export.FORMATS`, such as "cog".
    overwrite : bool
    memory : str or int
        Bound on the memory for blocks, such as "2G".
    threads : int, optional
        Default is all cores.
    **reading
        See `unmix.ReadOptions`.

    Returns
    -------
    dict
        ``files``; ``count``; and of all fractions, the strongest first, ``ratio``, their variance over the variance of
        noise, and ``coherence``, the correlation of neighbours, 1 − 1/ratio; ``noise``, the standard deviation of each
        band in use: ``by_bands``, of what the others do not predict (Roger and Arnold 1996), and ``by_neighbours``, of
        what neighbours do not share, texture included.

    Raises
    ------
    MethodError
        Where there are no such fractions.
    CubeError
        Where the scene cannot be read, or has too few pairs of neighbours for the noise of its bands.
    OutputError
        Where a file exists or cannot be written.
    """
    given = open_scene(cube, ReadOptions(**reading))
    scene, L, budget, workers = given.cube, len(given.bands.index), parse_size(str(memory)), workers_for(threads)
    if count is not None and not 1 <= count <= L:
        raise MethodError(f"`count` {count}: must be from 1 to {L}, the bands in use")
    name = AGAIN if inverse else IMAGE
    with new_maps(scene, out_dir, format, overwrite, [name], [f"_{name}_noise.csv", f"_{name}.csv"]) as out:
        moments = signal_of(given, budget, workers)
        ratios, W, clear = clear_fractions(scene, moments)
        taken = count or clear
        if inverse:
            U = np.ascontiguousarray(W[:, :taken] @ np.linalg.inv(W)[:taken])
            shift = -moments.mean
            written, fields = L, axis_fields(given.wavelengths, given.fwhm)
        else:
            U = np.ascontiguousarray(W[:, :taken])
            shift, written = np.zeros(taken), taken
            fields = {"band names": [f"MNF {k + 1}" for k in range(taken)]}
        with out.open(name) as file:
            centred = given.less(moments.mean)
            projections(centred, budget, workers, U, shift, lambda _, rows: put_lines(scene, file, rows))
        fields["data ignore value"] = f"{NODATA:g}"
        what = f"spectra of {taken} minimum noise fractions" if inverse else "minimum noise fractions"
        out.describe(name, what, "f4", written, fields)
        found = {"ratio": ratios.tolist(), "coherence": [1 - 1 / ratio for ratio in ratios.tolist()]}
        rows = enumerate(zip(*found.values()), 1)
        noise = noise_by_band(moments)
        waves = [""] * L if given.wavelengths is None else [f"{wave:g}" for wave in given.wavelengths]
        by_band = zip(
            (given.bands.index + 1).tolist(), waves, *([f"{one:.5g}" for one in each] for each in noise.values())
        )
        out.write(f"_{name}_noise.csv", table_text(("band", "nm", *noise), by_band))
        out.write(f"_{name}.csv", table_text(("component", *found), ((k, *map(repr, row)) for k, row in rows)))
    return {"files": out.files, "count": taken, **found, "noise": {key: each.tolist() for key, each in noise.items()}}


def noise_by_band(moments: Moments) -> dict[str, np.ndarray]:
    """Return two estimates (L,) of the standard deviation of each band's noise: by other bands, and by neighbours."""
    L, second = len(moments.mean), moments.second
    residual = np.eye(L) - noise_regression(second)
    squares = np.diag(residual.T @ second @ residual) * moments.pixels / max(1, moments.pixels - L + 1)
    # Holds texture as well as noise.
    of_neighbours = np.diag(moments.differences)
    return {"by_bands": np.sqrt(np.maximum(squares, 0.0)), "by_neighbours": np.sqrt(np.maximum(of_neighbours, 0.0))}


def clear_fractions(scene: Cube, moments: Moments) -> tuple[np.ndarray, np.ndarray, int]:
    """Return `noise_fractions`, and how many of them have at least as much signal as noise, at least 1."""
    L = len(moments.mean)
    if moments.pairs < PAIRS_A_BAND * L:
        raise CubeError(
            f"{scene.path}: {moments.pairs} pairs of neighbours in a line differ, too few for the noise of {L} bands"
        )
    ratios, W = noise_fractions(moments)
    return ratios, W, max(1, int(np.count_nonzero(ratios > SIGNAL)))
