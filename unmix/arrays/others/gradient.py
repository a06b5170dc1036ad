"""Derivatives of abundances by pixels, endmembers and weights, in torch or in JAX.

On the support P of the optimum, abundances solve ``E_Pᵀ W (y − E_P a_P) = λ1`` (λ = 0 without the sum to one): a small
change of y or E changes them linearly, as long as the support stays as it is. With g the derivative of a loss by a, ``q
= K g_P`` for K the inverse of ``E_Pᵀ W E_P`` (with the sum: on changes that sum to 0), and r = y − E a:

    dy = W E q,    dE = (W r) qᵀ − (W E q) aᵀ,    dw = r ∘ (E q)

The support does stay as it is where the optimum is strictly complementary: abundances of P are above 0, and the duals
of the others below. Elsewhere, and where the optimum is not unique, there is no derivative, and none is given: these
pixels add 0 to it.
"""

from typing import Any, NamedTuple

from ...certificate import CERTIFIED

# The least abundance of a support, as a share of the largest, and the least distance of a dual from 0, as a share of
# |y||e_j|: what is smaller may be rounding.
LEAST_SHARE = 1e-9


class Case(NamedTuple):
    """The constraints of a problem that has derivatives, and whether shade takes what abundances leave of one."""

    nonnegative: bool
    sum_to_one: bool
    has_shade: bool = False


CASES = {
    "ucls": Case(False, False),
    "scls": Case(False, True),
    "nnls": Case(True, False),
    "fcls": Case(True, True),
    "pcls": Case(True, True, True),
}


class Operands(NamedTuple):
    """A problem and its answer, in float64; ``xp`` is the module ``torch`` or ``jax.numpy``."""

    xp: Any
    Y: Any  # (N, L)
    E: Any  # (L, p), or (N, L, p)
    w: Any  # weights (N, L), or None
    a: Any  # (N, p)
    allowed: Any = None  # (N, p) bool: the columns that may be used; None for all

    def with_shade(self) -> "Operands":
        """Return the problem with an endmember of zeros, and its abundance."""
        xp, shade = self.xp, 1.0 - self.a.sum(-1)[:, None]
        shade = xp.where(shade < LEAST_SHARE, 0.0 * shade, shade)
        allowed = None if self.allowed is None else xp.concatenate([self.allowed, shade == shade], -1)
        return self._replace(
            allowed=allowed,
            E=xp.concatenate([self.E, 0.0 * self.E[..., :1]], -1),
            a=xp.concatenate([self.a, shade], -1),
        )

    @property
    def n(self) -> str:
        """Return the axis of pixels that E has, for einsum."""
        return "n" if self.E.ndim == 3 else ""

    def mix(self, a: Any) -> Any:
        """Return ``E a`` of each pixel, (N, L)."""
        return self.xp.einsum(f"{self.n}lp,np->nl", self.E, a)

    def weighted(self, values: Any) -> Any:
        """Return values (N, L) times the weights."""
        return values if self.w is None else values * self.w

    def support(self, case: Case) -> Any:
        """Return the support, (N, p), as 0 and 1."""
        return (self.a != 0.0) + 0.0 * self.a if case.nonnegative else 0.0 * self.a + 1.0

    def solve(self, case: Case, inside: Any, right: Any) -> Any:
        """Solve ``E_Pᵀ W E_P x = right`` (N, p), which is 0 outside of the support, as x is."""
        xp, n = self.xp, self.n
        if self.w is None:
            G = xp.einsum(f"{n}li,{n}lj->{n}ij", self.E, self.E)
        else:
            G = xp.einsum(f"{n}li,nl,{n}lj->nij", self.E, self.w, self.E)
        # A band of one value changes nothing where changes sum to 0: shade is a column of zeros.
        if case.sum_to_one:
            size = (self.E * self.E).mean() * self.E.shape[-2]
            G = G + (size if self.w is None else size * self.w.mean(-1)[:, None, None])
        outside = xp.eye(inside.shape[1], **place_of(inside)) * (1.0 - inside)[:, None, :]
        return xp.linalg.solve(G * inside[:, :, None] * inside[:, None, :] + outside, right[:, :, None])[:, :, 0]


def place_of(array: Any) -> dict[str, Any]:
    """Return type and place of an array, as arguments for one more."""
    return {"dtype": array.dtype} | ({"device": array.device} if type(array).__module__ == "torch" else {})


def is_smooth(case: Case, given: Operands, kappa: Any, delta: Any) -> Any:
    """Return which pixels have derivatives, (N,); ``kappa`` and ``delta`` (N,) are those of their abundances."""
    one = given.with_shade() if case.has_shade else given
    known = (kappa >= 0.0) & (kappa <= CERTIFIED) & (delta < float("inf"))  # κ of pixels that are not solved is below 0
    if not case.nonnegative:
        return known
    xp, E, a = one.xp, one.E, one.a
    duals = xp.einsum(f"{one.n}lp,nl->np", E, one.weighted(one.Y - one.mix(a)))
    duals = duals - (duals * a).sum(-1)[:, None] if case.sum_to_one else duals
    squares = (E * E).sum(-2) if one.w is None else xp.einsum(f"{one.n}lp,nl->np", E * E, one.w)
    sizes, length = squares**0.5, ((one.weighted(one.Y) * one.Y).sum(-1) ** 0.5)[:, None]
    if case.sum_to_one:  # duals round as the longest column does, also the dual of shade, which has no column
        longest = xp.amax(sizes, -1)[..., None]
        sizes, length = longest, xp.where(length > longest, length, longest + 0.0 * length)
    least = LEAST_SHARE * sizes * length
    above = a > LEAST_SHARE * xp.amax(a, -1)[:, None]
    below = duals < -least if one.allowed is None else (duals < -least) | ~one.allowed
    return known & (above | ((a == 0.0) & below)).all(-1)


def pull_back(case: Case, given: Operands, g: Any) -> tuple[Any, Any, Any]:
    """Return the derivatives of a loss by Y, E and w (None without weights), from those by abundances, ``g`` (N, p)."""
    one, p = given.with_shade() if case.has_shade else given, given.a.shape[1]
    xp = one.xp
    g = xp.concatenate([g, 0.0 * g[:, :1]], -1) if case.has_shade else g
    inside = one.support(case)
    q = one.solve(case, inside, xp.where(inside > 0.0, g, xp.zeros_like(g)))
    if case.sum_to_one:
        u = one.solve(case, inside, inside)
        along = (u * inside).sum(-1)
        q = q - u * ((q * inside).sum(-1) / (along + (along == 0.0)))[:, None]
    r, along = one.Y - one.mix(one.a), one.mix(q)
    dY = one.weighted(along)
    to = f"nl,np->{one.n}lp"
    dE = xp.einsum(to, one.weighted(r), q) - xp.einsum(to, dY, one.a)
    return dY, dE[..., :p], None if one.w is None else r * along
