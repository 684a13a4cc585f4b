"""A writer that collects the nodes, constants and unique names of a model in ONNX's file format."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from ..graph import Graph, Node


class Writer:
    """The nodes and constants of a model under construction.

    In the file, a value that is an output of the graph has the name of the output. Another value
    with that name, such as a layer's result before quantisation, gets a new name.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes: list[onnx.NodeProto] = []
        self.names = {value.name: value.name for value in graph.inputs}
        self.constants: dict[str, np.ndarray] = {}
        self.labels: set[str] = set()
        self.taken = {*self.names, *(output.name for output in graph.outputs)}
        for output in graph.outputs:
            if graph.producer(output.value) is not None:
                self.names.setdefault(output.value, output.name)
        for node in graph.nodes:
            for value in node.outputs:
                self.names.setdefault(value.name, self.fresh(value.name))
        for constant in graph.constants:
            self.names[constant.name] = self.constant(constant.name, constant.data)

    def fresh(self, name: str) -> str:
        """Return an unused name, and reserve it."""
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name

    def constant(self, name: str, data: Any, dtype: Any = None) -> str:
        """Add a constant, named `name` if it is free, and return its name in the file."""
        name = self.fresh(name)
        self.constants[name] = np.asarray(data, dtype=dtype)
        return name

    def held(self, node: Node, part: str, data: Any, dtype: Any = np.int64) -> str:
        """Add a constant that a node needs, and return its name in the file."""
        return self.constant(f"{node.outputs[0].name}.{part}", data, dtype)

    def step(self, result: str, kind: str, inputs: Sequence[str], /, **attributes: Any) -> str:
        """Add a node that the graph lacks, and return its result: `result`, if that is free."""
        made = self.fresh(result)
        self.nodes.append(helper.make_node(kind, list(inputs), [made], **attributes))
        return made

    def inputs(self, node: Node) -> list[str]:
        """Return the names in the file of a node's operands."""
        return [self.names[name] for name in node.inputs]

    def add(self, node: Node, kind: str, *more: str, **attributes: Any) -> None:
        """Add a node with the operands of `node`, `more` operands, and the outputs of `node`."""
        self.write(node, kind, [*self.inputs(node), *more], **attributes)

    def write(
        self, node: Node, kind: str, inputs: Sequence[str], unused: int = 0, **attributes: Any
    ) -> None:
        """Add a node with the outputs of `node`, behind some that are unused.

        Operands are given by their names in the file.
        """
        names = [self.names[value.name] for value in node.outputs]
        names = [*(f"{names[0]}.unused{index}" for index in range(unused)), *names]
        # ONNX Runtime refuses an AveragePool with `dilations` between integers, even if all are 1.
        if set(attributes.get("dilations", ())) == {1}:
            del attributes["dilations"]
        # Node names in ONNX are unique; several nodes here may come from one node of a model.
        unique = node.name if node.name not in self.labels else f"{node.name}/{names[0]}"
        self.labels.add(unique)
        made = helper.make_node(kind, list(inputs), names, name=unique, **attributes)
        self.nodes.append(made)
