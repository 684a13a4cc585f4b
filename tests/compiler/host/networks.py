"""Small graphs to look for kernels in."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tilewright.compiler.frontend import recognise_layers
from tilewright.compiler.graph import Graph, Output, TensorType, Value
from tilewright.compiler.graph.build import Builder
from tilewright.compiler.importers import import_onnx

GENERATOR = np.random.default_rng(11)


def normal(*shape: int) -> np.ndarray:
    return GENERATOR.standard_normal(shape).astype(np.float32)


def built(inputs: Mapping[str, np.ndarray], make: Callable[[Builder], str | list[str]]) -> Graph:
    """A graph of inputs that are like arrays, and the outputs that `make` emits."""
    values = [
        Value(name, TensorType(array.dtype.name, array.shape)) for name, array in inputs.items()
    ]
    builder = Builder("network", values)
    found = make(builder)
    outputs = [found] if isinstance(found, str) else found
    return builder.graph(Output(name, name) for name in outputs)


def imported(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, np.ndarray],
    weights: Mapping[str, np.ndarray],
    opset: int = 17,
) -> Graph:
    """An ONNX model as the front end makes it; its output is `y`."""
    graph = helper.make_graph(
        nodes,
        "network",
        [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in inputs.items()
        ],
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    domains = {"": opset} | {node.domain: 1 for node in nodes if node.domain}
    imports = [helper.make_opsetid(name, version) for name, version in domains.items()]
    model = helper.make_model(graph, opset_imports=imports, ir_version=9)
    return recognise_layers(import_onnx(model.SerializeToString()))


def node(op: str, inputs: str, output: str = "y", domain: str = "", **attributes) -> onnx.NodeProto:
    """A node of operands that are named in one text."""
    return helper.make_node(op, inputs.split(), [output], domain=domain, **attributes)
