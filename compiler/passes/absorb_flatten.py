"""Turn a dense layer after a flatten into a window over the image, so that no data move.

The window is the whole image, or a row of it where each row is flattened, as of a spectrogram. The
rows of the weights are reordered to [KH, KW, C], from either layout of the image.
"""

from ..graph import operators as ops
from ..rewriting import Site, either, op, rule_of, value
from .patterns import TO_FIRST, reshaped

IMAGE = op(ops.Accelerated, value="x")
TURNS = ops.Transpose(TO_FIRST), ops.Transpose((0, 1, 3, 2))
"""Transposes that put channels before rows and columns, or between rows and columns."""

FLATTENED = op(ops.Reshape, either(op(TURNS, IMAGE, capture="turned"), IMAGE))


@rule_of(
    ops.QConv,
    FLATTENED,
    *(value("weights"), value("bias"), value("scale")),
    capture="dense",
    where=lambda layer: layer.kind == "dense",
)
def absorb_flatten(
    site: Site,
    x: str,
    turned: ops.Transpose | None,
    dense: ops.QConv,
    weights: str,
    bias: str,
    scale: str,
) -> str | None:
    """QConv(Reshape(Transpose?(x))), 1x1 on flattened images -> QConv(x), a window of all.

    Or QConv(Reshape(Transpose?(x))), 1x1 on flattened rows -> Reshape(QConv(x)), a window of a row.

    Let dense layers read the image of an accelerated operator directly, without Reshape.
    """
    shape, flat = site.shape_of(x), site.shape_of(site.root.inputs[0])
    if len(shape) != 4:
        return None
    images, height, width, depth = shape
    if flat == (images, 1, 1, height * width * depth):
        turn = TURNS[0]
    elif flat[-1] == width * depth and flat[-1] != depth:
        height, turn = 1, TURNS[1]
    else:
        return None
    data = site.data(weights)
    channels = data.shape[-1]
    if turned is None:
        kernel = data.reshape(height, width, depth, channels)
    elif turned == turn:
        kernel = data.reshape(depth, height, width, channels).transpose(1, 2, 0, 3)
    else:
        return None
    kernel = site.constant(kernel, f"{site.root.name}.weights")
    return reshaped(site, site.become(dense, x, kernel, bias, scale), site.shape)
