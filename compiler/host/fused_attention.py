"""Attention as one kernel, where the target fuses two products and the softmax between them."""

from ..cpu.kernels.attention import Attention, is_attention
from ..cpu.kernels.head_product import HeadProduct
from ..graph import Node
from ..graph import operators as ops
from ..rewriting import number, op, value
from .graph_queries import in_order
from .kernel import HERE, HostKernel, HostScope, matcher
from .products import LINKS, attention

MIN_ROWS = 8
"""With fewer queries of a head, the blocks of one kernel are too few."""

MAX_INNER = 256
"""Maximum size of a head, whose keys and values lie in the memory of a block."""

BETWEEN = (ops.Reshape, ops.Binary, ops.Softmax, ops.Where)
"""Operators between the products."""

MASKED = op(ops.Binary("Add"), HERE, value("mask"), commutative=True)
SOFTMAX = op(ops.Softmax, HERE, capture="softmax")
GUARDED = op(ops.Where, op(ops.Unary("IsNaN"), HERE), number(equal=0.0), HERE)
RESHAPED = op(ops.Reshape, HERE)


@matcher(op(ops.MatMul), *LINKS)
def fused_attention(scope: HostScope, node: Node) -> HostKernel | None:
    """Match the product of queries and keys, [mask], Softmax, and the product with values."""
    if not scope.target.fuses_attention:
        return None
    first = attention(scope, node)
    if first is not None:
        # The first node in the graph's order may be that of the values.
        source = _source(scope, first.inputs.get("a", ""))
        first = first if source is None else attention(scope, source)
    if first is None or not isinstance(first.description, HeadProduct):
        return None
    between = _Between(scope, first.nodes[-1])
    if not between.found:
        return None
    reader = scope.follower(between.last)
    second = None if reader is None else attention(scope, reader)
    if second is None or not isinstance(second.description, HeadProduct):
        return None
    scores, context = first.description, second.description
    fits = (
        second.inputs.get("a") == between.last.output.name
        and is_attention(scores, context)
        and scores.rows >= MIN_ROWS
        and max(scores.inner, context.columns) <= MAX_INNER
    )
    nodes = in_order(scope.graph, (*first.nodes, *between.nodes, *second.nodes))
    mask = between.mask_of(scores) if fits else None
    if mask is None or not scope.is_closed(nodes):
        return None
    differs, groups = mask
    masks = {"mask": between.mask} if differs else {}
    inputs = {"q": first.inputs["a"], "k": first.inputs["b"], **masks, "v": second.inputs["b"]}
    if {one.output.name for one in nodes} & {*inputs.values()}:
        return None  # as where scores are their own mask
    description = Attention(scores, context, differs, groups, between.guarded)
    return HostKernel(description, inputs, {}, nodes)


def _source(scope: HostScope, name: str) -> Node | None:
    """Return the product that a value comes from, if only nodes of `BETWEEN` lie in between."""
    node = scope.producer(name)
    while node is not None and isinstance(node.attributes, BETWEEN):
        makers = filter(None, map(scope.producer, node.inputs))
        node = next((one for one in makers if not scope.is_constant(one.outputs[0].name)), None)
    is_product = node is not None and isinstance(node.attributes, ops.MatMul)
    return node if is_product else None


class _Between:
    """The nodes between two products: a mask and a softmax, among changes of shape.

    Parameters
    ----------
    node
        The last node of the first product.
    """

    def __init__(self, scope: HostScope, node: Node) -> None:
        self.scope, self.last = scope, node
        self.nodes: list[Node] = []
        self.mask, self.masked_shape = "", (1,)
        self._skip_reshapes()
        if (masked := scope.behind(self.last, MASKED)) is not None:
            self.mask, self.masked_shape = masked["mask"], self.last.output.type.shape
            self._take(masked.nodes)
            self._skip_reshapes()
        found = scope.behind(self.last, SOFTMAX)
        shape = self.last.output.type.shape
        softmax = found and found["softmax"]
        self.found = bool(
            softmax
            and not softmax.log
            and (softmax.axis, softmax.stop) == (len(shape) - 1, len(shape))
        )
        self.guarded = False
        if found is not None and self.found:
            self._take(found.nodes)
            if (guard := scope.behind(self.last, GUARDED)) is not None:
                self.guarded = True
                self._take(guard.nodes)
            self._skip_reshapes()

    def _take(self, nodes: tuple[Node, ...]) -> None:
        self.nodes += nodes
        self.last = nodes[-1]

    def _skip_reshapes(self) -> None:
        """Take nodes that group heads or rows in another way."""
        while (found := self.scope.behind(self.last, RESHAPED)) is not None:
            if found.nodes[-1].output.type.shape[-1:] != self.last.output.type.shape[-1:]:
                return
            self._take(found.nodes)

    def mask_of(self, scores: HeadProduct) -> tuple[tuple[bool, ...], int] | None:
        """Where the mask differs, and the groups of rows for which it does; None if unknown."""
        if not self.mask:
            return (), 1
        *lead, keys = self.masked_shape
        given = self.scope.shape(self.mask)
        if len(given) > len(lead) + 1 or self.scope.types[self.mask].dtype != "float32":
            return None
        given = (*(1,) * (len(lead) + 1 - len(given)), *given)
        if given[-1] != keys or scores.rows % lead[-1]:
            return None
        groups = scores.rows // lead[-1]
        parts = [pair for pair in zip(lead, given, strict=False) if pair[0] > 1]
        differs: list[bool] = []
        for extent in (scores.images, scores.heads, groups, lead[-1]):
            split = _leading(parts, extent)
            if split is None:
                return None
            own, parts = split
            same = all(size == 1 for _, size in own)
            if not (same or all(n == size for n, size in own)):
                return None
            differs.append(not same)
        return tuple(differs), groups if any(differs[2:]) else 1


Extents = list[tuple[int, int]]
"""Extents of scores, each beside that of a mask."""


def _leading(parts: Extents, extent: int) -> tuple[Extents, Extents] | None:
    """Split extents after the first `extent` elements; None where that would divide unevenly."""
    own: Extents = []
    while extent > 1:
        (n, size), *parts = parts
        mine = min(n, extent)
        if n % mine or extent % mine:
            return None
        own.append((mine, min(size, mine)))
        if n > mine:
            parts = [(n // mine, min(size, n // mine)), *parts]
        extent //= mine
    return own, parts


MATCHERS = (fused_attention,)
"""Before those of single products."""
