"""Batches: consecutive steps of the host in machine code, which one call runs.

Values in the arena have fixed addresses. Each run sets only those of arrays from outside and of new
output arrays.
"""

import ctypes
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..aligned import address_of, aligned_empty
from ..compiler.cpu import CallSequence, KernelCall
from ..compiler.graph import Graph, Node, evaluate_node
from ..compiler.graph.types import DTYPES
from ..errors import InputError
from .step_times import BatchTime

Values = dict[str, np.ndarray]
"""Arrays, by the names of the graph's values."""

Place = tuple[ctypes.Array, int]
"""An address of a call: its frame, and the position there."""

ALIGNED_BYTES = 1 << 14
"""Outputs of this size or more begin at a cache line; for smaller ones, alignment costs more than
it saves."""


@dataclass(frozen=True, slots=True)
class NativeStep:
    """A call of machine code in a batch.

    Parameters
    ----------
    name : str
        The first value of the host's step that it belongs to.
    call : KernelCall
        The code; its constants are bound.
    reads, writes : mapping
        The graph's value for each array of the call that has no fixed address.
    """

    name: str
    call: KernelCall
    reads: Mapping[str, str]
    writes: Mapping[str, str]


class Batch:
    """Steps that run one after another in machine code.

    Parameters
    ----------
    graph : Graph
        The module's graph.
    steps : sequence of NativeStep
        The steps in order.
    views : sequence of Node
        Nodes between them that show a value in another shape, in order.
    places : mapping
        Arrays of values that have a fixed place.
    shown : set of str
        Values that are read outside the batch.

    Attributes
    ----------
    names, views : tuple of str
        As in `BatchTime`.
    new : set of str
        Values in memory that each run allocates.
    """

    def __init__(
        self,
        graph: Graph,
        steps: Sequence[NativeStep],
        views: Sequence[Node],
        places: Mapping[str, np.ndarray],
        shown: set[str],
    ) -> None:
        self.names = tuple(step.name for step in steps)
        self.views = tuple(node.output.name for node in views)
        self._graph = graph
        origins = {node.output.name: node.inputs[0] for node in views}

        def origin(name: str) -> str:
            while name in origins:
                name = origins[name]
            return name

        self._origin, self._places = origin, places
        self._held: list[np.ndarray] = []
        wanted: dict[str, list[Place]] = {}
        made: dict[str, list[Place]] = {}
        for step in steps:
            for operand, name in (*step.reads.items(), *step.writes.items()):
                place = (step.call.frame, step.call.places[operand])
                source = origin(name)
                if name in places:
                    place[0][place[1]] = address_of(places[name])
                elif operand in step.writes:
                    made[name] = [place]
                elif source in made:
                    made[source].append(place)
                elif graph.is_constant(source):
                    array = np.ascontiguousarray(graph.data(source))
                    self._held.append(array)
                    place[0][place[1]] = address_of(array)
                else:
                    wanted.setdefault(source, []).append(place)
        self._wanted = [(name, _bytes(graph, name), found) for name, found in wanted.items()]
        self._made = [
            (name, graph.types[name].shape, DTYPES[graph.types[name].dtype], found)
            for name, found in made.items()
        ]
        self._empty = {
            name: aligned_empty if _bytes(graph, name) >= ALIGNED_BYTES else np.empty
            for name in made
        }
        self.new = {*made, *(name for name in self.views if origin(name) in made)}
        self._shown = {name: places[name] for name in shown if name in places}
        self._views = [
            (node.output.name, origin(node.output.name), node.output.type.shape)
            for node in views
            if node.output.name in shown and node.output.name not in places
        ]
        self._schedule = CallSequence([step.call for step in steps])

    def run(self, values: Values) -> BatchTime:
        """Run all steps, and add the values that are read outside.

        Raises
        ------
        CompileError
            If an index is out of range; the message is that of the node's definition.
        """
        began = time.perf_counter()
        held = []
        for name, size, found in self._wanted:
            array = checked_array(name, values[name], size)
            held.append(array)
            address = address_of(array)
            for frame, position in found:
                frame[position] = address
        for name, shape, dtype, found in self._made:
            array = self._empty[name](shape, dtype)
            values[name] = array
            address = address_of(array)
            for frame, position in found:
                frame[position] = address
        failed = self._schedule.run()
        if failed is not None:
            self._explain(self.names[failed], values)
        values.update(self._shown)
        for name, source, shape in self._views:
            values[name] = values[source].reshape(shape)
        return BatchTime(
            self.names, self.views, self._schedule.ticks(), time.perf_counter() - began
        )

    def _explain(self, name: str, values: Values) -> None:
        """Raise the error of a step whose machine code met an index out of range.

        Its inputs are still there, as nothing ran after it, and its definition names the index.
        """
        node = self._graph.producer(name)
        assert node is not None
        arrays = []
        for read in node.inputs:
            source = read if read in self._places else self._origin(read)
            if self._graph.is_constant(source):
                array = self._graph.data(source)
            else:
                array = self._places[source] if source in self._places else values[source]
            arrays.append(array.reshape(self._graph.types[read].shape))
        evaluate_node(node, arrays)
        raise InputError(
            f"value `{name}`: its machine code found an index out of range, and its definition "
            "found none; report it with the model"
        )


def checked_array(name: str, array: np.ndarray, size: int) -> np.ndarray:
    """Return a value's array, contiguous.

    Raises
    ------
    InputError
        If it has not `size` bytes.
    """
    if not array.flags.c_contiguous:
        array = np.ascontiguousarray(array)
    if array.nbytes != size:
        raise InputError(
            f"value `{name}`: expected {size} bytes, got {array.nbytes}; its producer "
            "breaks the graph's types: report it with the model"
        )
    return array


def _bytes(graph: Graph, name: str) -> int:
    kind = graph.types[name]
    return kind.elements * np.dtype(DTYPES[kind.dtype]).itemsize
