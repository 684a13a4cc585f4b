"""Everything that is reached by any number of steps."""

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def reach(starts: Iterable[T], steps: Callable[[T], Iterable[T]]) -> dict[T, None]:
    """Return all that is reached from some starts, the starts included.

    Parameters
    ----------
    steps : callable
        Returns what is one step away.
    """
    found = dict.fromkeys(starts)
    waiting = list(found)
    while waiting:
        for one in steps(waiting.pop()):
            if one not in found:
                found[one] = None
                waiting.append(one)
    return found
