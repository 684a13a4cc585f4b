"""Instructions that move bytes, chosen by source and destination instead of by name."""

from functools import lru_cache

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
    *,
    transpose: bool = False,
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
    transpose
        Whether a run goes to a lane of successive rows.

    Raises
    ------
    IsaError
        When no unit moves data that way.
    """
    first = _transfer_at_zero(source, destination, length, loops, transpose)
    names = ("memory", "local") if source is Memory.DRAM else ("local", "memory")
    return first.moved(dict(zip(names, base, strict=True)))


@lru_cache(maxsize=1 << 14)
def _transfer_at_zero(
    source: Memory, destination: Memory, length: int, loops: tuple[Loop, ...], transpose: bool
) -> Instruction:
    problem = transfer_problem(source, destination)
    if problem:
        raise IsaError(problem)
    if source is Memory.DRAM:
        return Load(
            destination=destination, transpose=transpose, length=length, local=0, loops=loops
        )
    return Store(source=source, length=length, local=0, memory=0, loops=loops)


def move_transfer(first: Instruction, memory: int, local: int) -> Instruction:
    """Return a transfer with addresses greater by `memory` and `local` bytes.

    Memory does not move for a fill, which has no address there.
    """
    assert isinstance(first, Load | Store)
    bases = {"local": first.local + local}
    if isinstance(first, Store) or not first.fill:
        bases["memory"] = first.memory + memory
    return first.moved(bases)


def transfer_problem(source: Memory, destination: Memory) -> str:
    """Reason why no unit moves data that way; empty if one does."""
    loads = source is Memory.DRAM and destination in DESTINATIONS
    if loads or (destination is Memory.DRAM and source in SOURCES):
        return ""
    return (
        f"no unit moves data from {source.name} to {destination.name}; LOAD fills "
        f"{_listed(DESTINATIONS)} from main memory, and STORE reads {_listed(SOURCES)}"
    )


def unpack_weights(length: int, memory: int, local: int) -> Instruction:
    """Unpack weight tiles of 4 bits, `length` bytes of main memory, into WGT."""
    return _unpack_at_zero(length).moved({"memory": memory, "local": local})


@lru_cache(maxsize=1 << 14)
def _unpack_at_zero(length: int) -> Instruction:
    return Load(destination=Memory.WGT, unpack=True, length=length, local=0)


def fill_memory(
    destination: Memory, value: int, length: int, base: int, loops: tuple[Loop, ...] = ()
) -> Instruction:
    """Write the byte `value` over runs of a scratchpad; strides are `(any, destination)`."""
    return _fill_at_zero(destination, value, length, loops).moved({"local": base})


@lru_cache(maxsize=1 << 14)
def _fill_at_zero(
    destination: Memory, value: int, length: int, loops: tuple[Loop, ...]
) -> Instruction:
    return Load(
        destination=destination, fill=True, value=value, length=length, local=0, loops=loops
    )


def _listed(memories: tuple[Memory, ...]) -> str:
    *most, last = (memory.name for memory in memories)
    return f"{', '.join(most)} and {last}"
