"""Normalisations -> elementwise operators and reductions."""

import numpy as np

from ..graph import operators as ops
from .onnx_node import OnnxNode


def _per_channel(node: OnnxNode, value: str, rank: int) -> str:
    """Emit a reshape of [C] so that it broadcasts to [N, C, ...]."""
    shape = node.builder.types[value].shape
    return node.emit(ops.Reshape((*shape, *(1,) * (rank - 2))), [value], f"{value}.spread")


def _same_type(node: OnnxNode, value: str, dtype: str) -> str:
    if node.builder.types[value].dtype == dtype:
        return value
    return node.emit(ops.Cast(dtype), [value], f"{value}.{dtype}")


def import_batch_normalisation(node: OnnxNode) -> str | list[str]:
    """BatchNormalization -> Mul, Add with constants where all parameters are; else step by step."""
    known = [node.known(node.input(index)) for index in range(1, 5)]
    if node.attribute("training_mode", 0):
        return _train(node)
    parameters = [data for data in known if data is not None]
    if len(parameters) < 4 or node.type(0).dtype != "float32":
        mean, variance = node.input(3), node.input(4)
        return _normalise(node, mean, variance, node.proto.output[0])
    shape = (-1,) + (1,) * (node.rank(0) - 2)
    gamma, beta, mean, variance = (data.reshape(shape) for data in parameters)
    factor = gamma / np.sqrt(variance + np.float32(node.attribute("epsilon", 1e-5)))
    base = node.proto.output[0]
    factors = node.builder.constant(factor.astype(np.float32), f"{base}.factor")
    offsets = node.builder.constant((beta - mean * factor).astype(np.float32), f"{base}.offset")
    product = node.binary("Mul", node.input(0), factors, f"{base}.scaled")
    return node.binary("Add", product, offsets)


def _normalise(node: OnnxNode, mean: str, variance: str, base: str) -> str:
    """Emit `(x - mean) / sqrt(variance + epsilon) * gamma + beta`, all but x per channel."""
    dtype, rank = node.type(3).dtype, node.rank(0)
    epsilon = node.number(node.attribute("epsilon", 1e-5), dtype)
    shifted = node.binary("Add", variance, epsilon, f"{base}.shifted")
    deviation = node.emit(ops.Unary("Sqrt"), [shifted], f"{base}.deviation")
    wide = dtype if dtype != "float16" else "float32"
    x = _same_type(node, node.input(0), wide)
    spread = [
        _per_channel(node, _same_type(node, value, wide), rank)
        for value in (mean, deviation, node.input(1), node.input(2))
    ]
    centred = node.binary("Sub", x, spread[0], f"{base}.centred")
    scaled = node.binary("Div", centred, spread[1], f"{base}.normal")
    weighted = node.binary("Mul", scaled, spread[2], f"{base}.weighted")
    result = node.binary("Add", weighted, spread[3])
    return _same_type(node, result, node.type(0).dtype)


def _train(node: OnnxNode) -> list[str]:
    """Statistics of this batch, and running ones; the result is still a function of the inputs."""
    base, dtype = node.proto.output[0], node.type(3).dtype
    x = _same_type(node, node.input(0), dtype)
    axes = (0, *range(2, node.rank(0)))
    mean = node.emit(ops.Reduce("ReduceMean", axes, False), [x], f"{base}.mean")
    spread = _per_channel(node, mean, node.rank(0))
    centred = node.binary("Sub", x, spread, f"{base}.deviation")
    squares = node.binary("Mul", centred, centred, f"{base}.squares")
    variance = node.emit(ops.Reduce("ReduceMean", axes, False), [squares], f"{base}.variance")
    momentum = node.attribute("momentum", float(np.float32(0.9)))
    results = [_normalise(node, mean, variance, base)]
    for old, new in ((node.input(3), mean), (node.input(4), variance)):
        kept = node.binary("Mul", old, node.number(momentum, dtype), f"{old}.kept")
        more = node.binary("Mul", new, node.number(1 - momentum, dtype), f"{old}.more")
        results.append(node.binary("Add", kept, more, f"{old}.running"))
    return results


def import_instance_normalisation(node: OnnxNode) -> str:
    """InstanceNormalization -> statistics over the image of each channel, then elementwise."""
    base, rank, dtype = node.proto.output[0], node.rank(0), node.type(0).dtype
    axes, x = tuple(range(2, rank)), node.input(0)
    mean = node.emit(ops.Reduce("ReduceMean", axes, True), [x], f"{base}.mean")
    centred = node.binary("Sub", x, mean, f"{base}.centred")
    squares = node.binary("Mul", centred, centred, f"{base}.squares")
    variance = node.emit(ops.Reduce("ReduceMean", axes, True), [squares], f"{base}.variance")
    epsilon = node.number(node.attribute("epsilon", 1e-5), dtype)
    shifted = node.binary("Add", variance, epsilon, f"{base}.shifted")
    deviation = node.emit(ops.Unary("Sqrt"), [shifted], f"{base}.deviation")
    normal = node.binary("Div", centred, deviation, f"{base}.normal")
    gamma, beta = (_per_channel(node, node.input(index), rank) for index in (1, 2))
    return node.binary("Add", node.binary("Mul", normal, gamma, f"{base}.weighted"), beta)


def import_local_response(node: OnnxNode) -> str:
    """LRN -> x / (bias + alpha * mean of squares over near channels) ** beta."""
    base, x, kind = node.proto.output[0], node.input(0), node.type(0)
    size = node.attribute("size", 0)
    if size < 1 or len(kind.shape) < 2 or kind.dtype != "float32":
        node.fail("a `size` of 1 or more and floats [N, C, ...]", f"`{size}`", "correct the model")
    samples, channels = kind.shape[:2]
    squares = node.binary("Mul", x, x, f"{base}.squares")
    rows = node.emit(
        ops.Reshape((samples, 1, channels, kind.elements // max(1, samples * channels))),
        [squares],
        f"{base}.rows",
    )
    pads = ((size - 1) // 2, 0, size // 2, 0)
    pool = ops.AveragePool((size, 1), (1, 1), pads, count_include_pad=True)
    means = node.emit(
        ops.Reshape(kind.shape), [node.emit(pool, [rows], f"{base}.pooled")], f"{base}.means"
    )
    alpha = node.number(node.attribute("alpha", 1e-4), kind.dtype)
    bias = node.number(node.attribute("bias", 1.0), kind.dtype)
    beta = node.number(node.attribute("beta", 0.75), kind.dtype)
    scaled = node.binary("Mul", means, alpha, f"{base}.scaled")
    total = node.binary("Add", scaled, bias, f"{base}.total")
    return node.binary("Div", x, node.binary("Pow", total, beta, f"{base}.power"))


def import_hardmax(node: OnnxNode) -> str:
    """Hardmax -> 1 where the index along the axis is the first maximum's, else 0."""
    base, kind = node.proto.output[0], node.type(0)
    rank, x, shape = len(kind.shape), node.input(0), kind.shape
    axis = node.axis(-1 if node.opset >= 13 else 1, rank)
    if node.opset < 13:
        flat = (int(np.prod(shape[:axis])), int(np.prod(shape[axis:])))
        x, axis = node.emit(ops.Reshape(flat), [x], f"{base}.flat"), 1
    extents = node.builder.types[x].shape
    best = node.emit(ops.Reduce("ArgMax", (axis,), True), [x], f"{base}.best")
    steps = np.arange(extents[axis]).reshape([-1 if i == axis else 1 for i in range(len(extents))])
    places = node.array(steps.astype(np.int64), f"{base}.places")
    chosen = node.binary("Equal", best, places, f"{base}.chosen")
    ones = node.emit(ops.Cast(kind.dtype), [chosen], f"{base}.ones")
    return ones if extents == shape else node.emit(ops.Reshape(shape), [ones])


def import_mean(node: OnnxNode) -> str:
    """Mean of any number of tensors -> Add, Div."""
    operands = node.inputs()
    total = node.input(0)
    for operand in operands[1:]:
        total = node.binary("Add", total, operand, f"{node.proto.output[0]}.sum")
    return node.binary("Div", total, node.number(len(operands), node.type(0).dtype))
