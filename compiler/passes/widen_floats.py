"""Compute float16 and bfloat16 networks in float32, as processors without such arithmetic do.

Values are rounded to the narrow type only where the network ends, and around operators that ONNX's
reference computes. Results are at least as close to the real numbers as with a rounding after each
operator, and numbers beyond the narrow type's range stay finite.
"""

from dataclasses import replace

import numpy as np

from ..graph import Builder, Constant, Graph, Node, Output, Value, drop_unused
from ..graph import operators as ops
from ..graph.types import HALVES


def widen_floats(graph: Graph) -> Graph:
    """Replace float16 and bfloat16 by float32; the types of inputs and outputs stay."""
    if not any(kind.dtype in HALVES for kind in graph.types.values()):
        return graph
    return _Widened(graph).graph()


class _Widened:
    """Writes a graph anew."""

    def __init__(self, graph: Graph) -> None:
        self.old = graph
        self.builder = Builder(graph.name, graph.inputs)
        self.builder.reserved = {value.name for node in graph.nodes for value in node.outputs}
        self.names: dict[str, str] = {}
        """New names of values that have others than before."""

    def graph(self) -> Graph:
        """Write all values, and the outputs with their types."""
        for constant in self.old.constants:
            if constant.type.dtype in HALVES:
                constant = Constant(constant.name, constant.data.astype(np.float32))
            self.builder.adopt(constant)
        for value in self.old.inputs:
            if value.type.dtype in HALVES:
                cast = ops.Cast("float32")
                self.names[value.name] = self.builder.emit(cast, [value.name], value.name)
        for node in self.old.nodes:
            kinds = [self.old.types[name].dtype for name in node.inputs]
            kinds += [value.type.dtype for value in node.outputs]
            if not any(kind in HALVES for kind in kinds):
                inputs = tuple(self._new(name) for name in node.inputs)
                self.builder.append(replace(node, inputs=inputs))
            elif isinstance(node.attributes, ops.OnnxReference):
                self._narrow(node)
            else:
                self._widen(node)
        outputs = [
            Output(one.name, self._cast(one.value, self.old.types[one.value].dtype))
            for one in self.old.outputs
        ]
        return drop_unused(self.builder.graph(outputs))

    def _new(self, name: str) -> str:
        return self.names.get(name, name)

    def _cast(self, name: str, dtype: str) -> str:
        """Emit an old value in a type; the cast has its name."""
        new = self._new(name)
        if self.builder.types[new].dtype == dtype:
            return new
        return self.builder.emit(ops.Cast(dtype), [new], name)

    def _widen(self, node: Node) -> None:
        """Write a node that computes in float32."""
        operator, inputs = node.attributes, [self._new(name) for name in node.inputs]
        if isinstance(operator, (ops.Cast, ops.GeneralDequantize)) and operator.dtype in HALVES:
            operator = replace(operator, dtype="float32")
        kind = self.builder.types[inputs[0]].dtype
        if isinstance(operator, ops.Cast) and operator.dtype == kind:
            self.names[node.output.name] = inputs[0]
            return
        names = [value.name for value in node.outputs]
        self.builder.reserved -= set(names)
        self.builder.emit_outputs(operator, inputs, node.name, names)

    def _narrow(self, node: Node) -> None:
        """Write a node unchanged, with casts around it."""
        inputs = tuple(self._cast(name, self.old.types[name].dtype) for name in node.inputs)
        values = []
        for value in node.outputs:
            if value.type.dtype in HALVES:
                value = Value(self.builder.fresh(f"{value.name}.narrow"), value.type)
            values.append(value)
        self.builder.append(replace(node, inputs=inputs, outputs=tuple(values)))
        for old, new in zip(node.outputs, values, strict=True):
            if new is not old:
                self.names[old.name] = self.builder.emit(ops.Cast("float32"), [new.name], old.name)
