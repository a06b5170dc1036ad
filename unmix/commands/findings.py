"""What `check` finds of a scene alone: its axis, its bands, and the values of a sample of its pixels."""

import os
from dataclasses import dataclass, field, replace
from functools import partialmethod
from typing import Any

import numpy as np

from ..io import Scene, bands_named, counted, in_ranges
from ..io.formats.header import PLAUSIBLE, RECIPROCAL, unit_of_heading
from ..scene import SINGLE_MASKS, ReadOptions, Survey, open_scene, survey
from ..scene.signal import moments_of, noisy_bands
from ..scene.undeclared import SWAPPED


@dataclass
class Findings:
    """The findings of a check of one scene.

    Attributes
    ----------
    scene : Scene
    found : list of dict
        ``severity``, ``about`` and ``message``. With an error a run would be wrong or refused; with a warning it is
        right, but perhaps not what is wanted; info is no fault.
    facts : dict
        The numbers that the findings rest on.
    """

    scene: Scene
    found: list[dict[str, str]] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def add(self, severity: str, about: str, message: str) -> None:
        """Add a finding."""
        self.found.append({"severity": severity, "about": about, "message": message})

    error, warning, info = partialmethod(add, "error"), partialmethod(add, "warning"), partialmethod(add, "info")

    @property
    def has_error(self) -> bool:
        """Whether a run would be wrong or refused."""
        return any(one["severity"] == "error" for one in self.found)


def check_axis(findings: Findings) -> None:
    """Check that the cube has wavelengths, and that they and the FWHM are plausible."""
    waves, fwhm = findings.scene.wavelengths, findings.scene.fwhm
    if waves is None:
        findings.warning("wavelengths", "the cube has none: a library must have its number of bands, in its order")
        return
    findings.info("wavelengths", f"{waves.min():g} to {waves.max():g} nm in {counted(len(waves), 'band')}")
    is_length = unit_of_heading(findings.scene.cube.fields.get("wavelength units", "")) not in RECIPROCAL
    if is_length and (waves.min() < PLAUSIBLE[0] or waves.max() > PLAUSIBLE[1]):
        findings.warning(
            "wavelengths", f"{waves.min():g} to {waves.max():g} nm is no range of an imaging spectrometer; wrong units?"
        )
    if np.any(np.diff(waves) <= 0) and np.any(np.diff(waves) >= 0):
        findings.info(
            "wavelengths", "they neither ascend nor descend throughout: spectrometers overlap, or bands are reordered"
        )
    if fwhm is not None and not np.all((fwhm > 0.05) & (fwhm < 500)):
        findings.warning(
            "wavelengths", f"an FWHM of {fwhm.min():g} to {fwhm.max():g} nm cannot be an imaging spectrometer's"
        )


def check_bands(seen: Survey, findings: Findings, noisy: list[int]) -> None:
    """Report bands that are marked bad, and such in use that are dead, constant or out of range, but ``noisy`` ones."""
    cube, used = findings.scene.cube, set(seen.index.tolist())
    good = np.ones(cube.bands, bool) if cube.good_bands is None else cube.good_bands
    bad = [b for b in np.flatnonzero(~good).tolist() if b not in used]
    if bad:
        findings.info(
            "bands",
            f"{counted(len(bad), 'band')} marked bad {'is' if len(bad) == 1 else 'are'} left out: {in_ranges(bad)}",
        )
    for fault, bands in seen.faults().items():
        if set(bands) <= {*noisy}:
            continue
        subject = f"{counted(len(bands), 'band')} in use {'is' if len(bands) == 1 else 'are'}"
        text = f"{subject} {fault} on the sample: {in_ranges(bands)}"
        if len(bands) == len(seen.index) and fault == "constant":
            text += "; all pixels looked at are equal, so there is nothing to unmix"
        else:
            text += ", so that every pixel would be masked" * (fault == "dead") + "; `bands` auto leaves such bands out"
        findings.add("error" if fault == "dead" else "warning", "bands", text)


def check_noise(Y: np.ndarray, findings: Findings) -> list[int]:
    """Report bands that are noisy in pixels (n, L), and return those without a signal, from 0."""
    found = noisy_bands(findings.scene, *moments_of(Y))
    if found is None:
        return []
    findings.add("warning" if found.is_without_signal else "info", "bands", found.said(findings.scene))
    return found.bands if found.is_without_signal else []


def masked_in(scene: Scene, path: str | os.PathLike[str], reading: ReadOptions) -> int:
    """Return how many pixels of the sample have values that a mask takes away."""
    if not reading.masks:
        return 0
    none: dict[str, Any] = dict.fromkeys(SINGLE_MASKS)
    whole = open_scene(path, replace(reading, preset=None, mask_out=(), **none), True)
    return survey(scene).masked - survey(whole).masked


def check_sample(seen: Survey, by_mask: int, findings: Findings) -> None:
    """Report how many pixels of the sample are masked, have no value, or miss a band in use."""
    unmasked, nodata = seen.pixels - seen.masked, findings.scene.unchanged().nodata
    nodata = None if nodata == getattr(findings.scene.cube, "blank", None) else nodata  # which masks write
    share = f"{100 * (seen.masked - by_mask) / seen.pixels:.1f} % of {seen.pixels} pixels looked at have no value"
    if by_mask:
        masked = f"{100 * by_mask / seen.pixels:.1f} % of {seen.pixels} pixels looked at are masked"
        findings.add(
            "info" if unmasked else "error", "mask", masked + ("" if unmasked else ", and no other has a value")
        )
    if unmasked == 0:
        if not by_mask:
            findings.error("nodata", share + " in any band; is `nodata` right?")
        return
    if seen.fill:
        findings.warning("values" if SWAPPED in seen.fill else "nodata", seen.fill)
    findings.info("nodata", share + f" (nodata value {'none' if nodata is None else f'{nodata:g}'}, NaN)")
    if seen.partly and not seen.faults()["dead"]:
        worst = np.argsort(-seen.missing, kind="stable")[:5]
        names = bands_named([int(seen.index[b]) for b in worst if seen.missing[b]])
        text = (
            f"{100 * seen.partly / unmasked:.1f} % of the others miss a band in use, and are masked for it; mostly "
            f"{names}"
        )
        findings.add("error" if seen.partly == unmasked else "warning", "nodata", text)
