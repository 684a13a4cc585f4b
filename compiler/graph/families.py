"""The families of host operators in one table: operator -> its definition."""

from . import (
    algebra,
    elementwise,
    indexing,
    interpolation,
    library,
    quantising,
    recurrent,
    reductions,
    volumes,
)
from .operators import Operator
from .rules import Definition

ALL = (
    *(algebra, elementwise, indexing, interpolation, library),
    *(quantising, recurrent, reductions, volumes),
)

FAMILIES: dict[type[Operator], Definition] = {
    definition.operator: definition for family in ALL for definition in family.DEFINITIONS
}
"""Operators that are defined by a file of their own; all others stand in `infer` and the kernel
tables of `integer_kernels` and `host_kernels`."""
