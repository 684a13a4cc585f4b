"""Fold products and sums with constants, such as batch normalisation, into weights and biases.

The importer writes BatchNormalization as Mul and Add. After a convolution or dense layer, both
always fold. Before one, a product always folds, but a sum folds only without padding in between,
because padding is zero after the sum.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..graph import Graph, Node, TensorType
from ..graph import operators as ops
from ..rewriting import GraphPattern, Rule, Site, computed, constant, either, op, rewrite, rule
from ..rewriting.patterns import NodePattern
from .patterns import is_float32


@dataclass(frozen=True, slots=True)
class ScaleAndOffset:
    """The effect of Add, Sub, Mul or Div with a constant: `factor * x + offset` per channel.

    Attributes
    ----------
    factor, offset : float64[channels]
        In the order of the channels.
    """

    factor: np.ndarray
    offset: np.ndarray


Layer = ops.Conv | ops.ConvTranspose | ops.MatMul


def is_matrix(kind: TensorType) -> bool:
    """Tell whether a type fits a dense layer's weights."""
    return len(kind.shape) == 2


def convolution_of(
    x: GraphPattern,
    *,
    private: bool = False,
    kind: type[ops.Conv | ops.ConvTranspose] = ops.Conv,
) -> tuple[NodePattern, ...]:
    """Describe a float convolution, channels first, with constant parameters."""
    w, bias = constant("w"), constant("bias")
    return tuple(
        op(
            *(kind, x, w, *others),
            capture="layer",
            where=lambda conv: conv.is_image and not getattr(conv, "channels_last", False),
            result=is_float32,
            private=private,
        )
        for others in ((), (bias,))
    )


def layer_of(x: GraphPattern, *, private: bool = False) -> tuple[NodePattern, ...]:
    """Describe a convolution, or a dense layer with constant weights."""
    w = constant("w", where=is_matrix)
    dense = op(ops.MatMul, x, w, capture="layer", result=is_float32, private=private)
    return (*convolution_of(x, private=private), dense)


def affine_of(x: GraphPattern, *, private: bool = False) -> NodePattern:
    """Describe a float Binary of a value and a constant, in any order."""
    return op(
        *(ops.Binary, x, constant("constant")),
        capture="constant_function",
        result=is_float32,
        private=private,
        commutative=True,
    )


def behind(layers: tuple[NodePattern, ...]) -> NodePattern:
    """Describe an affine function of private layers, perhaps with a sum between them."""
    add = op(
        *(ops.Binary("Add"), either(*layers), constant("addend")),
        result=is_float32,
        private=True,
        commutative=True,
    )
    return affine_of(either(*layers, add))


X = computed("x")
AHEAD = affine_of(X, private=True)


def fold_behind(
    site: Site,
    layer: Layer,
    x: str,
    w: str,
    bias: str | None,
    addend: str | None,
    constant: str,
) -> str | None:
    """f * layer(x) + c -> layer with weights f * w and bias f * b + c."""
    weights = site.data(w).astype(np.float64)
    convolution = not isinstance(layer, ops.MatMul)
    shape, axis = site.node("layer").output.type.shape, 1 if convolution else -1
    channels, rank = shape[axis], len(shape)
    found = scale_and_offset(site.root, constant, site.data(constant), axis, channels, rank)
    old = _per_channel(site.data(addend), axis, channels, rank) if addend else np.zeros(channels)
    plain = addend is None and not convolution and site.root.attributes == ops.Binary("Add")
    if found is None or old is None or plain:
        return None
    if bias is not None:
        old = old + site.data(bias)
    return _emit(
        site,
        x,
        _scaled(layer, weights, found.factor),
        found.factor * old + found.offset,
    )


def _scaled(layer: Layer, weights: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """Return weights for results that are multiplied by a factor per channel."""
    if isinstance(layer, ops.MatMul):
        return weights * factor
    if isinstance(layer, ops.Conv):
        return weights * factor.reshape(-1, 1, 1, 1)
    # Weights [Ci, Co / groups, KH, KW]: the groups share their axis of results.
    apart = weights.reshape(layer.groups, -1, *weights.shape[1:])
    return (apart * factor.reshape(layer.groups, 1, -1, 1, 1)).reshape(weights.shape)


def fold_ahead(
    site: Site, layer: Layer, x: str, w: str, bias: str | None, constant: str
) -> str | None:
    """layer(f * x + c) -> layer with weights w * f and bias b + w * c."""
    shape, ahead = site.shape_of(x), site.node("constant_function")
    if shape != ahead.output.type.shape:
        return None
    weights = site.data(w).astype(np.float64)
    conv = layer if isinstance(layer, ops.Conv) else None
    axis = 1 if conv else -1
    data = site.data(constant)
    found = scale_and_offset(ahead, constant, data, axis, shape[axis], len(shape))
    if found is None or (conv and any(conv.pads) and found.offset.any()):
        return None
    if conv is None:
        return _emit(site, x, weights * found.factor[:, None], found.offset @ weights)
    # Output channel o of group g reads the input channels of g.
    shares = [
        np.repeat(values.reshape(conv.groups, -1), len(weights) // conv.groups, axis=0)
        for values in (found.factor, found.offset)
    ]
    factor, offset = (share.reshape(*weights.shape[:2], 1, 1) for share in shares)
    sums = (weights * offset).sum(axis=(1, 2, 3))
    return _emit(site, x, weights * factor, sums if bias is None else sums + site.data(bias))


def scale_and_offset(
    function: Node, constant: str, data: np.ndarray, axis: int, channels: int, rank: int
) -> ScaleAndOffset | None:
    """Return a Binary as a product and a sum per channel of its variable operand.

    Parameters
    ----------
    function : Node
        A Binary of a variable and a constant.
    constant, data : str and ndarray
        The constant.
    axis, channels, rank : int
        Channel axis of the variable, number of channels, and rank.

    Returns
    -------
    ScaleAndOffset or None
        None if the constant varies along another axis, or the function has another form.
    """
    values = _per_channel(data, axis, channels, rank)
    if values is None or not isinstance(function.attributes, ops.Binary):
        return None
    ones, zeros = np.ones(channels), np.zeros(channels)
    kind, first = function.attributes.kind, function.inputs[1] == constant
    if kind == "Add":
        return ScaleAndOffset(ones, values)
    if kind == "Sub":
        return ScaleAndOffset(ones, -values) if first else ScaleAndOffset(-ones, values)
    if kind == "Mul":
        return ScaleAndOffset(values, zeros)
    if kind == "Div" and first and values.all():
        return ScaleAndOffset(1 / values, zeros)
    return None


def _per_channel(data: np.ndarray, axis: int, channels: int, rank: int) -> np.ndarray | None:
    """Return a constant as float64[channels]; None if it varies along another axis."""
    if data.ndim > rank:
        return None
    shape = (1,) * (rank - data.ndim) + data.shape
    axis %= rank
    if any(size != 1 for i, size in enumerate(shape) if i != axis):
        return None
    if shape[axis] not in (1, channels):
        return None
    return np.broadcast_to(data.ravel().astype(np.float64), (channels,))


def _emit(site: Site, x: str, weights: np.ndarray, bias: np.ndarray) -> str:
    """Emit the layer with new weights and bias; the bias of a dense layer is an Add."""
    layer = site.node("layer")
    label = layer.name
    w = site.constant(weights.astype(np.float32), f"{label}.weights")
    b = site.constant(bias.astype(np.float32), f"{label}.bias")
    if not isinstance(layer.attributes, ops.MatMul):
        return site.emit(layer.attributes, x, w, b, label=label)
    product = site.emit(layer.attributes, x, w, label=label)
    return site.emit(ops.Binary("Add"), product, b, label=label) if bias.any() else product


def _folds(layer: Callable[..., tuple[NodePattern, ...]]) -> tuple[Rule, Rule]:
    """Return the rules that fold what is behind and ahead of a layer."""
    after = rule(behind(layer(X, private=True)))
    return after(fold_behind), rule(*layer(AHEAD))(fold_ahead)


FOLD_LAYERS, FOLD_CONVOLUTIONS = _folds(layer_of), _folds(convolution_of)
FOLD_TRANSPOSED = (
    rule(behind(convolution_of(X, private=True, kind=ops.ConvTranspose)))(fold_behind),
)


def fold_batch_normalisation(graph: Graph) -> Graph:
    """Merge per-channel products and sums with constants into the layers next to them."""
    return rewrite(graph, *FOLD_LAYERS)


def fold_into_convolutions(graph: Graph) -> Graph:
    """Merge per-channel products and sums into convolutions only, not into dense layers."""
    return rewrite(graph, *FOLD_CONVOLUTIONS)
