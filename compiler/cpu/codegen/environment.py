"""What is known where code is emitted: variables as sums of symbols, and ranges of symbols.

A variable of a loop program is an affine function of symbols: counters of loops that are run, and
digits of fused ones. Iterations that are written out have no symbol, only a number. The lane of a
vector is a symbol too.
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
        What the program's variables are.
    ranges
        Least and largest value of every symbol.
    lane
        The symbol of the vector's lanes, empty outside of vectorised loops.
    """

    variables: dict[str, Affine]
    ranges: dict[str, tuple[int, int]]
    lane: str = ""

    @property
    def lanes(self) -> int:
        """Lanes of the vector, 1 outside of vectorised loops."""
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
        """Least and largest value of a sum of symbols."""
        low = high = affine.constant
        for name, factor in affine.terms:
            ends = [factor * end for end in self.ranges[name]]
            low, high = low + min(ends), high + max(ends)
        return low, high

    def bind(self, name: str, value: Affine) -> "Environment":
        """With one more variable."""
        return replace(self, variables={**self.variables, name: value})

    def counting(self, name: str, start: Affine, symbol: str, low: int, high: int) -> "Environment":
        """With a variable that is `start` plus a new symbol of `low`..`high`."""
        if low == high:
            return self.bind(name, total(start, low))
        ranges = {**self.ranges, symbol: (low, high)}
        return replace(self.bind(name, total(start, variable(symbol))), ranges=ranges)

    def decide(self, condition: Condition) -> tuple[bool | None, Affine]:
        """Whether a condition holds, None where it depends, and what its value is."""
        value = self.resolved(condition.value)
        return self.inside(value, condition.low, condition.high), value

    def inside(self, value: Affine, low: int | None, high: int | None) -> bool | None:
        """Whether `low <= value < high`, None where it depends."""
        least, largest = self.interval(value)
        above = low is None or least >= low
        below = high is None or largest < high
        if above and below:
            return True
        never = (low is not None and largest < low) or (high is not None and least >= high)
        return False if never else None


def without(affine: Affine, symbol: str) -> Affine:
    """The rest of a sum."""
    return Affine(tuple(term for term in affine.terms if term[0] != symbol), affine.constant)


def divided(affine: Affine, divisor: int, environment: Environment) -> tuple[Affine, Affine] | None:
    """Quotient and remainder of a sum, None where they are no sums.

    Terms that are multiples of the divisor make the quotient; the others must stay below it.
    """
    whole = [(name, k // divisor) for name, k in affine.terms if k % divisor == 0]
    part = [(name, k) for name, k in affine.terms if k % divisor]
    quotient, constant = divmod(affine.constant, divisor)
    remainder = Affine(tuple(part), constant)
    low, high = environment.interval(remainder)
    if low < 0 or high >= divisor:
        return None
    return Affine(tuple(whole), quotient), remainder
