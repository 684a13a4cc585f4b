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
        Least and greatest value; both 0 for a choice.
    power_of_two
        Whether it must be a power of two.
    follows
        Further limits from other parameters, in words; empty if there are none.
    choices
        Legal values of a parameter that is a word; empty for a number.
    optional
        Whether a machine with the default is described without it.
    """

    meaning: str
    default: int | str
    low: int
    high: int
    power_of_two: bool
    follows: str
    choices: tuple[str, ...] = ()
    optional: bool = False

    @property
    def legal(self) -> str:
        """The legal values in words, such as `power of two, 2 to 64`."""
        if self.choices:
            return f"{', '.join(self.choices[:-1])} or {self.choices[-1]}"
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


def choice(default: str, meaning: str, choices: tuple[str, ...], *, optional: bool = False) -> Any:
    """A dataclass field for a parameter that is one of a few words."""
    about = Parameter(meaning, default, 0, 0, False, "", choices, optional)
    return field(default=default, metadata={"parameter": about})
