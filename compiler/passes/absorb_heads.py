"""Let matrix products read and write heads in place, so that attention moves no data for them.

A network reshapes channels to heads and transposes the heads to the front, for each operand, and
back for the result. A QMatMul accepts heads side by side in the channels, and a transposed operand.
"""

from collections.abc import Iterable
from dataclasses import replace
from math import prod

import numpy as np

from ..graph import Graph
from ..graph import operators as ops
from ..rewriting import Rule, Site, op, rewrite, rule, rule_of, value
from .arrange_layout import drop_same_shape, inverse, merge_reshapes
from .choose_channels import channels_by_row, choose_channels
from .moved_elements import TURNS, moved_elements, moving_nodes
from .patterns import reshaped

SWAP_HEADS = ops.Transpose((0, 2, 1, 3))
"""[N, rows, heads, channels] <-> [N, heads, rows, channels]."""

SWAP_LAST = ops.Transpose((0, 1, 3, 2))
"""[N, heads, rows, channels] -> [N, heads, channels, rows]."""

SWAP_BOTH = ops.Transpose((0, 2, 3, 1))
"""[N, rows, heads, channels] -> [N, heads, channels, rows]."""

COLUMNS_FIRST = ops.Transpose((0, 3, 1, 2))
"""[N, heads, rows, columns] -> [N, columns, heads, rows]."""

UNMOVED = ops.Transpose((0, 1, 2, 3))

KNOWN = ((SWAP_HEADS,), (SWAP_HEADS, SWAP_LAST, SWAP_BOTH))
"""Transposes that the attributes can express, for the first and the second operand."""


PRODUCTS = (ops.QMatMul, ops.QMatMulSums)


def _absorb_operand(index: int) -> Rule:
    """Return the rule that moves Transposes of one operand into the attributes."""

    @rule_of(PRODUCTS, value(), value(), capture="product", where=lambda p: not p.joined[index])
    def absorb(site: Site, product: ops.QMatMul | ops.QMatMulSums) -> str | None:
        """QMatMul(x moved to heads, b) -> QMatMul(Reshape(x), b), in any form of movement."""
        joined, inputs = [*product.joined], [*site.root.inputs]
        x, places = moved_elements(site.view, inputs[index], TURNS)
        turn = _turn_of(places, KNOWN[index])
        if turn is None:
            turn = _turn_of_runs(places, KNOWN[index])
            if turn is None:
                return None
            x = site.emit(ops.Transpose(inverse(turn.permutation)), inputs[index])
        n, heads, rows, columns = places.shape
        if turn != SWAP_HEADS:
            rows, columns = columns, rows
        kept = (n, heads, rows, columns) if turn == SWAP_LAST else (n, 1, rows, heads * columns)
        inputs[index] = reshaped(site, x, kept)
        joined[index] = turn != SWAP_LAST
        transposed = product.transposed != (turn != SWAP_HEADS)
        changed = replace(product, transposed=transposed, joined=(joined[0], joined[1], joined[2]))
        return site.become(changed, *inputs)

    return absorb


def _turn_of(places: np.ndarray, turns: Iterable[ops.Transpose]) -> ops.Transpose | None:
    """Return the Transpose that moves elements to these places; None if they stay."""
    for turn in (UNMOVED, *turns):
        if np.array_equal(places, _turned(places.shape, turn)):
            return None if turn == UNMOVED else turn
    return None


def _turn_of_runs(places: np.ndarray, turns: Iterable[ops.Transpose]) -> ops.Transpose | None:
    """Return the Transpose behind which rows are whole, if they themselves are moved."""
    if (np.diff(places.ravel()) == 1).all():
        return None
    for turn in turns:
        before = places.transpose(inverse(turn.permutation))
        rows = before.reshape(-1, before.shape[3] * (1 if turn == SWAP_LAST else before.shape[2]))
        if rows.shape[1] > places.shape[3] and (np.diff(rows) == 1).all():
            return turn
        if turn == SWAP_LAST and (np.diff(rows) == 1).all() and (np.diff(places) != 1).any():
            return turn
    return None


def _turned(shape: tuple[int, ...], turn: ops.Transpose) -> np.ndarray:
    """Return the places from which a Transpose takes the elements of its result."""
    given = tuple(shape[turn.permutation.index(axis)] for axis in range(4))
    return np.arange(prod(shape)).reshape(given).transpose(turn.permutation)


@rule(op(TURNS, ...))
def absorb_result(site: Site) -> str | None:
    """Heads of QMatMul(a, b) moved side by side -> Reshape(QMatMul(a, b)), in any form.

    If rows and columns are swapped, too, and `b` is transposed, it becomes QMatMul(b, a).
    """
    chain = moving_nodes(site.view, site.root.output.name, TURNS)
    made = site.view.producer(chain[0].inputs[0])
    if made is None or not isinstance(made.attributes, ops.QMatMul) or made.attributes.joined[2]:
        return None
    source, places = moved_elements(site.view, site.root.output.name, TURNS)
    n, heads, rows, columns = site.shape_of(source)
    side_by_side = _turned((n, rows, heads, columns), SWAP_HEADS)
    rows_first = n > 1 and np.array_equal(places.ravel(), side_by_side.swapaxes(0, 1).ravel())
    alone = all(site.view.is_private(node.inputs[0]) for node in chain)
    found = rows_first or np.array_equal(places.ravel(), side_by_side.ravel())
    found &= 1 not in (heads, rows)
    product, inputs = made.attributes, made.inputs
    first, second, _ = product.joined
    if product.transposed and product.repeats == 1 and 1 not in (rows, columns) and not found:
        swapped = _turned((n, columns, heads, rows), COLUMNS_FIRST)
        found = np.array_equal(places.ravel(), swapped.ravel())
        product = replace(
            product, zero_point_a=product.zero_point_b, zero_point_b=product.zero_point_a
        )
        first, second, inputs = second, first, inputs[::-1]
    if not alone or not found:
        return None
    joined = replace(product, joined=(first, second, True))
    kind = made.output.type.quantisation
    result = site.emit(joined, *inputs, label=made.name, quantisation=kind)
    if rows_first:
        images = site.emit(ops.Reshape((n, rows, heads * columns)), result)
        result = site.emit(ops.Transpose((1, 0, 2)), images)
    return site.emit(ops.Reshape(site.shape), result)


@rule(op(PRODUCTS, value("a"), value("b"), capture="product", where=lambda p: not p.joined[1]))
def absorb_repeats(
    site: Site, product: ops.QMatMul | ops.QMatMulSums, a: str, b: str
) -> str | None:
    """QMatMul(a, b with each head several times) -> QMatMul(a, b), in any form of repetition."""
    if product.by_head:
        return None
    source, places = moved_elements(site.view, b)
    repeats, rest = divmod(places.size, site.elements_of(source))
    n, heads, rows, columns = places.shape
    if rest or repeats < 2 or heads % repeats or (n > 1 and any(product.joined)):
        return None
    whole = places.reshape(n, heads // repeats, repeats, rows, columns)
    apart = n, heads // repeats, rows, columns
    for turn in (UNMOVED, *KNOWN[1]):
        if np.array_equal(whole, np.broadcast_to(_turned(apart, turn)[:, :, None], whole.shape)):
            shape = tuple(apart[turn.permutation.index(axis)] for axis in range(4))
            kept = site.emit(ops.Reshape(shape), source)
            if turn != UNMOVED:
                kept = site.emit(turn, kept)
            return site.become(replace(product, repeats=product.repeats * repeats), a, kept)
    return None


@rule(op(PRODUCTS, op(ops.Reshape, value("a")), value("b"), capture="product",
         where=lambda p: p.repeats == 1 and not any((p.by_head, *p.joined[::2]))))  # fmt: skip
def part_rows(site: Site, product: ops.QMatMul | ops.QMatMulSums, a: str, b: str) -> str | None:
    """QMatMul(rows of several heads, b) -> QMatMul(a, b) of heads that share b."""
    (n, shared, long, depth), shape = site.shape_of(site.root.inputs[0]), site.shape_of(a)
    if n == 1 < long and shape == (1, 1, 1, shared * long * depth):  # heads of a single row
        joined = True, *product.joined[1:]
        operator = replace(product, heads=shared * long, repeats=long, joined=joined)
        result = site.emit(operator, a, b, quantisation=site.root.output.type.quantisation)
        return site.emit(ops.Reshape(site.shape), result)
    if len(shape) != 4 or shape[0] != n or shape[3] != depth or shape[1] % shared:
        return None
    if n > 1 and any(product.joined):
        return None
    repeats = shape[1] // shared
    if repeats < 2 or shape[2] * repeats != long:
        return None
    operator = replace(product, heads=shape[1], repeats=repeats)
    result = site.emit(operator, a, b, quantisation=site.root.output.type.quantisation)
    return site.emit(ops.Reshape(site.shape), result)


@rule(op(PRODUCTS, value("a"), value("b"), capture="product"))
def absorb_channels(
    site: Site, product: ops.QMatMul | ops.QMatMulSums, a: str, b: str
) -> str | None:
    """QMatMul(channels of rows in any order, b) -> QMatMul(rows, b): q, k and v of one layer."""
    for index, name in enumerate((a, b)):
        if product.joined[index]:
            continue
        source, places = moved_elements(site.view, name)
        if source == name or (len(places) > 1 and product.repeats > 1):
            continue
        for turned in (False, True)[: 1 + index]:
            rows = places.swapaxes(2, 3) if turned else places
            n, heads, count, size = rows.shape
            stride = site.elements_of(source) // (n * count)
            if site.shape_of(source)[-1:] != (stride,):
                continue
            whole = rows.swapaxes(1, 2).reshape(n * count, heads * size)
            order = channels_by_row(whole, n * count, stride)
            if order is None:
                continue
            image = site.emit(ops.Reshape((n, 1, count, stride)), source)
            x = _channels(site, source, image, order)
            joined, inputs = [*product.joined], [a, b]
            joined[index], inputs[index] = True, x
            transposed = product.transposed != turned
            changed = replace(
                product, transposed=transposed, joined=(joined[0], joined[1], joined[2])
            )
            return site.become(changed, *inputs)
    return None


def _channels(site: Site, source: str, image: str, order: np.ndarray) -> str:
    """Emit channels of an image: itself, a part of it that lies together, or any others."""
    n, _, rows, channels = site.shape_of(image)
    first, count = int(order[0]), len(order)
    if not np.array_equal(order, np.arange(first, first + count)):
        point = site.quantisation_of(source)
        chosen = choose_channels(site, source, order, point.zero_point if point else 0, "chosen")
        return site.emit(ops.Reshape((n, 1, rows, count)), chosen)
    if count == channels:
        return image
    return site.emit(ops.QSlice((0, 0, 0, first), (n, 1, rows, first + count), (1, 1, 1, 1)), image)


def share_heads(graph: Graph) -> Graph:
    """Let products read heads that others share, and parts of rows, instead of copies.

    Kernels of the host have no such form.
    """
    graph = rewrite(graph, absorb_repeats, part_rows, merge_reshapes, drop_same_shape)
    return rewrite(absorb_heads(graph), absorb_channels, merge_reshapes, drop_same_shape)


def absorb_heads(graph: Graph) -> Graph:
    """Replace Transposes around QMatMul by its attributes."""
    return rewrite(graph, *map(_absorb_operand, (0, 1)), absorb_result)
