"""Exact cycles of layers' candidates on the workers of sweeps: processes here, or a Dask cluster.

A candidate's cycles do not depend on where they are counted, so the log and the winner are those of
a search in one process.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ...compiler.accelerator.search import Candidate
from ...compiler.graph import Graph
from ...isa.configuration import Configuration
from ...isa.memory_model import MemoryModel
from ..execution.compile_graph import compile_graph
from ..sweep.evaluators import SIM, version_of
from ..sweep.executors import Job, SweepExecutor
from ..sweep.records import Record
from .layer_bench import LayerBench

BATCH = 8
"""Candidates that a worker takes at a time."""


@dataclass(frozen=True, slots=True)
class CandidateWork:
    """A candidate of a layer, in a network with some given schedules, by layer."""

    layer: str
    schedules: tuple[tuple[str, str], ...]
    candidate: Candidate

    def __call__(self, graph: Graph, job: Job) -> list[Record]:
        found = _bench(_Same(graph), job.configuration, job.memories[0], self.layer, self.schedules)
        return [Record({"cycles": found.cycles(self.candidate)})]


@dataclass(frozen=True, slots=True, eq=False)
class _Same:
    """A graph, equal to itself alone; a worker keeps one."""

    graph: Graph

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.graph is other.graph

    def __hash__(self) -> int:
        return id(self.graph)


@lru_cache(maxsize=2)
def _bench(
    same: _Same,
    configuration: Configuration,
    memory: MemoryModel,
    layer: str,
    schedules: tuple[tuple[str, str], ...],
) -> LayerBench:
    # A lean compilation asks no records, which differ between computers.
    module = compile_graph(
        same.graph, configuration, memory=memory, schedules=dict(schedules), lean=True
    )
    return LayerBench(module, layer)


class CandidateWorkers:
    """Times candidates of a network's layers, several at a time.

    Parameters
    ----------
    executor
        Its only network is the one whose layers are timed.
    """

    def __init__(
        self, executor: SweepExecutor, configuration: Configuration, memory: MemoryModel
    ) -> None:
        self._executor, self._machine = executor, (configuration, (memory,))

    @property
    def width(self) -> int:
        """Number of candidates at a time."""
        return BATCH * max(1, self._executor.workers)

    def outcomes(
        self, layer: str, schedules: Mapping[str, str], candidates: Sequence[Candidate]
    ) -> list[Record]:
        """Return the cycles of each candidate, or why there are none."""
        given = tuple(sorted(schedules.items()))
        jobs = [
            Job(SIM, version_of(SIM), 0, *self._machine, work=CandidateWork(layer, given, one))
            for one in candidates
        ]
        waiting = {
            self._executor.submit(jobs[first : first + BATCH]): first
            for first in range(0, len(jobs), BATCH)
        }
        found: dict[int, Record] = {}
        while waiting:
            for handle, done in self._executor.wait(list(waiting)):
                first = waiting.pop(handle)
                found |= {first + place: one for place, (one,) in enumerate(done.records)}
        return [found[place] for place in range(len(jobs))]
