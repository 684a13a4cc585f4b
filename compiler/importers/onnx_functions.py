"""Expansion of functions: those of the model, and ONNX's definitions of its own operators."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import onnx
from google.protobuf.message import DecodeError

from .onnx_node import OnnxNode
from .onnx_scope import Key, Named, key_of, schema_of
from .onnx_tensors import ONNX_TYPES


def has_function(schema: Any) -> bool:
    """Tell whether ONNX defines an operator in terms of others."""
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def function_sizes(functions: Mapping[Key, onnx.FunctionProto]) -> dict[Key, int]:
    """Count the nodes that each function of a model becomes, so that none is expanded in vain.

    Branches and bodies of loops are left out, and so are calls of a function in itself.
    """
    sizes: dict[Key, int] = {}
    begun: set[Key] = set()
    waiting = list(functions)
    while waiting:
        key = waiting[-1]
        called = Counter(map(key_of, functions[key].node)) if key not in sizes else Counter()
        if key not in begun:
            begun.add(key)
            waiting += [each for each in called if each in functions and each not in begun]
            continue
        waiting.pop()
        size = sum(times * (1 + sizes.get(each, 0)) for each, times in called.items())
        sizes.setdefault(key, min(size, 1 << 32))
    return sizes


def expand_model_function(node: OnnxNode, function: onnx.FunctionProto) -> list[Named]:
    """Import a model function's body in place of a node that calls it."""
    defaults = {attribute.name: attribute for attribute in function.attribute_proto}
    opsets = {_plain(entry.domain): entry.version for entry in function.opset_import}
    return _expand(node, function, {**node.scope.opsets, **opsets}, defaults)


def expand_definition(node: OnnxNode) -> list[Named] | None:
    """Import the body by which ONNX defines an operator; None if there is none for this node."""
    schema = schema_of(node.key, node.scope.opsets)
    try:
        function = None if schema is None else _definition(node, schema)
    except (RuntimeError, TypeError, ValueError, DecodeError) as error:
        detail = " ".join(str(error).split())
        node.fail("operands that its definition takes", f"`{detail}`", "export the model again")
    if schema is None or function is None:
        return None
    defaults = {
        name: attribute.default_value
        for name, attribute in schema.attributes.items()
        if attribute.default_value.name
    }
    opsets = {_plain(entry.domain): entry.version for entry in function.opset_import}
    return _expand(node, function, {**node.scope.opsets, **opsets}, defaults)


def _plain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def _definition(node: OnnxNode, schema: Any) -> onnx.FunctionProto | None:
    if not has_function(schema):
        return None
    by_types = schema.has_context_dependent_function
    known = schema.context_dependent_function_opset_versions if by_types else None
    versions = known or schema.function_opset_versions
    own = node.scope.opsets.get(node.key[0], 1)
    version = max((v for v in versions if v <= own), default=min(versions))
    if not by_types:
        return onnx.FunctionProto.FromString(schema.get_function_with_opset_version(version))
    types = [_type_of(node, index).SerializeToString() for index in range(len(node.proto.input))]
    body = schema.get_context_dependent_function_with_opset_version(
        version, node.proto.SerializeToString(), types
    )
    return onnx.FunctionProto.FromString(body) if body else None


def _type_of(node: OnnxNode, index: int) -> onnx.TypeProto:
    if not node.has(index):
        return onnx.TypeProto()
    value = node.value(index)
    if not isinstance(value, str):
        first = [node.builder.types[name] for name in value[:1]]
        element = ONNX_TYPES[first[0].dtype if first else "float32"]
        return onnx.helper.make_sequence_type_proto(
            onnx.helper.make_tensor_type_proto(element, None)
        )
    kind = node.type(index)
    return onnx.helper.make_tensor_type_proto(ONNX_TYPES[kind.dtype], kind.shape)


def _expand(
    node: OnnxNode,
    function: onnx.FunctionProto,
    opsets: Mapping[str, int],
    defaults: Mapping[str, onnx.AttributeProto],
) -> list[Named]:
    where = f"{node.where}: in its definition"
    if node.key in node.scope.callers:
        kind = ".".join(filter(None, node.key))
        node.fail("no functions that call themselves", f"`{kind}`", "break the recursion")
    names: dict[str, Named] = {
        name: node.value(index) if node.has(index) else ""
        for index, name in enumerate(function.input)
    }
    given = {**defaults, **node.attributes}
    body = [_with_attributes(inner, given) for inner in function.node]
    scope = node.scope.function(node.key, where, node.label, opsets, names)
    scope.import_nodes(scope, body)
    wanted = [
        name for name, output in zip(function.output, node.proto.output, strict=False) if output
    ]
    found = dict(zip(wanted, scope.results(wanted), strict=True))
    return [found.get(name, "") for name in function.output[: len(node.proto.output)]]


def _with_attributes(
    node: onnx.NodeProto, given: Mapping[str, onnx.AttributeProto]
) -> onnx.NodeProto:
    """Return a node whose references to the function's attributes are replaced by their values."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    del copy.attribute[:]
    copy.attribute.extend(_resolved(node.attribute, given))
    return copy


def _resolved(
    attributes: Iterable[onnx.AttributeProto], given: Mapping[str, onnx.AttributeProto]
) -> Iterable[onnx.AttributeProto]:
    for attribute in attributes:
        if attribute.ref_attr_name and attribute.ref_attr_name not in given:
            continue
        value = onnx.AttributeProto()
        value.CopyFrom(given.get(attribute.ref_attr_name, attribute))
        value.name = attribute.name
        for graph in (value.g, *value.graphs):
            nodes = [_with_attributes(inner, given) for inner in graph.node]
            del graph.node[:]
            graph.node.extend(nodes)
        yield value
