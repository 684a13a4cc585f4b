"""Model of the memory behind the core's AXI4 port, shared by all simulators."""

from dataclasses import dataclass

from ..errors import DeviceError

WRITE_BUFFER_BEATS = 512
"""Write beats that the memory accepts before their address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryModel:
    """Latency, bandwidth, outstanding bursts and random stalls of main memory.

    Reads and writes are independent; responses come in request order.

    Parameters
    ----------
    latency_cycles
        Cycles from accepting a read address to offering its first beat, and from accepting the last
        beat of a write to offering its response.
    beats, cycles
        Bandwidth: at most `beats` beats per `cycles` cycles in each direction, and never more than
        one per cycle. Unused bandwidth does not accumulate.
    outstanding_bursts
        Bursts that each direction accepts before its first one is complete.
    stall_probability
        Probability that a channel stalls in a cycle: `ready` is low, or a response starts later.
        Each of the five channels draws independently. A response stays once offered.
    seed
        Seed of the draws; equal seeds give equal runs.

    Raises
    ------
    DeviceError
        For values out of range.
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
        """Mean cycles per beat, without stalls."""
        return self.cycles / self.beats
