"""Bring forms of attention that exporters write to the one that other passes recognise.

All of the laws hold for float values, but for rounding, so that the quantiser needs them as much as
the front end.
"""

import numpy as np

from ..graph import Graph
from ..graph import operators as ops
from ..rewriting import Site, either, number, op, repeated, rewrite, rule, rule_of, value
from .arrange_layout import drop_identity, merge_transposes, transpose_to_reshape
from .masks import EXCLUDED
from .patterns import is_float32, known, known_data

ADD, MULTIPLY, DIVIDE = map(ops.Binary, ("Add", "Mul", "Div"))


# Softmax -----------------------------------------------------------------------------------------

_X = value("x", where=is_float32)
_MAXIMUM = op(ops.Reduce, _X, capture="maximum", where=lambda r: r.kind == "ReduceMax" and r.keep)
_EXPONENTIALS = op(ops.Unary("Exp"), either(op(ops.Binary("Sub"), _X, _MAXIMUM), _X), value="e")
_TOTAL = op(ops.Reduce, _EXPONENTIALS, capture="total",
            where=lambda r: r.kind == "ReduceSum" and r.keep)  # fmt: skip


@rule(
    op(DIVIDE, _EXPONENTIALS, _TOTAL),
    op(MULTIPLY, _EXPONENTIALS, op(ops.Unary("Reciprocal"), _TOTAL), commutative=True),
)
def name_softmax(site: Site, x: str, maximum: ops.Reduce | None, total: ops.Reduce) -> str | None:
    """exp(x - max(x)) / sum(exp(x - max(x))) -> Softmax(x)."""
    if len(total.axes) != 1 or (maximum is not None and maximum.axes != total.axes):
        return None
    axis = total.axes[0] % len(site.shape)
    return site.emit(ops.Softmax(axis, axis + 1), x)


# Masks -------------------------------------------------------------------------------------------

_GIVEN = value("given", where=is_float32)
_TRUTH = op(ops.Cast("bool"), _GIVEN, value="truth")


@rule(op(ops.Where, _TRUTH, value("chosen"), _GIVEN))
def name_zero(site: Site, truth: str, chosen: str) -> str:
    """Where(x != 0, a, x) -> Where(x != 0, a, 0)."""
    zero = site.constant(np.zeros((), np.float32), f"{site.root.name}.zero")
    return site.emit(ops.Where(), truth, chosen, zero)


@rule(op(ADD, value("x", constant=False), value("added", constant=True, where=is_float32),
         commutative=True))  # fmt: skip
def part_mask(site: Site, x: str, added: str) -> str | None:
    """x + c -> x + b + m, where c has a mask m and a bias b in one."""
    data = site.data(added)
    masked = data <= EXCLUDED
    if not masked.any() or not data[~masked].any():
        return None
    label = site.root.name
    bias, mask = (
        site.constant(np.where(chosen, data, np.float32(0)), f"{label}.{name}")
        for chosen, name in ((~masked, "bias"), (masked, "mask"))
    )
    return site.emit(ADD, site.emit(ADD, x, bias), mask)


# Products ----------------------------------------------------------------------------------------

_PRODUCT = op(ops.MatMul, value(), value(constant=True), value="product", private=True)
_SPLIT = op(ops.Reshape, _PRODUCT, capture="split", private=True)


@rule(op(ADD, _SPLIT, known("bias"), result=is_float32, commutative=True))
def bias_rows(site: Site, product: str, split: ops.Reshape, bias: str) -> str | None:
    """Reshape(x W) + b -> Reshape(x W + b), where the channels of W become several axes."""
    data, channels = known_data(site.view, bias), site.shape_of(product)[-1]
    if data is None or site.shape != split.shape:
        return None
    ends = [n for n in range(1, len(split.shape) + 1) if np.prod(split.shape[-n:]) == channels]
    own = data.reshape((1,) * (len(split.shape) - data.ndim) + data.shape)
    count = next((n for n in ends if max(own.shape[:-n], default=1) == 1), 0)
    if not count:
        return None
    whole = np.broadcast_to(own.reshape(own.shape[-count:]), split.shape[-count:]).reshape(-1)
    constant = site.constant(np.ascontiguousarray(whole), f"{site.root.name}.bias")
    return site.emit(split, site.emit(ADD, product, constant))


_FACTOR = number("factor")
_MOVED = repeated(
    op((ops.Reshape, ops.Transpose), value(), private=True),
    either(
        op(MULTIPLY, value("x", constant=False), _FACTOR, private=True, commutative=True),
        op(DIVIDE, value("x", constant=False), _FACTOR, capture="over", private=True),
    ),
    "moves",
)
_OTHER = value("other", constant=False)


@rule(
    op(ops.MatMul, _MOVED, _OTHER, result=is_float32),
    op(ops.MatMul, _OTHER, _MOVED, capture="second", result=is_float32),
)
def scale_product(
    site: Site, x: str, factor: float, over: ops.Binary | None, moves: tuple[ops.Operator, ...],
    other: str, second: ops.MatMul | None
) -> str:  # fmt: skip
    """MatMul(f * q, k) -> f * MatMul(q, k): behind a product, a factor costs nothing."""
    for move in reversed(moves):
        x = site.emit(move, x)
    product = site.emit(site.root.attributes, *((other, x) if second else (x, other)))
    number = site.constant(np.array(factor, np.float32), f"{site.root.name}.factor")
    return site.emit(over or MULTIPLY, product, number)


@rule(op(MULTIPLY, op(MULTIPLY, value("x", constant=False), _FACTOR, private=True),
         number("again"), commutative=True))  # fmt: skip
def join_factors(site: Site, x: str, factor: float, again: float) -> str:
    """(x * f) * g -> x * (f * g)."""
    whole = site.constant(np.array(factor * again, np.float32), f"{site.root.name}.factor")
    return site.emit(MULTIPLY, x, whole)


_PLAIN = op(
    ops.MatMul, value("a", constant=False), value("b", constant=False), private=True
)  # fmt: skip


@rule_of(
    ops.Transpose,
    either(_PLAIN, op(MULTIPLY, _PLAIN, _FACTOR, private=True, commutative=True)),
    capture="turn",
    result=is_float32,
)
def turn_product(
    site: Site, a: str, b: str, factor: float | None, turn: ops.Transpose
) -> str | None:
    """Transpose(MatMul(a, b)) -> MatMul(Transpose(b), Transpose(a)), of the last two axes."""
    rank = len(site.shape)
    if rank < 3 or turn.permutation != (*range(rank - 2), rank - 1, rank - 2):
        return None
    if len(site.shape_of(a)) != rank or len(site.shape_of(b)) != rank:
        return None
    product = site.emit(ops.MatMul(), site.emit(turn, b), site.emit(turn, a))
    if factor is None:
        return product
    number = site.constant(np.array(factor, np.float32), f"{site.root.name}.factor")
    return site.emit(MULTIPLY, product, number)


# Movements ---------------------------------------------------------------------------------------


@rule(op(ops.Concat, capture="concat"))
def drop_empty(site: Site, concat: ops.Concat) -> str | None:
    """Concat(x, empty) -> x."""
    names = site.root.inputs
    kept = [name for name in names if site.elements_of(name)]
    if len(kept) == len(names) or not kept:
        return None
    return kept[0] if len(kept) == 1 else site.emit(concat, *kept)


FORMS = (
    name_softmax, name_zero, bias_rows, turn_product, drop_empty,
    merge_transposes, drop_identity, transpose_to_reshape,
)  # fmt: skip


def plain_attention(graph: Graph) -> Graph:
    """Write softmax, masks, biases and movements of attention plainly."""
    return rewrite(graph, *FORMS)


def plain_attention_to_quantise(graph: Graph) -> Graph:
    """Write attention plainly, with factors behind products, and biases apart from masks."""
    return rewrite(graph, *FORMS, scale_product, join_factors, part_mask)
