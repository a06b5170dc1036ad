"""Options that the files of each sensor need, beside what they declare: `preset` sets options that are not given."""

import re
from collections.abc import Container
from typing import Any

WATER = {"ignore_nm": "water"}
# EMIT's flags of pixels that are not seen, in the mask beside the reflectance.
EMIT_FLAGS = tuple("{dir}/{stem:RFL=MASK}.nc:" + flag for flag in ("Cloud flag", "Cirrus flag"))
PRESETS: dict[str, dict[str, Any]] = {
    "aviris": {"scale": 10000.0, **WATER},
    "aviris-ng": {"nodata": -9999.0, **WATER},
    "aviris-3": WATER,
    "aviris-5": WATER,
    "desis": {"scale": 10000.0, "nodata": -32768.0},
    "emit": {"mask_out": EMIT_FLAGS},
    "enmap": WATER,
    "hymap": {"scale": 10000.0, **WATER},
    # Collection 2, level 2: reflectance is DN · 2.75e-5 − 0.2, and 0 is fill.
    "landsat-c2": {"scale": 1 / 2.75e-5, "offset": -0.2, "nodata": 0.0},
    "neon": WATER,
    "pace-oci": {"dataset": "/geophysical_data/rhos:yxb", "wavelengths": "/sensor_band_parameters/wavelength_3d"},
    "prisma": WATER,
    # Level 2A since processing baseline 04.00 (January 2022): (DN − 1000) / 10000, and 0 is fill.
    "sentinel-2": {"scale": 10000.0, "offset": -0.1, "nodata": 0.0},
    "sentinel-2-n03": {"scale": 10000.0, "nodata": 0.0},
    "tanager": WATER,
    "wyvern": {"nodata": -9999.0},
}
# The preset that is found by the name of a file.
AUTO = "auto"
# How the names of a sensor's files begin, in small letters, as its archive gives them.
FILE_NAMES = {
    "aviris": r"f\d{6}t\d{2}p\d{2}",
    "aviris-ng": r"ang\d{8}t\d{6}",
    "aviris-3": r"av3\d{8}t\d{6}",
    "aviris-5": r"av5\d{8}t\d{6}",
    "desis": r"desis-(hsi-)?l2a",
    "emit": r"emit_l2a_rfl",
    "enmap": r"enmap\d*-_*l2a",
    "hymap": r".*hymap",
    "landsat-c2": r"l[cteom]0[4-9]_l2sp|l[cteom]0[4-9]_l2sr",
    "neon": r"neon_d\d{2}_.*reflectance",
    "pace-oci": r"pace_oci.*sfrefl",
    "prisma": r"prs_l2[bcd]",
    # The processing baseline follows _N where the name has one; GRANULE's images (T32TQM_20220101T101411_B02_10m) do
    # not say it.
    "sentinel-2": r"s2[a-d]_msil2a(?!.*_n0[0-3]\d\d_)",
    "sentinel-2-n03": r"s2[a-d]_msil2a.*_n0[0-3]\d\d_",
    "tanager": r"(.*tanager|\d{8}_\d{6}_\d{2}_4\d{3}_).*_sr",
    "wyvern": r"wyvern_dragonette",
}
# Presets by the format of a file, whatever its name.
OF_FORMATS = {
    "AVIRIS-3": "aviris-3",
    "EMIT L2A": "emit",
    "EnMAP L2A": "enmap",
    "NEON AOP": "neon",
    "PRISMA L2D": "prisma",
    "Tanager": "tanager",
}


def preset_of(name: str, format: str = "") -> str | None:
    """Return the preset of a file by its name or its format, None where they are like no sensor's."""
    by_name = (one for one, pattern in FILE_NAMES.items() if re.match(pattern, name.lower()))
    return next(by_name, OF_FORMATS.get(format))


def preset_in_words(name: str, given: Container[str] = ()) -> str:
    """Return the options that a preset sets, but those that are ``given``, as the command line writes them."""
    parts = []
    for option, value in PRESETS[name].items():
        if option in given:
            continue
        values = value if isinstance(value, tuple) else (value,)
        words = (f"{one:.12g}" if isinstance(one, float) else f"'{one}'" if " " in one else one for one in values)
        parts += [f"--{option.replace('_', '-')} {word}" for word in words]
    return " ".join(parts)
