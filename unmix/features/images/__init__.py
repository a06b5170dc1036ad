"""Images of a scene other than abundances: components, purity, the nearest spectrum of a library."""

from .. import Feature, Image

FEATURE = Feature(
    "images",
    commands={
        "match": "Name pixels after the nearest spectrum of a library (SAM, SID).",
        "detect": "Write how much of target spectra pixels show (matched filter, ACE).",
        "features": "Write depths and centres of absorptions, and spectra without continuum.",
        "mnf": "Write minimum noise fractions, or the cube with less noise.",
        "ppi": "Write the pixel purity index.",
    },
    public={name: name for name in ("match", "detect", "features", "mnf", "ppi")},
    images={
        "mnf": Image("mnf", is_scene=True),
        "denoised": Image("mnf", is_scene=True),
        "continuum": Image("features", is_scene=True, has_unit=False),
        "match": Image("match", names_things=True),
        "match_class": Image("match", names_things=True),
        "detect": Image("detect", has_unit=False),
        "features": Image("features"),
        "ppi": Image("ppi"),
    },
)
