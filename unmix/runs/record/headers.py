"""Compose the headers of the maps: names of bands, place and acquisition of the scene, and where the maps come from."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from ..._version import VERSION
from ...features.runs import in_runs
from ...io import MAP_FIELDS, Cube, Scene, acquisition_of, band_names
from ...io.formats.header import axis_fields, clean, words
from ...library import Endmembers
from ...settings import settings_of
from ...settings.maps import MAPS, ORTHO
from ...settings.reading import ReadSettings
from ...settings.run import RunSettings
from ..files.output_set import Outputs

# Not listed in map headers: recorded as digests already, or without effect on values.
NOT_IN_HEADERS = tuple(
    name for name, one in settings_of(RunSettings, ReadSettings).items() if one.affects in ("contents", "outputs")
)


def map_headers(
    outputs: Outputs,
    scene: Scene,
    names: Sequence[str],
    how: str,
    sums: np.ndarray,
    further: Mapping[str, dict[str, Any]] = MappingProxyType({}),
    origin: Mapping[str, str] = MappingProxyType({}),
    what: str = "abundances",
) -> None:
    """Write the headers of all rasters; they hold no time of ours, device, thread count, memory or path.

    ``how`` names method and solver in the descriptions; the endmembers with the three largest ``sums`` (p,) of abundances are the
    default bands. ``further`` has the fields of other maps, ``origin`` those of all (`origin_of_maps`). ``what``
    says what the abundances are.
    """
    cube = scene.cube
    origin = acquisition_of(cube.fields) | dict(origin)
    map_fields = {key: cube.fields[key] for key in MAP_FIELDS if key in cube.fields}
    by = f"by unmix {VERSION}, {how}"
    brightest = np.argsort(-sums, kind="stable")[:3]
    shown = [str(int(j) + 1) for j in brightest] if len(names) >= 3 else [str(int(brightest[0]) + 1)]
    fields: dict[str, dict[str, str | list[str]]] = {}
    for name, one in MAPS.items():
        fields[name] = {"description": one.holds.format(what=what, by=by)} | (
            {"band names": list(one.bands)} if one.bands else {}
        )
    fields["abundance"] |= {"band names": list(names), "default bands": shown}
    fields["residual"] |= residual_fields(scene)
    for name, own in further.items():
        fields[name] = own | {"description": f"{own['description']} {by}"}
    if "index" in outputs.rasters:  # only the largest abundances are written
        ranks = [str(k + 1) for k in range(outputs.rasters["index"].bands)]
        fields["abundance"] |= {
            "band names": [f"value {k}" for k in ranks],
            "default bands": ranks[:3] if len(ranks) >= 3 else ["1"],
        }
        fields["index"]["band names"] = [f"index {k}" for k in ranks]
    placed = {} if cube.placement is None else cube.placement.fields
    for name in outputs.rasters:
        location = placed if name.endswith(ORTHO) else map_fields
        stored = outputs.rasters[name].map_type.header(outputs.rasters[name].bands)
        outputs.write_header(name, {**fields[name.removesuffix(ORTHO)], **stored, **location, **origin})


def origin_of_maps(
    scene: Cube, identity: dict[str, Any], library: Endmembers, how: tuple[str, str], given: Mapping[str, Any], tags: Mapping[str, str]
) -> dict[str, str]:  # fmt: skip
    """Return header fields that say where maps come from: the same for the same input and the same answers.

    Parameters
    ----------
    scene : Cube
    identity : dict
        Its own; see `unmix.io.identity.identity_of`.
    library : Endmembers
        The spectra that are written.
    how : (str, str)
        Method and solver.
    given : mapping
        Options that differ from the defaults. Those that name files are left out: of scene and spectra there are digests.
    tags : mapping
        Further fields.
    """
    without = (
        *NOT_IN_HEADERS,
        *(() if any(one.uses_seed and name in given for name, one in in_runs().items()) else ("seed",)),
    )
    options = [f"{name} {clean(str(value))}" for name, value in sorted(given.items()) if name not in without]
    return {
        "unmix version": VERSION, "unmix method": how[0], "unmix solver": how[1],
        "unmix input": f"{clean(scene.path.name)} {identity['data'].get('digest', '')}".strip(),
        "unmix endmembers": library.digest(), "unmix options": "; ".join(options) or "none",
    } | dict(tags)  # fmt: skip


def residual_fields(scene: Scene) -> dict[str, str | list[str]]:
    """Return the fields of the scene's header that the residual cube keeps, for the bands in use."""
    cube, bands, _ = scene
    names = band_names(cube)
    kept: dict[str, str | list[str]] = {"band names": [names[b] for b in bands.index]}
    kept |= axis_fields(scene.wavelengths, scene.fwhm)
    if cube.good_bands is not None:
        kept["bbl"] = [str(int(cube.good_bands[b])) for b in bands.index]
    shown = words(cube.fields, "default bands") or []
    places = {str(int(b) + 1): str(place + 1) for place, b in enumerate(bands.index)}
    if shown and all(band in places for band in shown):  # some files name bands that they do not have
        kept["default bands"] = [places[band] for band in shown]
    return kept
