"""Small ONNX models for the front end's tests, and what onnxruntime makes of them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

TYPES = {
    np.dtype(bool): TensorProto.BOOL,
    np.dtype(np.float32): TensorProto.FLOAT,
    np.dtype(np.float16): TensorProto.FLOAT16,
    np.dtype(np.int8): TensorProto.INT8,
    np.dtype(np.uint8): TensorProto.UINT8,
    np.dtype(np.int16): TensorProto.INT16,
    np.dtype(np.uint16): TensorProto.UINT16,
    np.dtype(np.int32): TensorProto.INT32,
    np.dtype(np.int64): TensorProto.INT64,
}

Nodes = Sequence[onnx.NodeProto]
node = helper.make_node

WEIGHTS = (-64, 64)
"""Range of int8 weights with which onnxruntime's integer kernels are exact on every processor.

Without VNNI they add two products of a uint8 and an int8 in 16 bits, which saturate.
"""


def value(name: str, dtype: Any, shape: Sequence[int | str | None]) -> onnx.ValueInfoProto:
    """Describe an input or output."""
    return helper.make_tensor_value_info(name, TYPES[np.dtype(dtype)], shape)


def model(
    nodes: Nodes,
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[str],
    constants: Mapping[str, Any] | None = None,
    opset: int = 13,
) -> onnx.ModelProto:
    """Make a model; outputs need no type, since onnxruntime and the importer infer them."""
    held = [numpy_helper.from_array(np.asarray(a), name) for name, a in (constants or {}).items()]
    shown = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(list(nodes), "test", list(inputs), shown, held)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def run_onnxruntime(
    proto: onnx.ModelProto, inputs: Mapping[str, np.ndarray], optimise: bool = True
) -> dict[str, np.ndarray]:
    """Return the outputs by name."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    if not optimise:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    results = session.run(names, dict(inputs))
    return dict(zip(names, map(np.asarray, results), strict=True))


def scalars(**values: Any) -> dict[str, np.ndarray]:
    """Make scalar constants: floats float32, NumPy scalars as they are."""
    return {
        name: np.asarray(v, dtype=np.float32 if isinstance(v, float) else None)
        for name, v in values.items()
    }


def floats(values: Any) -> np.ndarray:
    """Return nested lists as float32."""
    return np.array(values, dtype=np.float32)


def integers(values: Any) -> np.ndarray:
    """Return nested lists as int64, ONNX's type of shapes and axes."""
    return np.array(values, dtype=np.int64)
