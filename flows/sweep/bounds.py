"""The certified lower bound of a network's cycles, known before the network is compiled."""

from collections import Counter
from collections.abc import Iterable

from ...compiler.graph import Graph
from ...compiler.pipeline.network_bound import network_work
from ...compiler.scheduling.program_bound import Bound
from ...isa.configuration import Configuration
from ...isa.memory_model import MemoryModel


def lower_bounds(
    graph: Graph, configuration: Configuration, memories: Iterable[MemoryModel]
) -> list[Bound]:
    """Return, for each memory, the least cycles of any program that the compiler may choose.

    If the network has several programs, the unit is the one that takes most cycles in their sum.

    Raises
    ------
    CompileError
        If no program can compute a layer of the network.
    """
    works = network_work(graph, configuration)
    found = []
    for memory in memories:
        cycles: Counter[str] = Counter()
        for work in works:
            bound = work.bound(memory)
            cycles[bound.unit] += bound.cycles
        unit = cycles.most_common(1)[0][0] if cycles else ""
        found.append(Bound(cycles.total(), unit))
    return found
