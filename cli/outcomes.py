"""Report the outcome of each scene of `run` and `batch`: in the log, JSON, a table of failures, the exit code."""

import contextlib
import csv
import io
import logging
import os
from pathlib import Path
from typing import Any

from unmix.errors import OutputError, UnmixError, as_options

from .main import NO_MEMORY, print_json, print_out

# Most endmembers that a plan of a run names.
MOST_NAMED = 8
# Titles of the table of scenes that failed.
COLUMNS_OF_FAILED = ("scene", "exit code", "reason")
# Exit codes.
EVERY_SCENE_FAILED, SOME_FAILED, STDOUT_FAILED = 1, 4, 1


def result_line(cube: Path, result: dict[str, Any], out_dir: Path | None) -> str:
    """Return a line for the log: the result of a scene, and where its outputs are."""
    if result.get("skipped"):
        return f"{cube}: is finished already, skipped"
    if result.get("dry_run"):
        return f"{cube}: nothing was written (--dry-run)"
    from unmix.runs.record.fit import seconds_of

    pixels = result["pixels"]
    proof = proof_line(result, pixels)
    record = next(name for name in result["digests"] if name.endswith("_endmembers.csv"))
    files = place_of(out_dir, cube) / record.replace("_endmembers.csv", "_*")
    partly, used, bands = pixels["partly_nodata"], len(result["bands_used"]), result["bands"]
    masked = pixels["masked"] + partly
    p = len(result["endmembers"]["names"])
    return (
        f"{cube}: {result['method']} with {p} endmember{'s' * (p != 1)} on {result['device']}"
        + (f", {used} of {bands} bands" if used < bands else "")
        + f": {proof}"
        + (f", {masked} masked" if masked else "")
        + (f" ({partly} in some bands)" if partly else "")
        + f"; {fit_line(result['fit'], result.get('misfit_over_noise'))}"
        + f"; {seconds_of(result):.2f} s; {files}"
    )


def proof_line(result: dict[str, Any], pixels: dict[str, int]) -> str:
    """Return the words on the proof of a result: of each pixel, or of all together."""
    if "spatial" in result:
        about = result["spatial"]
        return (
            f"{pixels['solved']} pixels, {about['prior']} {about['lambda']:.4g}: duality gap {about['gap']:.1e} of the "
            "cost"
        )
    kappa = "infinite" if result["worst_kappa"] is None else f"{result['worst_kappa']:.1e}"
    alone = f", {pixels['fit_certified']} only in their fit" if pixels["fit_certified"] else ""
    return f"{pixels['certified']} of {pixels['solved']} pixels certified, worst κ {kappa}{alone}"


def fit_line(fit: dict[str, Any], beside: dict[str, float] | None) -> str:
    """Return how far the model is from the pixels, in words: relative to their lengths, in their unit, and to noise."""
    from unmix.runs.record.fit import in_percent

    shares = (in_percent(float("inf") if value is None else value) for value in fit["relative_rmse"].values())
    mean = fit.get("mean_rmse")  # runs of older versions have none
    return "relative RMSE {} (95 %: {}, worst {})".format(*shares) + (
        ("" if mean is None else f", mean RMSE {mean:.3g}")
        + (f", {beside['over_noise']:.2f} times the noise" if beside else "")
    )


def show_plan(plan: dict[str, Any]) -> None:
    """Print the plan of a run."""
    from unmix.runs.record.memory import said_of_memory

    names = plan["endmembers"]
    some = "extracted from the scene"
    if names is not None:
        some = f"{len(names)}: {', '.join(names[:MOST_NAMED])}" + ", …" * (len(names) > MOST_NAMED)
    rows = {
        "scene": f"{plan['input']['path']}: {plan['lines']} lines of {plan['samples']} samples, {plan['bands_used']} "
        "bands in use",
        "method": f"{plan['method']} ({plan['solver']}) on {plan['device']}",
        "endmembers": some,
        "models": ", ".join(f"{count} of {level}" for level, count in (plan["models"] or {}).items()),
        "memory": said_of_memory(plan["memory_expected"]),
        "reads": f"{plan['bytes_to_read'] / 1e6:.1f} MB",
        "writes": ""
        if plan["bytes_to_write"] is None
        else f"{plan['bytes_to_write'] / 1e6:.1f} MB: "
        + ", ".join(f"{name} ({count} band{'s' * (count != 1)})" for name, count in plan["bands"].items()),
        "outputs": plan["outputs"][0].rpartition("_")[0]
        + "_*: "
        + ", ".join(path.rpartition("_")[2] for path in plan["outputs"]),
        "there already": ", ".join(plan["outputs_that_exist"]),
    }
    for name, value in rows.items():
        if value:
            print_out(f"{name:14}{value}")


class Outcomes:
    """Report each of ``count`` scenes as JSON on stdout and a line in the log, and collect the exit code.

    ``uncertified`` "fail" makes uncertified pixels of an exact solver a failure, "ok" does not.
    """

    def __init__(
        self, count: int, as_json: bool, out_dir: Path | None, uncertified: str, failed: Path | None = None
    ) -> None:
        self.count, self.as_json, self.out_dir, self.uncertified = count, as_json, out_dir, uncertified
        self.table, self.failures = failed, list[tuple[str, int, str]]()
        if failed is not None:
            from unmix.outputs.atomic import replaceable

            replaceable([failed], True, "another name", is_table_of_failed)  # before hours of work
        self.codes: list[int] = []
        self.counts = {"done": 0, "skipped": 0, "failed": 0}
        self.stdout_failed = False
        self.log = logging.getLogger("unmix")

    def finished(self, cube: Path, result: dict[str, Any]) -> None:
        """Report a scene that is done or was skipped."""
        word = "planned" if result.get("dry_run") else "skipped" if result.get("skipped") else "done"
        self.counts[word] = self.counts.get(word, 0) + 1
        is_open = result.get("exact", True) and not result.get("certified", True)
        self.codes.append(1 if is_open and self.uncertified == "fail" else 0)
        self.log.info(result_line(cube, result, self.out_dir))
        if self.as_json:
            self.write(cube, result)
        elif result.get("dry_run"):
            show_plan(result)

    def failed(self, cube: Path, error: UnmixError | MemoryError) -> None:
        """Report a scene that failed; if it is the only one, raise the error."""
        if isinstance(error, MemoryError):
            error = OutputError(f"{cube}: {NO_MEMORY}")
        if self.as_json:
            failed = {"input": {"path": str(cube)}, "error": as_options(str(error)), "exit_code": error.exit_code}
            self.write(cube, failed)
        self.failures.append((str(cube), error.exit_code, as_options(str(error)).removeprefix(f"{cube}: ")))
        if self.count == 1:
            self.write_table()
            raise error
        names_the_cube = all(part in str(error) for part in (cube.name.partition(".")[0], cube.name.partition("#")[2]))
        self.log.error(str(error) if names_the_cube else f"{cube}: {error}")
        self.codes.append(error.exit_code)
        self.counts["failed"] += 1

    def write_table(self) -> None:
        """Write the table of scenes that failed, if it is asked for; it replaces an earlier one, and nothing else."""
        if self.table is None:
            return
        from unmix.outputs.atomic import write_whole

        text = io.StringIO(newline="")
        csv.writer(text).writerows([COLUMNS_OF_FAILED, *self.failures])
        write_whole({self.table: os.fsencode(text.getvalue())}, True, "another name", is_table_of_failed)

    def write(self, cube: Path, line: dict[str, Any]) -> None:
        """Print a line of JSON; on failure go on and change the exit code, but raise if the reader closed stdout."""
        try:
            print_json({"scene": str(cube)} | line)
        except BrokenPipeError:
            raise
        except OSError as error:
            if not self.stdout_failed:
                self.stdout_failed = True
                self.log.error(f"stdout: {error.strerror}; lines of JSON are missing there")

    def summary(self) -> int:
        """Log how many scenes were done, skipped or failed, and return the exit code."""
        self.write_table()
        if self.count > 1:
            counts = self.counts | {"not done": self.count - sum(self.counts.values())}
            self.log.info(
                f"{self.count} scenes: " + ", ".join(f"{count} {word}" for word, count in counts.items() if count)
            )
        return exit_code_of(self.codes) or (STDOUT_FAILED if self.stdout_failed else 0)


def is_table_of_failed(path: Path) -> bool:
    """Return whether a file begins as a table of scenes that failed."""
    first = ",".join(COLUMNS_OF_FAILED).encode()
    from unmix.io.opening import open_plain

    with contextlib.suppress(OSError), open_plain(path) as file:
        return file.read(len(first)) == first
    return False


def scenes_that_failed(path: Path) -> list[tuple[str, str]]:
    """Return scene and reason of each row of a table of scenes that failed; `LibraryError` where it is none."""
    from unmix.io import read_small
    from unmix.library.table import cells_of

    rows = cells_of(path, read_small(path), COLUMNS_OF_FAILED, "a table that run --failed wrote")
    return [(scene, reason) for _, (scene, _, reason) in rows if scene]


def exit_code_of(codes: list[int]) -> int:
    """Return one exit code for many scenes: the shared one; 4 if some succeeded; 1 if all failed differently."""
    if len(set(codes)) <= 1:
        return codes[0] if codes else 0
    return SOME_FAILED if 0 in codes else EVERY_SCENE_FAILED


def place_of(out_dir: Path | None, cube: Path) -> Path:
    """Return the folder of a scene's outputs."""
    from unmix.scene import folder_of

    place: Path = folder_of(out_dir, cube) or cube.parent
    return place
