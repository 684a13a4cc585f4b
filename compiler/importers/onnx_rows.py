"""Rows of the operator table: what is one operator of the graph is said as data.

A row names the graph's operator and, for each of its fields, a constant or where the value comes
from: an attribute, or a constant operand.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..graph.operators import Operator
from .onnx_node import OnnxNode

Source = Callable[[OnnxNode], Any]
"""Where a field's value comes from."""


@dataclass(frozen=True, slots=True)
class Row:
    """An ONNX operator that is one operator of the graph; called, it imports a node.

    Attributes
    ----------
    operator : type
        The graph's.
    fields : mapping
        Field -> its value, or where that comes from.
    operands : int or None
        How many inputs stay operands; None for all.
    """

    operator: type[Operator]
    fields: Mapping[str, Any]
    operands: int | None

    def __call__(self, node: OnnxNode) -> str | list[str]:
        """Emit a node's operator."""
        values = {
            name: value(node) if callable(value) else value for name, value in self.fields.items()
        }
        inputs = node.inputs()[: self.operands]
        emit = node.emit if len(node.proto.output) == 1 else node.emit_outputs
        return emit(self.operator(**values), inputs)


def row(operator: type[Operator], operands: int | None = None, **fields: Any) -> Row:
    """Return a row; see `Row`."""
    return Row(operator, fields, operands)


def attribute(name: str, default: Any) -> Source:
    """Take an attribute as it is."""
    return lambda node: node.attribute(name, default)


def flag(name: str, default: int = 0) -> Source:
    """Take an attribute as a truth value."""
    return lambda node: bool(node.attribute(name, default))


def axis(default: int) -> Source:
    """Take the attribute `axis`, counted from the front of the first operand."""
    return lambda node: node.axis(default, node.rank(0))


def scalar(index: int) -> Source:
    """Take a constant operand as an integer."""
    return lambda node: int(node.scalar(index, 0))


def since(version: int, source: Source, before: Source) -> Source:
    """Take one of two sources by the version of the operator set."""
    return lambda node: (source if node.opset >= version else before)(node)
