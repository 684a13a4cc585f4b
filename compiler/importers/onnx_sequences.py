"""Importers of sequences of tensors, which have known lengths and so need no operators.

A sequence is a tuple of values, and exists only in the importer. Inputs and outputs of a graph are
tensors.
"""

from collections.abc import Callable

import numpy as np

from ..graph import operators as ops
from .onnx_movement import parts_of
from .onnx_node import OnnxNode
from .onnx_scope import Named

Results = str | list[Named]


def _sequence(node: OnnxNode) -> tuple[str, ...]:
    value = node.value(0)
    if isinstance(value, str):
        node.fail("a sequence", "a tensor", "export the model again")
    return value


def _position(node: OnnxNode, index: int, count: int, extra: int = 0) -> int:
    """Return a constant operand as a position among `count` elements, plus `extra` at the end."""
    place = int(node.scalar(index, count - 1 + extra))
    if not -count <= place < count + extra:
        node.fail(f"a place among {count} elements", f"`{place}`", "correct the place")
    return place + count if place < 0 else place


def import_construct(node: OnnxNode) -> Results:
    """Import SequenceConstruct as a tuple of its operands."""
    return [tuple(node.inputs())]


def import_empty(node: OnnxNode) -> Results:
    """Import SequenceEmpty as an empty tuple."""
    return [()]


def import_at(node: OnnxNode) -> Results:
    """Import SequenceAt, with a known position, as the element there."""
    sequence = _sequence(node)
    return sequence[_position(node, 1, len(sequence))]


def import_insert(node: OnnxNode) -> Results:
    """Import SequenceInsert, with a known position; by default, at the end."""
    sequence = _sequence(node)
    place = _position(node, 2, len(sequence), extra=1)
    return [(*sequence[:place], node.input(1), *sequence[place:])]


def import_erase(node: OnnxNode) -> Results:
    """Import SequenceErase, with a known position; by default, the last element."""
    sequence = _sequence(node)
    place = _position(node, 1, len(sequence))
    return [sequence[:place] + sequence[place + 1 :]]


def import_length(node: OnnxNode) -> Results:
    """Import SequenceLength as a constant."""
    return node.array(np.array(len(_sequence(node)), dtype=np.int64))


def import_split(node: OnnxNode) -> Results:
    """Import SplitToSequence as one Slice for each part; drop the axis unless `keepdims`."""
    shape = node.type(0).shape
    axis = node.axis(0, len(shape))
    size, drop = shape[axis], not node.has(1) and not node.attribute("keepdims", 1)
    if not node.has(1):
        parts = [1] * size
    elif node.constant(1).ndim:
        parts = list(node.integers(1))
    else:
        part = max(1, int(node.scalar(1, 1)))
        parts = [min(part, size - first) for first in range(0, size, part)]
    names = [f"{node.result}.{index}" for index in range(len(parts))]
    found = parts_of(node, axis, parts, names)
    if drop:
        rest = shape[:axis] + shape[axis + 1 :]
        found = [node.reshape(x, rest, f"{x}.row") for x in found]
    return [tuple(found)]


def import_concat(node: OnnxNode) -> Results:
    """Import ConcatFromSequence as Concat, along a new axis if `new_axis`."""
    parts = list(_sequence(node))
    if not parts:
        node.fail("one or more elements", "an empty sequence", "export the model again")
    rank = len(node.builder.types[parts[0]].shape)
    new = bool(node.attribute("new_axis", 0))
    axis = node.axis(0, rank + new)
    if new:
        for index, part in enumerate(parts):
            shape = node.builder.types[part].shape
            parts[index] = node.reshape(part, (*shape[:axis], 1, *shape[axis:]), f"{part}.row")
    return node.emit(ops.Concat(axis), parts)


SEQUENCE_HANDLERS: dict[tuple[str, str], Callable[[OnnxNode], Results]] = {
    ("", "ConcatFromSequence"): import_concat,
    ("", "SequenceAt"): import_at,
    ("", "SequenceConstruct"): import_construct,
    ("", "SequenceEmpty"): import_empty,
    ("", "SequenceErase"): import_erase,
    ("", "SequenceInsert"): import_insert,
    ("", "SequenceLength"): import_length,
    ("", "SplitToSequence"): import_split,
}
