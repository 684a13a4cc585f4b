"""What ONNX Runtime's optimiser and quantiser write: operators of the domain `com.microsoft`.

Each is imported as the operators that it was fused from, so that the passes see those. Source: ONNX
Runtime, documentation of the contributed operators.
"""

from collections.abc import Callable

import numpy as np

from ..graph import operators as ops
from ..graph.operators import GeneralDequantize
from .onnx_gemm import emit_matmul
from .onnx_integers import import_matmul_integer
from .onnx_node import OnnxNode
from .onnx_windows import emit_conv

ACTIVATIONS = ("HardSigmoid", "LeakyRelu", "Relu", "Sigmoid", "Tanh")
"""Activations of FusedConv and FusedGemm; their parameters come in Unary's order."""


def import_fused_conv(node: OnnxNode) -> str:
    """FusedConv -> Conv, [Add], an activation."""
    base = node.proto.output[0]
    operands = [node.input(index) for index in range(3 if node.has(2) else 2)]
    result = emit_conv(node, operands)
    if node.has(3):
        result = node.binary("Add", result, node.input(3), f"{base}.sum")
    kind = node.attribute("activation", "")
    if kind == "":
        return result
    if kind == "Clip":
        limits = node.attribute("activation_params", ())
        if len(limits) != 2:
            node.fail("two limits to clip to", f"{list(limits)}", "correct `activation_params`")
        return node.emit(ops.Unary("Clip", limits), [result])
    if kind not in ACTIVATIONS:
        node.fail(f"`activation` {', '.join(ACTIVATIONS)} or Clip", f"`{kind}`", "do not fuse it")
    parameters = node.attribute("activation_params", ())
    wanted = {"HardSigmoid": 2, "LeakyRelu": 1}.get(kind, 0)
    if len(parameters) < wanted:
        node.fail(f"{wanted} parameters of {kind}", f"{len(parameters)}", "do not fuse it")
    return node.emit(ops.Unary(kind, parameters[:wanted]), [result])


def import_fused_matmul(node: OnnxNode) -> str:
    """FusedMatMul -> [Transpose], MatMul, [Mul]."""
    operands = []
    for index, name in enumerate(("transA", "transB")):
        x, rank = node.input(index), node.rank(index)
        if node.attribute(f"transBatch{name[-1]}", 0):
            node.fail("no transposed batches", f"`transBatch{name[-1]}`", "do not fuse them")
        if node.attribute(name, 0) and rank > 1:
            order = (*range(rank - 2), rank - 1, rank - 2)
            x = node.emit(ops.Transpose(order), [x], f"{x}.transposed")
        operands.append(x)
    product = emit_matmul(node, *operands)
    alpha = node.attribute("alpha", 1.0)
    if alpha == 1.0:
        return product
    return node.binary("Mul", product, node.number(alpha, node.type(0).dtype))


def import_fast_gelu(node: OnnxNode) -> str:
    """FastGelu, with or without a bias -> [Add], Gelu by tanh."""
    x = node.input(0)
    if node.has(1):
        x = node.binary("Add", x, node.input(1), f"{node.proto.output[0]}.sum")
    return node.emit(ops.Unary("GeluTanh"), [x])


def import_bias_gelu(node: OnnxNode) -> str:
    """BiasGelu -> Add, Gelu."""
    total = node.binary("Add", node.input(0), node.input(1), f"{node.proto.output[0]}.sum")
    return node.emit(ops.Unary("Gelu"), [total])


def import_quick_gelu(node: OnnxNode) -> str:
    """QuickGelu -> Swish: x * sigmoid(alpha * x)."""
    alpha = node.attribute("alpha", float(np.float32(1.702)))
    return node.emit(ops.Unary("Swish", (alpha,)), [node.input(0)])


def import_layer_normalisation(node: OnnxNode) -> str:
    """LayerNormalization and its kin without a mean, of x or of x and what skips to it."""
    total, skips = node.input(0), node.proto.op_type.startswith("Skip")
    simplified, base = "Simplified" in node.proto.op_type, node.proto.output[0]
    scale = 2 if skips else 1
    if skips:
        total = node.binary("Add", total, node.input(1), f"{base}.sum")
        bias = 3 if simplified else 4
        if node.has(bias):
            total = node.binary("Add", total, node.input(bias), f"{base}.shifted")
    normal = _normalised(node, total, simplified, base)
    result = node.binary("Mul", normal, node.input(scale), f"{base}.weighted")
    if not simplified and node.has(scale + 1):
        result = node.binary("Add", result, node.input(scale + 1))
    if any(node.wants(index) for index in (1, 2)):
        node.fail("no statistics as outputs", "some", "drop the use of them")
    return result


def _normalised(node: OnnxNode, x: str, simplified: bool, base: str) -> str:
    """Emit `(x - mean) / sqrt(mean of squares + epsilon)` over the last axes."""
    kind = node.builder.types[x]
    rank = len(kind.shape)
    axes = tuple(range(node.axis(-1, rank), rank))
    if not simplified:
        mean = node.emit(ops.Reduce("ReduceMean", axes, True), [x], f"{base}.mean")
        x = node.binary("Sub", x, mean, f"{base}.centred")
    squares = node.binary("Mul", x, x, f"{base}.squares")
    variance = node.emit(ops.Reduce("ReduceMean", axes, True), [squares], f"{base}.variance")
    epsilon = node.number(node.attribute("epsilon", float(np.float32(1e-5))), kind.dtype)
    deviation = node.binary("Add", variance, epsilon, f"{base}.spread")
    root = node.emit(ops.Unary("Sqrt"), [deviation], f"{base}.deviation")
    return node.binary("Div", x, root, f"{base}.normal")


def import_skip_normalisation(node: OnnxNode) -> list[str]:
    """SkipLayerNormalization, and its simplified kin; the sum is the fourth output."""
    if not node.wants(3):
        return [import_layer_normalisation(node)]
    total = node.binary("Add", node.input(0), node.input(1), node.proto.output[3])
    bias = 3 if "Simplified" in node.proto.op_type else 4
    if node.has(bias):
        total = node.binary("Add", total, node.input(bias), f"{total}.shifted")
    return [import_layer_normalisation(node), "", "", total]


def import_dynamic_matmul(node: OnnxNode) -> str:
    """MatMulIntegerToFloat -> MatMul of int32, Mul by both scales, [Add]."""
    base = node.proto.output[0]
    product = _reordered(node)
    real = node.emit(ops.Cast("float32"), [product], f"{base}.real")
    scale = node.binary("Mul", node.input(2), node.input(3), f"{base}.scale")
    result = node.binary("Mul", real, scale, f"{base}.scaled")
    return node.binary("Add", result, node.input(6)) if node.has(6) else result


def _reordered(node: OnnxNode) -> str:
    """Emit the MatMulInteger inside: zero points are inputs 4 and 5 here, 2 and 3 there."""
    inner = type(node.proto)()
    inner.CopyFrom(node.proto)
    names = [*node.proto.input, "", "", "", ""]
    del inner.input[:]
    inner.input.extend([names[0], names[1], names[4], names[5]])
    inner.output[0] = f"{node.proto.output[0]}.product"
    return import_matmul_integer(OnnxNode(node.scope, inner))


def import_matmul_bits(node: OnnxNode) -> str:
    """MatMulNBits -> MatMul with weights unpacked from 2, 4 or 8 bits, scaled block by block."""
    bits, block = node.attribute("bits", 4), node.attribute("block_size", 0)
    rows, columns = node.attribute("K", 0), node.attribute("N", 0)
    packed, scales = node.constant(1), node.constant(2)
    if bits not in (2, 4, 8) or min(block, rows, columns) < 1 or packed.dtype != np.uint8:
        node.fail("2, 4 or 8 `bits`, blocks and extents", f"{bits}, {block}", "quantise it again")
    if node.has(4) or (node.has(3) and node.constant(3).dtype != np.uint8):
        node.fail("packed zero points and no groups", "others", "quantise it again")
    blocks = -(-rows // block)
    weights = _unpacked(packed.reshape(-1), bits)
    zeros = np.full(columns * blocks, 1 << (bits - 1), np.uint8)
    if node.has(3):
        zeros = _unpacked(node.constant(3).reshape(columns, -1), bits)[:, :blocks].ravel()
    if weights.size != columns * blocks * block or scales.size != columns * blocks:
        node.fail(f"{columns * blocks} blocks of {block}", f"{weights.size} weights", "correct it")
    matrix = weights.reshape(columns, blocks * block)[:, :rows]
    base = node.proto.output[0]
    held = [
        node.array(matrix, f"{base}.weights"),
        node.array(scales.reshape(columns, blocks), f"{base}.scales"),
        node.array(zeros.reshape(columns, blocks), f"{base}.zeros"),
    ]
    operator = GeneralDequantize(1, block, str(scales.dtype))
    real = node.emit(operator, held, f"{base}.real")
    turned = node.emit(ops.Transpose((1, 0)), [real], f"{base}.turned")
    product = emit_matmul(node, node.input(0), turned)
    return node.binary("Add", product, node.input(5)) if node.has(5) else product


def _unpacked(packed: np.ndarray, bits: int) -> np.ndarray:
    """Return numbers of `bits` bits from bytes, the lowest first, along the last axis."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    parts = (packed[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return parts.reshape(*packed.shape[:-1], -1)


CONTRIBUTED_HANDLERS: dict[tuple[str, str], Callable[[OnnxNode], str | list[str]]] = {
    ("com.microsoft", "BiasGelu"): import_bias_gelu,
    ("com.microsoft", "FastGelu"): import_fast_gelu,
    ("com.microsoft", "FusedConv"): import_fused_conv,
    ("com.microsoft", "FusedMatMul"): import_fused_matmul,
    ("com.microsoft", "MatMulIntegerToFloat"): import_dynamic_matmul,
    ("com.microsoft", "MatMulNBits"): import_matmul_bits,
    ("com.microsoft", "QuickGelu"): import_quick_gelu,
    ("com.microsoft", "SkipLayerNormalization"): import_skip_normalisation,
    ("com.microsoft", "SkipSimplifiedLayerNormalization"): import_skip_normalisation,
    ("", "SimplifiedLayerNormalization"): import_layer_normalisation,
}
"""(domain, operator) -> its importer."""
