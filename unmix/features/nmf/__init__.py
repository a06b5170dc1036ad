"""Nonnegative matrix factorisation: endmembers and abundances together, without a certificate."""

from pathlib import Path
from typing import Any

from .. import Feature


def factorise(path: Path, library: Path, device: str) -> dict[str, Any]:
    """Factorise the small scene of `unmix.commands.warm`; return the report."""
    from .scene import nmf_scene

    return nmf_scene(path, endmembers=library, device=device, steps=1, overwrite=True)


FEATURE = Feature(
    "nmf",
    commands={"nmf": "Find endmembers and abundances together, without a certificate."},
    public={"nmf": "arrays", "Factors": "arrays", "nmf_scene": "scene"},
    warms={"nmf": factorise},
)
