"""ONNX nodes that an importer writes in place of a composed operator, as a function would."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ..graph.types import DTYPES, NARROW_FLOATS
from .onnx_functions import expand_model_function
from .onnx_node import OnnxNode
from .onnx_scope import Named

OPSET = 24
"""Operator set of the bodies."""


@dataclass
class Body:
    """ONNX nodes that take the place of a node.

    If `wide`, they compute in float32 where operands are of a narrower type.
    """

    node: OnnxNode
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    wide: bool = False

    def __call__(self, kind: str, *operands: str | np.ndarray, **attributes: Any) -> str:
        """Add a node with one output; arrays become constants."""
        names = [self.constant(each) if isinstance(each, np.ndarray) else each for each in operands]
        name = f"{kind.lower()}.{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, names, [name], **attributes))
        return name

    def constant(self, array: np.ndarray) -> str:
        """Add a constant."""
        name = f"constant.{len(self.nodes)}"
        value = numpy_helper.from_array(array, name)
        self.nodes.append(helper.make_node("Constant", [], [name], value=value))
        return name

    def given(self, index: int) -> str | None:
        """Return an input of the node if it has that one."""
        return f"input.{index}" if self.node.has(index) else None

    def shape(self, index: int) -> tuple[int, ...]:
        """Return the shape of an input of the node."""
        return self.node.type(index).shape

    def reshape(self, x: str, *shape: int) -> str:
        """Add Reshape; 0 keeps an extent."""
        return self("Reshape", x, np.array(shape))

    def heads(self, x: str, heads: int) -> str:
        """[batch, positions, heads * size] -> [batch, heads, positions, size]."""
        return self("Transpose", self.reshape(x, 0, 0, heads, -1), perm=[0, 2, 1, 3])

    def joined(self, x: str) -> str:
        """[batch, heads, positions, size] -> [batch, positions, heads * size]."""
        return self.reshape(self("Transpose", x, perm=[0, 2, 1, 3]), 0, 0, -1)

    def longer(self, x: str, positions: int) -> str:
        """[batch, heads, positions, size] with zeros after the last position."""
        return self("Pad", x, np.array([0, 0, 0, 0, 0, 0, positions, 0])) if positions else x

    def sum(self, parts: Sequence[str]) -> str | None:
        """Add the sum of values; None if there are none."""
        return reduce(partial(self, "Add"), parts) if parts else None

    def expand(self, *outputs: str | None) -> list[Named]:
        """Import the nodes; outputs that are None are not there.

        Raises
        ------
        ImportModelError
            If an output is used that is not there.
        """
        node, inputs = self.node, [f"input.{index}" for index in range(len(self.node.proto.input))]
        for index, output in enumerate(node.proto.output):
            if output and (index >= len(outputs) or outputs[index] is None):
                node.fail("no such output", f"output {index}", "drop the use of it")
        names = [name or f"none.{index}" for index, name in enumerate(outputs)]
        kinds = [node.type(i).dtype if node.has(i) else "" for i in range(len(inputs))]
        narrow = next((kind for kind in kinds if kind in NARROW_FLOATS), "")
        if self.wide and narrow:
            for index, name in enumerate(inputs):
                if kinds[index] == narrow:
                    inputs[index] = f"narrow.{index}"
                    cast = helper.make_node("Cast", [inputs[index]], [name], to=TensorProto.FLOAT)
                    self.nodes.insert(0, cast)
            to = helper.np_dtype_to_tensor_dtype(np.dtype(DTYPES[narrow]))
            names = [self("Cast", name, to=to) if name in outputs else name for name in names]
        function = helper.make_function(
            node.key[0],
            node.key[1],
            inputs,
            names,
            self.nodes,
            [helper.make_opsetid("", OPSET)],
        )
        return expand_model_function(node, function)
