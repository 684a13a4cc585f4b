"""Operators too rare for a kernel of ours -> OnnxReference, typed by ONNX's shape inference."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np
import onnx

from ...errors import CompileError, ImportModelError
from ..graph.operators import OnnxReference
from ..graph.types import DTYPES
from .onnx_node import OnnxNode
from .onnx_operands import printable
from .onnx_scope import Key, schema_of
from .onnx_tensors import ELEMENT_TYPES, ONNX_TYPES
from .refusals import CAUSES, NeedsInputError

RARE = (
    *("BitCast", "Col2Im", "DeformConv", "Det", "DFT", "GridSample", "LpNormalization"),
    *("MelWeightMatrix", "NonMaxSuppression", "OneHot", "ReverseSequence", "TensorScatter"),
    *("NonZero", "RoiAlign", "STFT", "TfIdfVectorizer", "Unique", "MaxUnpool", "MaxRoiPool"),
)

CLASSICAL = (
    *("ArrayFeatureExtractor", "Binarizer", "FeatureVectorizer", "Imputer", "LinearClassifier"),
    *("LinearRegressor", "Normalizer", "OneHotEncoder", "SVMClassifier", "SVMRegressor", "Scaler"),
    *("TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor"),
)

VALUE_DEPENDENT = ("NonMaxSuppression", "NonZero", "Unique")
"""Operators whose results' shapes depend on all of their operands."""

LIBRARY: frozenset[Key] = frozenset(
    [("", kind) for kind in RARE] + [("ai.onnx.ml", kind) for kind in CLASSICAL]
)
"""(domain, operator) of all that run through the library."""

SHAPE_OPERANDS: dict[str, tuple[int, ...]] = {
    "Col2Im": (1, 2),
    "DFT": (1, 2),
    "MelWeightMatrix": (0, 1, 2, 3, 4),
    "STFT": (1, 3),
    "MaxUnpool": (2,),
    "OneHot": (1,),
}
"""Operands that must be known for the shapes of the results to be."""


OLDER_NAMES: dict[tuple[str, str], dict[str, str]] = {
    ("GridSample", "mode"): {"bilinear": "linear", "bicubic": "cubic"},
}
"""(operator, attribute) -> value in older operator sets -> the one that the reference knows."""


def import_library(node: OnnxNode) -> list[str]:
    """Any operator of ONNX -> OnnxReference; at once where all operands are constant."""
    operator = OnnxReference(
        *node.key,
        node.scope.opsets.get(node.key[0], 1),
        tuple(_attributes(node)),
        tuple(node.has(index) for index in range(len(node.proto.input))),
        tuple((i, "", ()) for i, name in enumerate(node.proto.output) if name),
    )
    operands = [node.input(i) for i, given in enumerate(operator.present) if given]
    for index in SHAPE_OPERANDS.get(node.proto.op_type, ()):
        if node.has(index):
            node.constant(index)
    known = [node.known(name) for name in operands]
    arrays = [array for array in known if array is not None]
    if len(arrays) == len(operands):
        return _compute(node, operator, arrays)
    typed = replace(operator, results=tuple(_results(node, operator, operands)))
    found = iter(node.emit_outputs(typed, operands, [name for name in node.proto.output if name]))
    return [next(found) if name else "" for name in node.proto.output]


def _compute(node: OnnxNode, operator: OnnxReference, arrays: Sequence[np.ndarray]) -> list[str]:
    try:
        found = iter(operator.run(*arrays))
    except CompileError as error:
        raise ImportModelError(f"{node.where}: {error}") from error
    return [node.array(next(found), name) if name else "" for name in node.proto.output]


def _probed(
    node: OnnxNode, operator: OnnxReference, operands: Sequence[str]
) -> list[tuple[int, str, tuple[int, ...]]]:
    """Return types that do not depend on values, from a run on zeros; ask for inputs otherwise."""
    if node.proto.op_type in VALUE_DEPENDENT:
        _refuse_open_result(node, operands)
    arrays = []
    for name in operands:
        kind = node.builder.types[name]
        known = node.known(name)
        arrays.append(np.zeros(kind.shape, DTYPES[kind.dtype]) if known is None else known)
    try:
        found = operator.run(*arrays)
    except CompileError as error:
        raise ImportModelError(f"{node.where}: {error}") from error
    results = []
    for (position, _, _), array in zip(operator.results, found, strict=True):
        node.expect_numbers(array)
        results.append((position, str(array.dtype), array.shape))
    return results


def _refuse_open_result(node: OnnxNode, operands: Sequence[str]) -> NoReturn:
    """Say that no shape can be given; inputs that are fixed make all operands constants."""
    inputs = node.sources(operands)
    given = ", ".join(f"`{printable(name)}`" for name in node.proto.input if name)
    listed = ", ".join(f"`{printable(name)}`" for name in inputs)
    raise NeedsInputError(
        f"{node.where}: expected operands known at import, since the extents of its result follow "
        f"from their values, got some computed from {listed}; let the model end in front of it "
        f"(its operands: {given}) and do the rest on its outputs, or fix {listed} "
        "(`--fix NAME=VALUE`)",
        inputs,
    )


def _attributes(node: OnnxNode) -> list[tuple[str, Any]]:
    """Return the attributes, those left out with their defaults."""
    found: list[tuple[str, Any]] = []
    schema = schema_of(node.key, node.scope.opsets)
    for name, attribute in schema.attributes.items() if schema else ():
        if name not in node.attributes and attribute.default_value.name:
            value = onnx.helper.get_attribute_value(attribute.default_value)
            found.append((name, value.decode() if isinstance(value, bytes) else value))
    for name, proto in node.attributes.items():
        kinds = onnx.AttributeProto
        if proto.type in (kinds.TENSORS, kinds.GRAPH, kinds.GRAPHS):
            node.fail("attributes of numbers and texts", f"attribute `{name}`", "correct the model")
        if proto.type == kinds.TENSOR:
            found.append((name, proto.t.SerializeToString(deterministic=True)))
            continue
        value = node.attribute(name, None)
        if value is None:
            node.fail(f"a value of attribute `{name}`", "none", "export the model again")
        if isinstance(value, tuple):
            value = tuple(
                v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in value
            )
        if value != ():
            found.append((name, value))
    return [(name, _newest(node.proto.op_type, name, value)) for name, value in found]


def _newest(kind: str, name: str, value: Any) -> Any:
    """Return an attribute's value as the reference knows it."""
    older = OLDER_NAMES.get((kind, name), {})
    return older.get(value, value) if isinstance(value, str) else value


def _results(
    node: OnnxNode, operator: OnnxReference, operands: Sequence[str]
) -> list[tuple[int, str, tuple[int, ...]]]:
    """Work out element types and shapes; ask for inputs where they depend on values."""
    schema = schema_of(node.key, node.scope.opsets)
    if schema is None:
        node.refuse(CAUSES.get(node.key, "unknown operators"), node.proto.op_type, "replace it")
    proto = operator.node()
    types, data = {}, {}
    for name, operand in zip(filter(None, proto.input), operands, strict=True):
        kind = node.builder.types[operand]
        types[name] = onnx.helper.make_tensor_type_proto(ONNX_TYPES[kind.dtype], kind.shape)
        if node.builder.is_constant(operand):
            data[name] = onnx.numpy_helper.from_array(node.builder.data(operand), name)
    opsets = [onnx.helper.make_opsetid(*entry) for entry in node.scope.opsets.items()]
    try:
        inferred = onnx.shape_inference.infer_node_outputs(
            schema, proto, types, data, opset_imports=opsets
        )
    except Exception as error:  # third-party code raises many kinds over damaged nodes
        detail = " ".join(str(error).split())
        node.fail("operands that fit together", f"`{detail}`", "export the model again")
    results = []
    for position, _, _ in operator.results:
        kind = inferred.get(f"y{position}", onnx.TypeProto()).tensor_type
        open_ = any(not extent.HasField("dim_value") for extent in kind.shape.dim)
        if kind.elem_type not in ELEMENT_TYPES or not kind.HasField("shape") or open_:
            return _probed(node, operator, operands)
        shape = tuple(extent.dim_value for extent in kind.shape.dim)
        results.append((position, ELEMENT_TYPES[kind.elem_type], shape))
    return results
