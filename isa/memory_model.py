"""Model of the memory behind the core's AXI4 port, shared by all simulators."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..argument_types import checked_class
from ..errors import DeviceError
from .configuration import Configuration
from .sdram import BUFFERED_BURSTS, Sdram

WRITE_BUFFER_BEATS = 512
"""Write beats that the memory accepts before their address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedBus:
    """One data bus for reads and writes, as an SDRAM has, and its refreshes.

    Bursts are served one at a time. If a read and a write wait, the direction goes first that was
    not served last. A write waits until it has all its data; it is kept until its response, and
    `isa.sdram.BUFFERED_BURSTS` are kept at most. A read waits until fewer than as many of those
    before have beats left to take. A due refresh goes before any burst; one is due when a program
    starts.

    Parameters
    ----------
    read_gap_cycles, write_gap_cycles
        Cycles that a burst takes beyond those of its beats.
    refresh_cycles, refresh_interval_cycles
        Cycles that a refresh takes, and from one to the next.

    Raises
    ------
    DeviceError
        For values out of range.
    """

    read_gap_cycles: int
    write_gap_cycles: int
    refresh_cycles: int
    refresh_interval_cycles: int

    @staticmethod
    def of_cycles(read: int, write: int, refresh: int, interval: int) -> "SharedBus":
        """A bus from its numbers of cycles in the order of the fields."""
        return SharedBus(
            read_gap_cycles=read,
            write_gap_cycles=write,
            refresh_cycles=refresh,
            refresh_interval_cycles=interval,
        )

    def __post_init__(self) -> None:
        for name, least in (
            ("read_gap_cycles", 0),
            ("write_gap_cycles", 0),
            ("refresh_cycles", 1),
            ("refresh_interval_cycles", 2 * self.refresh_cycles),
        ):
            value = getattr(self, name)
            if not least <= value <= 1 << 20:
                raise DeviceError(
                    f"memory model: `{name}` must be from {least} to {1 << 20}, not {value}"
                )


@checked_class("MemoryModel", DeviceError)
@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryModel:
    """Latency, bandwidth, outstanding bursts and random stalls of main memory.

    Reads and writes are independent, unless they share a bus; responses come in request order.

    Parameters
    ----------
    latency_cycles
        Cycles from accepting a read address to offering its first beat, and from accepting the last
        beat of a write to offering its response.
    beats, cycles
        Bandwidth: at most `beats` beats per `cycles` cycles in each direction, and never more than
        one per cycle. Unused bandwidth does not accumulate. On a shared bus, a beat of a burst
        follows the one before after `cycles` cycles.
    outstanding_bursts
        Bursts that each direction accepts before its first one is complete; without effect on a
        shared bus, where all are accepted.
    stall_probability
        Probability that a channel stalls in a cycle: `ready` is low, or a response starts later.
        Each of the five channels draws independently. A response stays once offered.
    seed
        Seed of the draws; equal seeds give equal runs.
    bus
        The bus that reads and writes share; None if they are independent.

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
    bus: SharedBus | None = None

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
            (
                self.bus is None or self.beats == 1,
                f"`beats` must be 1 on a shared bus, not {self.beats}",
            ),
        ):
            if not holds:
                raise DeviceError(f"memory model: {sentence}")

    @property
    def beat_cycles(self) -> float:
        """Mean cycles per beat, without stalls."""
        return self.cycles / self.beats

    def with_stalls(self, probability: float, seed: int = 0) -> "MemoryModel":
        """The memory with other random stalls; programs are compiled for one without any."""
        return replace(self, stall_probability=probability, seed=seed)

    @staticmethod
    def of_parameters(parameters: Mapping[str, Any]) -> "MemoryModel":
        """A memory from the values of its parameters, those of the bus in a mapping."""
        bus = parameters.get("bus")
        return MemoryModel(**{**parameters, "bus": bus and SharedBus(**bus)})

    @staticmethod
    def of_sdram(sdram: Sdram, configuration: Configuration, clock_hz: int) -> "MemoryModel":
        """An SDRAM behind the controller of a board."""
        cycles = sdram.at(clock_hz)
        schedule = cycles.schedule(configuration.bus_bits // sdram.data_bits)
        bus = SharedBus(
            read_gap_cycles=schedule.read_gap_cycles,
            write_gap_cycles=schedule.write_gap_cycles,
            refresh_cycles=cycles.rfc,
            refresh_interval_cycles=cycles.refi,
        )
        return MemoryModel(
            latency_cycles=schedule.latency_cycles, cycles=schedule.beat_cycles, bus=bus
        )


def bus_values(memory: MemoryModel) -> tuple[int, ...]:
    """The bus as the simulators in C++ take it; all zero if there is none."""
    bus = memory.bus
    if bus is None:
        return (0,) * 5
    return (
        BUFFERED_BURSTS,
        bus.read_gap_cycles,
        bus.write_gap_cycles,
        bus.refresh_cycles,
        bus.refresh_interval_cycles,
    )
