"""Matrix products in float32, with constant weights or of two activations."""

import itertools
import math
from collections.abc import Iterable

import numpy as np

from ..cpu import Epilogue, HeadProduct, MatrixProduct
from ..graph import Node, TensorType
from ..graph.operators import Binary, MatMul, Transpose
from ..passes.normalisations import per_column
from ..rewriting import GraphMatch, computed, constant, either, number, op, value
from ..rewriting.patterns import GraphPattern, NodePattern
from .arrangement import joined_heads
from .graph_queries import in_order, scalar
from .kernel import HERE, HostKernel, HostScope, matcher, matcher_of
from .layers import with_followers

BY_CONSTANT = op(Binary, HERE, constant("constant"), capture="step", commutative=True)


def is_matrix(kind: TensorType) -> bool:
    """Whether a non-empty float32 tensor is one matrix, apart from leading axes of 1."""
    shape = kind.shape
    whole = len(shape) >= 2 and kind.elements == shape[-2] * shape[-1] > 0
    return whole and kind.dtype == "float32"


@matcher_of(
    MatMul,
    computed("x", where=lambda kind: kind.elements > 0 and len(kind.shape) >= 2),
    constant("w", where=is_matrix),
)
def dense(scope: HostScope, node: Node, x: str, w: str) -> HostKernel | None:
    """Match MatMul by a constant, [Mul, Add of constants], [Add of a value], [activation]."""
    inner, columns = scope.shape(w)[-2:]
    weights, bias, nodes = scope.data(w).reshape(inner, columns), None, (node,)
    while (found := scope.behind(nodes[-1], BY_CONSTANT)) is not None:
        (after,), kind = found.nodes, found["step"].kind
        row = per_column(scope.data(found["constant"]), after.output.type.shape, columns)
        if row is None or after.output.type.elements != node.output.type.elements:
            break
        if kind == "Div" and after.inputs[1] == found["constant"] and row.all():
            kind, row = "Mul", 1.0 / row
        if kind == "Add" and bias is None:
            bias = row
        elif kind == "Mul":
            weights, bias = weights * row, None if bias is None else bias * row
        else:
            break
        nodes = (*nodes, after)
    fused = with_followers(scope, nodes[-1])
    bias = np.zeros(columns, np.float32) if bias is None else bias
    if not (np.isfinite(weights).all() and np.isfinite(bias).all()):
        return None
    rows = scope.types[x].elements // inner
    description = MatrixProduct(rows, inner, columns, epilogue=fused.epilogue)
    nodes = in_order(scope.graph, (*nodes, *fused.nodes))
    return HostKernel(description, {"x": x, **fused.inputs}, {"w": weights, "bias": bias}, nodes)


def _scaled(source: GraphPattern, private: bool = False) -> tuple[NodePattern, NodePattern]:
    """Describe a value times a number, and one divided by a number."""
    return (
        op(Binary("Mul"), source, number(), private=private, commutative=True),
        op(Binary("Div"), source, number(), private=private),
    )


def _operand(name: str) -> GraphPattern:
    """Describe a value with factors and a transpose that only the product reads."""
    inner = either(*_scaled(value(name), private=True), value(name))
    turned = op(Transpose, inner, capture=f"{name}_turned", private=True)
    return either(*_scaled(either(turned, inner), private=True), turned, inner)


def scaled_and_turned(product: NodePattern) -> tuple[NodePattern, ...]:
    """Describe a product with the nodes after it, most nodes first."""
    factors = _scaled(product)
    return (op(Transpose, either(*factors, product), capture="turned"), *factors, product)


LINKS = (op(Transpose), *_scaled(value()))
"""Nodes that a product may take along."""

PRODUCTS = scaled_and_turned(
    op(
        *(MatMul, _operand("a"), _operand("b")),
        capture="product",
        result=lambda kind: kind.dtype == "float32" and kind.elements > 0,
    )
)


@matcher(op(MatMul), *LINKS)
def attention(scope: HostScope, node: Node) -> HostKernel | None:
    """Match [Transposes, Mul], MatMul of two activations, [Mul], [Transpose], from any of them."""
    kernels = (_head_product(scope, match) for match in scope.around(node, *PRODUCTS))
    return next(filter(None, kernels), None)


def _factor(scope: HostScope, nodes: Iterable[Node]) -> float | None:
    """Return the number that nodes multiply by; None if one of them changes shapes.

    Nor may it be 0, which no other factor can undo.
    """
    factor = 1.0
    for node in nodes:
        if isinstance(node.attributes, Binary):
            x, constant = sorted(node.inputs, key=scope.is_constant)
            by = scalar(scope, constant)
            if by and node.attributes.kind == "Div":
                by = 1.0 / by
            if not by or not math.isfinite(by) or scope.shape(x) != node.output.type.shape:
                return None
            factor *= by
    return factor


def _view(scope: HostScope, name: str, turned: Transpose | None) -> np.ndarray:
    """View an array of a value's shape as a product reads it."""
    view = np.empty(scope.shape(name), np.int8)
    return view if turned is None else view.transpose(turned.permutation)


def _head_product(scope: HostScope, match: GraphMatch) -> HostKernel | None:
    """Make a kernel that reads and writes values in place; None if it cannot."""
    product, nodes, factor = match.named["product"], match.nodes, _factor(scope, match.nodes)
    shapes = [scope.shape(name) for name in product.inputs]
    if factor is None or min(map(len, shapes)) < 2 or all(map(scope.is_constant, product.inputs)):
        return None
    *lead, rows, columns = product.output.type.shape
    inner = shapes[0][-1]
    sources = match["a"], match["b"]
    views = [_view(scope, match[name], match[f"{name}_turned"]) for name in "ab"]
    out = np.empty(nodes[-1].output.type.shape, np.int8)
    if match["turned"] is not None:
        out = out.transpose(np.argsort(match["turned"].permutation))
    epilogue = Epilogue(("mul", "sum", factor), "float32")
    bound = tuple(n for n, name in zip("ab", sources, strict=True) if scope.is_constant(name))
    leads = [tuple(shape[:-2]) for shape in shapes]
    if math.prod(leads[1]) == 1 and match["turned"] is None and views[0].flags.c_contiguous:
        merged = math.prod(leads[0]) * rows
        flags = [
            joined_heads(views[1].reshape(inner, columns), 1, 1, inner, columns, turned)
            for turned in (False, True)
        ]
        if None in flags and False not in flags:
            return None
        extents = 1, 1, merged, inner, columns
        description = HeadProduct(*extents, flags[0] is None, epilogue=epilogue, bound=bound)
        return _kernel(scope, description, sources, nodes)
    for outer in dict.fromkeys((max(len(lead) - 1, 0), 0, *range(1, len(lead) + 1))):
        padded = [(1,) * (len(lead) - len(one)) + one for one in (*leads, tuple(lead))]
        *own, parts = ((one[:outer], one[outer:]) for one in padded)
        extents = [(math.prod(one[:outer]), math.prod(one[outer:])) for one in padded]
        left, right = ((pair[0] != parts[0], pair[1] != parts[1]) for pair in own)
        once = left, right
        sizes = itertools.chain(*extents[:2])
        if any(s and n > 1 for s, n in zip(itertools.chain(*once), sizes, strict=True)):
            continue  # only a part of its axes is broadcast
        for turned in (False, True):
            flags = (
                joined_heads(views[0], *extents[0], rows, inner),
                joined_heads(views[1], *extents[1], inner, columns, turned),
                joined_heads(out, *extents[2], rows, columns),
            )
            if None not in flags:
                joined = (bool(flags[0]), bool(flags[1]), bool(flags[2]))
                description = HeadProduct(
                    *(*extents[2], rows, inner, columns, turned, joined),
                    epilogue=epilogue,
                    once=once,
                    bound=bound,
                )
                return _kernel(scope, description, sources, nodes)
    return None


def _kernel(
    scope: HostScope, description: HeadProduct, names: tuple[str, str], nodes: tuple[Node, ...]
) -> HostKernel:
    """Make a kernel of two values, with constants in the kernel's shapes."""
    inputs, constants = {}, {}
    for operand, name in zip(description.operands, names, strict=True):
        data = scope.constant(name)
        if data is None:
            inputs[operand] = name
        else:
            constants[operand] = data.reshape(description.operands[operand].shape)
    return HostKernel(description, inputs, constants, nodes)


MATCHERS = (dense, attention)
