"""The memory model of a board, from the cycles of short programs.

Each program moves bursts of one length: reads, writes, both at a time, or both in turn. The exact
model gives the cycles of these programs for any memory. The search starts from a guess by the
cycles per burst, and changes parameters until all measured cycles are explained. Parameters that no
program can tell apart keep the values of the description or, without one, of the default memory.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import zip_longest

import numpy as np

from ...compiler.module import Segment
from ...errors import DeviceError
from ...isa.configuration import Configuration, Memory
from ...isa.instructions import Instruction, Load, Loop, Store
from ...isa.memory_model import MemoryModel, SharedBus
from ...isa.tokens import beginning, synthesise_tokens
from ...runtime.device import Device
from ...sim.timing import Timer
from ..cli.progress import Advance

COUNTS = (1, 2, 5, 24, 130, 700)
"""Bursts of a program; two loops of the shortest extents make the longest."""

EXTENT = 28
"""Greatest extent of a loop."""

LONG = 40
"""Repetitions of the last of them, which last for many refreshes."""

TURNS = 12
"""Reads and writes of the program that does them in turn."""

WINDOW_BYTES = 8192
"""The data window of the programs: reads come from its first half, writes go to the second."""

MAX_BEAT_CYCLES = 8
"""Maximum denominator of a bandwidth of more than a beat in two cycles."""

RATES = frozenset(
    Fraction(beats, cycles)
    for cycles in range(1, MAX_BEAT_CYCLES + 1)
    for beats in range(1, cycles + 1)
)
"""First guesses of a bandwidth, in beats per cycle."""

REFRESHES = (4, 6, 8, 12, 16, 24, 32)
"""First guesses of the cycles of a refresh."""

MAX_INTERVAL = 4096
"""Longest refresh interval of a first guess, in cycles; 7.8 us at 200 MHz are 1,562."""

OUTSTANDING = (64, 6, 3, 1)
"""First guesses of the bursts that a memory accepts before the first one ends."""

MAX_GUESSES = 5
"""Guesses of each kind of bus that are improved, at most."""

STEPS = tuple(sign * step for step in (1, 2, 3, 5, 8, 16, 32, 64) for sign in (1, -1))
"""Changes of a parameter."""

MAX_ROUNDS = 200
"""Improvements of a guess, at most."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A short program.

    Parameters
    ----------
    name
        The kind of accesses, and the beats of a burst.
    bursts
        Bursts of each direction.
    beats
        Beats of a burst.
    program
    timer
        Tells its cycles for any memory.
    """

    name: str
    bursts: int
    beats: int
    program: tuple[Instruction, ...]
    timer: Timer

    def cycles(self, memory: MemoryModel) -> int:
        """Return the cycles that it takes by the exact model."""
        return self.timer.run(memory).cycles


@dataclass(frozen=True, slots=True)
class Fit:
    """A memory, and how well it explains the measurements.

    Parameters
    ----------
    memory
    error_cycles
        Sum over all programs of the differences between its cycles and the measured ones.
    measured_cycles
        Sum of the measured ones.
    """

    memory: MemoryModel
    error_cycles: int
    measured_cycles: int


@dataclass(frozen=True, slots=True)
class LayerError:
    """Cycles by which a layer delays the end of its segment.

    Parameters
    ----------
    name
    measured, modelled
        On the device, and by the exact model.
    """

    name: str
    measured: int
    modelled: int


def probes(configuration: Configuration) -> list[Probe]:
    """Return the programs that measure the memory of a machine."""
    half = configuration.size_bytes(Memory.ACT) // 2
    longest = min(configuration.burst_beats, half // configuration.bus_bytes)
    found = []

    def add(name: str, bursts: int, beats: int, *instructions: Instruction) -> None:
        program = synthesise_tokens(instructions, configuration)
        timer = Timer(program, configuration)
        found.append(Probe(f"{name} of {beats}", bursts, beats, program, timer))

    for beats in sorted({1, max(1, longest // 4), longest}):
        length = beats * configuration.bus_bytes

        def read(count: int, length: int = length) -> Load:
            return Load(destination=Memory.ACT, length=length, local=0, loops=_again(count))

        def write(count: int, local: int, length: int = length) -> Store:
            place = WINDOW_BYTES // 2
            return Store(
                source=Memory.ACT, length=length, local=local, memory=place, loops=_again(count)
            )

        for count in COUNTS:
            add("reads", count, beats, read(count))
            add("writes", count, beats, write(count, half))
        for count in COUNTS[2:]:
            add("both", count, beats, read(count), write(count, half))
        # Each write waits for the read before it, and each read for that write.
        if beats == 1:
            add("reads", LONG * COUNTS[-1], 1, *(read(COUNTS[-1]) for _ in range(LONG)))
        add("turns", TURNS, beats, *(each for _ in range(TURNS) for each in (read(1), write(1, 0))))
    return found


def _again(count: int) -> tuple[Loop, ...]:
    """Return loops that repeat an access in the same place."""
    inner = next(extent for extent in range(EXTENT, 0, -1) if count % extent == 0)
    return tuple(Loop(extent, (0, 0)) for extent in (count // inner, inner) if extent > 1)


def measure(
    device: Device, programs: Sequence[Probe], advance: Advance = lambda text, done, total: None
) -> list[int]:
    """Return the cycles of programs on a device, and report each one to `advance`.

    Raises
    ------
    DeviceError
        If the device does not count cycles, or fails.
    """
    found = []
    for done, probe in enumerate(programs):
        advance(f"measuring {probe.name} beats", done, len(programs))
        found.append(_run(device, probe.program, WINDOW_BYTES))
    return found


def _run(device: Device, program: tuple[Instruction, ...], window_bytes: int) -> int:
    cycles = device.run(program, np.zeros(window_bytes, np.uint8)).cycles
    if cycles is None:
        raise DeviceError(
            f"device `{device.name}`: it does not count cycles; choose a configuration with "
            "`counters` other than `none`"
        )
    return cycles


def fit(
    programs: Sequence[Probe],
    measured: Sequence[int],
    described: MemoryModel | None = None,
    advance: Callable[[str], None] = lambda text: None,
) -> Fit:
    """Return the memory that explains the measured cycles best.

    Parameters
    ----------
    described
        What the board says of its memory, which is returned if it explains all cycles.
    advance
        Receives the state of the search.
    """

    # Short programs rule most memories out. All searches ask for neighbours, often for the same
    # ones: a sum goes on where it stopped.
    quickest = sorted(zip(programs, measured, strict=True), key=lambda pair: pair[1])
    sums: dict[MemoryModel, tuple[int, int]] = {}

    def error(memory: MemoryModel, limit: float = math.inf) -> int:
        total, place = sums.get(memory, (0, 0))
        while place < len(quickest) and total < limit:
            probe, cycles = quickest[place]
            total += abs(probe.cycles(memory) - cycles)
            place += 1
        sums[memory] = total, place
        return total

    guesses = [_improve(guess, error, _latencies) for guess in _guesses(programs, measured)]
    guesses.sort(key=error)
    best = min(([described] if described else []) + guesses, key=error)
    apart = [guess for guess in guesses if guess.bus is None][:MAX_GUESSES]
    shared = [guess for guess in guesses if guess.bus][:MAX_GUESSES]
    for guess in (each for pair in zip_longest(apart, shared) for each in pair if each):
        if not error(best):
            break
        for neighbours in (_neighbours, _intervals, _neighbours):
            guess = _improve(guess, error, neighbours)
        best = min(best, guess, key=error)
        advance(f"{error(best):,} cycles unexplained")
    return Fit(best, error(best), sum(measured))


def _guesses(programs: Sequence[Probe], measured: Sequence[int]) -> Iterator[MemoryModel]:
    """Yield first guesses, from the cycles that one more burst takes."""
    cycles = {
        (probe.name, probe.bursts): count for probe, count in zip(programs, measured, strict=True)
    }
    few, many = COUNTS[-2:]
    longest = max(probe.beats for probe in programs)

    def slope(kind: str, beats: int) -> float:
        name = f"{kind} of {beats}"
        return (cycles[name, many] - cycles[name, few]) / (many - few)

    latency = max(1, (cycles[f"turns of {longest}", TURNS] - longest) // (4 * TURNS))
    per_beat = max(1.0, slope("reads", longest) / longest)
    # The machine may take less than a beat per cycle, which hides the memory's bandwidth.
    seen = Fraction(1 / per_beat).limit_denominator(MAX_BEAT_CYCLES) or Fraction(1, round(per_beat))
    for rate in sorted({rate for rate in RATES if rate >= seen} | {min(seen, Fraction(1))}):
        for most in OUTSTANDING:
            yield MemoryModel(
                latency_cycles=latency,
                beats=rate.numerator,
                cycles=rate.denominator,
                outstanding_bursts=most,
            )
    beat = max(1, round((slope("reads", longest) - slope("reads", 1)) / max(1, longest - 1)))
    # The fraction of a slope is a burst's share of the refreshes: rounded up, it would leave none.
    gaps = [max(0, int(slope(kind, longest) - longest * beat)) for kind in ("reads", "writes")]
    total = cycles[f"reads of {longest}", many]
    extra = max(1.0, total - many * (longest * beat + gaps[0]))
    for refresh in REFRESHES:
        interval = min(max(2 * refresh, round(total * refresh / extra)), MAX_INTERVAL)
        bus = SharedBus(
            read_gap_cycles=gaps[0],
            write_gap_cycles=gaps[1],
            refresh_cycles=refresh,
            refresh_interval_cycles=interval,
        )
        yield MemoryModel(latency_cycles=latency, cycles=beat, bus=bus)


def _improve(
    memory: MemoryModel,
    error: Callable[[MemoryModel, float], int],
    neighbours: Callable[[MemoryModel], Iterator[MemoryModel]],
) -> MemoryModel:
    """Return the memory after steps that each lower the error most.

    Parameters
    ----------
    error
        Of a memory; it need not be exact from a limit on.
    """
    least = error(memory, math.inf)
    for _ in range(MAX_ROUNDS):
        best = memory
        for nearby in neighbours(memory) if least else ():
            if (found := error(nearby, least)) < least:
                best, least = nearby, found
        if best is memory:
            break
        memory = best
    return memory


def _neighbours(memory: MemoryModel) -> Iterator[MemoryModel]:
    """Memories that differ by one parameter, or by two whose effects are alike."""
    for step in STEPS:
        yield from _legal(memory, latency_cycles=memory.latency_cycles + step)
        if memory.bus is None:
            yield from _legal(memory, outstanding_bursts=memory.outstanding_bursts + step)
            yield from _legal(
                memory,
                outstanding_bursts=memory.outstanding_bursts + step,
                latency_cycles=memory.latency_cycles - step,
            )
            continue
        yield from _legal(memory, cycles=memory.cycles + step)
        for change in _bus_changes(memory.bus, step):
            try:
                bus = replace(memory.bus, **change)
            except DeviceError:
                continue
            yield from _legal(memory, bus=bus)
            yield from _legal(memory, bus=bus, latency_cycles=memory.latency_cycles - step)


def _latencies(memory: MemoryModel) -> Iterator[MemoryModel]:
    """Memories with other latencies."""
    for step in STEPS:
        yield from _legal(memory, latency_cycles=memory.latency_cycles + step)


def _intervals(memory: MemoryModel) -> Iterator[MemoryModel]:
    """Yield all refresh intervals nearby, because the error has many local minima."""
    if memory.bus is None:
        yield memory
        return
    interval = memory.bus.refresh_interval_cycles
    for other in range(4 * interval // 5, 5 * interval // 4):
        if other >= 2 * memory.bus.refresh_cycles:
            yield replace(memory, bus=replace(memory.bus, refresh_interval_cycles=other))


def _bus_changes(bus: SharedBus, step: int) -> Iterator[dict[str, int]]:
    read, write, refresh, interval = (
        bus.read_gap_cycles,
        bus.write_gap_cycles,
        bus.refresh_cycles,
        bus.refresh_interval_cycles,
    )
    yield {"read_gap_cycles": read + step}
    yield {"write_gap_cycles": write + step}
    yield {"read_gap_cycles": read + step, "write_gap_cycles": write + step}
    yield {"refresh_cycles": refresh + step}
    yield {"refresh_interval_cycles": interval + step}
    yield {"refresh_interval_cycles": round(interval * (1 + step / 100))}
    # The same share of the time for refreshes.
    scaled = round(interval * (refresh + step) / refresh)
    for nearby in range(scaled - 2, scaled + 3):
        yield {"refresh_cycles": refresh + step, "refresh_interval_cycles": nearby}


def _legal(memory: MemoryModel, **changes) -> Iterator[MemoryModel]:
    try:
        yield replace(memory, **changes)
    except DeviceError:
        return


def layer_errors(
    device: Device,
    segment: Segment,
    names: Sequence[str],
    memory: MemoryModel,
    advance: Advance = lambda text, done, total: None,
) -> list[LayerError]:
    """Return the cycles of each layer of a segment on a device, and by the exact model.

    A device counts whole programs only, so the program is run up to each layer in turn.

    Parameters
    ----------
    names
        Of the layers.
    memory
        Of the exact model.
    """
    found: list[LayerError] = []
    end, before = 0, (0, 0)
    for layer, name in zip(segment.layers, names, strict=True):
        advance(f"timing the program up to {name}", len(found), len(names))
        end = max(end, 1 + max(layer.places))
        program = beginning(segment.program, end)
        timer = Timer(program, device.configuration)
        now = _run(device, program, segment.data_bytes), timer.run(memory).cycles
        found.append(LayerError(name, now[0] - before[0], now[1] - before[1]))
        before = now
    return found
