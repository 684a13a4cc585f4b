"""Name scopes during import: the graph's, or those of branch, loop and function bodies.

A scope has its own names and sees those of the scopes around it. A function sees only its operands.
"""

from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

import onnx

from ...errors import ImportModelError
from ..graph import Builder
from .onnx_tensors import read_tensor

Key = tuple[str, str]
"""(domain, operator); ONNX's own domain is the empty string."""


Named = str | tuple[str, ...]
"""Meaning of an ONNX name: a graph value, or a sequence of values."""

NEWEST_VERSION = (1 << 31) - 1
"""Largest version of an operator set that ONNX's own tables accept."""


def key_of(node: onnx.NodeProto) -> Key:
    """Return the domain and operator of a node; both names of ONNX's own domain become ""."""
    return "" if node.domain == "ai.onnx" else node.domain, node.op_type


def schema_of(key: Key, opsets: Mapping[str, int]) -> onnx.defs.OpSchema | None:
    """Return ONNX's schema of an operator in the version in use; None if there is none.

    An operator that is newer than the model's operator set has its newest version. onnxruntime's
    optimiser writes such operators, for example LayerNormalization.
    """
    domain, kind = key
    for version in (max(0, min(opsets.get(domain, 1), NEWEST_VERSION)), NEWEST_VERSION):
        with suppress(onnx.defs.SchemaError):
            return onnx.defs.get_schema(kind, version, domain)
    return None


@dataclass(frozen=True)
class ImportScope:
    """A scope in which nodes are imported.

    Attributes
    ----------
    builder : Builder
        Builder that receives the emitted nodes.
    where : str
        Place in the model, for messages.
    opsets : mapping
        Domain -> version of its operator set.
    functions : mapping
        (domain, name) -> function of the model.
    import_nodes : callable
        Function that imports nodes in a scope.
    names : mapping
        ONNX name -> name in the graph; an empty name stands for an omitted operand.
    folder : Path or None
        Folder of the model's file, if there is a file.
    label : str
        Name of the node whose body this is, for reports; empty for the graph itself.
    callers : tuple of Key
        Functions whose bodies enclose these nodes.
    places : iterator of int
        Numbers of the nodes in the order of their import, shared by all scopes of a model.
    sizes : mapping
        Nodes that each function becomes, see `function_sizes`.
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
    places: Iterator[int] = field(default_factory=count)
    sizes: Mapping[Key, int] = field(default_factory=dict)

    @property
    def opset(self) -> int:
        """Version of ONNX's own operator set."""
        return self.opsets.get("", 1)

    @property
    def own_names(self) -> MutableMapping[str, Named]:
        return self.names.maps[0] if isinstance(self.names, ChainMap) else self.names

    def branch(self, where: str, label: str) -> "ImportScope":
        """Return a scope that also sees the names of this one."""
        return replace(self, where=where, label=label, names=ChainMap({}, self.names))

    def function(
        self, key: Key, where: str, label: str, opsets: Mapping[str, int], names: dict[str, Named]
    ) -> "ImportScope":
        """Return a scope for the body of the function `key`, which sees only `names`."""
        callers = (*self.callers, key)
        return replace(self, where=where, label=label, opsets=opsets, names=names, callers=callers)

    def import_graph(self, graph: onnx.GraphProto, operands: Iterable[Named]) -> list[Named]:
        """Import the body of a branch or a loop in this scope and return its output values.

        Raises
        ------
        ImportModelError
            If a node is invalid or not supported.
        """
        for value, operand in zip(graph.input, operands, strict=False):
            self.names[value.name] = operand
        for tensor in graph.initializer:
            array = read_tensor(tensor, f"{self.where}: `{tensor.name}`", self.folder)
            self.names[tensor.name] = self.builder.constant(array, tensor.name)
        self.import_nodes(self, graph.node)
        return self.results(value.name for value in graph.output)

    def results(self, outputs: Iterable[str]) -> list[Named]:
        """Return the values of named outputs.

        Raises
        ------
        ImportModelError
            If no node produces one of them.
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
