"""The choice of how to import a node: by our importer, the library, or ONNX's own definition.

They are tried in that order. The first that does not decline the node imports it. A function of the
model comes before all of them, and then an operator that the user registered.
"""

from collections.abc import Iterable, Iterator, Sequence

import onnx

from ...quoting import printable
from ..registered import REGISTERED
from .onnx_functions import expand_definition, expand_model_function, has_function
from .onnx_library import LIBRARY, import_library
from .onnx_node import OnnxNode
from .onnx_operators import handler_of
from .onnx_registered import import_registered
from .onnx_scope import ImportScope, Key, Named, key_of, schema_of
from .refusals import CAUSES

MAX_NODES = 100_000
"""Maximum number of nodes, read or in the graph, while loops are unrolled, functions expanded."""


def import_nodes(scope: ImportScope, nodes: Iterable[onnx.NodeProto]) -> None:
    """Import nodes in order and enter the names of their results in the scope.

    Raises
    ------
    ImportModelError
        If a node is invalid or not supported.
    """
    names = scope.own_names
    for proto in nodes:
        node = OnnxNode(scope, proto)
        read = next(scope.places) + scope.sizes.get(node.key, 0)
        if max(len(scope.builder.nodes), read) > MAX_NODES:
            node.refuse(
                "long loops and deeply nested functions",
                f"more than {MAX_NODES:,} nodes",
                "shorten the loops, or write functions out",
            )
        for output, result in zip(proto.output, import_node(node), strict=False):
            if not output:
                continue
            if output in names:
                node.fail(f"`{output}` to be produced once", "a second producer", "rename one")
            names[output] = result


def import_node(node: OnnxNode) -> list[Named]:
    """Import a node and return the values of its outputs.

    Raises
    ------
    ImportModelError
        If the node is invalid or not supported.
    """
    try:
        return _import(node)
    except MemoryError:
        node.refuse("tensors beyond this machine's memory", "one of them", "make it smaller")
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        # No importer expects this error; the traceback (`-v`) shows what the file violates.
        detail = " ".join(f"{type(error).__name__}: {error}".split())
        expected = "operands and attributes that conform to the ONNX specification"
        node.fail(expected, f"`{detail}`", "export it again")


def _import(node: OnnxNode) -> list[Named]:
    results: str | Sequence[Named] | None = None
    if node.key in node.scope.functions:
        results = expand_model_function(node, node.scope.functions[node.key])
    elif node.key in REGISTERED:
        results = import_registered(node)
    elif handler := handler_of(node.key):
        results = handler(node)
    if results is None and node.key in LIBRARY:
        results = import_library(node)
    if results is None and node.key not in CAUSES:
        results = expand_definition(node)
    if results is None:
        kind = ".".join(filter(None, node.key))
        cause = CAUSES.get(node.key, f"operator {kind}")
        node.refuse(cause, f"`{kind}`", "replace it before export")
    return [results] if isinstance(results, str) else list(results)


def unsupported(
    nodes: Iterable[onnx.NodeProto], scope: ImportScope
) -> Iterator[tuple[str, str, str]]:
    """Yield operator, node and cause for all unsupported nodes, including those in branches."""
    for node in nodes:
        key = key_of(node)
        if not _is_supported(key, scope):
            kind = ".".join(filter(None, key))
            label = printable(node.name or next(iter(node.output), ""))
            yield kind, label, CAUSES.get(key, f"operator {kind}")
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from unsupported(graph.node, scope)


def _is_supported(key: Key, scope: ImportScope) -> bool:
    if key in scope.functions or key in REGISTERED or handler_of(key) or key in LIBRARY:
        return True
    return key not in CAUSES and has_function(schema_of(key, scope.opsets))
