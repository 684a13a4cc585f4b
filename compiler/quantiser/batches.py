"""Evaluation of a graph over many samples, in batches if the network keeps samples independent.

Models are often exported for one sample, but batches evaluate faster. The leading extent therefore
grows if a trial run shows that no result changes.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ...errors import CompileError, InputError
from ..graph import Builder, Graph, Output, TensorType, Value, evaluate
from ..graph import operators as ops

BATCH = 16
"""Samples evaluated together."""

CLOSE = 1e-3
"""Largest relative difference between batched and single results that counts as rounding."""

Arrays = Mapping[str, np.ndarray]


def set_batch(graph: Graph, count: int) -> Graph | None:
    """Return a graph that takes `count` samples at once instead of one.

    Only shapes are checked; a trial run must show that samples stay independent.

    Parameters
    ----------
    graph : Graph
        A graph whose inputs have the leading extent 1.
    count : int
        New leading extent.

    Returns
    -------
    Graph or None
        The new graph, with the names of `graph`; None if an input or operator forbids it.
    """
    if any(value.type.shape[:1] != (1,) for value in graph.inputs):
        return None
    builder = Builder(graph.name)
    for value in graph.inputs:
        kind = value.type
        wide = TensorType(kind.dtype, (count, *kind.shape[1:]), kind.quantisation)
        builder.input(Value(value.name, wide))
    for constant in graph.constants:
        builder.adopt(constant)
    for node in graph.nodes:
        operator = node.attributes
        if isinstance(operator, ops.Reshape) and operator.shape[:1] == (1,):
            operator = ops.Reshape((count, *operator.shape[1:]))
        wished = [value.name for value in node.outputs]
        try:
            if len(wished) == 1:
                kind = node.output.type.quantisation
                names = [builder.emit(operator, node.inputs, node.name, wished[0], kind)]
            else:
                names = builder.emit_outputs(operator, node.inputs, node.name, wished)
        except CompileError:
            return None
        if names != wished:
            return None
    return builder.graph(Output(each.name, each.value) for each in graph.outputs)


@dataclass(frozen=True, slots=True)
class Batches:
    """Samples, and the number of them that a network and its quantised forms take at a time.

    Attributes
    ----------
    inputs : mapping
        Name of each input -> [samples, *shape of the input].
    size : int
        Samples at a time.
    """

    inputs: Arrays
    size: int = 1

    @property
    def count(self) -> int:
        """Number of samples."""
        return min((len(array) for array in self.inputs.values()), default=0)

    def first(self, count: int) -> "Batches":
        """Return the first `count` samples, or all if there are fewer."""
        return Batches({name: array[:count] for name, array in self.inputs.items()}, self.size)

    def spread(self, count: int) -> "Batches":
        """Return `count` samples spread evenly, or all if there are fewer."""
        rows = np.arange(min(count, self.count)) * self.count // max(1, min(count, self.count))
        return Batches({name: array[rows] for name, array in self.inputs.items()}, self.size)

    def graphs(self, graph: Graph) -> Iterator[tuple[Graph, dict[str, np.ndarray]]]:
        """Yield each batch's inputs and the graph that takes them, with unchanged nodes and names.

        Samples come one at a time if this graph, unlike the float network, does not accept several.
        To compare batches of two graphs, see `fitting`.

        Parameters
        ----------
        graph : Graph
            The network at any stage of the front end, for one sample.
        """
        wide = {1: graph}
        together = self.fitting(graph).size
        for first in range(0, self.count, together):
            size = min(together, self.count - first)
            if size not in wide:
                wide[size] = _widened(graph, size)
            parts = {name: array[first : first + size] for name, array in self.inputs.items()}
            yield wide[size], {name: _joined(part) for name, part in parts.items()}

    def fitting(self, *graphs: Graph) -> "Batches":
        """Return the samples in batches that all graphs accept, of one sample if necessary."""
        sizes = {min(self.size, self.count), self.count % self.size} - {0, 1}
        if all(set_batch(graph, size) is not None for graph in graphs for size in sizes):
            return self
        return Batches(self.inputs)

    def run(self, graph: Graph, keep: Iterable[str] = ()) -> Iterator[dict[str, np.ndarray]]:
        """Yield the outputs and the values in `keep`, batch by batch.

        Raises
        ------
        CompileError
            If the samples do not fit the graph.
        """
        keep = tuple(keep)
        for wide, part in self.graphs(graph):
            yield evaluate(wide, part, keep)

    def output(self, graph: Graph) -> np.ndarray:
        """Return the first output for all samples, [samples * leading extent, ...]."""
        name = graph.outputs[0].name
        parts = [values[name] for values in self.run(graph)]
        return np.concatenate(parts) if parts[0].ndim else np.stack(parts)


def make_batches(graph: Graph, inputs: Arrays, size: int = BATCH) -> Batches:
    """Return samples in batches if the network computes each sample independently.

    Parameters
    ----------
    graph : Graph
        The float network, for one sample.
    inputs : mapping
        Name of each input -> [samples, *shape of the input].
    size : int
        Samples at a time, where possible.

    Raises
    ------
    InputError
        If there is no sample.
    CompileError
        If the samples do not fit the graph.
    """
    batches = Batches(inputs)
    if not batches.count:
        raise InputError("calibration: expected at least one sample, got none; give some")
    wide = set_batch(graph, 2) if batches.count > 1 else None
    if wide is None:
        return batches
    ends = {name: array[[0, batches.count - 1]] for name, array in inputs.items()}
    singles = list(Batches(ends).run(graph))
    try:
        both = evaluate(wide, {name: _joined(part) for name, part in ends.items()})
    except CompileError:
        return batches  # an operator fixes the number of samples, such as STFT and caches
    alike = all(_alike(both[name], [single[name] for single in singles]) for name in both)
    return Batches(inputs, size) if alike else batches


def doubts(inputs: Arrays) -> Iterator[str]:
    """Yield a sentence about samples that show little of what the network will see."""
    repeated = all((array == array[:1]).all() for array in inputs.values())
    for name, array in inputs.items():
        if len(array) == 1:
            yield f"`{name}`: one sample says little about ranges; give a hundred"
        elif not array.any():
            yield f"`{name}`: all samples are zero and give no ranges; give real ones"
        elif repeated:
            yield f"`{name}`: all samples are equal and say as little as one; give different ones"


def _widened(graph: Graph, size: int) -> Graph:
    wide = set_batch(graph, size)
    assert wide is not None, "only sizes that a graph takes are chosen"
    return wide


def _joined(part: np.ndarray) -> np.ndarray:
    """Return [samples, 1, ...] as [samples, ...]; a single sample as it is."""
    return part[0] if len(part) == 1 else part.reshape(-1, *part.shape[2:])


def _alike(both: np.ndarray, singles: list[np.ndarray]) -> bool:
    expected = np.concatenate(singles) if singles[0].ndim else np.stack(singles)
    if both.shape != expected.shape:
        return False
    # Masks hold infinities, which must stay where they are but say nothing of the spread.
    spread = float(np.abs(expected[np.isfinite(expected)]).max(initial=0))
    return bool(np.allclose(both, expected, rtol=CLOSE, atol=CLOSE * spread, equal_nan=True))
