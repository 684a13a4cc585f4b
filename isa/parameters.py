"""Parameters of a configuration: meaning, default and legal range.

They are the fields of `Configuration`; the rules, the manual and the command line read them there.
"""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter.

    Parameters
    ----------
    meaning
        Explanation in one line.
    default
        Value if omitted.
    low, high
        Least and greatest value.
    power_of_two
        Whether it must be a power of two.
    follows
        Further limits from other parameters, in words; empty if there are none.
    """

    meaning: str
    default: int
    low: int
    high: int
    power_of_two: bool
    follows: str

    @property
    def legal(self) -> str:
        """The legal values in words, such as `power of two, 2 to 64`."""
        kind = "power of two, " if self.power_of_two else ""
        return f"{kind}{self.low} to {self.high}" + (f", {self.follows}" if self.follows else "")


def parameter(
    default: int,
    meaning: str,
    low: int,
    high: int,
    *,
    power_of_two: bool = False,
    follows: str = "",
    coupled: bool = False,
) -> Any:
    """A dataclass field for a parameter.

    Parameters
    ----------
    coupled
        Whether the default is lowered to fit other parameters.
    """
    about = Parameter(meaning, default, low, high, power_of_two, follows)
    return field(default=None if coupled else default, metadata={"parameter": about})
