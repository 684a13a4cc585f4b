"""Fold factors and addends of channels behind a quantised layer into its scales and its bias.

Batch normalisation behind a layer whose operands alone are quantised is of this kind. The weights
stay the integers that they are, but for the sign of a negative factor.
"""

import numpy as np

from ..graph import operators as ops
from ..rewriting import Site, constant, either, op, rule_of
from .fold_batch_normalisation import scale_and_offset
from .patterns import dequantised, is_int8, known, known_data

X = dequantised("x", constant=False)
WEIGHTS = op(ops.Dequantize, constant("w", where=is_int8), capture="scaling")

CONVOLUTION = tuple(
    op(ops.Conv, X, WEIGHTS, *bias, capture="layer", private=True, where=lambda c: c.is_image)
    for bias in ((), (known("bias"),))
)
DENSE = op(ops.MatMul, X, WEIGHTS, capture="layer", private=True)
BIASED = op(ops.Binary("Add"), DENSE, known("bias"), private=True, commutative=True)


@rule_of(
    *(ops.Binary, either(*CONVOLUTION, DENSE, BIASED), known("constant")),
    capture="function",
    commutative=True,
)
def fold_scales(
    site: Site,
    layer: ops.Conv | ops.MatMul,
    w: str,
    scaling: ops.Dequantize,
    bias: str | None,
    constant: str,
) -> str | None:
    """f * layer(x) + c -> layer with scales |f| * s, -w where f is negative, bias f * b + c.

    Merge factors and addends of channels behind quantised layers into scales and biases.
    """
    conv, made, data = isinstance(layer, ops.Conv), site.node("layer"), site.data(w)
    axis, of_weights = (1, 0) if conv else (-1, 1)
    shape, term = made.output.type.shape, known_data(site.view, constant)
    if data.ndim != (4 if conv else 2) or scaling.axis not in (None, of_weights) or term is None:
        return None
    channels = shape[axis]
    found = scale_and_offset(site.root, constant, term, axis, channels, len(shape))
    if found is None or (not conv and bias is None and (found.factor == 1).all()):
        return None  # the sum is the bias of a dense layer
    old = np.zeros(channels) if bias is None else known_data(site.view, bias)
    if old is None or old.size not in (1, channels) or old.size != old.shape[-1]:
        return None
    along = [-1 if index == of_weights else 1 for index in range(data.ndim)]
    points = np.array(scaling.zero_points, np.int16)
    signs = np.sign(found.factor).astype(np.int16)
    weights = (data - points.reshape(along if points.size > 1 else 1)) * signs.reshape(along)
    if weights.min(initial=0) < -128 or weights.max(initial=0) > 127:
        return None
    sizes = np.where(signs == 0, 1.0, np.abs(found.factor))
    scales = (np.array(scaling.scales) * sizes).astype(np.float32)
    if not (np.isfinite(scales) & (scales > 0)).all():
        return None
    label, x = made.name, made.inputs[0]
    scaling = ops.Dequantize(tuple(map(float, scales)), (0,) * channels, of_weights)
    held = site.constant(weights.astype(np.int8), f"{label}.weights")
    inputs = [x, site.emit(scaling, held, label=label)]
    offset = found.factor * old.reshape(-1) + found.offset
    added = site.constant(offset.astype(np.float32), f"{label}.bias")
    if conv:
        return site.emit(layer, *inputs, added, label=label)
    product = site.emit(layer, *inputs, label=label)
    return site.emit(ops.Binary("Add"), product, added, label=label) if offset.any() else product
