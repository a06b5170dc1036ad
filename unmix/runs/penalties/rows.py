"""The penalty on whole rows of abundances that a run asks for (`l21`): the few endmembers that all pixels choose together."""

import logging
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import numpy as np

from ...arrays.collaborative import Collaborative, choose_l21, largest_l21, refuse_small, search, warn_of_gap
from ...arrays.correlations import BLOCK_PIXELS, Correlations, Visit, blocks_of
from ...endmembers import signal_of
from ...endmembers.counts import noise_power
from ...endmembers.statistics import walk
from ...errors import CubeError, MethodError
from ...io import Scene
from ...library import Endmembers
from ...scene.sample import sampled_spectra
from .penalty import SAMPLE_PIXELS, smaller

log = logging.getLogger("unmix")


@dataclass(frozen=True)
class Rows:
    """Penalty on rows of abundances: λ times the length of each.

    Attributes
    ----------
    l21 : float or "auto"
        λ, or that it is to be chosen.
    chosen_by : dict
        Where it was chosen: ``rule``, and ``noise``, the standard deviation of a band that the rule was told.
    found : Collaborative or None
        The scales of the optimum, once they are known.
    largest : float
        The λ from which on all abundances are 0.
    passes : int
        How often the file was read for all this.
    """

    l21: float | str
    chosen_by: dict[str, Any] = field(default_factory=dict)
    found: Collaborative | None = None
    largest: float = 0.0
    passes: int = 0

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> "Rows":
        """Return the object that `to_dict` turned into a dict."""
        found = Collaborative(**{**state["found"], "scales": np.array(state["found"]["scales"])})
        return cls(**{**state, "found": found})

    def to_dict(self) -> dict[str, Any]:
        """Return the state that a resumed run needs."""
        assert self.found is not None
        found = asdict(self.found) | {"scales": self.found.scales.tolist()}
        del found["abundances"]
        names = ("l21", "chosen_by", "largest", "passes")
        return {"found": found} | {name: getattr(self, name) for name in names}

    def of_scene(
        self, library: Endmembers, scene: Scene, noise: float | None, budget: int, device: str, threads: int | None
    ) -> "Rows":
        """Return the rows with their scales, found in some passes over the scene, and with λ, if it is to be chosen.

        Parameters
        ----------
        library : Endmembers
            p spectra on the bands in use.
        noise : float or None
            The sum over the bands of the variance of noise, for the choice of λ; None is the smaller of two estimates from the scene.
        budget : int
            Bytes of memory for blocks and for the correlations of pixels that are kept.
        device : str
            The device that solves the pixels of each pass.

        Raises
        ------
        MethodError
            Where λ leaves no endmember, or is so small that it changes nothing.
        CubeError
            Where the λ that is chosen leaves no endmember.
        """
        Y, E, path = sampled_spectra(scene, SAMPLE_PIXELS)[0], library.matrix, scene.cube.path
        l21, chosen_by = self.l21, {}
        moments = signal_of(scene, budget, threads)
        half = budget // 2  # of the memory: for blocks, and for what is kept of the pixels
        pixels = Correlations(partial(visit_blocks, scene, half), E, budget=half, device=device, threads=threads)
        sample = Correlations(blocks_of(Y), E, threads=threads)
        largest = largest_l21(pixels)
        # Rows of abundances over the sample are shorter than over the scene, by the root of the sample's share of the pixels.
        longer = float(np.sqrt(moments.pixels / max(1, len(Y))))
        if isinstance(l21, str):
            power = smaller(noise_power(moments)) if noise is None else noise
            l21 = float(f"{longer * choose_l21(sample, power / len(E)):.4g}")
            chosen_by = {"rule": self.l21, "noise": float(np.sqrt(power / len(E)))}
        if l21 >= largest and chosen_by:
            raise CubeError(
                f"{path}: `l21` auto keeps no endmember of {library.source}: with noise of {chosen_by['noise']:.3g} a band "
                f"nothing is better than leaving all out; give a number below {largest:.4g}, the noise (`noise`), or another library"
            )
        if l21 >= largest:
            raise MethodError(
                f"`l21` {l21:g}: no endmember of {library.source} is left; from {largest:.4g} on all abundances are 0"
            )
        refuse_small(l21, largest)
        start = longer * search(sample, l21 / longer).scales
        found = search(pixels, l21, start)
        warn_of_gap(found, path)
        log.info(
            f"{path}: l21 {l21:g} keeps {np.count_nonzero(found.scales)} of {E.shape[1]} endmembers, {found.absent} are proved "
            f"absent; duality gap {found.gap:.1e} of the cost, {found.passes} passes"
        )
        return Rows(l21, chosen_by, found, largest, found.passes + 2)

    @property
    def used(self) -> np.ndarray:
        """The numbers of the endmembers that are kept, (k,)."""
        assert self.found is not None
        return np.flatnonzero(self.found.scales)

    @property
    def costs(self) -> np.ndarray:
        """Cost of half the square of an abundance, for each of them, ``λ / |x_j|``, (k,)."""
        assert self.found is not None and not isinstance(self.l21, str)
        return np.asarray(self.l21 / self.found.scales[self.used])

    def kept(self, library: Endmembers) -> Endmembers:
        """Return the endmembers that are kept."""
        return library.take([int(j) for j in self.used])

    def about(self) -> dict[str, Any]:
        """Return the entry in a run's record: see docs/run.schema.json."""
        found = self.found
        assert found is not None
        return {
            "lambda": self.l21, "largest": self.largest, "of": len(found.scales), "kept": len(self.used), "absent": found.absent,
            "objective": found.objective, "gap": found.gap, "passes": self.passes, "costs": self.costs.tolist(),
        } | self.chosen_by  # fmt: skip


def visit_blocks(scene: Scene, budget: int, visit: Visit) -> None:
    """Pass pixels that have values in all bands to ``visit``, (n, L) float64, `BLOCK_PIXELS` at a time, however many lines are read."""
    L = len(scene.bands.index)
    kept = np.empty((0, L))
    for _, raw in walk(scene.cube, budget, 4 * 8 * L * scene.cube.samples):
        kept = np.concatenate([kept, scene.spectra(raw)[~scene.missing(raw)]])
        while len(kept) >= BLOCK_PIXELS:
            visit(np.ascontiguousarray(kept[:BLOCK_PIXELS]))
            kept = kept[BLOCK_PIXELS:]
    if len(kept):
        visit(np.ascontiguousarray(kept))
