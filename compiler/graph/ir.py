"""Graph IR: values in static single assignment, produced by nodes with typed attributes.

Everything is immutable and compared by structure; a pass returns a new graph. Weights are
constants of the graph, named like any other value, so that a node's inputs are all names.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from ...errors import CompileError
from .operator import Operator
from .types import TensorType


@dataclass(frozen=True, slots=True)
class Value:
    """A name and its type, where the value is produced."""

    name: str
    type: TensorType


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A named array; equal to another one when name, type and bytes are.

    Attributes
    ----------
    name : str
        The value's name.
    data : ndarray
        Made read-only and contiguous here.
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
    """An output of the model: its name outside, and the value that it shows."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Node:
    """One operation.

    Attributes
    ----------
    name : str
        Of the model's node that it came from, for reports and messages; not necessarily unique.
    attributes : Operator
        What it computes: one of the dataclasses of `operators`.
    inputs : tuple of str
        Names of values.
    outputs : tuple of Value
        Produced here and nowhere else.
    """

    name: str
    attributes: Operator
    inputs: tuple[str, ...]
    outputs: tuple[Value, ...]

    @property
    def op(self) -> str:
        """Name of the operator, such as `qconv`."""
        return self.attributes.op

    @property
    def output(self) -> Value:
        """The only output of a node that has one."""
        (value,) = self.outputs
        return value


@dataclass(frozen=True, slots=True)
class Graph:
    """A network: inputs, constants and nodes in topological order, and what of it is shown.

    Attributes
    ----------
    name : str
        The model's name.
    inputs : tuple of Value
        Fed by the user.
    outputs : tuple of Output
        In the model's order.
    nodes : tuple of Node
        Each after the nodes that it reads.
    constants : tuple of Constant
        Weights, biases, scales and tables.
    """

    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Output, ...]
    nodes: tuple[Node, ...]
    constants: tuple[Constant, ...] = ()
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
            f"<Graph `{self.name:.60}`: {len(self.nodes)} nodes, {len(self.constants)} constants, "
            f"{len(self.inputs)} inputs, {len(self.outputs)} outputs>"
        )

    def is_constant(self, name: str) -> bool:
        """Tell whether a value is a constant of the graph."""
        return name in self._data

    def data(self, name: str) -> np.ndarray:
        """Return a constant's array (read-only).

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
        """Return the nodes that read a value, in order, each once."""
        return self._users.get(name, ())

    def is_output(self, name: str) -> bool:
        """Tell whether a value is shown by an output of the graph."""
        return any(output.value == name for output in self.outputs)

    def is_private(self, name: str) -> bool:
        """Tell whether one node alone reads a value, and no output shows it."""
        return len(self.users(name)) == 1 and not self.is_output(name)

    def only_user(self, name: str) -> Node | None:
        """Return the one node that reads a private value; None for other values."""
        return self.users(name)[0] if self.is_private(name) else None
