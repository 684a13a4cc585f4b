"""The graph IR: values in static single assignment, and nodes with typed attributes.

All objects are immutable and compare by structure; a pass returns a new graph. Weights are
constants of the graph. They have names like all other values, so a node's inputs are names only.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from ...errors import CompileError
from ...html_tables import html_table
from ...wording import counted
from .operator import Operator
from .types import TensorType

if TYPE_CHECKING:
    from .plot import Picture


@dataclass(frozen=True, slots=True)
class Value:
    """The name and type of a value that a node produces or the user supplies."""

    name: str
    type: TensorType


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A named array; two constants are equal if their names, types and bytes are.

    Attributes
    ----------
    name : str
        Name of the value.
    data : ndarray
        Elements; the constructor makes the array read-only and contiguous.
    digest : str
        First 16 hexadecimal digits of the SHA-256 of type, shape and bytes.
    """

    name: str
    data: np.ndarray
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        data = self.data
        if data.flags.writeable or not data.flags.c_contiguous:
            data = np.array(data, order="C", copy=True)
            data.flags.writeable = False
            object.__setattr__(self, "data", data)
        text = f"{data.dtype} {data.shape} "
        digest = hashlib.sha256(text.encode() + data.tobytes()).hexdigest()[:16]
        object.__setattr__(self, "digest", digest)

    @property
    def type(self) -> TensorType:
        """Element type and shape."""
        return TensorType(str(self.data.dtype), self.data.shape)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Constant):
            return NotImplemented
        return self.name == other.name and self.digest == other.digest

    def __hash__(self) -> int:
        return hash((self.name, self.digest))


@dataclass(frozen=True, slots=True)
class Output:
    """An output of the model: its external name and the value that it returns."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Node:
    """One operation.

    Attributes
    ----------
    name : str
        Name of the model's node that it came from, for reports and messages; not always unique.
    attributes : Operator
        Operation: an instance of one of the dataclasses in `operators`.
    inputs : tuple of str
        Names of the values that it reads.
    outputs : tuple of Value
        Values that it alone produces.
    """

    name: str
    attributes: Operator
    inputs: tuple[str, ...]
    outputs: tuple[Value, ...]

    @property
    def op(self) -> str:
        """Name of the operator in reports, such as `qconv`."""
        return self.attributes.title

    @property
    def operands(self) -> tuple[str, ...]:
        """Values that it computes with, without weights, tables and their like."""
        return self.inputs[: self.attributes.operand_count]

    @property
    def output(self) -> Value:
        """The single output; only for nodes with one output."""
        (value,) = self.outputs
        return value


@dataclass(frozen=True, slots=True)
class Graph:
    """A network: its inputs, its constants, its nodes in topological order, and its outputs.

    Attributes
    ----------
    name : str
        Name of the model.
    inputs : tuple of Value
        Inputs that the user supplies.
    outputs : tuple of Output
        Outputs in the order of the model.
    nodes : tuple of Node
        Nodes; each comes after the nodes whose values it reads.
    constants : tuple of Constant
        Weights, biases, scales and tables.
    imported : Graph or None
        The same network before its layers were recognised, in operators that ONNX has, for
        `export_onnx`. Passes leave it out of what they make.
    """

    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Output, ...]
    nodes: tuple[Node, ...]
    constants: tuple[Constant, ...] = ()
    imported: "Graph | None" = field(default=None, repr=False, compare=False)
    types: Mapping[str, TensorType] = field(init=False, repr=False, compare=False)
    _data: Mapping[str, np.ndarray] = field(init=False, repr=False, compare=False)
    _producers: Mapping[str, Node] = field(init=False, repr=False, compare=False)
    _users: Mapping[str, tuple[Node, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        types = {value.name: value.type for value in self.inputs}
        types |= {constant.name: constant.type for constant in self.constants}
        producers: dict[str, Node] = {}
        readers: dict[str, list[Node]] = {}
        for node in self.nodes:
            for value in node.outputs:
                types[value.name] = value.type
                producers[value.name] = node
            for name in dict.fromkeys(node.inputs):
                readers.setdefault(name, []).append(node)
        users = {name: tuple(nodes) for name, nodes in readers.items()}
        data = {constant.name: constant.data for constant in self.constants}
        object.__setattr__(self, "types", MappingProxyType(types))
        object.__setattr__(self, "_data", MappingProxyType(data))
        object.__setattr__(self, "_producers", MappingProxyType(producers))
        object.__setattr__(self, "_users", MappingProxyType(users))

    def __repr__(self) -> str:
        return (
            f"<Graph `{self.name:.60}`: {counted(len(self.nodes), 'node')}, "
            f"{counted(len(self.constants), 'constant')}, {counted(len(self.inputs), 'input')}, "
            f"{counted(len(self.outputs), 'output')}>"
        )

    def plot(self) -> "Picture":
        """Draw the graph as SVG: a notebook shows it, and `save(PATH)` writes it."""
        from .plot import plot  # needs operators, which are defined after the graph

        return plot(self)

    def _repr_html_(self) -> str:
        return html_table(
            repr(self)[1:-1],
            ("node", "operator", "inputs", "type"),
            (
                (
                    node.name,
                    node.op,
                    ", ".join(name for name in node.inputs if not self.is_constant(name)),
                    ", ".join(str(value.type) for value in node.outputs),
                )
                for node in self.nodes
            ),
            left=4,
        )

    def is_constant(self, name: str) -> bool:
        return name in self._data

    def data(self, name: str) -> np.ndarray:
        """Return the array of a constant (read-only).

        Raises
        ------
        CompileError
            If the value is not a constant.
        """
        if name not in self._data:
            raise CompileError(
                f"graph `{self.name}`: value `{name}` is needed at compile time, expected a "
                "constant, got a value computed at run time; fold it or keep it on the host"
            )
        return self._data[name]

    def producer(self, name: str) -> Node | None:
        """Return the node that produces a value; None for inputs and constants."""
        return self._producers.get(name)

    def users(self, name: str) -> tuple[Node, ...]:
        """Return the nodes that read a value, each once, in the order of the graph."""
        return self._users.get(name, ())

    def is_output(self, name: str) -> bool:
        return any(output.value == name for output in self.outputs)

    def is_private(self, name: str) -> bool:
        """Tell whether exactly one node reads a value, and the value is not an output."""
        return len(self.users(name)) == 1 and not self.is_output(name)

    def only_user(self, name: str) -> Node | None:
        """Return the only reader of a private value; None for other values."""
        return self.users(name)[0] if self.is_private(name) else None
