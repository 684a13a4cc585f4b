"""Attention as one kernel, where the target fuses two products and the softmax between them."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from ..cpu.kernels.attention import Attention, is_attention
from ..cpu.kernels.head_product import HeadProduct
from ..graph import Node
from ..graph import operators as ops
from ..rewriting import GraphMatch, GraphPattern, either, number, op, value
from .arrangement import strides_of
from .graph_queries import in_order
from .kernel import HostKernel, HostScope, matcher
from .products import LINKS, attention, scaled_and_turned

MIN_ROWS = 8
"""With fewer queries of a head, the blocks of one kernel are too few."""

MAX_INNER = 256
"""Maximum size of a head, whose keys and values lie in the memory of a block."""


def _regrouped(source: GraphPattern) -> GraphPattern:
    """Describe a value, perhaps with its heads or rows grouped in another way."""
    return either(op(ops.Reshape, source, private=True), source)


ENDS = scaled_and_turned(op(ops.MatMul, capture="scores"))
SCORES = either(*(replace(one, value="scored") for one in ENDS))
MASKED = op(ops.Binary("Add"), _regrouped(SCORES), value("mask"), value="masked", commutative=True)
SOFTMAX = op(
    *(ops.Softmax, _regrouped(either(MASKED, SCORES))),
    capture="softmax",
    value="shares",
    where=lambda softmax: not softmax.log,
)
IS_NAN = op(ops.Unary("IsNaN"), value("shares"))
GUARDED = op(ops.Where, IS_NAN, number(equal=0.0), SOFTMAX, capture="guard")
CONTEXT = op(ops.MatMul, _regrouped(either(GUARDED, SOFTMAX)), value(), capture="context")
"""The product with values; a capture "guard" says that NaN becomes 0."""


@matcher(op(ops.MatMul), *LINKS)
def fused_attention(scope: HostScope, node: Node) -> HostKernel | None:
    """Match the product of queries and keys, [mask], Softmax, and the product with values."""
    # The first node in the graph's order may be that of the values.
    begun = attention(scope, node) if scope.target.fuses_attention else None
    product = begun and next(n for n in begun.nodes if isinstance(n.attributes, ops.MatMul))
    matches = scope.around(product, CONTEXT) if product else ()
    return next(filter(None, (_fused(scope, match) for match in matches)), None)


def _fused(scope: HostScope, match: GraphMatch) -> HostKernel | None:
    """Make the kernel of both products and the nodes between them; None if they do not fit."""
    first, second = (attention(scope, match.named[name]) for name in ("scores", "context"))
    axis = len(scope.shape(match["shares"])) - 1
    if first is None or second is None or _changes_rows(scope, match.nodes):
        return None
    scores, context = first.description, second.description
    if not (isinstance(scores, HeadProduct) and isinstance(context, HeadProduct)):
        return None
    nodes = in_order(scope.graph, (*first.nodes, *match.nodes, *second.nodes))
    fits = (
        (match["softmax"].axis, match["softmax"].stop) == (axis, axis + 1)
        and second.inputs.get("a") == match.named["context"].inputs[0]
        and first.output == match["scored"]
        and is_attention(scores, context)
        and scores.rows >= MIN_ROWS
        and max(scores.inner, context.columns) <= MAX_INNER
    )
    mask = mask_of(scope, match, scores) if fits else None
    if mask is None or not scope.is_closed(nodes):
        return None
    differs, groups = mask
    masks = {"mask": match["mask"]} if differs else {}
    inputs = {"q": first.inputs["a"], "k": first.inputs["b"], **masks, "v": second.inputs["b"]}
    if {one.output.name for one in nodes} & {*inputs.values()}:
        return None  # as where scores are their own mask
    description = Attention(scores, context, differs, groups, match["guard"] is not None)
    return HostKernel(description, inputs, {}, nodes)


def _changes_rows(scope: HostScope, nodes: Iterable[Node]) -> bool:
    """Whether one of the nodes between the products groups other keys into a row."""
    return any(
        scope.shape(node.inputs[0])[-1:] != node.output.type.shape[-1:]
        for node in nodes
        if isinstance(node.attributes, ops.Reshape)
    )


def mask_of(
    scope: HostScope, match: GraphMatch, scores: HeadProduct
) -> tuple[tuple[bool, ...], int] | None:
    """Where the mask differs, and the groups of rows for which it does; None if unknown."""
    if match["mask"] is None:
        return (), 1
    shape, given = scope.shape(match["masked"]), scope.shape(match["mask"])
    fits = given[-1:] == shape[-1:] and len(given) <= len(shape)
    if not fits or scope.types[match["mask"]].dtype != "float32" or scores.rows % shape[-2]:
        return None
    groups = scores.rows // shape[-2]
    mask = np.broadcast_to(np.empty(given, np.int8), shape)
    strides = strides_of(mask, (scores.images, scores.heads, groups, *shape[-2:]))
    if strides is None:
        return None
    differs = tuple(stride > 0 for stride in strides[:-1])
    return differs, groups if any(differs[2:]) else 1


MATCHERS = (fused_attention,)
"""Before those of single products."""
