"""Importer of rare operators without a kernel of ours: OnnxReference, typed by a run on zeros."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np
import onnx

from ...errors import CompileError, ImportModelError
from ..graph import TensorType
from ..graph.operators import OnnxReference
from ..graph.types import DTYPES, MAX_BYTES
from .onnx_node import OnnxNode
from .onnx_scope import Key, schema_of

RARE = (
    *("BatchNormalization", "BitCast", "Cast", "Col2Im", "CumProd", "CumSum", "DFT"),
    *("Det", "Mean", "MelWeightMatrix"),
    *("NonMaxSuppression", "NonZero", "ReverseSequence", "STFT"),
    *("TensorScatter", "TfIdfVectorizer", "Unique"),
)

CLASSICAL = (
    *("ArrayFeatureExtractor", "Binarizer", "FeatureVectorizer", "Imputer", "LinearClassifier"),
    *("LinearRegressor", "Normalizer", "OneHotEncoder", "SVMClassifier", "SVMRegressor", "Scaler"),
    *("TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor"),
)

VALUE_DEPENDENT = ("NonMaxSuppression", "NonZero", "Unique")
"""Operators whose result shapes depend on the values of all operands."""

LIBRARY: frozenset[Key] = frozenset(
    [("", kind) for kind in RARE] + [("ai.onnx.ml", kind) for kind in CLASSICAL]
)
"""(domain, operator) of all operators that the library runs."""

SHAPE_OPERANDS: dict[str, tuple[int, ...]] = {
    "Col2Im": (1, 2),
    "DFT": (1, 2),
    "MelWeightMatrix": (0, 1, 2, 3, 4),
    "STFT": (1, 3),
}
"""Operands whose values determine the shapes of the results."""


def import_library(node: OnnxNode) -> list[str]:
    """Import an operator as OnnxReference, or as constants if all its operands are constant."""
    operator = OnnxReference(
        *node.key,
        node.scope.opsets.get(node.key[0], 1),
        tuple(_attributes(node)),
        tuple(node.has(index) for index in range(len(node.proto.input))),
        tuple((i, "", ()) for i, name in enumerate(node.proto.output) if name),
    )
    operands = [node.input(i) for i, given in enumerate(operator.present) if given]
    if shaping := SHAPE_OPERANDS.get(node.proto.op_type):
        _check_extents(node, [index for index in shaping if node.has(index)])
    known = [node.known(name) for name in operands]
    arrays = [array for array in known if array is not None]
    if len(arrays) == len(operands):
        found = iter(_run(node, operator, arrays))
        return [node.array(next(found), name) if name else "" for name in node.proto.output]
    typed = replace(operator, results=tuple(_results(node, operator, operands)))
    found = iter(node.emit_outputs(typed, operands, [name for name in node.proto.output if name]))
    return [next(found) if name else "" for name in node.proto.output]


def _check_extents(node: OnnxNode, shaping: Sequence[int]) -> None:
    """Reject results beyond memory before the reference allocates them."""
    values = {node.proto.input[i]: onnx.numpy_helper.from_array(node.constant(i)) for i in shaping}
    types = {}
    for index, name in enumerate(node.proto.input):
        if node.has(index):
            kind = node.type(index)
            code = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(DTYPES[kind.dtype]))
            types[name] = onnx.helper.make_tensor_type_proto(code, kind.shape)
    version = node.scope.opsets.get(node.key[0], 1)
    try:
        found = onnx.shape_inference.infer_node_outputs(
            onnx.defs.get_schema(node.key[1], version, node.key[0]),
            node.proto,
            types,
            values,
            opset_imports=[onnx.helper.make_opsetid(node.key[0], version)],
        )
    except (onnx.shape_inference.InferenceError, ValueError):
        return  # the reference tells what is wrong
    for inferred in found.values():
        shape = [max(axis.dim_value, 0) for axis in inferred.tensor_type.shape.dim]
        node.check(TensorType("float32", tuple(shape)), MAX_BYTES)


def _run(
    node: OnnxNode, operator: OnnxReference, arrays: Sequence[np.ndarray]
) -> tuple[np.ndarray, ...]:
    try:
        return operator.run(*arrays)
    except CompileError as error:
        raise ImportModelError(f"{node.where}: {error}") from error


def _results(
    node: OnnxNode, operator: OnnxReference, operands: Sequence[str]
) -> list[tuple[int, str, tuple[int, ...]]]:
    """Return the result types, found by a run on zeros; reject shapes that depend on inputs."""
    if node.proto.op_type in VALUE_DEPENDENT:
        _refuse_open_result(node, operands)
    arrays = []
    for name in operands:
        kind = node.builder.types[name]
        known = node.known(name)
        arrays.append(np.zeros(kind.shape, DTYPES[kind.dtype]) if known is None else known)
    results, found = [], _run(node, operator, arrays)
    for (position, _, _), array in zip(operator.results, found, strict=True):
        node.expect_numbers(array)
        results.append((position, str(array.dtype), array.shape))
    return results


def _refuse_open_result(node: OnnxNode, operands: Sequence[str]) -> NoReturn:
    """Raise the error of a result without a static shape; it names the inputs to fix."""
    node.refuse_computed(
        operands,
        "expected operands known at import, since the extents of its result follow from their "
        "values, got some computed at run time",
        "let the model end in front of it and do the rest on its outputs",
    )


def _attributes(node: OnnxNode) -> list[tuple[str, Any]]:
    """Return the attributes; those that the node leaves out have their defaults."""
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
    return found
