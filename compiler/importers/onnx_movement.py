"""Importers of operators that crop, pad, repeat and select elements."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..graph import TensorType
from ..graph import operators as ops
from .onnx_node import OnnxNode

PAD_MODES = ("reflect", "edge", "wrap")
"""Pad modes that repeat elements of the tensor itself."""


def import_pad(node: OnnxNode) -> str:
    """Import Pad as Slice for negative pads, then Pad, or Gather of the tensor's own elements."""
    rank = node.rank(0)
    pads = node.attribute("pads", ()) if node.opset < 11 else node.integers(1)
    axes = tuple(range(rank))
    if node.has(3):
        axes = tuple(node.normalise(axis, rank) for axis in node.integers(3))
    if len(pads) != 2 * len(axes):
        node.fail(f"{2 * len(axes)} pads", f"{len(pads)}", "give two for each axis")
    before, after = [0] * rank, [0] * rank
    for position, axis in enumerate(axes):
        before[axis], after[axis] = pads[position], pads[position + len(axes)]
    x = _crop(node, before, after)
    before, after = (tuple(max(0, pad) for pad in pads) for pads in (before, after))
    mode = node.attribute("mode", "constant")
    if mode in PAD_MODES:
        return _pad_by_elements(node, x, before, after, mode)
    if mode != "constant":
        node.fail(f"`mode` constant, {', '.join(PAD_MODES)}", f"`{mode}`", "correct the model")
    if node.opset >= 11 and node.has(2) and node.known(node.input(2)) is None:
        return _pad_by_input(node, x, before, after)
    value = node.attribute("value", 0.0) if node.opset < 11 else node.scalar(2, 0.0)
    return node.emit(ops.Pad(before, after, value), [x])


def _crop(node: OnnxNode, before: list[int], after: list[int]) -> str:
    """Emit the Slice for negative pads; return the operand itself if there are none."""
    x, shape = node.input(0), node.type(0).shape
    if min(*before, *after, 0) >= 0:
        return x
    starts = tuple(max(0, -pad) for pad in before)
    stops = tuple(size - max(0, -pad) for size, pad in zip(shape, after, strict=True))
    if any(start > stop for start, stop in zip(starts, stops, strict=True)):
        node.fail("pads that leave something", f"{before} and {after}", "correct the pads")
    return node.emit(ops.Slice(starts, stops, (1,) * len(shape)), [x], f"{x}.cropped")


def _pad_by_elements(
    node: OnnxNode, x: str, before: tuple[int, ...], after: tuple[int, ...], mode: Any
) -> str:
    """Emit a Gather for each axis that grows; the source of each element is known at import."""
    for axis, size in enumerate(node.builder.types[x].shape):
        pads = (before[axis], after[axis])
        if any(pads) and not size:
            node.fail(f"elements to pad with by `{mode}`", "none", "correct the pads")
        if any(pads):
            node.check(TensorType("int64", (sum(pads) + size,)))
            places = np.pad(np.arange(size), pads, mode=mode)
            x = node.take(x, axis, places, f"{node.result}.axis{axis}")
    return x


def _pad_by_input(node: OnnxNode, x: str, before: tuple[int, ...], after: tuple[int, ...]) -> str:
    """Emit a Pad, and a Where that inserts a padding value computed at run time."""
    shape, value = node.builder.types[x].shape, node.input(2)
    padded = node.emit(ops.Pad(before, after, 0.0), [x], f"{node.result}.padded")
    inside = np.pad(np.ones(shape, bool), tuple(zip(before, after, strict=True)))
    mask = node.array(inside, f"{node.result}.inside")
    scalar = node.reshape(value, (), f"{value}.scalar")
    return node.emit(ops.Where(), [mask, padded, scalar])


def import_slice(node: OnnxNode) -> str:
    """Import Slice as Slice, after a Gather along each axis with a negative step."""
    x, shape = node.input(0), node.type(0).shape
    if node.opset < 10:
        starts, ends = node.attribute("starts", ()), node.attribute("ends", ())
        axes, steps = node.attribute("axes", tuple(range(len(starts)))), (1,) * len(starts)
    else:
        starts, ends = node.integers(1), node.integers(2)
        axes = node.integers(3) if node.has(3) else tuple(range(len(starts)))
        steps = node.integers(4) if node.has(4) else (1,) * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        node.fail(
            "one start, end, axis and step other than 0 for each axis",
            "others",
            "correct the slice",
        )
    bounds = [(0, size, 1) for size in shape]
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        axis = node.normalise(axis, len(shape))
        first, stop, _ = slice(start, end, step).indices(shape[axis])
        if step < 0:
            places = np.arange(first, stop, step)
            x = node.take(x, axis, places, f"{node.result}.axis{axis}")
            first, stop, step = 0, len(places), 1
        bounds[axis] = (first, max(first, stop), step)
    columns = [tuple(bound[i] for bound in bounds) for i in range(3)]
    return node.emit(ops.Slice(columns[0], columns[1], columns[2]), [x])


def import_split(node: OnnxNode) -> list[str]:
    """Import Split as one Slice for each output."""
    count, axis = len(node.proto.output), node.axis(0, node.rank(0))
    size, sizes = node.type(0).shape[axis], node.listed("split", 1)
    if not sizes:
        part = -(-size // count)
        sizes = tuple(min(part, size - i * part) for i in range(count))
    if len(sizes) != count:
        node.fail(f"{count} parts", f"{list(sizes)}", "correct the split")
    return parts_of(node, axis, sizes, node.proto.output)


def parts_of(node: OnnxNode, axis: int, sizes: Sequence[int], names: Sequence[str]) -> list[str]:
    """Emit consecutive Slices of the first operand with the given sizes along an axis."""
    size, x = node.type(0).shape[axis], node.input(0)
    if sum(sizes) != size or min(sizes, default=0) < 0:
        node.fail(f"parts that add up to {size}", f"{list(sizes)}", "correct the split")
    stops = np.cumsum(sizes, dtype=int).tolist()
    rows = zip(stops, sizes, names, strict=True)
    return [node.part(x, axis, stop - part, stop, name) for stop, part, name in rows]


def import_tile(node: OnnxNode) -> str:
    """Import Tile as Gather along each repeated axis."""
    x, shape, repeats = node.input(0), node.type(0).shape, node.integers(1)
    if len(repeats) != len(shape) or min(repeats, default=0) < 0:
        node.fail(f"{len(shape)} repeats, 0 or more", f"{list(repeats)}", "correct the repeats")
    for axis, (size, times) in enumerate(zip(shape, repeats, strict=True)):
        if times != 1:
            node.check(TensorType("int64", (size * times,)))
            x = node.take(x, axis, np.tile(np.arange(size), times), f"{node.result}.axis{axis}")
    return x


def import_gather(node: OnnxNode) -> str:
    """Import Gather as Gather; check known indices and count them from the front."""
    axis = node.axis(0, node.rank(0))
    known = node.known(node.input(1))
    if known is None:
        return node.emit(ops.Gather(axis), [node.input(0), node.input(1)])
    indices = known.astype(np.int64)
    size = node.type(0).shape[axis]
    beyond = indices[(indices < -size) | (indices >= size)]
    if beyond.size:
        expected = f"indices from {-size} to {size - 1}" if size else "no indices"
        node.fail(expected, f"`{beyond.flat[0]}`", "correct the indices")
    return node.take(node.input(0), axis, indices % max(size, 1))


def import_compress(node: OnnxNode) -> str:
    """Import Compress with a known condition as Gather."""
    chosen = np.flatnonzero(node.constant(1).ravel())
    x, shape, axis = node.input(0), node.type(0).shape, 0
    if "axis" in node.attributes:
        axis = node.axis(0, len(shape))
    else:
        x = node.reshape(x, (math.prod(shape),), f"{x}.flat")
    size = node.builder.types[x].shape[axis]
    if chosen.size and chosen[-1] >= size:
        node.fail(f"a condition of at most {size} elements", f"{chosen[-1] + 1}", "shorten it")
    return node.take(x, axis, chosen)
