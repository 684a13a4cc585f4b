"""The base class of all operators, and the registry that finds them by name.

An operator has one definition, a dataclass. Its fields are the attributes. Its methods infer the
output types and compute the outputs in NumPy. The text form follows from the fields.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeVar, dataclass_transform

import numpy as np

from ...errors import CompileError
from .types import TensorType, Types, check_size

Pair = tuple[int, int]
Quad = tuple[int, int, int, int]

OPERATORS: dict[str, type["Operator"]] = {}
"""Registry: name -> class of the operator."""


@dataclass(frozen=True, slots=True)
class OnnxForm:
    """ONNX's operator with the same operands and meaning; the exporter writes it.

    The importer reads it too, unless it has a function for this kind. Defaults of the fields are
    those of ONNX's attributes.

    Parameters
    ----------
    kind : str
        Name of ONNX's operator.
    attributes : mapping
        Name of each attribute -> the field or property that holds it.
    """

    kind: str
    attributes: Mapping[str, str]


def onnx_form(kind: str, *fields: str, **renamed: str) -> OnnxForm:
    """Make a form from fields with the names of ONNX's attributes, and attribute=field pairs."""
    return OnnxForm(kind, {name: name for name in fields} | renamed)


@dataclass(frozen=True, slots=True)
class Operator(ABC):
    """Base class of all operators.

    Attributes
    ----------
    op : str
        Name in the text form, reports and tables.
    arity : (int, int)
        Smallest and largest number of inputs.
    reads_constants : bool
        Whether all inputs but the first must be constants.
    onnx : OnnxForm or None
        Its form in ONNX's files; None if importer and exporter have functions for it.
    moved : slice
        Inputs whose elements it moves and computes nothing of; the others are indices.
    numpy_passes : int
        Approximate passes of NumPy over its elements; products are counted separately.
    """

    op: ClassVar[str] = ""
    arity: ClassVar[tuple[int, int]] = (1, 1)
    reads_constants: ClassVar[bool] = False
    onnx: ClassVar[OnnxForm | None] = None
    moved: ClassVar[slice] = slice(0)
    numpy_passes: ClassVar[int] = 6

    @property
    def title(self) -> str:
        """The operator's name in reports."""
        return self.op

    @property
    def operand_count(self) -> int | None:
        """Number of inputs, the first ones, that need not be constants; None for all of them."""
        return 1 if self.reads_constants else None

    @abstractmethod
    def result_type(self, types: Types) -> TensorType | tuple[TensorType, ...]:
        """Return the type of the output, or a tuple of them, for inputs of `types`; see `infer`."""

    @abstractmethod
    def compute(self, *arrays: Any, **_: Any) -> Any:
        """Return the array of the output, or a tuple of arrays."""

    def mistake(self, output: TensorType) -> str:
        """Describe the error in the attributes, given the output's type; empty if there is none."""
        return ""

    def infer(self, types: Types) -> tuple[TensorType, ...]:
        """Return the types of the outputs.

        Operators that only move elements keep the quantisation. Quantize and Shift set it. The
        creator of any other integer operator sets it.

        Raises
        ------
        CompileError
            If the inputs do not fit the operator, or an output would be too large.
        """
        low, high = self.arity
        if not low <= len(types) <= high:
            expected = f"{low} to {high}" if low < high else str(low)
            raise CompileError(
                f"`{self.op}`: expected {expected} input{'s' if high > 1 else ''}, got "
                f"{len(types)}; give the missing ones or drop the surplus ones"
            )
        found = self.result_type(types)
        return tuple(map(check_size, found if isinstance(found, tuple) else (found,)))

    def expect(self, condition: bool, expected: str, types: Types) -> None:
        """Reject operands unless a condition holds.

        Raises
        ------
        CompileError
            If the condition does not hold.
        """
        if not condition:
            got = ", ".join(map(str, types))
            raise CompileError(f"`{self.op}`: expected {expected}, got {got}; correct the operands")

    def broadcast(self, types: Types, *shapes: tuple[int, ...]) -> tuple[int, ...]:
        """Return the common shape to which shapes broadcast.

        Raises
        ------
        CompileError
            If the shapes do not broadcast.
        """
        try:
            return np.broadcast_shapes(*shapes)
        except ValueError:
            self.expect(False, "shapes that broadcast", types)
            raise


T = TypeVar("T", bound=Operator)


@dataclass_transform(frozen_default=True)
def operator(name: str, *arity: int) -> Callable[[type[T]], type[T]]:
    """Make a class an operator: a frozen dataclass, registered by `name`.

    Parameters
    ----------
    name : str
        Name of the operator, its `op`.
    arity : int
        Number of inputs, or the smallest and the largest number; 1 by default.
    """

    def define(kind: type[T]) -> type[T]:
        kind.op = name
        kind.arity = (arity[0], arity[-1]) if arity else (1, 1)
        made = dataclass(frozen=True, slots=True)(kind)
        hidden = {field.name for field in fields(made)} & vars(Operator).keys()
        assert not hidden, f"fields of `{name}` hide what every operator has: {hidden}"
        OPERATORS[name] = made
        return made

    return define
