"""Options that the files of each sensor need, beside what they declare: `preset` sets those that are not given."""

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
    "neon": WATER,
    "pace-oci": {"dataset": "/geophysical_data/rhos:yxb", "wavelengths": "/sensor_band_parameters/wavelength_3d"},
    "prisma": WATER,
    "tanager": WATER,
    "wyvern": {"nodata": -9999.0},
}


def in_words(name: str) -> str:
    """Return the options that a preset sets, as the command line writes them."""
    parts = []
    for option, value in PRESETS[name].items():
        values = value if isinstance(value, tuple) else (value,)
        words = (f"{one:g}" if isinstance(one, float) else f"'{one}'" if " " in one else one for one in values)
        parts += [f"--{option.replace('_', '-')} {word}" for word in words]
    return " ".join(parts)
