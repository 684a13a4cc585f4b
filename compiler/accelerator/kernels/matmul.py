"""Matrix products of two activations: the second operand replaces the weights.

Zero points cost sums of rows and columns (`zero_points`): a column of ones multiplies `a`, and a
row of ones, read as padding below `a`, multiplies `b` along with the other rows.

If these do not fit, the array itself subtracts the zero points. `(a - za) * (b - zb)` expands to a
sum of products. The constant factors `-za` and `-zb` are read as padding, from outside the tensors.
There are two forms. With two axes, each axis leads one operand off its edge, and padding is also
multiplied by padding. With one axis, `b` is off its edge at the start and `a` at the end, and both
operands must be loaded more than once. All forms are exact and need more products. A zero point of
0 costs nothing.
"""

import math

import numpy as np

from ....aligned import round_up
from ....errors import UnfitError
from ....isa.configuration import Configuration, Memory
from ....isa.durations import tile_cycles
from ... import te
from ...graph import QMatMul
from ...graph.operators import Multiplying
from ...tensor import Kernel
from ..strided_copy import LATENCY_CYCLES
from .common import StoredNode, kernel_of, requantised, scalars, stored, sums
from .zero_points import DIGIT_CYCLES, corrected, corrections

ROWS, CHANNELS = 2, 3
"""Axis names of an activation."""

DIGITS = 2
"""Digits of most sums of rows or columns."""


@kernel_of.register
def matmul(operator: Multiplying, site: StoredNode) -> Kernel:
    """`acc[n,h,m,o] = sum a[n,h,p,m,i] * b[n,h,q,i,o]`, over i, and over p and q for zero points.

    With `repeats`, n counts the heads of `b`, h the heads of `a` that share one, and `b` has no h.
    With one axis for both zero points, the product is `a[n,h,p,m,i] * b[n,h,p - r,i,o]`, and the
    padding of `b` is read `r` times.
    """
    node, configuration = site.node, site.configuration
    left, right = (site.graph.types[name].shape for name in node.inputs)
    joined_a, joined_b, joined_y = operator.joined
    heads, shared = operator.heads, operator.heads // operator.repeats
    depth = left[CHANNELS] // heads if joined_a else left[CHANNELS]
    n, m = left[0], left[ROWS]
    if operator.repeats > 1:
        if n > 1 and any(operator.joined):
            raise UnfitError(
                f"node `{node.name}`: several images with heads side by side share heads; "
                "the host runs it"
            )
        n, heads = n * shared, operator.repeats
    group = heads if operator.repeats > 1 else 0
    columns = right[ROWS]
    if not operator.transposed:
        columns = right[CHANNELS] // shared if joined_b else right[CHANNELS]
    reduced = round_up(depth, configuration.lanes_in)
    lanes = round_up(columns, configuration.lanes_out)
    zero_points = operator.zero_point_a, operator.zero_point_b
    bordered = any(zero_points) and _prefers_sums(operator, m, depth, columns, configuration)
    if bordered:
        zero_points = 0, 0
    (p, pad_a), (q, pad_b) = map(_padding, zero_points)
    one_axis = _prefers_one_axis(p, q, m, depth, columns, configuration)
    turns = te.reduce_axes(p=1 + p + q) if one_axis else te.reduce_axes(p=1 + p, q=1 + q)
    times_a, times_b = (1 + q, 1 + p) if one_axis else (1, 1)

    # Lanes beyond the depth are undefined in memory, and are multiplied by the padding of `b`. If
    # that padding is not zero, they are read as padding too, so that their sum is known.
    whole_rows = not joined_a and not pad_b
    if bordered and operator.zero_point_a:
        pad_a = 1
    a = te.tensor(
        f"rows of {node.inputs[0]}",
        "int8",
        (n, heads, times_a, m, reduced if whole_rows else depth),
        pad_a,
        of=node.inputs[0],
        by=_view(joined_a, depth, ((ROWS, 1), (CHANNELS, 1)), group),
    )
    inner = ((CHANNELS, 1), (ROWS, 1)) if operator.transposed else ((ROWS, 1), (CHANNELS, 1))
    whole_rows = not joined_b and not operator.transposed
    b = te.tensor(
        f"columns of {node.inputs[1]}",
        "int8",
        (n, 1 if group else heads, times_b, depth, lanes if whole_rows else columns),
        pad_b,
        of=node.inputs[1],
        by=_view(joined_b, depth if operator.transposed else columns, inner, 1 if group else 0),
    )
    # Known sums: the products of padding beyond the depth, and the product of the zero points if
    # no padding is multiplied by padding.
    padded_turns = (1 + p + q) if one_axis else (1 + p) * (1 + q)
    known = -(reduced - depth) * padded_turns * pad_a * pad_b
    if one_axis:
        known += depth * zero_points[0] * zero_points[1]

    first, move, *_ = _view(joined_y, columns, inner, group).moves
    if bordered:
        assert isinstance(operator, QMatMul), "sums have no zero points"
        return _bordered(operator, site, a, b, columns, (first, move))
    (i,) = te.reduce_axes(i=reduced)
    count = n * heads * m * columns * depth
    axes = batch, head, row, column = te.axes(n=n, h=heads, m=m, o=lanes)
    turn, turn_b = turns[0], turns[0] - q if one_axis else turns[1]
    product = a[batch, head, turn, row, i] * b[batch, 0 if group else head, turn_b, i, column]
    total = te.sum(product, (*turns, i))
    if not isinstance(operator, QMatMul):
        return te.kernel(node.name, sums(node.output.name, axes, total), {}, count)
    acc = te.compute("acc", "int32", axes, total)
    view = te.View((first, move, (ROWS, 1), (CHANNELS, 1)), columns if joined_y else 0)
    value = requantised(acc[axes], (*axes[1:2][: operator.by_head], column), operator)
    out = stored(node.output.name, axes, value, view)
    return te.kernel(node.name, out, _scalars(known, operator, lanes), count)


def _scalars(bias: int, operator: QMatMul, *shape: int) -> dict[str, np.ndarray]:
    """A bias and a scale for every channel of a head, or of each."""
    heads = [scalars(bias, scale, math.prod(shape)) for scale in np.ravel(operator.scale)]
    whole = (len(heads), *shape) if operator.by_head else shape
    return {name: np.concatenate([one[name] for one in heads]).reshape(whole) for name in heads[0]}


def _prefers_sums(
    operator: Multiplying, m: int, depth: int, columns: int, configuration: Configuration
) -> bool:
    """Whether sums of rows and columns fit, and take less time than more products.

    With a zero point of `a`, a tile has all rows, so that one row of ones serves them. With one of
    `b`, it has whole rows and all columns, so that their sums are computed once.
    """
    za, zb = operator.zero_point_a, operator.zero_point_b
    lanes_in, lanes_out = configuration.lanes_in, configuration.lanes_out
    rows = m + 1 if za else 1
    widths = (
        (round_up(depth, lanes_in), round_up(columns, lanes_out)) if zb else (lanes_in, lanes_out)
    )
    digits = [rows * lanes_out * DIGITS, 0] if zb else [0, 0]
    bank = configuration.bank_bytes(Memory.ACT)
    sizes = (-(-(rows * width + more) // bank) for width, more in zip(widths, digits, strict=True))
    if rows > min(configuration.acc_depth, 1 << configuration.extent_bits):
        return False
    if sum(sizes) > configuration.act_banks:
        return False
    if zb and 4 * -(-depth // lanes_in) > configuration.weight_tiles:
        return False
    (p, _), (q, _) = _padding(za), _padding(zb)
    passes_of_rows = max(m, tile_cycles(configuration))
    tall = -(-depth // lanes_in) * passes_of_rows
    product = tall * -(-columns // lanes_out)
    added = DIGITS * (bool(za) + bool(zb))
    steps = m * -(-columns // configuration.vector_lanes) * (1 + added)
    sums = max(product + tall * bool(zb), steps) + DIGIT_CYCLES * added
    return sums < min((1 + p) * (1 + q), 1 + p + q) * product


def _bordered(
    operator: QMatMul, site: StoredNode, a: te.DeclaredTensor, b: te.DeclaredTensor, columns: int,
    moves: tuple[tuple[int, int], tuple[int, int]]
) -> Kernel:  # fmt: skip
    """The kernel with sums of rows and columns; columns are cut into blocks of lanes."""
    n, heads, _, m, _ = a.tensor.shape
    za, zb = operator.zero_point_a, operator.zero_point_b
    size, depth = site.configuration.lanes_out, b.tensor.shape[3]
    lanes, reduced = round_up(columns, size), round_up(depth, site.configuration.lanes_in)
    (i,) = te.reduce_axes(i=reduced)
    axes = batch, head, row, block, lane = te.axes(n=n, h=heads, m=m, s=lanes // size, l=size)
    (down,) = te.axes(m=m + bool(za))
    factors = b[batch, 0 if b.tensor.shape[1] == 1 else head, 0, i, block * size + lane]
    total = te.sum(a[batch, head, 0, down, i] * factors, i)
    acc = te.compute("acc", "int32", (batch, head, down, block, lane), total)
    constants: dict[str, np.ndarray] = {}
    terms, largest = [], 128 * depth
    if za:
        (one,) = te.axes(one=1)
        sums, place = acc[batch, head, m, block, lane], (batch, head, one, block, lane)
        found = corrections("column", sums, place, largest, -za, constants)
        terms += [(digit[batch, head, 0, block, lane], factor) for digit, factor in found]
    if zb:
        ones = te.tensor("column of ones", "int8", (reduced, size))
        constants["column of ones"] = (
            (np.arange(reduced)[:, None] < depth).astype(np.int8).repeat(size, axis=1)
        )
        (each,) = te.axes(each=size)
        place = batch, head, row, each
        sums = te.sum(a[batch, head, 0, row, i] * ones[i, each], i)
        rows = te.compute("sums of rows", "int32", place, sums)
        found = corrections("row", rows[place], place, largest, -zb, constants)
        terms += [(digit[batch, head, row, lane], factor) for digit, factor in found]
    total = corrected(acc[axes], axes, terms)
    own = moves[1][1] if operator.joined[2] else lanes
    view = te.View((*moves, (ROWS, 1), (CHANNELS, size), (CHANNELS, 1)), own)
    value = requantised(total, (*axes[1:2][: operator.by_head], block, lane), operator)
    shaped = _scalars(depth * za * zb, operator, lanes // size, size)
    out = stored(site.node.output.name, axes, value, view)
    macs = n * heads * m * columns * depth
    return te.kernel(site.node.name, out, {**constants, **shaped}, macs)


def _prefers_one_axis(
    p: int, q: int, m: int, depth: int, columns: int, configuration: Configuration
) -> bool:
    """Whether fewer products outweigh loading both operands again.

    `p` and `q` are the numbers of times that the padding of `a` and `b` is read.
    """
    if not p or not q:
        return False
    run = LATENCY_CYCLES / configuration.outstanding_bursts
    lanes, bus = configuration.lanes_out, configuration.bus_bytes
    blocks = -(-columns // lanes)
    product = -(-depth // configuration.lanes_in) * blocks * max(m, tile_cycles(configuration))
    a, b = m * max(run, depth / bus), depth * blocks * max(run, lanes / bus)
    apart = max((1 + p) * (1 + q) * product, a + b)
    return max((1 + p + q) * product, (1 + q) * a + (1 + p) * b) < apart


def passes(
    operator: Multiplying, m: int, depth: int, columns: int, configuration: Configuration
) -> int:
    """How often m rows of `a` are multiplied by a tile of `b`: once, perhaps for zero points."""
    if _prefers_sums(operator, m, depth, columns, configuration):
        return 1
    return 1 + sum(_padding(zero)[0] for zero in (operator.zero_point_a, operator.zero_point_b))


def _padding(zero_point: int) -> tuple[int, int]:
    """How often an operand's padding is read, and its value: in total minus the zero point."""
    if zero_point == 0:
        return 0, 0
    # 128 does not fit int8, so half of it is added twice.
    return (2, 64) if zero_point == -128 else (1, -zero_point)


def _view(
    joined: bool, width: int, inner: tuple[tuple[int, int], tuple[int, int]], group: int
) -> te.View:
    """A view of an operand: image, head, repetition, and the operand's two dimensions.

    Parameters
    ----------
    width
        Channels of a head.
    group
        Heads for each step of the first axis, if that one counts shared heads; otherwise 0.
    """
    axis, step = head = (CHANNELS, width) if joined else (1, 1)
    return te.View(((axis, step * group) if group else (0, 1), head, (0, 0), *inner))
