"""Bring forms of attention that exporters write to the one that other passes recognise.

All of the laws hold for float values, but for rounding, so that the quantiser needs them as much as
the front end.
"""

import math

import numpy as np

from ..graph import Graph
from ..graph import operators as ops
from ..rewriting import (
    Site,
    computed,
    constant,
    either,
    number,
    op,
    repeated,
    rewrite,
    rule,
    rule_of,
    value,
)
from .arrange_layout import drop_identity, merge_transposes, transpose_to_reshape
from .masks import EXCLUDED, excluded, excludes, excludes_unless
from .patterns import is_float32, known, known_data
from .plain_norms import SUMS, join_scales, norm_of_integers, norm_of_rows
from .shift_rows import shift_by_pitch
from .static_caches import keep_caches_apart

MAX_SPREAD = 1 << 20
"""Elements of a matrix that repeats columns."""

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


@rule(op(ADD, computed("x"), constant("added", where=is_float32),
         commutative=True))  # fmt: skip
def part_mask(site: Site, x: str, added: str) -> str | None:
    """x + c -> x + b + m, where c has a mask m and a bias b in one."""
    data = site.data(added)
    masked = excluded(data)
    if not masked.any() or not data[~masked].any():
        return None
    label = site.root.name
    bias, mask = (
        site.constant(np.where(chosen, data, np.float32(0)), f"{label}.{name}")
        for chosen, name in ((~masked, "bias"), (masked, "mask"))
    )
    return site.emit(ADD, site.emit(ADD, x, bias), mask)


_MASKED = op(ADD, computed("x"), constant("mask"), private=True,
             commutative=True)  # fmt: skip


@rule(op(MULTIPLY, _MASKED, number("factor"), result=is_float32, commutative=True))
def scale_mask(site: Site, x: str, mask: str, factor: float) -> str | None:
    """(x + m) * f -> x * f + m * f, where m is a mask."""
    data = site.data(mask)
    if not excluded(data).any() or factor <= 0:
        return None
    number_ = site.constant(np.array(factor, np.float32), f"{site.root.name}.factor")
    scaled = np.where(excluded(data), data, data * np.float32(factor))
    shift = site.constant(scaled, f"{site.root.name}.mask")
    return site.emit(ADD, site.emit(MULTIPLY, x, number_), shift)


@rule(op(ADD, op(ADD, computed("x"), constant("one"), private=True,
                 commutative=True),
         constant("other"), result=is_float32, commutative=True))  # fmt: skip
def join_addends(site: Site, x: str, one: str, other: str) -> str | None:
    """(x + a) + b -> x + (a + b), if both have masks; (x + m) + b -> (x + b) + m, with a mask m."""
    data = [site.data(name) for name in (one, other)]
    masked = [excluded(each).any() for each in data]
    if not any(masked):
        return None
    if not all(masked) and excludes(site.view, one if masked[0] else other):
        return site.emit(ADD, site.emit(ADD, x, other), one) if masked[0] else None
    return site.emit(ADD, x, site.constant(data[0] + data[1], f"{site.root.name}.addends"))


@rule(op(ops.Binary("Sub"), computed("x"), value("y"), result=is_float32))
def add_mask(site: Site, x: str, y: str) -> str | None:
    """x - y -> x + -y, where -y is a mask."""
    if not excludes(site.view, y, sign=-1):
        return None
    if site.is_constant(y):
        return site.emit(ADD, x, site.constant(-site.data(y), f"{site.root.name}.mask"))
    sign = site.constant(np.array(-1, np.float32), f"{site.root.name}.sign")
    return site.emit(ADD, x, site.emit(MULTIPLY, y, sign))


_ONE = op(ADD, op(MULTIPLY, computed("x"), value("chosen", where=is_float32), private=True,
                  commutative=True),
          value("mask"), private=True, commutative=True)  # fmt: skip


@rule(op(ops.Softmax, either(_ONE, op(ADD, _ONE, value("more"), commutative=True))))
def mask_once(site: Site, x: str, chosen: str, mask: str, more: str | None) -> str | None:
    """x * c + m -> x + m before a softmax, where c is 0 if m is a mask, else 1, as in GPT-2."""
    if site.is_constant(chosen) and site.is_constant(mask):
        masked, factors = excluded(site.data(mask)), site.data(chosen)
        same = masked.shape == factors.shape and np.array_equal(factors, ~masked)
        same = same and excludes(site.view, mask)
    else:
        same = excludes_unless(site.view, chosen, mask)
    if not same:
        return None
    scores = site.emit(ADD, x, mask)
    return site.emit(site.root.attributes, site.emit(ADD, scores, more) if more else scores)


@rule(op(ADD, computed("x"), op(ADD, value("a"), computed("mask"), commutative=True),
         result=is_float32, commutative=True))  # fmt: skip
def mask_last(site: Site, x: str, a: str, mask: str) -> str | None:
    """x + (a + m) -> (x + a) + m, where m is a mask, and x and a are none, as in T5."""
    if not excludes(site.view, mask) or any(excludes(site.view, each) for each in (x, a)):
        return None
    return site.emit(ADD, site.emit(ADD, x, a), mask)


_ONCE = op(ADD, computed("x"), value("mask"), private=True, commutative=True)
_KEPT = op(ops.Where, value("kept"), computed("x"), number("fill"), private=True)
_DROPPED = op(ops.Where, value("dropped"), number("fill"), computed("x"), private=True)


@rule(op(ADD, either(_ONCE, _KEPT, _DROPPED), computed("other"), result=is_float32,
         commutative=True))  # fmt: skip
def join_masks(
    site: Site, x: str, mask: str | None, kept: str | None, dropped: str | None,
    fill: float | None, other: str
) -> str | None:  # fmt: skip
    """(x + m) + n | Where(c, x, -inf) + n -> x + (m + n), where m and n are masks."""
    if not excludes(site.view, other) or excludes(site.view, x):
        return None
    if condition := kept or dropped:
        if fill is None or fill > EXCLUDED:
            return None
        zero, least = (site.constant(np.array(n, np.float32), f"{site.root.name}.{n}")
                       for n in (0, fill))  # fmt: skip
        mask = site.emit(ops.Where(), condition, *((zero, least) if kept else (least, zero)))
    if mask is None or not excludes(site.view, mask):
        return None
    return site.emit(ADD, x, site.emit(ADD, mask, other))


@rule(op(ops.Reshape,
         op(ADD, op(ops.Reshape, computed("x"), private=True),
            constant("added"), value="sum", private=True, commutative=True),
         result=is_float32))  # fmt: skip
def add_in_place(site: Site, x: str, added: str, sum: str) -> str | None:
    """Reshape(Reshape(x) + c) -> x + c, as masks of windows are added."""
    if site.shape_of(x) != site.shape:
        return None
    data = np.broadcast_to(site.data(added), site.shape_of(sum)).reshape(site.shape)
    for axis in range(data.ndim):
        one = data.take([0], axis)
        data = one if (data == one).all() else data
    constant = site.constant(np.ascontiguousarray(data), f"{site.root.name}.added")
    return site.emit(ADD, x, constant)


@rule(op(ADD, computed("x"), computed("small"), result=is_float32,
         commutative=True))  # fmt: skip
def spread_addend(site: Site, x: str, small: str) -> str | None:
    """x + y of fewer columns or rows of keys -> x + y E, where E repeats them, as in MViTv2."""
    shape, given = site.shape_of(x), site.shape_of(small)
    if len(shape) < 5 or len(given) != len(shape) or shape != site.shape or given == shape:
        return None
    lead = next(axis for axis in range(len(shape)) if shape[axis] != given[axis])
    while lead > 3 and given[lead - 1] == shape[lead - 1]:
        lead -= 1
    tails = given[lead:], shape[lead:]
    rows, columns = map(math.prod, tails)
    if lead < 2 or rows * columns > MAX_SPREAD:
        return None
    places = np.broadcast_to(np.arange(rows).reshape(tails[0]), tails[1]).ravel()
    spread = np.eye(rows, dtype=np.float32)[:, places]
    flat = site.emit(ops.Reshape((*shape[:lead], rows)), small)
    whole = site.emit(ops.MatMul(), flat, site.constant(spread, f"{site.root.name}.spread"))
    return site.emit(ADD, x, site.emit(ops.Reshape(shape), whole))


@rule(op(ADD, op(ops.Transpose, value("x"), capture="turn"),
         constant("added"), result=is_float32, commutative=True))  # fmt: skip
def add_before_turn(site: Site, x: str, turn: ops.Transpose, added: str) -> str | None:
    """Transpose(x) + c of heads -> Transpose(x + c)."""
    rank = len(site.shape)
    if turn.permutation != (0, 2, 1, 3):
        return None
    data = site.data(added)
    whole = data.reshape((1,) * (rank - data.ndim) + data.shape).transpose(turn.permutation)
    constant = site.constant(np.ascontiguousarray(whole), f"{added}.turned")
    return site.emit(turn, site.emit(ADD, x, constant))


# Products ----------------------------------------------------------------------------------------

_PRODUCT = op(ops.MatMul, value(), constant(), value="product", private=True)


@rule(op(ADD, op(ADD, _PRODUCT, computed("other"), private=True, commutative=True), known("bias"),
         result=is_float32, commutative=True))  # fmt: skip
def bias_first(site: Site, product: str, other: str, bias: str) -> str | None:
    """(x W + y) + b -> (x W + b) + y, as SkipLayerNormalization adds the bias of the layer."""
    if len(site.shape_of(bias)) != 1 or site.shape_of(product) != site.shape:
        return None
    return site.emit(ADD, site.emit(ADD, product, bias), other)


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


@rule(op(ops.MatMul, computed("x"), constant("w"), result=is_float32))
def spread_matrices(site: Site, x: str, w: str) -> str | None:
    """MatMul(x, w) of heads -> MatMul(x, w), with a matrix for each head."""
    outer, held = site.shape_of(x)[:-2], site.shape_of(w)
    if held[:-2] == outer or len(outer) < 1 or len(held) > len(outer) + 2:
        return None
    if len(held) == 2 and not _has_heads(site, x):
        return None
    if site.shape[:-2] != outer:
        return None
    whole = np.broadcast_to(site.data(w), (*outer, *held[-2:]))
    return site.emit(ops.MatMul(), x, site.constant(np.ascontiguousarray(whole), f"{w}.heads"))


def _has_heads(site: Site, x: str) -> bool:
    """Tell whether rows are those of heads, transposed, perhaps with a bias."""
    made = site.view.producer(x)
    if made is not None and isinstance(made.attributes, ops.Binary):
        made = next(filter(None, map(site.view.producer, made.inputs)), None)
    turn = made.attributes if made is not None else None
    return isinstance(turn, ops.Transpose) and turn.permutation == (0, 2, 1, 3)


@rule(op(ops.MatMul, computed("x"), constant("turn"), result=is_float32))
def partners_of_a_product(site: Site, x: str, turn: str) -> str | None:
    """x R -> chosen channels of x * signs, where each column of R has one 1 or -1, as in rotary."""
    data = site.data(turn)
    places = np.abs(data).argmax(0) if data.ndim == 2 else np.zeros(0, np.int64)
    signs = data.sum(0)
    if not places.size or not (signs < 0).any() or {*np.abs(data).sum(0).tolist()} != {1}:
        return None
    if not (np.abs(signs) == 1).all():
        return None
    held = site.constants(site.root.name, places=places, signs=signs.astype(np.float32))
    chosen = site.emit(ops.Gather(len(site.shape) - 1), x, held[0])
    return site.emit(MULTIPLY, chosen, held[1])


_FACTOR = number("factor")
_MOVED = repeated(
    op((ops.Reshape, ops.Transpose), value(), private=True),
    either(
        op(MULTIPLY, computed("x"), _FACTOR, private=True, commutative=True),
        op(DIVIDE, computed("x"), _FACTOR, capture="over", private=True),
    ),
    "moves",
)
_OTHER = computed("other")


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


@rule(op(MULTIPLY, op(MULTIPLY, computed("x"), _FACTOR, private=True),
         number("again"), commutative=True))  # fmt: skip
def join_factors(site: Site, x: str, factor: float, again: float) -> str:
    """(x * f) * g -> x * (f * g)."""
    whole = site.constant(np.array(factor * again, np.float32), f"{site.root.name}.factor")
    return site.emit(MULTIPLY, x, whole)


_PLAIN = op(
    ops.MatMul, computed("a"), computed("b"), private=True
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


@rule(op(ops.Concat, capture="concat", result=is_float32))
def pad_by_zeros(site: Site, concat: ops.Concat) -> str | None:
    """Concat(0, x) | Concat(x, 0) -> Pad(x)."""
    names, axis = site.root.inputs, concat.axis
    given = [name for name in names if not site.is_constant(name)]
    zeros = [name for name in names if site.is_constant(name)]
    if len(given) != 1 or not zeros or any(site.data(name).any() for name in zeros):
        return None
    place = names.index(given[0])
    sides = names[:place], names[place + 1 :]
    before, after = (
        tuple(
            sum(site.shape_of(name)[axis] for name in side) if i == axis else 0
            for i in range(len(site.shape))
        )
        for side in sides
    )
    return site.emit(ops.Pad(before, after, 0.0), given[0])


@rule(op(ops.Concat, op(ops.Slice, value("x"), capture="one"),
         op(ops.Slice, value("x"), capture="other"), capture="concat"))  # fmt: skip
def name_roll(
    site: Site, x: str, one: ops.Slice, other: ops.Slice, concat: ops.Concat
) -> str | None:
    """Concat(x[k:], x[:k]) -> Gather(x) along an axis, as Swin's windows are shifted."""
    axis, shape = concat.axis, site.shape_of(x)
    if site.shape != shape or len(site.root.inputs) != 2:
        return None
    places = np.arange(shape[axis])
    cuts = (slice(cut.starts[axis], cut.stops[axis], cut.steps[axis]) for cut in (one, other))
    places = np.concatenate([places[cut] for cut in cuts])
    if not np.array_equal(places, np.roll(np.arange(shape[axis]), -places[0])) or not places[0]:
        return None
    return site.emit(ops.Gather(axis), x, site.constant(places, f"{site.root.name}.places"))


FORMS = (
    name_softmax, name_zero, bias_first, bias_rows, turn_product, drop_empty,
    merge_transposes, drop_identity, transpose_to_reshape, add_in_place, add_mask, mask_once, *SUMS,
)  # fmt: skip


def plain_attention(graph: Graph) -> Graph:
    """Write softmax, norms, masks, biases and movements of attention plainly."""
    return rewrite(graph, *FORMS, norm_of_integers)


def plain_attention_to_quantise(graph: Graph) -> Graph:
    """Write attention plainly, with factors behind products, and biases apart from masks."""
    graph = rewrite(graph, keep_caches_apart, join_addends, *FORMS)
    return rewrite(
        graph,
        *FORMS,
        *(scale_product, join_factors, scale_mask, part_mask, pad_by_zeros, name_roll),
        *(mask_last, join_masks, add_before_turn, spread_addend, join_scales, norm_of_rows),
        *(partners_of_a_product, spread_matrices, shift_by_pitch),
    )
