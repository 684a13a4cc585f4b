"""Turn a dense layer after a flatten into a window over the whole image, so that no data move.

The rows of the weights are reordered to [KH, KW, C], from either layout of the image.
"""

from ..graph import Graph
from ..graph import operators as ops
from ..rewriting import Site, either, op, rewrite, rule, value
from .patterns import TO_FIRST

IMAGE = op(ops.Accelerated, value="x")
FLATTENED = op(
    ops.Reshape,
    either(op(ops.Transpose(TO_FIRST), IMAGE, capture="turned"), IMAGE),
    result=lambda kind: kind.shape[1:3] == (1, 1),
)


@rule(
    op(
        ops.QConv,
        FLATTENED,
        *(value("weights"), value("bias"), value("scale")),
        capture="dense",
        where=lambda layer: layer.kind == "dense",
    )
)
def absorb(
    site: Site,
    x: str,
    turned: ops.Transpose | None,
    dense: ops.QConv,
    weights: str,
    bias: str,
    scale: str,
) -> str | None:
    """QConv(Reshape(Transpose?(x))), 1x1 on a flattened image -> QConv(x), a window of all."""
    shape = site.shape_of(x)
    if len(shape) != 4 or shape[0] != site.shape_of(site.root.inputs[0])[0]:
        return None
    _, height, width, depth = shape
    data = site.data(weights)
    channels = data.shape[-1]
    if turned:
        kernel = data.reshape(depth, height, width, channels).transpose(1, 2, 0, 3)
    else:
        kernel = data.reshape(height, width, depth, channels)
    return site.become(dense, x, site.constant(kernel, f"{site.root.name}.weights"), bias, scale)


def absorb_flatten(graph: Graph) -> Graph:
    """Let dense layers read the image of an accelerated operator directly, without Reshape."""
    return rewrite(graph, absorb)
