"""`solve`: solve batches of non-negative systems from files to files, streamed."""

import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import scipy.sparse

from ...arrays.nnls import Batch, batches, solver_for, toeplitz
from ...blocks import parse_size
from ...certificate import CERTIFIED
from ...errors import InputError, MethodError, brief
from ...io import why_no_file
from ...io.formats.array_files import open_array
from ...io.formats.hdf5_write import Target, new_hdf5
from ...outputs import inputs_of, named_together, refuse_inputs
from .nnqp import MOST_STEPS, Programme, nnqp

log = logging.getLogger("unmix")
# The arrays that are written: their names, and whether they have a row of n values, not one value, for each system.
LEAST_SQUARES = {"x": True, "residual": False, "kappa": False, "delta": False, "steps": False}
QUADRATIC = {"x": True, "cost": False, "kappa": False, "delta": False, "steps": False}
FAILURES_NAMED = 100
# A function that solves some right-hand sides, (N, m), and returns the batch, and the arrays to write by their names.
SolvePart = Callable[[slice, np.ndarray], tuple[Batch | Programme, dict[str, Any]]]


def solve_files(
    a: str | Path,
    b: str | Path,
    out: Path,
    *,
    toeplitz_pulse: bool = False,
    weights: str | None = None,
    allowed: str | None = None,
    start: str | None = None,
    dictionary: str | None = None,
    device: str = "auto",
    threads: int | None = None,
    memory: str | int = "1G",
    overwrite: bool = False,
) -> dict[str, Any]:
    """Solve ``min |A x − b|`` over x ≥ 0 for every b of a file, write the answers, and return a summary."""
    given = {"weights": weights, "allowed": allowed, "start": start, "dictionary": dictionary}
    named = {name: path for name, path in given.items() if path is not None}
    refuse_inputs(answer_files(out, LEAST_SQUARES).values(), inputs_of(None, A=a, B=b, **named))
    # A is (m, n), or (N, m, n) with one for each system, or a pulse (w,) or (N, w); B is (N, m) or (m,).
    A, B = open_array(a), open_array(b)
    if B.ndim == 3:
        raise InputError(f"{b}: has shape {B.shape}; right-hand sides are rows of two axes")
    rows = 1 if B.ndim == 1 else B.shape[0]
    m = B.shape[-1]
    axes, expected = (2, "a pulse is (w,), or (N, w)") if toeplitz_pulse else (3, "A is (m, n), or (N, m, n)")
    if A.ndim not in (axes - 1, axes):
        raise InputError(f"{a}: has shape {A.shape}; {expected}")
    own_A = A.ndim == axes and dictionary is None  # one for each system
    n = m if toeplitz_pulse else A.shape[-1]
    own = {name: open_own(name, path, rows, m if name == "weights" else n) for name, path in named.items()}
    if own_A and A.shape[0] != rows:
        raise InputError(f"{a}: holds {A.shape[0]} matrices for {rows} right-hand sides of {b}")
    if not toeplitz_pulse and A.shape[-2] != m:
        hint = "; its columns seem to be right-hand sides: transpose it" if A.shape[-2] == B.shape[0] else ""
        raise InputError(f"{b}: right-hand sides are {m} long, but {a} has {A.shape[-2]} rows{hint}")
    budget = parse_size(str(memory))
    size = max(1, min(rows, budget // (8 * (2 * m + 3 * n + 8 + (2 * m * n if own_A else 0)))))
    summary = empty_summary(rows, m, n)
    with contextlib.ExitStack() as stack:
        solve = None

        def solve_part(part: slice, right: np.ndarray) -> tuple[Batch, dict[str, Any]]:
            nonlocal solve
            if own_A or solve is None:
                matrix = np.asarray(A[part] if own_A else A[()] if isinstance(A, h5py.Dataset) else A, np.float64)
                matrix = toeplitz(matrix, m) if toeplitz_pulse else matrix
                stack.close()
                matrix = matrix if matrix.ndim == 2 or len(matrix) > 1 else matrix[0]
                solve = stack.enter_context(
                    solver_for(matrix, size, device, threads, bool({"weights", "allowed"} & set(own)))
                )
                summary["device"] = solve.name
            batch = solve(right, **{name: rows_of(values, part, name, named[name]) for name, values in own.items()})
            return batch, {**vars(batch), "residual": np.where(batch.rmse < 0, batch.rmse, batch.rmse * np.sqrt(m))}

        fill_answers(out, LEAST_SQUARES, overwrite, b, B, size, solve_part, summary)
    return summary


def open_own(name: str, path: str | Path, rows: int, width: int) -> Any:
    """Open an array with a row for each system, such as weights; `InputError` where it has another shape."""
    values = open_array(path, "fiub")
    shapes = [(rows,)] if name == "dictionary" else [(width,), (rows, width)]
    if tuple(values.shape) not in shapes:
        raise InputError(f"{path}: {name} must be {' or '.join(map(str, shapes))}, but has shape {tuple(values.shape)}")
    return values


def rows_of(values: Any, part: slice, name: str, path: str | Path) -> np.ndarray:
    """Return an array of all systems, or its rows ``part``; `InputError` where ``allowed`` is neither 0 nor 1."""
    chosen = np.asarray(values[part] if values.ndim == 2 or name == "dictionary" else values[:])
    if name == "allowed" and not np.all((chosen == 0) | (chosen == 1)):
        other = chosen[(chosen != 0) & (chosen != 1)].flat[0]
        raise InputError(
            f"{path}: allowed has a 0 or a 1 for each column, but holds {other:g}; numbers of columns are not meant"
        )
    return chosen.astype({"weights": np.float64, "allowed": bool}.get(name, chosen.dtype))


def quadratic_files(
    q: str | Path,
    h: str | Path,
    out: Path,
    *,
    steps: int = MOST_STEPS,
    device: str = "auto",
    threads: int | None = None,
    memory: str | int = "1G",
    overwrite: bool = False,
) -> dict[str, Any]:
    """Solve ``min ½ xᵀQx + hᵀx`` over x ≥ 0 for every h of a file, write the answers, and return a summary."""
    refuse_inputs(answer_files(out, QUADRATIC).values(), inputs_of(Q=q, H=h))
    # Q is (n, n), dense or sparse; H is (n,) or (N, n).
    Q, H = open_matrix(q), open_array(h)
    if H.ndim == 3:
        raise InputError(f"{h}: has shape {H.shape}; it is (n,), or (N, n)")
    rows, n = (1 if H.ndim == 1 else H.shape[0]), H.shape[-1]
    size = max(1, min(rows, parse_size(str(memory)) // (8 * 8 * n)))
    summary = {**empty_summary(rows, n, n), "convex": None, "unbounded": []}

    def solve_part(part: slice, right: np.ndarray) -> tuple[Programme, dict[str, Any]]:
        try:
            batch = nnqp(Q, right, device=device, threads=threads, steps=steps)
        except InputError as error:
            raise InputError(f"{q}, {h}: {error}") from None
        summary["convex"], summary["device"] = batch.convex, batch.device
        for i, direction in batch.ways_down.items():
            summary["unbounded"].append(part.start + i)
            warn_unbounded(h, part.start + i, direction)
        return batch, vars(batch)

    fill_answers(out, QUADRATIC, overwrite, h, H, size, solve_part, summary)
    if not summary["convex"]:
        log.warning(f"{q}: could not be shown to be convex; certified answers are optimal only if it is")
    return summary


def fill_answers(
    out: Path,
    written: dict[str, bool],
    overwrite: bool,
    source: str | Path,
    right: Any,
    size: int,
    solve_part: SolvePart,
    summary: dict[str, Any],
) -> None:
    """Solve the right-hand sides of a file, ``size`` at a time, write the answers, and count them in ``summary``."""
    rows, finals = summary["systems"], list(answer_files(out, written).values())
    with (
        named_together(finals, overwrite, "another name", lambda path: is_own_answer(path, out)) as parts,
        AnswerFiles(parts, rows, summary["n"], written) as answers,
    ):
        for part in batches(rows, size):
            batch, values = solve_part(part, np.asarray(right[part] if right.ndim == 2 else right[None], np.float64))
            answers.write(part, values)
            add_batch(summary, part, batch)
    summary["files"] = [str(path) for path in finals]
    warn_of_failures(summary, source)


def warn_unbounded(h: str | Path, system: int, direction: np.ndarray) -> None:
    """Log a warning that a programme's cost is unbounded below, and along which direction."""
    largest = [int(j) for j in np.argsort(-direction, kind="stable")[:3] if direction[j] > 0]
    log.warning(
        f"{h}: system {system} is unbounded: its cost falls for ever along a d >= 0 with Qd = 0, the largest entries "
        "of which are "
        f"{', '.join(f'd[{j}] = {direction[j]:.3g}' for j in largest)}"
    )


def open_matrix(spec: str | Path) -> Any:
    """Open a matrix in a file, dense (`open_array`) or sparse (``.npz``); `InputError` where it cannot be read."""
    path = Path(spec)
    if path.suffix.lower() != ".npz":
        array = open_array(spec)
        return array[()] if isinstance(array, h5py.Dataset) else array
    if not path.is_file():
        raise InputError(f"{path}: {why_no_file(path)}")
    try:
        matrix = scipy.sparse.load_npz(path)
        is_numeric = matrix.dtype.kind in "fiu"
        matrix = matrix.tocsr() if is_numeric and matrix.format in ("csr", "csc", "coo") else None
        if matrix is not None:
            if matrix.indices.dtype.kind != "i" or matrix.indptr.dtype.kind != "i":
                raise ValueError("its indices are no integers")
            matrix.check_format(full_check=True)
            if matrix.nnz and matrix.indices.min() < 0:
                raise ValueError("an index is negative")
    except Exception as error:  # of the library that reads it
        raise InputError(f"{path}: is no valid matrix of scipy.sparse.save_npz: {brief(error)}") from None
    if matrix is None:
        raise InputError(f"{path}: is no matrix of numbers in the format CSR, CSC or COO")
    return matrix


def answer_files(out: Path, written: dict[str, bool]) -> dict[str, Path]:
    """Return the answers' files by the arrays in them; `MethodError` if ``out`` ends in neither .npy nor .h5."""
    if out.suffix.lower() not in (".npy", ".h5"):
        raise MethodError(f"{out}: answers are written to .npy or .h5")
    if out.suffix.lower() == ".h5":
        return {"x": out}
    return {name: out if name == "x" else out.with_name(f"{out.stem}_{name}.npy") for name in written}


def is_own_answer(path: Path, out: Path) -> bool:
    """Return whether a file holds answers: x in float64, or beside x, in ``out``, one number for each system."""
    if not (path.is_file() and out.is_file()):  # reading a pipe would wait for ever
        return False
    try:
        array, x = (np.load(file, mmap_mode="r", allow_pickle=False) for file in (path, out))
    except (OSError, ValueError, EOFError):
        return False
    has_answers = x.dtype == np.float64 and x.ndim == 2
    return bool(has_answers and (path == out or (array.dtype.kind in "fi" and array.shape == x.shape[:1])))


def empty_summary(systems: int, m: int, n: int) -> dict[str, Any]:
    """Return the summary before the first batch."""
    return {
        "systems": systems,
        "m": m,
        "n": n,
        "device": "",
        "certified": 0,
        # A value of b is not finite, or all weights are 0.
        "without_data": 0,
        # κ alone is small: the optimality conditions hold, and other x may fit as well.
        "without_delta": 0,
        "failed": 0,
        "failures": [],
        "worst_kappa": 0.0,
        "worst_delta": 0.0,
        "steps": 0,
    }


def warn_of_failures(summary: dict[str, Any], b: str | Path) -> None:
    """Log a warning of how many systems are not certified, if any."""
    if summary["failed"]:
        first = ", ".join(map(str, summary["failures"][:3]))
        log.warning(
            f"{b}: {summary['failed']} of {summary['systems']} systems are not certified (κ > {CERTIFIED:g}); the "
            f"first: {first}"
        )


def add_batch(summary: dict[str, Any], part: slice, batch: Batch | Programme) -> None:
    """Count a batch in the summary."""
    failed = batch.failed
    summary["failed"] += len(failed)
    without = int(np.count_nonzero((batch.kappa <= CERTIFIED) & ~(batch.delta < np.inf)))
    summary["without_delta"] += without
    lost = np.isnan(batch.kappa)
    summary["without_data"] += int(lost.sum())
    summary["certified"] += len(batch.x) - len(failed) - without - int(lost.sum())
    summary["failures"] += [part.start + int(i) for i in failed[: FAILURES_NAMED - len(summary["failures"])]]
    summary["worst_kappa"] = max(summary["worst_kappa"], float(batch.kappa.max(initial=0.0, where=~lost)))
    summary["worst_delta"] = max(summary["worst_delta"], float(batch.delta.max(initial=0.0, where=~lost)))
    summary["steps"] += int(batch.steps.sum())


class AnswerFiles:
    """The files of the answers, while they are written: one for each array, or one HDF5 file for all.

    Raises
    ------
    OSError
        Where they cannot be written.
    """

    def __init__(self, parts: list[Path], N: int, n: int, written: dict[str, bool]) -> None:
        kinds = {name: np.int32 if name == "steps" else np.float64 for name in written}
        shapes = {name: ((N, n) if is_row else (N,), kinds[name]) for name, is_row in written.items()}
        self.target: Target | None = None
        self.opened = contextlib.ExitStack()
        self.arrays: dict[str, Any] = {}
        if parts[0].suffix.lower() == ".h5":
            file, self.target = self.opened.enter_context(new_hdf5(parts[0]))
            file.attrs["title"] = "answers by unmix solve"
            self.arrays = {name: file.create_dataset(name, shape, kind) for name, (shape, kind) in shapes.items()}
        else:
            for (name, (shape, kind)), part in zip(shapes.items(), parts):
                self.arrays[name] = np.lib.format.open_memmap(part, "w+", kind, shape)
                with open(part, "r+b") as file:  # a full disk would end the process when the map is written to
                    os.posix_fallocate(file.fileno(), 0, part.stat().st_size)

    def __enter__(self) -> "AnswerFiles":
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Flush and close the arrays; after an error, further errors are passed over."""
        with contextlib.suppress(*(() if error is None else (OSError, RuntimeError))):
            for array in self.arrays.values():
                array.flush() if isinstance(array, np.memmap) else None
            self.arrays = {}
            self.opened.close()

    def write(self, part: slice, values: dict[str, np.ndarray]) -> None:
        """Write a batch to its place."""
        for name, array in self.arrays.items():
            array[part] = values[name]
        if self.target is not None:
            self.target.check()
