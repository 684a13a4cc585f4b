"""The base of all operators of the graph IR."""

from dataclasses import dataclass
from typing import ClassVar

Pair = tuple[int, int]
Quad = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Operator:
    """Base of all operators; `op` is the name in text, reports and kernel tables."""

    op: ClassVar[str] = ""
