"""A builder that grows a graph node by node and infers the type of each value."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from .ir import Constant, Graph, Node, Output, Value
from .operator import Operator
from .types import Quantisation, TensorType


class Builder:
    """A graph under construction; the builder infers the types of each node that it emits.

    Parameters
    ----------
    name : str
        Name of the graph.
    inputs : iterable of Value
        Inputs of the graph.
    """

    def __init__(self, name: str, inputs: Iterable[Value] = ()) -> None:
        self.name = name
        self.inputs: list[Value] = []
        self.nodes: list[Node] = []
        self.constants: dict[str, Constant] = {}
        self.types: dict[str, TensorType] = {}
        self.reserved: set[str] = set()
        self._producers: dict[str, Node] = {}
        self._digests: dict[str, str] = {}
        self._taken: dict[str, int] = {}
        for value in inputs:
            self.input(value)

    @classmethod
    def from_graph(cls, graph: Graph) -> "Builder":
        """A builder with the inputs and constants of a graph, for nodes that keep its names."""
        builder = cls(graph.name, graph.inputs)
        builder.reserved = {value.name for node in graph.nodes for value in node.outputs}
        for constant in graph.constants:
            builder.adopt(constant)
        return builder

    def input(self, value: Value) -> str:
        """Add an input and return its name."""
        self.inputs.append(value)
        self.types[value.name] = value.type
        return value.name

    def fresh(self, base: str) -> str:
        """Return an unused name: `base` itself if it is free."""
        name, count = base, self._taken.get(base, 1)
        while name in self.types or name in self.reserved:
            name, count = f"{base}.{count}", count + 1
        if name != base:
            self._taken[base] = count - 1  # all earlier suffixes stay taken
        return name

    def constant(self, data: np.ndarray, name: str = "constant", exact: bool = False) -> str:
        """Add a constant and return its name; equal arrays share one constant.

        Parameters
        ----------
        data : ndarray
            Elements of the constant.
        name : str
            Preferred name.
        exact : bool
            Whether to keep the name unchanged and not share the constant.
        """
        constant = Constant(name if exact else self.fresh(name), data)
        if not exact and constant.digest in self._digests:
            return self._digests[constant.digest]
        return self.adopt(constant)

    def adopt(self, constant: Constant) -> str:
        """Add a constant of another graph under its name and return the name."""
        self._digests.setdefault(constant.digest, constant.name)
        self.constants[constant.name] = constant
        self.types[constant.name] = constant.type
        return constant.name

    def emit(
        self,
        operator: Operator,
        inputs: Iterable[str],
        node: str = "",
        name: str | None = None,
        quantisation: Quantisation | None = None,
    ) -> str:
        """Append a node and return the name of its value.

        Parameters
        ----------
        operator : Operator
            Operation of the node.
        inputs : iterable of str
            Names of existing values.
        node : str
            Name of the node, for reports; defaults to the name of its value.
        name : str
            Preferred name of the value, made unique; by default from `node` and the operator.
        quantisation : Quantisation
            Quantisation of the value, if type inference cannot determine it.

        Raises
        ------
        CompileError
            If the operands do not fit.
        """
        inputs = tuple(inputs)
        (kind,) = operator.infer([self.types[i] for i in inputs])
        if quantisation is not None:
            kind = replace(kind, quantisation=quantisation)
        base = name or (f"{node}.{operator.op}" if node else operator.op)
        value = Value(self.fresh(base), kind)
        self.append(Node(node or value.name, operator, inputs, (value,)))
        return value.name

    def emit_outputs(
        self, operator: Operator, inputs: Iterable[str], node: str, names: Sequence[str]
    ) -> list[str]:
        """Append a node with several outputs and return the names of its values; see `emit`.

        Parameters
        ----------
        names : sequence of str
            Preferred names of the values, one for each output, made unique.

        Raises
        ------
        CompileError
            If the operands do not fit.
        """
        inputs = tuple(inputs)
        kinds = operator.infer([self.types[i] for i in inputs])
        values: list[Value] = []
        for name, kind in zip(names, kinds, strict=True):
            values.append(Value(self.fresh(name), kind))
            self.types[values[-1].name] = kind
        self.append(Node(node, operator, inputs, tuple(values)))
        return [value.name for value in values]

    def append(self, node: Node) -> None:
        """Append a node unchanged."""
        self.nodes.append(node)
        for value in node.outputs:
            self.types[value.name] = value.type
            self._producers[value.name] = node

    def producer(self, name: str) -> Node | None:
        return self._producers.get(name)

    def is_constant(self, name: str) -> bool:
        return name in self.constants

    def data(self, name: str) -> np.ndarray:
        """Return a constant's array."""
        return self.constants[name].data

    def graph(self, outputs: Iterable[Output]) -> Graph:
        """Return the finished graph."""
        constants = tuple(self.constants.values())
        return Graph(self.name, tuple(self.inputs), tuple(outputs), tuple(self.nodes), constants)


def drop_unused(graph: Graph) -> Graph:
    """Drop the nodes and constants that no output depends on; keep all inputs."""
    needed = {output.value for output in graph.outputs}
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if any(value.name in needed for value in node.outputs):
            kept.append(node)
            needed.update(node.inputs)
    constants = tuple(c for c in graph.constants if c.name in needed)
    return Graph(graph.name, graph.inputs, graph.outputs, tuple(reversed(kept)), constants)
