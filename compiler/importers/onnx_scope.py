"""Names of a graph, a branch, a loop's body or a function's body being imported.

Each has its own names and sees those around it, except functions, which see only their operands.
"""

from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, replace
from pathlib import Path

import onnx

from ...errors import ImportModelError
from ..graph import Builder
from .onnx_tensors import read_tensor

Key = tuple[str, str]
"""(domain, operator), ONNX's own domain as the empty text."""


Named = str | tuple[str, ...]
"""What an ONNX name stands for: a value of the graph, or a sequence of them."""

NEWEST_VERSION = (1 << 31) - 1
"""Largest number of an operator set that ONNX's own tables take."""


def key_of(node: onnx.NodeProto) -> Key:
    """Return a node's domain and operator; ONNX's own domain has two names."""
    return "" if node.domain == "ai.onnx" else node.domain, node.op_type


def schema_of(key: Key, opsets: Mapping[str, int]) -> onnx.defs.OpSchema | None:
    """Return ONNX's own definition of an operator, if it has one in the version at hand."""
    domain, kind = key
    version = max(0, min(opsets.get(domain, 1), NEWEST_VERSION))
    try:
        return onnx.defs.get_schema(kind, version, domain)
    except onnx.defs.SchemaError:
        return None


@dataclass(frozen=True)
class ImportScope:
    """Where nodes are imported.

    Attributes
    ----------
    builder : Builder
        Receives the IR nodes.
    where : str
        For messages.
    opsets : mapping
        Domain -> version of its operator set.
    functions : mapping
        The model's own functions.
    import_nodes : callable
        Imports nodes in a scope.
    names : mapping
        ONNX name -> name in the graph; an empty one stands for an operand that is left out.
    folder : Path or None
        Of the model's file.
    label : str
        Of the node that all nodes here belong to, for reports; empty for the graph itself.
    callers : tuple of Key
        Functions whose bodies these nodes stand in.
    """

    builder: Builder
    where: str
    opsets: Mapping[str, int]
    functions: Mapping[Key, onnx.FunctionProto]
    import_nodes: Callable[["ImportScope", Iterable[onnx.NodeProto]], None]
    names: MutableMapping[str, Named]
    folder: Path | None = None
    label: str = ""
    callers: tuple[Key, ...] = ()

    @property
    def opset(self) -> int:
        """Version of ONNX's own operator set."""
        return self.opsets.get("", 1)

    @property
    def own_names(self) -> MutableMapping[str, Named]:
        """The names of this scope alone."""
        return self.names.maps[0] if isinstance(self.names, ChainMap) else self.names

    def branch(self, where: str, label: str) -> "ImportScope":
        """Return a scope that sees the names of this one."""
        return replace(self, where=where, label=label, names=ChainMap({}, self.names))

    def function(
        self, key: Key, where: str, label: str, opsets: Mapping[str, int], names: dict[str, Named]
    ) -> "ImportScope":
        """Return a scope for the body of a function `key`: it sees only `names`."""
        callers = (*self.callers, key)
        return replace(self, where=where, label=label, opsets=opsets, names=names, callers=callers)

    def import_graph(self, graph: onnx.GraphProto, operands: Iterable[Named]) -> list[Named]:
        """Import a branch or a loop's body here and return the values of its outputs.

        Raises
        ------
        ImportModelError
            If a node is not as it should be.
        """
        for value, operand in zip(graph.input, operands, strict=False):
            self.names[value.name] = operand
        for tensor in graph.initializer:
            array = read_tensor(tensor, f"{self.where}: `{tensor.name}`", self.folder)
            self.names[tensor.name] = self.builder.constant(array, tensor.name)
        self.import_nodes(self, graph.node)
        return self.results(value.name for value in graph.output)

    def results(self, outputs: Iterable[str]) -> list[Named]:
        """Return the values of outputs.

        Raises
        ------
        ImportModelError
            If nothing produces one.
        """
        found = []
        for name in outputs:
            if self.names.get(name, "") == "":
                raise ImportModelError(
                    f"{self.where}: output `{name}`: expected a node to produce it, got none; "
                    "export the model again"
                )
            found.append(self.names[name])
        return found
