"""Matrix products in float32, with constant weights or of two activations."""

import itertools
import math
from dataclasses import dataclass

import numpy as np

from ..cpu import Epilogue, HeadProduct, MatrixProduct
from ..graph import Node, TensorType
from ..graph.operators import Binary, MatMul, Transpose
from ..rewriting import op, value
from .arrangement import joined_heads, view_of
from .graph_queries import in_order, per_column, scalar
from .kernel import HERE, HostKernel, HostScope, matcher
from .layers import with_followers

BY_CONSTANT = op(Binary, HERE, value("constant", constant=True), capture="step", commutative=True)


def is_matrix(kind: TensorType) -> bool:
    """Whether a non-empty float32 tensor is one matrix, apart from leading axes of 1."""
    shape = kind.shape
    whole = len(shape) >= 2 and kind.elements == shape[-2] * shape[-1] > 0
    return whole and kind.dtype == "float32"


@matcher(
    op(
        MatMul,
        value("x", constant=False, where=lambda kind: kind.elements > 0 and len(kind.shape) >= 2),
        value("w", constant=True, where=is_matrix),
    )
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


@dataclass(frozen=True, slots=True)
class Source:
    """Source of a product's operand: a value, the nodes after it, and a factor."""

    name: str
    nodes: tuple[Node, ...] = ()
    factor: float = 1.0


@matcher(op((MatMul, Transpose, Binary)))
def attention(scope: HostScope, node: Node) -> HostKernel | None:
    """Match [Transposes, Mul], MatMul of two activations, [Mul], [Transpose], from any of them."""
    product: Node | None = node
    while product is not None and not isinstance(product.attributes, MatMul):
        if not isinstance(product.attributes, Transpose) and _factor(scope, product) is None:
            return None
        product = scope.follower(product)
    if product is None or product.output.type.dtype != "float32":
        return None
    if all(map(scope.graph.is_constant, product.inputs)) or not product.output.type.elements:
        return None
    for kernel in _batched(scope, product):
        if kernel is not None and node in kernel.nodes:
            return kernel
    return None


def _factor(scope: HostScope, node: Node) -> float | None:
    """Return the number that a node multiplies by; None for 0, which no other factor can undo."""
    if not isinstance(node.attributes, Binary) or node.attributes.kind not in ("Mul", "Div"):
        return None
    numbers = [scalar(scope, name) for name in node.inputs]
    if node.attributes.kind == "Div":
        numbers = [None, 1.0 / numbers[1] if numbers[1] else None]
    known = [number for number in numbers if number and math.isfinite(number)]
    constants = [name for name in node.inputs if scope.graph.is_constant(name)]
    same = node.output.type.dtype == "float32" and len(constants) == 1
    return known[0] if len(known) == 1 and same else None


def _batched(scope: HostScope, product: Node):
    """Yield kernels for a product, those with more nodes first."""
    a, b = (_source(scope, name) for name in product.inputs)
    scaled = _after(scope, product, moves=False)
    turned = _after(scope, product, moves=True)
    plain = [Source(name) for name in product.inputs]
    for end in dict.fromkeys((turned, scaled, (product,))):
        for left in dict.fromkeys((a, plain[0])):
            for right in dict.fromkeys((b, plain[1])):
                yield _arranged(scope, product, left, right, end)


def _source(scope: HostScope, name: str) -> Source:
    """Trace an operand back through transposes and factors that have no other reader."""
    factor, nodes, turned = 1.0, [], False
    while scope.is_private(name) and (node := scope.producer(name)) is not None:
        number = _factor(scope, node)
        if number is not None:
            known = [scope.graph.is_constant(one) for one in node.inputs]
            factor, name = factor * number, node.inputs[known.index(False)]
            if scope.graph.types[name].shape != node.output.type.shape:
                return Source(node.output.name, tuple(nodes), factor / number)
        elif isinstance(node.attributes, Transpose) and not turned:
            name, turned = node.inputs[0], True
        else:
            break
        nodes.insert(0, node)
    return Source(name, tuple(nodes), factor)


def _after(scope: HostScope, product: Node, moves: bool) -> tuple[Node, ...]:
    """Return the product, the factor after it and, if `moves`, the transpose after it."""
    found = [product]
    for wanted in (_factor, None):
        node = scope.follower(found[-1])
        if node is None:
            break
        if wanted is not None and _factor(scope, node) is not None:
            if node.output.type.shape == product.output.type.shape:
                found.append(node)
        elif moves and isinstance(node.attributes, Transpose):
            found.append(node)
            break
    return tuple(found)


def _arranged(
    scope: HostScope, product: Node, a: Source, b: Source, end: tuple[Node, ...]
) -> HostKernel | None:
    """Make a kernel that reads and writes values in place; None if it cannot."""
    types = scope.graph.types
    shapes = [types[name].shape for name in product.inputs]
    if min(map(len, shapes)) < 2:
        return None
    *lead, rows, columns = product.output.type.shape
    inner = shapes[0][-1]
    views = [
        view_of(types[source.name].shape, source.nodes, shape)
        for source, shape in zip((a, b), shapes, strict=True)
    ]
    moves = [node for node in reversed(end) if isinstance(node.attributes, Transpose)]
    out = np.empty(end[-1].output.type.shape, np.int8)
    for move in moves:
        assert isinstance(move.attributes, Transpose)
        out = out.transpose(np.argsort(move.attributes.permutation))
    factor = a.factor * b.factor
    for node in end[1:]:
        factor *= _factor(scope, node) or 1.0
    epilogue = Epilogue(("mul", "sum", factor), "float32")
    nodes = in_order(scope.graph, (*a.nodes, *b.nodes, *end))
    bound = tuple(n for n, one in (("a", a), ("b", b)) if scope.graph.is_constant(one.name))
    leads = [tuple(shape[:-2]) for shape in shapes]
    if math.prod(leads[1]) == 1 and not moves and views[0].flags.c_contiguous:
        merged = math.prod(leads[0]) * rows
        flags = [
            joined_heads(views[1].reshape(inner, columns), 1, 1, inner, columns, turned)
            for turned in (False, True)
        ]
        if None in flags and False not in flags:
            return None
        extents = 1, 1, merged, inner, columns
        description = HeadProduct(*extents, flags[0] is None, epilogue=epilogue, bound=bound)
        return _kernel(scope, description, (a.name, b.name), nodes)
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
                return _kernel(scope, description, (a.name, b.name), nodes)
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
