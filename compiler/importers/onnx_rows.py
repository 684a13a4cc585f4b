"""Rows of the operator table: data that map an ONNX operator to one operator of the graph.

A row names the graph's operator. For each of its fields, it gives a constant or the source of the
value: an attribute or a constant operand.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from ..graph.operators import Operator
from .onnx_node import OnnxNode

Source = Callable[[OnnxNode], Any]
"""Function that reads the value of a field from a node."""


@dataclass(frozen=True, slots=True)
class OperatorRow:
    """A mapping of an ONNX operator to one operator of the graph; calling it imports a node.

    Attributes
    ----------
    operator : type
        Class of the graph's operator.
    fields : mapping
        Name of each field -> its value, or the source of its value.
    operands : int or None
        Number of inputs that remain operands; None for all.
    """

    operator: type[Operator]
    fields: Mapping[str, Any]
    operands: int | None

    def __call__(self, node: OnnxNode) -> str | list[str]:
        """Import a node as the operator."""
        values = {
            name: value(node) if callable(value) else value for name, value in self.fields.items()
        }
        inputs = node.inputs()[: self.operands]
        emit = node.emit if len(node.proto.output) == 1 else node.emit_outputs
        return emit(self.operator(**values), inputs)


def row(operator: type[Operator], operands: int | None = None, **fields: Any) -> OperatorRow:
    """Make a row; see `OperatorRow`."""
    return OperatorRow(operator, fields, operands)


def by_form(operator: type[Operator]) -> OperatorRow:
    """Make the row that follows from an operator's `OnnxForm` and the defaults of its fields."""
    assert operator.onnx is not None
    defaults = {field.name: field.default for field in fields(operator)}
    read = {ours: _source(name, defaults[ours]) for name, ours in operator.onnx.attributes.items()}
    return OperatorRow(operator, read, None)


def _source(name: str, default: Any) -> Source:
    if name == "axis":
        return axis(default)
    return flag(name, default) if isinstance(default, bool) else attribute(name, default)


def attribute(name: str, default: Any) -> Source:
    """Return the source of an attribute, taken unchanged."""
    return lambda node: node.attribute(name, default)


def flag(name: str, default: int = 0) -> Source:
    """Return the source of an attribute, taken as a truth value."""
    return lambda node: bool(node.attribute(name, default))


def axis(default: int) -> Source:
    """Return the source of the attribute `axis`, counted from the front of the first operand."""
    return lambda node: node.axis(default, node.rank(0))


def scalar(index: int) -> Source:
    """Return the source of a constant operand, taken as an integer."""
    return lambda node: int(node.scalar(index, 0))


def since(version: int, source: Source, before: Source) -> Source:
    """Return `source` from operator set `version` on, and `before` for older sets."""
    return lambda node: (source if node.opset >= version else before)(node)
