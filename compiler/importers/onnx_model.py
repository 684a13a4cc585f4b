"""ONNX files -> graphs of host operators, all shapes static, every mistake of a file one sentence.

Nothing is trusted: what the file declares of shapes is used for the inputs only, all others are
inferred here. Passes then recognise what the accelerator runs.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError, Message

from ...errors import CompileError, ImportModelError
from ..graph import Builder, Graph, Output, TensorType, Value, drop_unused, verify
from ..graph.ir import DTYPES
from .onnx_node import OnnxNode, printable
from .onnx_operators import HANDLERS

OLDEST_OPSET = 7
"""Oldest version of ONNX's operator set: the first one with NumPy's broadcasting."""

ELEMENT_TYPES: dict[int, str] = {
    onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind)): name for name, kind in DTYPES.items()
}
"""ONNX's number of an element type -> its name in the graph."""


def import_onnx(source: str | os.PathLike[str] | bytes, batch: int = 1) -> Graph:
    """Read an ONNX model.

    Parameters
    ----------
    source : path or bytes
        The file, or its contents.
    batch : int
        Extent of a leading dimension that the model leaves open.

    Returns
    -------
    Graph
        Host operators only, verified; the inputs' and outputs' names and types are the model's.

    Raises
    ------
    ImportModelError
        If the file cannot be read, is no ONNX model, is damaged, has an open dimension, or uses
        an operator or type that is not supported (all such operators are named together).
    """
    if isinstance(source, bytes):
        data, name = source, "model"
    else:
        path = Path(source)
        name = path.stem
        try:
            data = path.read_bytes()
        except OSError as error:
            raise ImportModelError(
                f"model `{path}`: expected a readable file, got `{error.strerror}`; check the path"
            ) from error
    if batch < 1:
        raise ImportModelError(f"model `{name}`: expected a batch of 1 or more, got `{batch}`")
    model = _parse(data, name)
    opset = _opset(model, name)
    try:
        _refuse_unsupported(model.graph, name)
        return _import_graph(model.graph, name, opset, batch)
    except ImportModelError as error:
        raise ImportModelError(printable(str(error))) from error
    except CompileError as error:
        raise ImportModelError(printable(f"model `{name}`: {error}")) from error


def _parse(data: bytes, name: str) -> onnx.ModelProto:
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError as error:
        raise ImportModelError(
            f"model `{name}`: expected an ONNX file, got {len(data)} bytes that are not one or are "
            "cut off; export or copy it again"
        ) from error
    damaged = next(_undecodable(model), None)
    if damaged is not None:
        raise ImportModelError(
            f"model `{name}`: expected texts in UTF-8, got `{damaged!r}` ({len(damaged)} bytes of "
            "another kind); export or copy it again"
        )
    if not model.graph.node or not model.graph.output:
        raise ImportModelError(
            f"model `{name}`: expected an ONNX model with nodes and outputs, got "
            f"{len(model.graph.node)} nodes and {len(model.graph.output)} outputs in {len(data)} "
            "bytes; export or copy it again"
        )
    return model


def _undecodable(message: Message) -> Iterator[bytes]:
    """Yield the text fields that are not UTF-8: protobuf returns them as bytes."""
    for field, content in message.ListFields():
        parts = content if isinstance(content, Sequence) else [content]
        if field.type == field.TYPE_MESSAGE:
            for part in parts:
                yield from _undecodable(part)
        elif field.type == field.TYPE_STRING:
            yield from (part for part in [content, *parts] if isinstance(part, bytes))


def _opset(model: onnx.ModelProto, name: str) -> int:
    versions = [entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")]
    if not versions or versions[0] < OLDEST_OPSET:
        got = f"version {versions[0]}" if versions else "none"
        raise ImportModelError(
            f"model `{name}`: expected ONNX operator set {OLDEST_OPSET} or newer, got {got}; "
            "convert it with `onnx.version_converter`"
        )
    return versions[0]


def _domain(node: onnx.NodeProto) -> str:
    return "" if node.domain == "ai.onnx" else node.domain


def _refuse_unsupported(graph: onnx.GraphProto, name: str) -> None:
    """List every node without an importer in one error."""
    offenders: dict[str, list[str]] = {}
    for node in graph.node:
        if (_domain(node), node.op_type) not in HANDLERS:
            kind = f"{node.domain}.{node.op_type}" if _domain(node) else node.op_type
            label = node.name or next(iter(node.output), "")
            offenders.setdefault(kind, []).append(f"`{label}`")
    if offenders:
        listed = "; ".join(
            f"`{kind}` (node{'s' if len(nodes) > 1 else ''} {', '.join(nodes)})"
            for kind, nodes in offenders.items()
        )
        raise ImportModelError(
            f"model `{name}`: expected supported operators, got {listed}; replace them before "
            "export"
        )


def _import_graph(proto: onnx.GraphProto, name: str, opset: int, batch: int) -> Graph:
    builder = Builder(name)
    names: dict[str, str] = {}
    for tensor in proto.initializer:
        if tensor.name in names:
            raise ImportModelError(
                f"model `{name}`: initialiser `{tensor.name}`: expected once, got a second one; "
                "rename one of them"
            )
        names[tensor.name] = builder.constant(_array(tensor, name), tensor.name, exact=True)
    if proto.sparse_initializer:
        raise ImportModelError(
            f"model `{name}`: expected dense initialisers, got {len(proto.sparse_initializer)} "
            "sparse ones; make them dense before export"
        )
    for value in proto.input:
        if value.name not in names:
            kind = _input_type(value, name, batch)
            names[value.name] = builder.input(Value(value.name, kind))
    for operation in proto.node:
        node = OnnxNode(builder, operation, opset, names, name)
        results = HANDLERS[_domain(operation), operation.op_type](node)
        for output, result in zip(operation.output, _listed(results), strict=False):
            if output in names:
                node.fail(f"`{output}` to be produced once", "a second producer", "rename one")
            names[output] = result
    outputs = []
    for value in proto.output:
        if value.name not in names:
            raise ImportModelError(
                f"model `{name}`: output `{value.name}`: expected a node to produce it, got none; "
                "export the model again"
            )
        outputs.append(Output(value.name, names[value.name]))
    return verify(drop_unused(builder.graph(outputs)), "import")


def _listed(results: str | list[str]) -> Iterable[str]:
    return [results] if isinstance(results, str) else results


def _array(tensor: onnx.TensorProto, name: str) -> np.ndarray:
    where = f"model `{name}`: initialiser `{tensor.name}`"
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        raise ImportModelError(
            f"{where}: expected its data in the file, got a reference to another file; save the "
            "model with `save_as_external_data=False`"
        )
    if tensor.data_type not in ELEMENT_TYPES:
        kinds = onnx.TensorProto.DataType
        known = tensor.data_type in kinds.values()
        got = kinds.Name(tensor.data_type) if known else str(tensor.data_type)
        raise ImportModelError(
            f"{where}: expected one of {', '.join(DTYPES)}, got `{got.lower()}`; convert it"
        )
    try:
        return onnx.numpy_helper.to_array(tensor)
    except (ValueError, TypeError) as error:
        raise ImportModelError(
            f"{where}: expected {ELEMENT_TYPES[tensor.data_type]}{list(tensor.dims)}, got "
            f"{len(tensor.raw_data)} bytes that do not make it; export the model again"
        ) from error


def _input_type(value: onnx.ValueInfoProto, name: str, batch: int) -> TensorType:
    where = f"model `{name}`: input `{value.name}`"
    kind = value.type.tensor_type
    if not value.type.HasField("tensor_type") or kind.elem_type not in ELEMENT_TYPES:
        raise ImportModelError(
            f"{where}: expected a tensor of {', '.join(DTYPES)}, got another type; convert it"
        )
    if not kind.HasField("shape"):
        raise ImportModelError(
            f"{where}: expected a shape, got none; export the model with a static shape"
        )
    shape = []
    for axis, dimension in enumerate(kind.shape.dim):
        if dimension.dim_value > 0:
            shape.append(dimension.dim_value)
        elif axis == 0:
            shape.append(batch)
        else:
            got = dimension.dim_param or "nothing"
            raise ImportModelError(
                f"{where}: expected a static extent of dimension {axis}, got `{got}`; export the "
                "model with a static shape (only the leading dimension may be open)"
            )
    if batch != 1 and shape and shape[0] != batch:
        raise ImportModelError(
            f"{where}: expected a batch of {batch} as asked, got a model fixed to {shape[0]}; "
            "export the model with an open leading dimension"
        )
    return TensorType(ELEMENT_TYPES[kind.elem_type], tuple(shape))
