"""The families of host operators in one table: operator -> its definition."""

from . import (
    algebra,
    arranging,
    elementwise,
    indexing,
    interpolation,
    library,
    quantising,
    recurrent,
    reductions,
    volumes,
)
from .operator import Operator
from .rules import Definition

ALL = (
    *(algebra, arranging, elementwise, indexing, interpolation, library),
    *(quantising, recurrent, reductions, volumes),
)

FAMILIES: dict[type[Operator], Definition] = {
    definition.operator: definition for family in ALL for definition in family.DEFINITIONS
}
"""Operators that are defined by a file of their own; of all others, `operators`, the rules stand in
`integer_types` and `host_types`, the kernels in `integer_kernels` and `host_kernels`."""
