"""Gathers and scatters at computed indices: one routine, with an index map for each operator."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from typing_extensions import override

from ..cpu import AXES, IndexMap
from ..graph import Graph, Node, TensorType
from ..graph import operators as ops
from ..graph.operator import Operator
from .kernel import HostStep

INDEXED = (ops.Gather, ops.GatherElements, ops.GatherND, ops.ScatterElements, ops.ScatterND)


@dataclass(frozen=True, slots=True)
class IndexedStep(HostStep):
    """A gather or a scatter at computed indices.

    Parameters
    ----------
    index_map : IndexMap
        Places of the indices and of the elements.
    scatters : bool
        Whether the output is a copy of the first input, with updates written to it.
    """

    nodes: tuple[Node, ...]
    index_map: IndexMap
    scatters: bool
    exact: bool = True

    @property
    @override
    def reads(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.nodes[0].inputs))


def find_gathers(graph: Graph, nodes: Sequence[Node]) -> Iterator[IndexedStep]:
    """Yield the gathers and scatters among the host's free nodes."""
    for node in nodes:
        operator = node.attributes
        if getattr(operator, "reduction", "none") != "none":
            continue
        types = [graph.types[name] for name in node.inputs]
        if not all(one.elements for one in (*types, node.outputs[0].type)):
            continue  # loops run at least once
        found = _index_map(operator, types)
        if found is not None and len(found.axes) <= AXES:
            scatters = isinstance(operator, ops.ScatterElements | ops.ScatterND)
            yield IndexedStep((node,), found, scatters)


def _index_map(operator: Operator, types: Sequence[TensorType]) -> IndexMap | None:
    """Return the index map of an operator, or None if it is not one of `INDEXED`."""
    if not isinstance(operator, INDEXED):
        return None
    x, indices = types[0].shape, types[1].shape
    strides = _strides(x)
    match operator:
        case ops.Gather(axis=axis):
            outer = (math.prod(x[:axis]), math.prod(x[axis:]), 0)
            within = (math.prod(indices), 0, 1)
            limits = ((x[axis], strides[axis]),)
            return IndexMap(_merged((outer, within)), limits, strides[axis])
        case ops.GatherElements(axis=axis) | ops.ScatterElements(axis=axis):
            beside = [0 if place == axis else step for place, step in enumerate(strides)]
            nest = zip(indices, beside, _strides(indices), strict=True)
            return IndexMap(_merged(nest), ((x[axis], strides[axis]),), 1)
        case ops.GatherND() | ops.ScatterND():
            batch = operator.batch_dims if isinstance(operator, ops.GatherND) else 0
            *tuples, depth = indices
            beside = [strides[axis] if axis < batch else 0 for axis in range(len(tuples))]
            nest = zip(tuples, beside, _strides(indices)[:-1], strict=True)
            limits = tuple(zip(x, strides, strict=True))[batch : batch + depth]
            return IndexMap(_merged(nest), limits, math.prod(x[batch + depth :]))


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a row-major array, in elements."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def _merged(nest: Iterable[tuple[int, int, int]]) -> tuple[tuple[int, int, int], ...]:
    """Join neighbouring axes that advance as one; drop those of one step."""
    axes: list[tuple[int, int, int]] = []
    for extent, addressed, indices in nest:
        if extent == 1:
            continue
        if axes and axes[-1][1:] == (addressed * extent, indices * extent):
            extent *= axes.pop()[0]
        axes.append((extent, addressed, indices))
    return tuple(axes) or ((1, 0, 0),)
