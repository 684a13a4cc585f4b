"""The certified lower bound of a network's cycles with a certain main memory, before compiling."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from ...compiler.accelerator.lower_bound import UNITS, Demand
from ...compiler.graph import Graph
from ...compiler.network_bound import network_demands
from ...isa.configuration import Configuration
from ...sim.memory_model import MemoryModel


@dataclass(frozen=True, slots=True)
class Bound:
    """The least cycles of a program.

    Parameters
    ----------
    unit
        The unit that takes them, one of `lower_bound.UNITS`; empty without any work.
    """

    cycles: int
    unit: str


def lower_bounds(
    graph: Graph, configuration: Configuration, memories: Iterable[MemoryModel]
) -> list[Bound]:
    """Least cycles of the network for every program that the compiler may choose, by memory.

    The unit is the one that takes most cycles where the network has several programs.

    Raises
    ------
    CompileError
        When the network has a layer that no program computes.
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
    """Least cycles of one program.

    Before LOAD moves its first byte, FETCH has waited for the first instructions and LOAD for main
    memory. The run ends with the response to the last beat of STORE. In between, a unit that moves
    data needs the beats, as often as main memory gives them.
    """
    if not any(demand.busy):
        return Bound(0, "")
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
    """Least cycles between the first and the last beat of a transfer, both included."""
    beats = -(-size // configuration.bus_bytes)
    return max(0, (beats - 1) * memory.cycles // memory.beats + 1 - memory.cycles) if beats else 0
