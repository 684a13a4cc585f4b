"""Evaluation of several similar graphs on the same samples; nodes that they share run once.

Candidates for the quantised network differ in a few layers only. Nodes are the same if they apply
the same operator to the same values, whatever the names.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..graph import Graph, Node, evaluate_node
from ..reach import reach
from .batches import Arrays, Batches


@dataclass(frozen=True, slots=True)
class _Step:
    """A node to run, with the numbers of its operands and results."""

    node: Node
    operands: tuple[int, ...]
    results: tuple[int, ...]


class JointPlan:
    """The nodes that several graphs need for chosen values, each once.

    Parameters
    ----------
    graphs : sequence of Graph
        Graphs with the same inputs.
    keep : sequence of iterables of str
        Values to return, for each graph.

    Attributes
    ----------
    steps : list
        The nodes to run, those close to the inputs first.
    """

    def __init__(self, graphs: Sequence[Graph], keep: Sequence[Iterable[str]]) -> None:
        self._numbers: dict[object, int] = {}
        self._given: dict[str, int] = {}
        self._values: dict[int, np.ndarray] = {}
        self._kept: list[dict[str, int]] = []
        levels: dict[int, int] = {}
        found: dict[int, _Step] = {}
        for graph, names in zip(graphs, keep, strict=True):
            wanted = tuple(names)
            numbers = self._start(graph)
            for node in _needed(graph, wanted):
                operands = tuple(numbers[name] for name in node.inputs)
                key = (node.attributes, operands)
                results = tuple(self._number((key, place)) for place, _ in enumerate(node.outputs))
                found.setdefault(results[0], _Step(node, operands, results))
                level = 1 + max((levels.get(number, 0) for number in operands), default=0)
                levels.update(dict.fromkeys(results, level))
                numbers.update(zip((value.name for value in node.outputs), results, strict=True))
            self._kept.append({name: numbers[name] for name in wanted})
        self.steps = sorted(found.values(), key=lambda step: levels[step.results[0]])

    def run(self, inputs: Arrays) -> list[dict[str, np.ndarray]]:
        """Return the kept values of each graph; other values are freed after their last use."""
        values = dict(self._values)
        values.update((self._given[name], array) for name, array in inputs.items())
        remaining: dict[int, int] = {}
        for step in self.steps:
            for number in {*step.operands}:
                remaining[number] = remaining.get(number, 0) + 1
        for kept in self._kept:
            for number in kept.values():
                remaining[number] = remaining.get(number, 0) + 1
        for step in self.steps:
            results = evaluate_node(step.node, [values[number] for number in step.operands])
            for number, result in zip(step.results, results, strict=True):
                if number in remaining:
                    values[number] = result
            for number in {*step.operands}:
                remaining[number] -= 1
                if not remaining[number]:
                    del values[number]
        return [{name: values[at] for name, at in kept.items()} for kept in self._kept]

    def _start(self, graph: Graph) -> dict[str, int]:
        """Return the numbers of a graph's inputs and constants."""
        numbers = {value.name: self._number(("input", value.name)) for value in graph.inputs}
        self._given.update(numbers)
        for constant in graph.constants:
            data = constant.data
            digest = hashlib.blake2b(np.ascontiguousarray(data).tobytes())
            number = self._number((str(data.dtype), data.shape, digest.digest()))
            numbers[constant.name] = number
            self._values[number] = data
        return numbers

    def _number(self, key: object) -> int:
        return self._numbers.setdefault(key, len(self._numbers))


def _needed(graph: Graph, wanted: tuple[str, ...]) -> list[Node]:
    """Return the nodes on which values depend, in the order of the graph."""
    needed = reach(wanted, lambda name: node.inputs if (node := graph.producer(name)) else ())
    return [node for node in graph.nodes if any(value.name in needed for value in node.outputs)]


def run_jointly(
    batches: Batches, graphs: Sequence[Graph], keep: Sequence[Iterable[str]]
) -> Iterator[list[dict[str, np.ndarray]]]:
    """Yield the kept values of each graph, batch by batch.

    Parameters
    ----------
    batches : Batches
        The samples, in batches that all graphs accept; see `Batches.fitting`.
    graphs, keep : sequence
        As for `JointPlan`.
    """
    plans: dict[tuple[int, ...], JointPlan] = {}
    for together in zip(*(batches.graphs(graph) for graph in graphs), strict=True):
        wide, given = [each[0] for each in together], together[0][1]
        shape = tuple(len(array) if array.ndim else 0 for array in given.values())
        if shape not in plans:
            plans[shape] = JointPlan(wide, keep)
        yield plans[shape].run(given)
