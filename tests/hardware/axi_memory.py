"""AXI4 memory models with random pauses, and helpers that the block tests share.

The `drive` method of a model sets inputs at the start of a cycle. Its `sample` method reads the
settled signals just before the clock edge.
"""

import random
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from .simulated import Simulated

BURST_INCR = 1
SLVERR = 2


class RandomPauses:
    """Decide each cycle whether a stream moves.

    Parameters
    ----------
    generator : random.Random
    idle : float
        Share of cycles in which the stream pauses; pauses come in clusters.
    """

    def __init__(self, generator: random.Random, idle: float):
        self.generator = generator
        self.idle = idle
        self.pause = 0

    def moves(self) -> bool:
        """Return True when the stream may move in this cycle."""
        if self.pause:
            self.pause -= 1
            return False
        if self.generator.random() < self.idle:
            self.pause = self.generator.choice((0, 0, 0, 1, 2, 7))
            return False
        return True


class ReadMemory:
    """Answer bursts on AR with beats on R, in order.

    Parameters
    ----------
    port : read port of a master
    data : uint8[bytes]
        Contents from address 0.
    bus_bytes, burst_bytes : int
        Width of a beat; boundary that no burst may cross.
    generator, idle
        As for `RandomPauses`, on both channels.
    latency : int
        Least cycles from a request's handshake to its first beat.
    failing : set[int]
        Beat addresses that answer SLVERR.
    """

    def __init__(
        self,
        port,
        data: np.ndarray,
        bus_bytes: int,
        burst_bytes: int,
        generator: random.Random,
        idle: float = 0.0,
        latency: int = 1,
        failing: frozenset[int] = frozenset(),
    ):
        self.port = port
        self.data = data
        self.bus_bytes = bus_bytes
        self.burst_bytes = burst_bytes
        self.latency = latency
        self.failing = failing
        self.requests_move = RandomPauses(generator, idle)
        self.beats_move = RandomPauses(generator, idle)
        self.waiting: deque[tuple[int, int, bool]] = deque()
        self.requests: list[tuple[int, int, int]] = []
        self.beat_cycles: list[int] = []
        self.offered = False
        self.held: tuple[int, int] | None = None
        self.cycle = 0

    def drive(self, ctx) -> None:
        """Offer the oldest beat, and decide whether to accept a request."""
        port = self.port
        ctx.set(port.arready, self.requests_move.moves())
        due = bool(self.waiting) and self.waiting[0][0] <= self.cycle
        self.offered = due and (self.offered or self.beats_move.moves())
        ctx.set(port.rvalid, self.offered)
        if self.offered:
            _, address, last = self.waiting[0]
            beat = self.data[address : address + self.bus_bytes]
            ctx.set(port.rdata, int.from_bytes(beat.tobytes(), "little"))
            ctx.set(port.rlast, last)
            ctx.set(port.rresp, SLVERR if address in self.failing else 0)

    def sample(self, ctx) -> None:
        """Take what was transferred."""
        port = self.port
        if self.offered and ctx.get(port.rready):
            self.waiting.popleft()
            self.beat_cycles.append(self.cycle)
            self.offered = False
        if ctx.get(port.arvalid):
            request = (ctx.get(port.araddr), ctx.get(port.arlen))
            assert self.held in (None, request), "a request changed before it was accepted"
            self.held = request
            if ctx.get(port.arready):
                self.held = None
                self._accept(ctx, *request)
        else:
            assert self.held is None, "a request was withdrawn"
        self.cycle += 1

    def _accept(self, ctx, address: int, beats_minus_one: int) -> None:
        assert ctx.get(self.port.arburst) == BURST_INCR
        assert 1 << ctx.get(self.port.arsize) == self.bus_bytes
        beats = beats_minus_one + 1
        _check_burst(address, beats, self.bus_bytes, self.burst_bytes)
        self.requests.append((self.cycle, address, beats))
        for beat in range(beats):
            self.waiting.append(
                (self.cycle + self.latency, address + beat * self.bus_bytes, beat == beats - 1)
            )


class WriteMemory:
    """Accept bursts on AW and W in any relative order, and answer on B.

    Parameters
    ----------
    port : write port of a master
    data : uint8[bytes]
        Changed in place.
    bus_bytes, burst_bytes, generator, idle, latency, failing
        As for `ReadMemory`; `latency` counts from the last beat to the response.
    """

    def __init__(
        self,
        port,
        data: np.ndarray,
        bus_bytes: int,
        burst_bytes: int,
        generator: random.Random,
        idle: float = 0.0,
        latency: int = 1,
        failing: frozenset[int] = frozenset(),
    ):
        self.port = port
        self.data = data
        self.bus_bytes = bus_bytes
        self.burst_bytes = burst_bytes
        self.latency = latency
        self.failing = failing
        self.requests_move = RandomPauses(generator, idle)
        self.beats_move = RandomPauses(generator, idle)
        self.responses_move = RandomPauses(generator, idle)
        self.requests: deque[tuple[int, int]] = deque()
        self.beats: deque[tuple[int, int, int]] = deque()
        self.responses: deque[tuple[int, int]] = deque()
        self.burst_beats: list[int] = []
        self.beat_cycles: list[int] = []
        self.offered = False
        self.held: dict[str, tuple[int, ...] | None] = {"aw": None, "w": None}
        self.cycle = 0

    def drive(self, ctx) -> None:
        """Decide what to accept, and offer the oldest response."""
        port = self.port
        ctx.set(port.awready, self.requests_move.moves())
        ctx.set(port.wready, self.beats_move.moves())
        due = bool(self.responses) and self.responses[0][0] <= self.cycle
        self.offered = due and (self.offered or self.responses_move.moves())
        ctx.set(port.bvalid, self.offered)
        if self.offered:
            ctx.set(port.bresp, self.responses[0][1])

    def sample(self, ctx) -> None:
        """Take what was transferred, and write complete bursts."""
        port = self.port
        if self.offered and ctx.get(port.bready):
            self.responses.popleft()
            self.offered = False
        request = self._handed(ctx, "aw", port.awvalid, port.awready, (port.awaddr, port.awlen))
        if request:
            assert ctx.get(port.awburst) == BURST_INCR
            assert 1 << ctx.get(port.awsize) == self.bus_bytes
            _check_burst(request[0], request[1] + 1, self.bus_bytes, self.burst_bytes)
            self.requests.append((request[0], request[1] + 1))
        beat = self._handed(
            ctx, "w", port.wvalid, port.wready, (port.wdata, port.wstrb, port.wlast)
        )
        if beat:
            self.beats.append((beat[0], beat[1], beat[2]))
            self.beat_cycles.append(self.cycle)
        while self.requests and len(self.beats) >= self.requests[0][1]:
            self._write(*self.requests.popleft())
        self.cycle += 1

    def _handed(self, ctx, channel: str, valid, ready, payload) -> tuple[int, ...] | None:
        """Return the payload if it was transferred; until then it must not change."""
        if not ctx.get(valid):
            assert self.held[channel] is None, f"{channel}: valid was withdrawn"
            return None
        values = tuple(ctx.get(value) for value in payload)
        assert self.held[channel] in (None, values), f"{channel}: payload changed while waiting"
        handed = ctx.get(ready)
        self.held[channel] = None if handed else values
        return values if handed else None

    def _write(self, address: int, beats: int) -> None:
        failed = False
        for beat in range(beats):
            data, strobe, last = self.beats.popleft()
            assert last == (beat == beats - 1), "wlast at the wrong beat"
            here = address + beat * self.bus_bytes
            failed |= here in self.failing
            for byte in range(self.bus_bytes):
                if strobe >> byte & 1:
                    self.data[here + byte] = data >> (8 * byte) & 0xFF
        self.burst_beats.append(beats)
        self.responses.append((self.cycle + self.latency, SLVERR if failed else 0))


def _check_burst(address: int, beats: int, bus_bytes: int, burst_bytes: int) -> None:
    assert address % bus_bytes == 0, f"address {address:#x} lies inside a beat"
    last = address + beats * bus_bytes - 1
    assert address // burst_bytes == last // burst_bytes, f"burst at {address:#x} is too long"


class CommandSource:
    """Offer commands one after the other.

    Parameters
    ----------
    stream : stream of a command layout
    commands : Sequence[int]
        Raw bits.
    """

    def __init__(self, stream, commands: Sequence[int], generator: random.Random, idle: float):
        self.stream = stream
        self.waiting = deque(commands)
        self.pauses = RandomPauses(generator, idle)
        self.offered = False
        self.cycle = 0
        self.accepted: list[int] = []

    def drive(self, ctx) -> None:
        """Offer the next command."""
        self.offered = bool(self.waiting) and (self.offered or self.pauses.moves())
        ctx.set(self.stream.valid, self.offered)
        if self.offered:
            ctx.set(self.stream.payload.as_value(), self.waiting[0])

    def sample(self, ctx) -> None:
        """Note whether the command was accepted."""
        if self.offered and ctx.get(self.stream.ready):
            self.waiting.popleft()
            self.accepted.append(self.cycle)
            self.offered = False
        self.cycle += 1


class Sink:
    """Take payloads of a stream, with pauses.

    Parameters
    ----------
    stream : stream
    read : Callable
        Reads the payload, from the simulator's context.
    """

    def __init__(
        self, stream, generator: random.Random, idle: float, read: Callable = lambda ctx: None
    ):
        self.stream = stream
        self.read = read
        self.pauses = RandomPauses(generator, idle)
        self.taken: list = []
        self.cycles: list[int] = []
        self.cycle = 0

    def drive(self, ctx) -> None:
        """Decide whether to be ready."""
        ctx.set(self.stream.ready, self.pauses.moves())

    def sample(self, ctx) -> None:
        """Keep what was transferred."""
        if ctx.get(self.stream.valid) and ctx.get(self.stream.ready):
            self.taken.append(self.read(ctx))
            self.cycles.append(self.cycle)
        self.cycle += 1


def simulate(
    block: Simulated,
    models: Sequence,
    finished: Callable[..., bool],
    constants: Sequence[tuple] = (),
    limit_cycles: int = 20_000,
) -> int:
    """Clock `block` until `finished(ctx)`, and return the cycles taken.

    `constants` are (signal, value) pairs set once. Fails beyond `limit_cycles`.
    """
    cycles = 0

    async def bench(ctx):
        nonlocal cycles
        for signal, value in constants:
            ctx.set(signal, value)
        while True:
            for model in models:
                model.drive(ctx)
            for model in models:
                model.sample(ctx)
            if finished(ctx):
                return
            assert cycles < limit_cycles, f"not finished after {limit_cycles} cycles"
            await ctx.tick()
            cycles += 1

    block.run(bench)
    return cycles
