"""The tables of methods and solvers, from which the choices of the command line, its help and tests are made."""

from dataclasses import dataclass

from .errors import MethodError


@dataclass(frozen=True)
class Method:
    """The constraints on abundances, and the names of the solvers that support them; the first is the default.

    With ``has_shade`` an endmember is added that takes up what the abundances lack to a sum of one.
    """

    name: str
    summary: str
    sum_to_one: bool
    nonnegative: bool
    solvers: tuple[str, ...]
    has_shade: bool = False


@dataclass(frozen=True)
class Solver:
    """An algorithm that finds abundances.

    ``source`` is the paper; ``exact`` tells that the result is the optimum. ``pixel`` names the entry of
    `unmix.solvers.pixels.tile.SEARCH` that is compiled for both CPU and CUDA. With ``any_rank`` endmembers may be collinear, or more
    than bands. With ``as_given`` the mean is not subtracted from endmembers under Σa = 1: the algorithm depends on where zero lies.
    """

    name: str
    summary: str
    source: str
    exact: bool
    pixel: str
    any_rank: bool = False
    as_given: bool = False


SEARCHED = ("active-set", "inverse", "delete-only")

METHODS = {
    method.name: method
    for method in (
        Method("ucls", "no constraint", False, False, ("direct",)),
        Method("scls", "abundances sum to one", True, False, ("direct",)),
        Method("nnls", "abundances are not negative", False, True, (*SEARCHED, "qr", "multiplicative")),
        Method("fcls", "abundances are not negative and sum to one", True, True, SEARCHED),
        # Not delete-only: it starts from all endmembers, of which shade is zero.
        Method(
            "pcls",
            "abundances are not negative and sum to at most one; shade is the rest",
            True,
            True,
            ("active-set", "inverse"),
            True,
        ),
    )
}

SOLVERS = {
    solver.name: solver
    for solver in (
        Solver(
            "direct",
            "least squares on all endmembers, by one product where cond(E) is at most 1e4",
            "QR",
            True,
            "direct",
        ),
        Solver(
            "active-set",
            "Lawson-Hanson by pivots on a swept tableau; any number of spectra of any rank, of many only a working set at a time",
            "Lawson and Hanson 1974; updates: Li and Li, eqs. 4 and 6",
            True,
            "active_set",
            any_rank=True,
        ),
        Solver(
            "inverse",
            "Lawson-Hanson by inverse updates from the empty set",
            "Li and Li, Algorithm 2; with the sum to one, from the best single endmember",
            True,
            "inverse",
        ),
        Solver(
            "delete-only",
            "starts from all endmembers and only ever removes one; simple, but not the optimum",
            "Li and Li, Algorithm 3; Heinz and Chang 2001",
            False,
            "delete_only",
            as_given=True,
        ),
        Solver(
            "qr",
            "Lawson-Hanson by updates of a QR factorisation; any rank",
            "Luo and Duraiswami 2011",
            True,
            "qr",
            any_rank=True,
        ),
        Solver(
            "multiplicative",
            "multiplicative updates, at most 10 000, with solves on the support they show; uncertified pixels are counted",
            "Sha, Lin, Saul and Lee 2007",
            False,
            "multiplicative",
        ),
    )
}


def choose(method: str, solver: str | None = None) -> tuple[Method, Solver]:
    """Return a method and a solver that supports it (None: the method's default).

    Raises
    ------
    MethodError
        If either is unknown, or the solver does not support the method; the message lists those that do.
    """
    if method not in METHODS:
        raise MethodError(f"unknown method '{method}'; there are {', '.join(METHODS)}")
    row = METHODS[method]
    name = row.solvers[0] if solver is None else solver
    if name not in SOLVERS:
        raise MethodError(f"unknown solver '{name}'; there are {', '.join(SOLVERS)}")
    if name not in row.solvers:
        raise MethodError(f"solver '{name}' does not serve method '{method}'; use {' or '.join(row.solvers)}")
    return row, SOLVERS[name]
