"""The certified lower bound of a network's cycles with a certain main memory, before compiling."""

from collections.abc import Iterable

from ...compiler.accelerator.lower_bound import Demand
from ...compiler.graph import Graph
from ...compiler.network_bound import network_demands
from ...isa.configuration import Configuration
from ...sim.memory_model import MemoryModel


def lower_bounds(
    graph: Graph, configuration: Configuration, memories: Iterable[MemoryModel]
) -> list[int]:
    """Least cycles of the network for every program that the compiler may choose, by memory.

    Raises
    ------
    CompileError
        When the network has a layer that no program computes.
    """
    demands = network_demands(graph, configuration)
    return [
        sum(segment_bound(demand, configuration, memory) for demand in demands)
        for memory in memories
    ]


def segment_bound(demand: Demand, configuration: Configuration, memory: MemoryModel) -> int:
    """Least cycles of one program.

    Before LOAD moves its first byte, FETCH has waited for the first instructions and LOAD for main
    memory. The run ends with the response to the last beat of STORE. In between, a unit that moves
    data needs the beats, as often as main memory gives them.
    """
    if not any(demand.busy):
        return 0
    gemm, vector, load, store = demand.busy
    read, written = (_transfer_cycles(size, configuration, memory) for size in demand.traffic)
    busy = gemm, vector, max(load, read), max(store, written)
    wait = memory.latency_cycles * (2 if load else 1)
    parts = zip(demand.before, busy, demand.after, strict=True)
    longest = max(before + work + after for before, work, after in parts if work)
    return wait + longest + (memory.latency_cycles if store else 0)


def _transfer_cycles(size: int, configuration: Configuration, memory: MemoryModel) -> int:
    """Least cycles between the first and the last beat of a transfer, both included."""
    beats = -(-size // configuration.bus_bytes)
    return max(0, (beats - 1) * memory.cycles // memory.beats + 1 - memory.cycles) if beats else 0
