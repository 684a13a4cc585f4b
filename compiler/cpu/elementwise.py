"""Chains of elementwise operations, done in one pass over the arrays."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from ...errors import CompileError
from .. import te
from .description import Array, Plan
from .target import Target

Formula = str | float | tuple
"""An operand's name, a number, or an operation's name with its arguments."""

OPERATIONS: Mapping[str, Callable[..., te.Value]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "max": te.maximum,
    "min": te.minimum,
    "less": te.less,
    "equal": te.equal,
    "select": te.select,
    "exp": te.exp,
    "log": te.log,
    "sqrt": te.sqrt,
    "tanh": te.tanh,
    "sigmoid": te.sigmoid,
    "erf": te.erf,
    "gelu": te.gelu,
    "real": te.real,
    "rounded": te.rounded,
}
"""What a formula may call; a comparison gives 1 or 0."""


@dataclass(frozen=True, slots=True)
class Elementwise:
    """`out[r, c] = formula`, over arrays of [rows, columns] and, broadcast, of [columns].

    Parameters
    ----------
    rows, columns
        Extents; other shapes are reshaped, and one that is broadcast along nothing has one row.
    inputs
        Name and element type of every operand.
    formula
        `("add", "x", ("mul", "y", 2.0))`; whole numbers are integers, others float32.
    dtype
        Of the output; integers are cut to its low bits.
    per_column
        Those operands that have [columns] alone.
    """

    rows: int
    columns: int
    inputs: tuple[tuple[str, str], ...]
    formula: Formula
    dtype: str = "float32"
    per_column: tuple[str, ...] = ()

    @property
    def operands(self) -> Mapping[str, Array]:
        """Arrays that it is given, in the order of a call."""
        return {
            name: Array(
                dtype, (self.columns,) if name in self.per_column else (self.rows, self.columns)
            )
            for name, dtype in self.inputs
        }

    @property
    def constants(self) -> tuple[str, ...]:
        """None."""
        return ()

    @property
    def output(self) -> Array:
        """What it gives."""
        return Array(self.dtype, (self.rows, self.columns))

    def prepare(
        self, constants: Mapping[str, np.ndarray], target: Target
    ) -> Mapping[str, np.ndarray]:
        """Nothing to prepare."""
        return constants

    def plan(self, target: Target) -> Plan:
        """Declaration and schedule: vectors side by side, rows or blocks of one row in parallel."""
        rows, columns = self.rows, self.columns
        if not self.per_column:
            rows, columns = 1, rows * columns
        r, c = te.axes(r=rows, c=columns)
        read = {}
        for name, dtype in self.inputs:
            alone = name in self.per_column
            given = te.tensor(name, dtype, (columns,) if alone else (rows, columns))
            read[name] = given[c] if alone else given[r, c]
        out = te.compute("out", self.dtype, (r, c), _value(self.formula, read))
        schedule = te.Schedule(te.kernel("elementwise", out), processor=target.processor)
        schedule.split("out", "c", min(2 * target.lanes, columns))
        schedule.vectorise("out", "c.i")
        if rows > 1:
            schedule.parallelise("out", "r")
        elif columns > _BLOCK:
            schedule.split("out", "c.o", math.ceil(_BLOCK / (2 * target.lanes)))
            schedule.parallelise("out", "c.o.o")
        return Plan(schedule)


_BLOCK = 1 << 13
"""Elements of one row that one thread takes at a time; fewer are not worth starting threads."""


def _value(formula: Formula, read: Mapping[str, te.Value]) -> te.Value:
    if isinstance(formula, str):
        if formula not in read:
            raise CompileError(
                f"elementwise: there is no operand `{formula}`; operands are {', '.join(read)}"
            )
        return read[formula]
    if not isinstance(formula, tuple):
        return te.constant(formula)
    name, *arguments = formula
    if name not in OPERATIONS:
        raise CompileError(
            f"elementwise: there is no operation `{name}`; choose {', '.join(OPERATIONS)}"
        )
    return OPERATIONS[name](*(_value(argument, read) for argument in arguments))
