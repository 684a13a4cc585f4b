"""Fold products and sums with constants, such as batch normalisation, into weights and biases.

The importer writes BatchNormalization as Mul and Add. Behind a convolution or dense layer they fold
always; ahead of one a product folds always, a sum only where no padding stands in between, since
padding is zero after the sum.
"""

from dataclasses import dataclass

import numpy as np

from ..graph import Builder, Graph, Node, rewrite
from ..graph import operators as ops
from .patterns import private


@dataclass(frozen=True, slots=True)
class Affine:
    """What Add, Sub, Mul or Div with a constant makes of x: `factor * x + offset` per channel.

    Attributes
    ----------
    factor, offset : float64[channels]
        In the order of the channels.
    """

    factor: np.ndarray
    offset: np.ndarray


def fold_batch_normalisation(graph: Graph) -> Graph:
    """Merge per-channel products and sums with constants into the layers next to them."""
    return rewrite(graph, _fold_behind, _fold_ahead)


def fold_into_convolutions(graph: Graph) -> Graph:
    """Merge them into convolutions alone: what dense layers have beside them stays as it is."""
    return rewrite(graph, _fold_behind_convolution, _fold_ahead_of_convolution)


def _fold_behind_convolution(builder: Builder, node: Node, graph: Graph) -> str | None:
    """f * conv(x) + c -> conv with weights f * w and bias f * b + c."""
    x = variable_operand(builder, node)
    layer = None if x is None else builder.producer(x)
    convolution = layer is not None and isinstance(layer.attributes, ops.Conv)
    return _fold_behind(builder, node, graph) if convolution else None


def _fold_ahead_of_convolution(builder: Builder, node: Node, graph: Graph) -> str | None:
    """conv(f * x + c) -> conv of x, where padding allows it."""
    return _fold_ahead(builder, node, graph) if isinstance(node.attributes, ops.Conv) else None


def _fold_behind(builder: Builder, node: Node, graph: Graph) -> str | None:
    """f * layer(x) + c -> layer with weights f * w and bias f * b + c."""
    x = variable_operand(builder, node)
    if x is None or not private(graph, x):
        return None
    bias = None
    layer = builder.producer(x)
    if layer is not None and layer.attributes == ops.Binary("Add"):
        inner = variable_operand(builder, layer)
        if inner is None or not private(graph, inner):
            return None
        bias = next(name for name in layer.inputs if name != inner)
        layer = builder.producer(inner)
    if layer is None or not _has_weights(builder, layer):
        return None
    weights = builder.data(layer.inputs[1]).astype(np.float64)
    convolution = isinstance(layer.attributes, ops.Conv)
    channels, axis = (weights.shape[0], 1) if convolution else (weights.shape[1], -1)
    rank = len(layer.output.type.shape)
    found = affine(builder, node, x, axis, channels, rank)
    old = _per_channel(builder.data(bias), axis, channels, rank) if bias else np.zeros(channels)
    plain = bias is None and not convolution and node.attributes == ops.Binary("Add")
    if found is None or old is None or plain:
        return None
    if convolution and len(layer.inputs) == 3:
        old = old + builder.data(layer.inputs[2])
    return _emit(
        builder,
        layer,
        layer.inputs[0],
        weights * (found.factor.reshape(-1, 1, 1, 1) if convolution else found.factor),
        found.factor * old + found.offset,
    )


def _fold_ahead(builder: Builder, node: Node, graph: Graph) -> str | None:
    """layer(f * x + c) -> layer with weights w * f and bias b + w * c."""
    if not _has_weights(builder, node) or not private(graph, node.inputs[0]):
        return None
    ahead = builder.producer(node.inputs[0])
    x = None if ahead is None else variable_operand(builder, ahead)
    if ahead is None or x is None or builder.types[x].shape != ahead.output.type.shape:
        return None
    weights = builder.data(node.inputs[1]).astype(np.float64)
    shape = builder.types[x].shape
    conv = node.attributes if isinstance(node.attributes, ops.Conv) else None
    axis = 1 if conv else -1
    found = affine(builder, ahead, x, axis, shape[axis], len(shape))
    if found is None or (conv and any(conv.pads) and found.offset.any()):
        return None
    if conv is None:
        return _emit(builder, node, x, weights * found.factor[:, None], found.offset @ weights)
    # Output channel o of group g reads the input channels of g.
    shares = [
        np.repeat(values.reshape(conv.groups, -1), len(weights) // conv.groups, axis=0)
        for values in (found.factor, found.offset)
    ]
    factor, offset = (share.reshape(*weights.shape[:2], 1, 1) for share in shares)
    bias = (weights * offset).sum(axis=(1, 2, 3))
    if len(node.inputs) == 3:
        bias = bias + builder.data(node.inputs[2])
    return _emit(builder, node, x, weights * factor, bias)


def variable_operand(builder: Builder, node: Node) -> str | None:
    """Return the operand of a Binary whose other operand is constant; None for other nodes."""
    if not isinstance(node.attributes, ops.Binary) or node.output.type.dtype != "float32":
        return None
    known = [builder.is_constant(name) for name in node.inputs]
    return node.inputs[known.index(False)] if known.count(True) == 1 else None


def affine(
    builder: Builder, node: Node, x: str, axis: int, channels: int, rank: int
) -> Affine | None:
    """Return a Binary as a product and a sum per channel of its operand `x`.

    Parameters
    ----------
    builder : Builder
        Holds the constant operand.
    node : Node
        A Binary of `x` and a constant.
    x : str
        Its variable operand.
    axis, channels, rank : int
        Where the channels of `x` are, how many, and its rank.

    Returns
    -------
    Affine or None
        None where the constant varies along another axis, or the function is no such one.
    """
    first = node.inputs[0] == x
    constant = builder.data(node.inputs[1] if first else node.inputs[0])
    values = _per_channel(constant, axis, channels, rank)
    if values is None or not isinstance(node.attributes, ops.Binary):
        return None
    ones, zeros = np.ones(channels), np.zeros(channels)
    kind = node.attributes.kind
    if kind == "Add":
        return Affine(ones, values)
    if kind == "Sub":
        return Affine(ones, -values) if first else Affine(-ones, values)
    if kind == "Mul":
        return Affine(values, zeros)
    if kind == "Div" and first and values.all():
        return Affine(1 / values, zeros)
    return None


def _per_channel(data: np.ndarray, axis: int, channels: int, rank: int) -> np.ndarray | None:
    """Return a constant as float64[channels]; None where it varies along another axis."""
    if data.ndim > rank:
        return None
    shape = (1,) * (rank - data.ndim) + data.shape
    axis %= rank
    if any(size != 1 for i, size in enumerate(shape) if i != axis):
        return None
    if shape[axis] not in (1, channels):
        return None
    return np.broadcast_to(data.ravel().astype(np.float64), (channels,))


def _has_weights(builder: Builder, node: Node) -> bool:
    """Tell whether a node is a convolution or dense layer with constant float32 parameters."""
    if not isinstance(node.attributes, (ops.Conv, ops.MatMul)):
        return False
    if isinstance(node.attributes, ops.Conv) and node.attributes.channels_last:
        return False
    if node.output.type.dtype != "float32":
        return False
    if builder.is_constant(node.inputs[0]):
        return False
    if not all(builder.is_constant(name) for name in node.inputs[1:]):
        return False
    return isinstance(node.attributes, ops.Conv) or builder.data(node.inputs[1]).ndim == 2


def _emit(builder: Builder, layer: Node, x: str, weights: np.ndarray, bias: np.ndarray) -> str:
    """Emit the layer with new weights and bias; the sum behind a dense layer is an Add."""
    w = builder.constant(weights.astype(np.float32), f"{layer.name}.weights")
    b = builder.constant(bias.astype(np.float32), f"{layer.name}.bias")
    if isinstance(layer.attributes, ops.Conv):
        return builder.emit(layer.attributes, [x, w, b], layer.name)
    product = builder.emit(layer.attributes, [x, w], layer.name)
    return builder.emit(ops.Binary("Add"), [product, b], layer.name) if bias.any() else product
