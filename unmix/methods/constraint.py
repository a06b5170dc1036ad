"""A constraint on abundances, and its consequences: feasible abundances, free ones, and their possible uses."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Constraint:
    """A constraint on the abundances of a pixel.

    Attributes
    ----------
    words : str
    sum_to_one, nonnegative : bool
        Whether abundances sum to one, and whether none is below 0: what searches and proofs are compiled for.
    has_shade : bool
        Whether an endmember is added that takes up what the abundances lack to a sum of one.
    """

    words: str
    sum_to_one: bool = False
    nonnegative: bool = False
    has_shade: bool = False

    @property
    def flags(self) -> tuple[bool, bool]:
        """``sum_to_one`` and ``nonnegative``, as compiled code takes them."""
        return self.sum_to_one, self.nonnegative

    @property
    def equations(self) -> int:
        """The number of equations between abundances, by which a support has fewer degrees of freedom."""
        return int(self.sum_to_one)

    @property
    def is_cone(self) -> bool:
        """Whether every multiple of feasible abundances is feasible: a brighter pixel then has the same fractions."""
        return not self.sum_to_one

    @property
    def has_bounds(self) -> bool:
        """Whether abundances may be fixed at a bound, so that each pixel has its own support; else they may be < 0."""
        return self.nonnegative

    @property
    def may_cost_fit(self) -> bool:
        """Whether it holds a sum that nonnegative least squares would leave free."""
        return self.has_bounds and not self.is_cone

    @property
    def why_no_fractions(self) -> str | None:
        """Why abundances are not to be divided by their sum; None where they may be."""
        if self.has_shade or (self.is_cone and self.has_bounds):
            return None
        return "may be negative" if self.is_cone else "sum to one as they are"

    def free(self, A: "np.ndarray") -> "np.ndarray":
        """Return which abundances are not fixed at a bound, bool of the shape of ``A``."""
        return (A != 0) | (not self.has_bounds)

    def directions(self, F: "np.ndarray") -> "np.ndarray":
        """Return the directions that free abundances move a pixel: F (L, k), or differences from its first column."""
        return F[:, 1:] - F[:, [0]] if self.equations else F

    def violation(self, A: "np.ndarray", complete: "np.ndarray") -> "np.ndarray":
        """Return by how much abundances (n, p) violate it, (n,): 0 or less where they are feasible."""
        import numpy as np  # not for `unmix --help`

        over, below = A.sum(axis=1) - 1, -A.min(axis=1)
        # Where some abundances are left out that are not 0, only a sum above one is a violation.
        over = np.where(complete, np.abs(over), over) * self.equations
        return np.maximum(over, below) if self.has_bounds else over


FREE = Constraint("none")
SUM_TO_ONE = Constraint("sum to one", sum_to_one=True)
NONNEGATIVE = Constraint("not negative", nonnegative=True)
SIMPLEX = Constraint("not negative, sum to one", True, True)
AT_MOST_ONE = Constraint("not negative, sum to at most one; the rest is shade", True, True, True)
