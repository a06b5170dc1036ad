"""The rows that a run keeps: chosen on a sample of the scene, kept in the journal, described in log and record."""

import logging
import math
from typing import Any

import numpy as np

from ...io import Cube
from ...library import Endmembers
from ...options import Options
from ...problem import Problem
from ..runs import Part
from .choice import Choice, chosen
from .search import DEVIATIONS
from .windows import of_scene

log = logging.getLogger("unmix")

# An exchange that costs less than this, in σ² a pixel, is said: noise, or an error of the library, may decide between
# the two.
AMBIGUOUS = 0.1
# Exchanges that a message names.
MOST_NAMED = 3


class RowsOfScene(Part):
    """The rows of one scene."""

    keeps, before = True, "keeps fewer endmembers than these"

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.found: dict[str, Any] = {}

    def keep(self, library: Endmembers, problem: Problem, cube: Cube, options: Options) -> int:
        """See `unmix.features.runs.Part.keep`."""
        if self.found:
            return 0
        noise = None if problem.noise is None else float(np.sqrt(np.square(problem.noise).mean()))
        seconds: float | None = options.seconds
        found = chosen(
            of_scene(problem.scene(cube)),
            problem.endmembers.matrix,
            problem.constraint,
            self.options.rows,
            noise,
            seconds,
            options.threads,
        )
        self.found = entry_of(found, library.names, self.options.rows)
        for sentence in self.found["said"]:
            log.info(f"{cube.path}: {sentence}")
        return 1

    def kept(self, library: Endmembers) -> Endmembers:
        """See `unmix.features.runs.Part.kept`."""
        return library.take([int(row["index"]) for row in self.found["rows"]])

    def state(self) -> dict[str, Any]:
        """See `unmix.features.runs.Part.state`."""
        return self.found

    def resume(self, state: dict[str, Any]) -> None:
        """See `unmix.features.runs.Part.resume`."""
        _ = [int(row["index"]) for row in state["rows"]]
        self.found = state

    def entry(self, summary: object) -> dict[str, Any]:
        """See `unmix.features.runs.Part.entry`."""
        return {"rows": self.found}


def finite(value: float) -> float | None:
    """Return a number, None where it is infinite."""
    return float(value) if math.isfinite(value) else None


def entry_of(found: Choice, names: tuple[str, ...], asked: int | str) -> dict[str, Any]:
    """Return the entry in a run's record: see docs/run.schema.json."""
    rows = [
        {
            "name": names[j],
            "index": int(j),
            "loss": finite(found.losses[i]),
            "rmse": finite(found.rmse[i]),
            "other": names[found.others[i]] if found.others[i] >= 0 else None,
            "exchange": finite(found.exchanges[i]),
        }
        for i, j in enumerate(found.rows)
    ]
    entry = {
        "asked": asked,
        "of": len(names),
        "pixels": found.pixels,
        "side": found.side,
        "noise": found.sigma,
        "rmse": found.fit,
        "rows": rows,
        "numbers": [{"rows": int(k), "loss": finite(loss)} for k, loss in found.numbers],
        "gap": None if found.gap is None else float(found.gap),
        "settled": found.is_settled,
    }
    return entry | {"said": sentences(entry)}


def sentences(entry: dict[str, Any]) -> list[str]:
    """Return what log, record and report say of a choice."""
    rows = sorted(entry["rows"], key=lambda row: math.inf if row["loss"] is None else row["loss"])
    losses = {one["rows"]: one["loss"] for one in entry["numbers"]}
    count, weakest = len(rows), rows[0]
    what = (
        "pixels"
        if entry["side"] == 1
        else f"means of {entry['side']} × {entry['side']} pixels (a pixel is such a mean here)"
    )
    said = (
        f"rows {entry['asked']} keeps {count} of {entry['of']} spectra, from {what} with noise of {entry['noise']:.3g} "
        "a band"
    )
    if weakest["loss"] is not None:
        said += f": losing {weakest['name']} would cost {weakest['loss']:.2g} σ² a pixel beyond noise, the others more"
    if losses.get(count + 1) is not None:
        said += f"; one more would gain {losses[count + 1]:.2g}"
    if entry["asked"] == "auto":
        least = DEVIATIONS / entry["pixels"] ** 0.5
        said += f"; a material that few pixels hold, so that it gains less than {least:.2g}, is left out"
    texts = [said]
    alike = sorted(
        (row["exchange"], f"{row['name']} could be {row['other']} at {row['exchange']:+.2g} σ²")
        for row in rows
        if row["exchange"] is not None and row["exchange"] < AMBIGUOUS
    )
    if alike:
        named = "; ".join(text for _, text in alike[:MOST_NAMED])
        more = f"; and {len(alike) - MOST_NAMED} more" if len(alike) > MOST_NAMED else ""
        texts.append(f"noise, or an error of the library, may decide between spectra: {named}{more}")
    net = (
        " by more than the noise that it takes up, without larger errors of spectra" if entry["asked"] == "auto" else ""
    )
    if not entry["settled"]:
        return [*texts, "the search ended after its most steps: other rows, or another number, may fit better"]
    proof = f"no exchange of one row fits the {entry['pixels']} pixels looked at better{net}"
    if entry["gap"] is not None:
        proof += (
            ", and no other subset of as many"
            if entry["gap"] == 0
            else f"; another subset of as many may, by {entry['gap']:.1%} at most"
        )
    return [*texts, proof]
