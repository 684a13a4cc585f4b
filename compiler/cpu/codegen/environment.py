"""Variables and symbols at a place of the emitted code.

Each variable of a loop program is an affine function of symbols. A symbol is the counter of a loop,
a digit of a fused loop, or the lane of a vector. An unrolled iteration has a number instead of a
symbol.
"""

from dataclasses import dataclass, replace

from ....isa.expressions import Affine
from ...te.affine import total, variable
from ...te.nodes import Condition


@dataclass(frozen=True, slots=True)
class Environment:
    """Variables and symbols at a place of a program.

    Parameters
    ----------
    variables
        Value of each variable of the program.
    ranges
        Smallest and largest value of each symbol.
    lane
        The symbol of the lanes; empty outside vectorised loops.
    """

    variables: dict[str, Affine]
    ranges: dict[str, tuple[int, int]]
    lane: str = ""

    @property
    def lanes(self) -> int:
        """Number of lanes; 1 outside vectorised loops."""
        return self.ranges[self.lane][1] + 1 if self.lane else 1

    def resolved(self, affine: Affine) -> Affine:
        """An index over variables as one over symbols."""
        if not affine.terms:
            return affine
        terms, constant = {}, affine.constant
        for name, factor in affine.terms:
            value = self.variables[name]
            constant += factor * value.constant
            for symbol, part in value.terms:
                terms[symbol] = terms.get(symbol, 0) + factor * part
        return Affine(tuple(sorted((k, v) for k, v in terms.items() if v)), constant)

    def interval(self, affine: Affine) -> tuple[int, int]:
        """Smallest and largest value of a sum of symbols."""
        low = high = affine.constant
        for name, factor in affine.terms:
            ends = [factor * end for end in self.ranges[name]]
            low, high = low + min(ends), high + max(ends)
        return low, high

    def bind(self, name: str, value: Affine) -> "Environment":
        """The environment with one more variable."""
        return replace(self, variables={**self.variables, name: value})

    def counting(self, name: str, start: Affine, symbol: str, low: int, high: int) -> "Environment":
        """The environment with a variable: `start` plus a new symbol in `low`..`high`."""
        if low == high:
            return self.bind(name, total(start, low))
        ranges = {**self.ranges, symbol: (low, high)}
        return replace(self.bind(name, total(start, variable(symbol))), ranges=ranges)

    def decide(self, condition: Condition) -> tuple[bool | None, Affine]:
        """Whether a condition holds, None if only run time tells, and its value."""
        value = self.resolved(condition.value)
        return self.inside(value, condition.low, condition.high), value

    def inside(self, value: Affine, low: int | None, high: int | None) -> bool | None:
        """Whether `low <= value < high`; None if only run time tells."""
        least, largest = self.interval(value)
        above = low is None or least >= low
        below = high is None or largest < high
        if above and below:
            return True
        never = (low is not None and largest < low) or (high is not None and least >= high)
        return False if never else None


def without(affine: Affine, symbol: str) -> Affine:
    """A sum without the term of one symbol."""
    return Affine(tuple(term for term in affine.terms if term[0] != symbol), affine.constant)


def divided(affine: Affine, divisor: int, environment: Environment) -> tuple[Affine, Affine] | None:
    """Quotient and remainder of a sum; None if they are not sums themselves.

    The terms that are multiples of the divisor make up the quotient. The others must stay below the
    divisor.
    """
    whole = [(name, k // divisor) for name, k in affine.terms if k % divisor == 0]
    part = [(name, k) for name, k in affine.terms if k % divisor]
    quotient, constant = divmod(affine.constant, divisor)
    remainder = Affine(tuple(part), constant)
    low, high = environment.interval(remainder)
    if low < 0 or high >= divisor:
        return None
    return Affine(tuple(whole), quotient), remainder
