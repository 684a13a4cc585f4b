"""Types, numbers and pointers of LLVM as OpenCL C."""

import math
from dataclasses import dataclass

import numpy as np
from llvmlite import ir

from ..cpu.codegen.emitter import (
    BIT,
    DOUBLE,
    FLOAT,
    HALF,
    I8,
    I16,
    I32,
    I64,
    POINTER,
    LlvmType,
    LlvmValue,
)

_NAMES = {
    BIT: "bool",
    I8: "char",
    I16: "short",
    I32: "int",
    I64: "long",
    HALF: "short",
    FLOAT: "float",
    DOUBLE: "double",
}
"""Scalars; a float16 is its bits, since few devices compute with it."""

GLOBAL, LOCAL, PRIVATE = "__global", "__local", "__private"
"""Spaces of memory: of the device, of a block, of a thread."""


@dataclass(slots=True)
class CValue:
    """A value that C code computes."""

    type: LlvmType
    text: str


@dataclass(slots=True)
class CPointer:
    """The address of an element: `base + index`.

    Parameters
    ----------
    base
        A pointer.
    element
        Type of what it points to.
    space
        Its memory.
    index
        Elements from there; empty for none.
    """

    base: str
    element: LlvmType
    space: str
    index: str = ""
    type: LlvmType = POINTER

    def cast(self, element: LlvmType) -> "CPointer":
        """The same address as that of another element."""
        if type_name(element) == type_name(self.element):
            return self
        address = f"({self.base} + {self.index})" if self.index else self.base
        return CPointer(f"(({self.space} {type_name(element)} *){address})", element, self.space)

    def moved(self, index: str) -> "CPointer":
        """The address of an element further on."""
        if index == "0":
            return self
        base = f"({self.base} + {self.index})" if self.index else self.base
        return CPointer(base, self.element, self.space, index)

    def place(self) -> str:
        """The element in memory."""
        return f"{self.base}[{self.index or 0}]"


def type_name(kind: LlvmType) -> str:
    """A type in C."""
    if isinstance(kind, ir.VectorType):
        return f"{_NAMES[kind.element]}{kind.count}"
    return _NAMES[kind]


def unsigned(kind: LlvmType) -> str:
    """The type of an integer without a sign."""
    return f"u{type_name(kind)}"


def text_of(value: LlvmValue) -> str:
    """A value in an expression."""
    if not isinstance(value, ir.Constant):
        return value.text
    number = value.constant
    if isinstance(value.type, ir.VectorType):
        parts = [*map(text_of, number)]
        if len(set(parts)) == 1:
            del parts[1:]
        return f"({type_name(value.type)})({', '.join(parts)})"
    if value.type in (FLOAT, DOUBLE):
        return _real(number, value.type)
    if number == -(1 << 31):
        return "(-2147483647 - 1)"
    text = f"{number}L" if abs(number) >> 31 else str(number)
    return text if number >= 0 else f"({text})"


def _real(number: float, kind: LlvmType) -> str:
    single = kind == FLOAT
    if math.isnan(number):
        return "NAN"
    if math.isinf(number):
        return "INFINITY" if number > 0 else "(-INFINITY)"
    text = float(np.float32(number) if single else number).hex() + ("f" if single else "")
    return f"({text})" if text.startswith("-") else text
