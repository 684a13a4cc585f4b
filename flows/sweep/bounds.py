"""The certified lower bound of a network's cycles, known before the network is compiled."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from ...compiler.accelerator.lower_bound import UNITS, Demand
from ...compiler.graph import Graph
from ...compiler.pipeline.network_bound import network_demands
from ...isa.configuration import Configuration
from ...isa.memory_model import MemoryModel


@dataclass(frozen=True, slots=True)
class Bound:
    """The least cycles of a program.

    Parameters
    ----------
    unit
        The unit that is busy for longest, one of `lower_bound.UNITS`; empty if there is no work.
    """

    cycles: int
    unit: str


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
    demands = network_demands(graph, configuration)
    found = []
    for memory in memories:
        cycles: Counter[str] = Counter()
        for demand in demands:
            bound = segment_bound(demand, configuration, memory)
            cycles[bound.unit] += bound.cycles
        unit = cycles.most_common(1)[0][0] if cycles else ""
        found.append(Bound(cycles.total(), unit))
    return found


def segment_bound(demand: Demand, configuration: Configuration, memory: MemoryModel) -> Bound:
    """Return the least cycles of one program.

    Before LOAD moves its first byte, FETCH has waited for the first instructions and LOAD for main
    memory. The run ends with the response to the last beat of STORE. In between, LOAD and STORE
    need at least as many cycles as main memory takes for their beats.
    """
    if not any(demand.busy):  # FETCH reads at least HALT
        return Bound(memory.latency_cycles, "")
    gemm, vector, load, store = demand.busy
    read, written = (_transfer_cycles(size, configuration, memory) for size in demand.traffic)
    busy = gemm, vector, max(load, read), max(store, written)
    wait = memory.latency_cycles * (2 if load else 1)
    parts = zip(demand.before, busy, demand.after, strict=True)
    totals = [before + work + after if work else 0 for before, work, after in parts]
    longest = max(totals)
    end = memory.latency_cycles if store else 0
    return Bound(wait + longest + end, UNITS[totals.index(longest)])


def _transfer_cycles(size: int, configuration: Configuration, memory: MemoryModel) -> int:
    """Return the least cycles from the first beat of a transfer to the last, both included."""
    beats = -(-size // configuration.bus_bytes)
    return max(0, (beats - 1) * memory.cycles // memory.beats + 1 - memory.cycles) if beats else 0
