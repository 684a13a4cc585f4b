"""The styles in which quantisers write networks, and ONNX Runtime's forms on integers.

Sources: `onnxruntime.quantization`, static and dynamic, NVIDIA's Model-Optimizer and
pytorch-quantization, Brevitas' QCDQ export, tf2onnx of TFLite files, NNCF's ONNX backend, and AMD's
Quark for its XINT8 processors.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper


@dataclass(frozen=True, slots=True)
class Style:
    """A quantiser's habits: places of Q/DQ, types and widths.

    Parameters
    ----------
    inputs_only
        Whether Q/DQ stand only at the inputs of products, with float results.
    types
        Types of activations to draw from.
    symmetric
        Whether zero points of activations are in the middle of their type.
    bits
        Widths of activations and weights to draw from; below 8, a Clip follows each Quantize.
    float_weights
        Share of weights that are stored in float, in front of a QuantizeLinear.
    float_bias
        Whether biases are in float, instead of int32 with the scale of the products.
    wide_weights
        Share of weights in uint8 with a zero point of their own, where activations are uint8 too.
    channels_last
        Whether layers stand between Transposes, as from a network whose channels are last.
    by_channel
        Whether the channels in front of depthwise convolutions have their own scales.
    signed_scales
        Whether scales of weights may be negative.
    powers
        Whether scales are powers of two, and averages are multiplied by a number.
    any_order
        Whether nodes stand in any order.
    dynamic
        Whether scales of activations are computed at run time; those of weights are per tensor.
    """

    inputs_only: bool = False
    types: Sequence[str] = ("int8", "uint8")
    symmetric: bool = False
    bits: Sequence[int] = (8,)
    float_weights: float = 0.0
    float_bias: bool = False
    wide_weights: float = 0.0
    channels_last: bool = False
    by_channel: bool = False
    signed_scales: bool = False
    powers: bool = False
    any_order: bool = False
    dynamic: bool = False


STYLES: Mapping[str, Style] = {
    "onnxruntime-qdq": Style(wide_weights=0.3),
    "onnxruntime-qoperator": Style(wide_weights=0.3),
    "onnxruntime-dynamic": Style(
        inputs_only=True, types=("uint8",), float_bias=True, wide_weights=0.7, dynamic=True
    ),
    "tensorrt": Style(
        inputs_only=True, types=("int8",), symmetric=True, float_weights=0.5, float_bias=True
    ),
    "brevitas-qcdq": Style(bits=(8, 8, 8, 6, 4, 3, 2), float_weights=0.5),
    "tflite": Style(channels_last=True),
    "nncf": Style(
        inputs_only=True, float_weights=0.5, float_bias=True, by_channel=True, signed_scales=True
    ),
    "quark-xint8": Style(types=("uint8", "int8"), symmetric=True, powers=True, any_order=True),
}
"""Styles by name; three of them are ONNX Runtime's."""

QOPERATOR = "onnxruntime-qoperator"

DEFAULT_DOMAIN, CONTRIBUTED = "", "com.microsoft"

FORMS: Mapping[str, tuple[str, str]] = {
    "Conv": ("QLinearConv", DEFAULT_DOMAIN),
    "MatMul": ("QLinearMatMul", DEFAULT_DOMAIN),
    "Gemm": ("QGemm", CONTRIBUTED),
    **{
        name: (f"QLinear{name}", CONTRIBUTED)
        for name in (
            "Add", "Mul", "Sigmoid", "LeakyRelu", "AveragePool", "GlobalAveragePool", "Concat",
        )
    },
}  # fmt: skip
"""Operator -> its form on integers, and the domain."""

WEIGHTED = ("Conv", "MatMul", "Gemm")
"""Operators whose weights may have another type than activations."""

PAIRED = ("Conv", "Gemm")
"""Operators whose third operand is an int32 bias without scale and zero point."""


def with_qlinear_operators(model: onnx.ModelProto) -> onnx.ModelProto:
    """Replace DequantizeLinear, an operator and QuantizeLinear by the operator's QLinear form.

    Operators without such a form keep Q/DQ around them, as in ONNX Runtime's QOperator format.
    """
    graph = model.graph
    makers = {name: node for node in graph.node for name in node.output}
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    shown = {output.name for output in graph.output}
    types = {held.name: held.data_type for held in graph.initializer}
    replaced: dict[str, onnx.NodeProto] = {}
    for node in graph.node:
        result = node.output[0]
        behind = readers.get(result, [])
        sources = [makers.get(name) for name in node.input]
        plain = all(maker is not None and maker.op_type == "DequantizeLinear" for maker in sources)
        alone = len(behind) == 1 and behind[0].op_type == "QuantizeLinear" and result not in shown
        if not (node.op_type in FORMS and plain and alone):
            continue
        dequantised = [maker for maker in sources if maker is not None]
        alike = dequantised[:1] if node.op_type in WEIGHTED else dequantised
        if len({types[made.input[2]] for made in (*alike, behind[0])}) == 1:
            replaced[result] = _form(node, dequantised, behind[0])
    gone = {made.output[0] for made in replaced.values()}
    nodes = []
    for node in graph.node:
        if node.output[0] in replaced:
            nodes.append(replaced[node.output[0]])
        elif node.output[0] not in gone:
            nodes.append(node)
    del graph.node[:]
    graph.node.extend(_read(nodes, shown))
    return model


def with_dynamic_products(model: onnx.ModelProto) -> onnx.ModelProto:
    """Replace products of floats with dequantised weights by those of dynamic quantisation."""
    graph = model.graph
    makers = {name: node for node in graph.node for name in node.output}
    held = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    nodes: list[onnx.NodeProto] = []
    quantised: dict[str, list[str]] = {}

    def add(kind: str, inputs: Sequence[str], *outputs: str) -> onnx.NodeProto:
        nodes.append(helper.make_node(kind, inputs, outputs))
        return nodes[-1]

    def hold(array: np.ndarray, name: str) -> str:
        graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    for node in graph.node:
        weights = makers.get(node.input[1]) if node.op_type in WEIGHTED else None
        dequantised = weights is not None and weights.op_type == "DequantizeLinear"
        if weights is None or not dequantised or weights.input[0] not in held:
            nodes.append(node)
            continue
        (x, _, *biases), (y,), (w, scale, zero) = node.input, node.output, weights.input
        if x not in quantised:
            quantised[x] = [f"{x}.{name}" for name in ("bytes", "scale", "zero")]
            add("DynamicQuantizeLinear", [x], *quantised[x])
        given, x_scale, x_zero = quantised[x]
        convolution = node.op_type == "Conv"
        if node.op_type == "Gemm":
            w = hold(held[w].T, f"{y}.weights")
        kind = "ConvInteger" if convolution else "MatMulInteger"
        sums = add(kind, [given, w, x_zero, zero], f"{y}.sums")
        if convolution:
            sums.attribute.extend(node.attribute)
        cast = add("Cast", [f"{y}.sums"], f"{y}.real")
        cast.attribute.append(helper.make_attribute("to", onnx.TensorProto.FLOAT))
        add("Mul", [x_scale, scale], f"{y}.factor")
        add("Mul", [f"{y}.real", f"{y}.factor"], f"{y}.scaled" if biases else y)
        for bias in biases:
            spread = held[bias].reshape(-1, 1, 1) if convolution else held[bias]
            add("Add", [f"{y}.scaled", hold(spread, f"{y}.bias")], y)
    del graph.node[:]
    graph.node.extend(_read(nodes, {output.name for output in graph.output}))
    return model


def _form(
    node: onnx.NodeProto, sources: Sequence[onnx.NodeProto], target: onnx.NodeProto
) -> onnx.NodeProto:
    """Make the QLinear form of an operator between Dequantize and Quantize."""
    operands = [list(maker.input) for maker in sources]
    bias = [operands.pop()[0]] if node.op_type in PAIRED and len(operands) == 3 else []
    wanted = list(target.input[1:])
    flat = [name for operand in operands for name in operand]
    if node.op_type == "Concat":
        inputs = [*wanted, *flat]
    elif node.op_type == "Gemm":
        inputs = [*flat, *(bias or [""]), *wanted]
    else:
        inputs = [*flat, *wanted, *bias]
    kind, domain = FORMS[node.op_type]
    made = helper.make_node(kind, inputs, list(target.output), domain=domain)
    made.attribute.extend(node.attribute)
    return made


def _read(nodes: Sequence[onnx.NodeProto], shown: set[str]) -> list[onnx.NodeProto]:
    """Return the nodes on which an output depends."""
    needed, kept = set(shown), []
    for node in reversed(nodes):
        if needed.intersection(node.output):
            needed.update(node.input)
            kept.append(node)
    return kept[::-1]
