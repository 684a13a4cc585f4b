"""Instructions that move bytes, chosen by source and destination instead of by name."""

from ...errors import IsaError
from ..configuration import Memory
from .common import Instruction
from .load import DESTINATIONS, Load
from .loops import Loop
from .store import SOURCES, Store


def transfer(
    source: Memory,
    destination: Memory,
    length: int,
    base: tuple[int, int],
    loops: tuple[Loop, ...] = (),
) -> Instruction:
    """Copy runs of bytes between main memory and a scratchpad.

    Parameters
    ----------
    source, destination
        Memories; one of them is main memory.
    length
        Bytes of a run.
    base
        First byte in the source and in the destination.
    loops
        Strides `(source, destination)` in bytes.

    Raises
    ------
    IsaError
        When no unit moves data that way.
    """
    problem = transfer_problem(source, destination)
    if problem:
        raise IsaError(problem)
    if source is Memory.DRAM:
        return Load(
            destination=destination, length=length, memory=base[0], local=base[1], loops=loops
        )
    return Store(source=source, length=length, local=base[0], memory=base[1], loops=loops)


def transfer_problem(source: Memory, destination: Memory) -> str:
    """Reason why no unit moves data that way; empty if one does."""
    loads = source is Memory.DRAM and destination in DESTINATIONS
    if loads or (destination is Memory.DRAM and source in SOURCES):
        return ""
    return (
        f"no unit moves data from {source.name} to {destination.name}; LOAD fills "
        f"{_listed(DESTINATIONS)} from main memory, and STORE reads {_listed(SOURCES)}"
    )


def fill_memory(
    destination: Memory, value: int, length: int, base: int, loops: tuple[Loop, ...] = ()
) -> Instruction:
    """Write the byte `value` over runs of a scratchpad; strides are `(any, destination)`."""
    return Load(
        destination=destination, fill=True, value=value, length=length, local=base, loops=loops
    )


def _listed(memories: tuple[Memory, ...]) -> str:
    *most, last = (memory.name for memory in memories)
    return f"{', '.join(most)} and {last}"
