"""Importers of normalisations as elementwise operators and reductions."""

import numpy as np

from ..graph import operators as ops
from ..graph.types import NARROW_FLOATS
from .onnx_node import OnnxNode

EPSILON = float(np.float32(1e-5))


def _per_channel(node: OnnxNode, value: str) -> str:
    """Emit a reshape of [C] that broadcasts to the first operand, [N, C, ...]."""
    shape = node.builder.types[value].shape
    return node.reshape(value, (*shape, *(1,) * (node.rank(0) - 2)), f"{value}.spread")


def _deviation(node: OnnxNode, variance: str, usual: float = EPSILON) -> str:
    """Emit `sqrt(variance + epsilon)`."""
    epsilon = node.number(node.attribute("epsilon", usual), node.builder.types[variance].dtype)
    shifted = node.binary("Add", variance, epsilon, f"{node.result}.shifted")
    return node.unary("Sqrt", shifted, f"{node.result}.deviation")


def _normal(
    node: OnnxNode, x: str, axes: tuple[int, ...], centre: bool = True, usual: float = EPSILON
) -> str:
    """Emit `(x - mean) / sqrt(mean of squares + epsilon)` over axes; use the mean if `centre`."""
    base = node.result
    if centre:
        mean = node.emit(ops.Reduce("ReduceMean", axes, True), [x], f"{base}.mean")
        x = node.binary("Sub", x, mean, f"{base}.centred")
    squares = node.binary("Mul", x, x, f"{base}.squares")
    variance = node.emit(ops.Reduce("ReduceMean", axes, True), [squares], f"{base}.variance")
    return node.binary("Div", x, _deviation(node, variance, usual), f"{base}.normal")


def import_batch_normalisation(node: OnnxNode) -> str | None:
    """Import BatchNormalization as Mul and Add with constants if all parameters are constant.

    Otherwise emit each step. Decline the training form, which ONNX's reference runs.
    """
    if node.attribute("training_mode", 0):
        return None
    known = [node.known(node.input(index)) for index in range(1, 5)]
    parameters = [data for data in known if data is not None]
    if len(parameters) < 4 or node.type(0).dtype != "float32":
        return _normalised_by(node, node.input(3), node.input(4))
    shape = (-1,) + (1,) * (node.rank(0) - 2)
    gamma, beta, mean, variance = (data.reshape(shape) for data in parameters)
    factor = gamma / np.sqrt(variance + np.float32(node.attribute("epsilon", EPSILON)))
    factors = node.builder.constant(factor.astype(np.float32), f"{node.result}.factor")
    offset = (beta - mean * factor).astype(np.float32)
    offsets = node.builder.constant(offset, f"{node.result}.offset")
    product = node.binary("Mul", node.input(0), factors, f"{node.result}.scaled")
    return node.binary("Add", product, offsets)


def _normalised_by(node: OnnxNode, mean: str, variance: str) -> str:
    """Emit `(x - mean) / sqrt(variance + epsilon) * gamma + beta`; parameters are per channel."""
    dtype, base = node.type(3).dtype, node.result
    deviation = _deviation(node, variance)
    wide = dtype if dtype != "float16" else "float32"
    result = node.cast(node.input(0), wide, f"{base}.wide")
    kinds = zip(
        ("Sub", "Div", "Mul", "Add"),
        (mean, deviation, node.input(1), node.input(2)),
        strict=True,
    )
    for kind, value in kinds:
        operand = _per_channel(node, node.cast(value, wide, f"{value}.{wide}"))
        result = node.binary(kind, result, operand, f"{base}.{kind.lower()}")
    return node.cast(result, node.type(0).dtype)


def import_instance_normalisation(node: OnnxNode) -> str:
    """Import InstanceNormalization as statistics of each channel and elementwise operators."""
    normal = _normal(node, node.input(0), tuple(range(2, node.rank(0))))
    gamma, beta = (_per_channel(node, node.input(index)) for index in (1, 2))
    return node.binary("Add", node.binary("Mul", normal, gamma, f"{node.result}.weighted"), beta)


def import_mean_variance(node: OnnxNode) -> str | None:
    """Import MeanVarianceNormalization of float32; ONNX adds 1e-9 to the root."""
    if node.type(0).dtype != "float32":
        return None
    axes = (node.normalise(axis, node.rank(0)) for axis in node.attribute("axes", (0, 2, 3)))
    return _normal(node, node.input(0), tuple(sorted(axes)), usual=1e-18)


def import_layer_normalisation(node: OnnxNode) -> list[str]:
    """Import ONNX Runtime's variants of LayerNormalization, with statistics over the last axes.

    The Skip variants normalise the sum of x and the skip connection; this sum is the fourth output.
    The Simplified variants do not subtract the mean.
    """
    total, kind = node.input(0), node.proto.op_type
    skips, simplified, scale = kind.startswith("Skip"), "Simplified" in kind, 1
    if skips:
        total = node.binary("Add", total, node.input(1), f"{node.result}.sum")
        bias, scale = 3 if simplified else 4, 2
        if node.has(bias):
            total = node.binary("Add", total, node.input(bias), f"{node.result}.shifted_sum")
    rank = len(node.builder.types[total].shape)
    normal = _normal(node, total, tuple(range(node.axis(-1, rank), rank)), not simplified)
    result = node.binary("Mul", normal, node.input(scale), f"{node.result}.weighted")
    if not simplified and node.has(scale + 1):
        result = node.binary("Add", result, node.input(scale + 1))
    if any(node.wants(index) for index in (1, 2)):
        node.fail("no statistics as outputs", "some", "drop the use of them")
    return [result, "", "", total]


def import_local_response(node: OnnxNode) -> str:
    """Import LRN as x / (bias + alpha * mean of squares over nearby channels) ** beta."""
    base, x, kind = node.result, node.input(0), node.type(0)
    size = node.attribute("size", 0)
    if size < 1 or len(kind.shape) < 2 or kind.dtype != "float32":
        node.fail("a `size` of 1 or more and floats [N, C, ...]", f"`{size}`", "correct the model")
    samples, channels = kind.shape[:2]
    squares = node.binary("Mul", x, x, f"{base}.squares")
    line = (samples, 1, channels, kind.elements // max(1, samples * channels))
    pool = ops.AveragePool(
        (size, 1), (1, 1), ((size - 1) // 2, 0, size // 2, 0), count_include_pad=True
    )
    pooled = node.emit(pool, [node.reshape(squares, line, f"{base}.rows")], f"{base}.pooled")
    means = node.reshape(pooled, kind.shape, f"{base}.means")
    alpha, bias, beta = (
        node.number(node.attribute(name, default), kind.dtype)
        for name, default in (("alpha", 1e-4), ("bias", 1.0), ("beta", 0.75))
    )
    scaled = node.binary("Mul", means, alpha, f"{base}.scaled")
    total = node.binary("Add", scaled, bias, f"{base}.total")
    return node.binary("Div", x, node.binary("Pow", total, beta, f"{base}.power"))


def import_softmax(node: OnnxNode) -> str:
    """Import Softmax and LogSoftmax; before operator set 13, they span all axes from `axis` on."""
    rank, modern = node.rank(0), node.opset >= 13
    axis = node.axis(-1 if modern else 1, rank)
    log = node.proto.op_type == "LogSoftmax"
    return node.emit(ops.Softmax(axis, axis + 1 if modern else rank, log), [node.input(0)])


def import_lp_normalisation(node: OnnxNode) -> str:
    """Import LpNormalization: rows over their norm, and 0 where that is 0.

    The norm for p = 1 is the sum of magnitudes, as in ONNX Runtime and PyTorch. ONNX's reference
    evaluator sums with signs.
    """
    kind, base, p = node.type(0), node.result, node.attribute("p", 2)
    if p not in (1, 2):
        node.fail("`p` of 1 or 2", f"`{p}`", "correct the model")
    wide = "float32" if kind.dtype in NARROW_FLOATS else kind.dtype
    x = node.cast(node.input(0), wide, f"{base}.wide")
    axis = node.axis(-1, len(kind.shape))
    norm = node.emit(ops.Reduce(f"ReduceL{p}", (axis,), True), [x], f"{base}.norm")
    least = node.number(float(np.finfo(wide).tiny), wide)
    divisor = node.binary("Max", norm, least, f"{base}.divisor")
    return node.cast(node.binary("Div", x, divisor), kind.dtype)


def import_hardmax(node: OnnxNode) -> str:
    """Import Hardmax: 1 at the index of the first maximum along the axis, else 0."""
    kind, x, base = node.type(0), node.input(0), node.result
    axis = node.axis(-1 if node.opset >= 13 else 1, len(kind.shape))
    if node.opset < 13:
        rows = int(np.prod(kind.shape[:axis]))
        x = node.reshape(x, (rows, int(np.prod(kind.shape[axis:]))), f"{base}.flat")
        axis = 1
    extents = node.builder.types[x].shape
    best = node.emit(ops.Reduce("ArgMax", (axis,), True), [x], f"{base}.best")
    steps = np.arange(extents[axis]).reshape([-1 if i == axis else 1 for i in range(len(extents))])
    places = node.array(steps.astype(np.int64), f"{base}.places")
    chosen = node.binary("Equal", best, places, f"{base}.chosen")
    ones = node.cast(chosen, kind.dtype, f"{base}.ones")
    return ones if extents == kind.shape else node.reshape(ones, kind.shape)
