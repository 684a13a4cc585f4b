"""How the memory behind the core's AXI4 port behaves: one description for all simulators."""

from dataclasses import dataclass

from ..errors import DeviceError

WRITE_BUFFER_BEATS = 512
"""Write data that the memory takes before their address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryModel:
    """Latency, bandwidth, outstanding bursts and random stalls of main memory.

    Reads and writes do not disturb each other; responses come in request order.

    Parameters
    ----------
    latency_cycles
        From the cycle that accepts a read address to the first cycle that offers its first beat,
        and from the cycle that accepts the last beat of a write to the first that offers its
        response.
    beats, cycles
        Bandwidth: at most `beats` beats move every `cycles` cycles in each direction, never more
        than one a cycle. The memory does not save up bandwidth that was not used.
    outstanding_bursts
        Bursts that each direction accepts before the first one is complete.
    stall_probability
        Chance that a cycle holds a channel back: no `ready`, or a response that starts later.
        Each of the five channels draws on its own. A response once offered stays.
    seed
        Of the draws; equal seeds give equal runs.

    Raises
    ------
    DeviceError
        For values that no memory has.
    """

    latency_cycles: int = 64
    beats: int = 1
    cycles: int = 1
    outstanding_bursts: int = 64
    stall_probability: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        for holds, sentence in (
            (
                1 <= self.latency_cycles <= 1 << 20,
                f"`latency_cycles` must be from 1 to {1 << 20}, not {self.latency_cycles}",
            ),
            (
                1 <= self.beats <= self.cycles <= 1 << 20,
                f"`beats` must be from 1 to `cycles`, not {self.beats} in {self.cycles} cycles",
            ),
            (
                1 <= self.outstanding_bursts <= 4096,
                f"`outstanding_bursts` must be from 1 to 4096, not {self.outstanding_bursts}",
            ),
            (
                0 <= self.stall_probability <= 0.95,
                f"`stall_probability` must be from 0 to 0.95, not {self.stall_probability}",
            ),
            (
                0 <= self.seed < 1 << 64,
                f"`seed` must be a 64-bit number that is not negative, not {self.seed}",
            ),
        ):
            if not holds:
                raise DeviceError(f"memory model: {sentence}")

    @property
    def beat_cycles(self) -> float:
        """Mean cycles that one beat takes, stalls left out."""
        return self.cycles / self.beats
