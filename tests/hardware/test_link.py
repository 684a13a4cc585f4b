"""The bridge executes what arrives undamaged, and the serial port carries it."""

import random
from functools import cache

import pytest
from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from tilewright.hardware.axi_lite import axi_lite_port
from tilewright.hardware.control import ADDRESS_BITS
from tilewright.hardware.soc.block_memory import BlockMemory
from tilewright.hardware.soc.bridge import Bridge
from tilewright.hardware.soc.port_arbiter import PortArbiter
from tilewright.hardware.soc.uart import RECEIVED_BYTES, Uart
from tilewright.isa.configuration import PRESETS
from tilewright.isa.link import (
    BOARD_OFFSETS,
    BOARD_SPACE_BYTES,
    FLAG,
    LINK_MAGIC,
    LINK_VERSION,
    PAYLOAD_BYTES,
    Command,
    Status,
    body_of,
    frame,
    parse_answer,
    request,
)

from .simulated import Simulated

MEMORY_BYTES = 4096
BOARD = {"MEMORY_BYTES": MEMORY_BYTES, "MEMORY_LATENCY": 5, "CLOCK_HZ": 1000}
BUSES = {"32": PRESETS["tiny"], "64": PRESETS["8x8"]}


class BridgeWithMemory(wiring.Component):
    """A bridge in front of memory; its registers are the test's."""

    def __init__(self, configuration):
        self.configuration = configuration
        super().__init__(
            {
                "received": In(stream.Signature(8)),
                "sent": Out(stream.Signature(8)),
                "registers": Out(axi_lite_port(ADDRESS_BITS)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.bridge = bridge = Bridge(self.configuration, BOARD)
        m.submodules.arbiter = arbiter = PortArbiter(self.configuration)
        m.submodules.memory = memory = BlockMemory(self.configuration, MEMORY_BYTES)
        wiring.connect(m, wiring.flipped(self.received), bridge.received)
        wiring.connect(m, bridge.sent, wiring.flipped(self.sent))
        wiring.connect(m, bridge.registers, wiring.flipped(self.registers))
        wiring.connect(m, bridge.read, arbiter.bridge_read)
        wiring.connect(m, bridge.write, arbiter.bridge_write)
        wiring.connect(m, arbiter.read, memory.read)
        wiring.connect(m, arbiter.write, memory.write)
        return m


@cache
def bridge(bus: str) -> Simulated:
    return Simulated(BridgeWithMemory(BUSES[bus]))


class Registers:
    """The core's registers: every access is answered in the next cycle."""

    def __init__(self, port):
        self.port, self.values = port, {}
        self.read, self.written = None, False

    def step(self, ctx):
        port = self.port
        for name in ("awready", "wready", "arready"):
            ctx.set(getattr(port, name), 1)
        ctx.set(port.rvalid, self.read is not None)
        ctx.set(port.rdata, self.read or 0)
        ctx.set(port.bvalid, self.written)
        self.read = self.values.get(ctx.get(port.araddr), 0) if ctx.get(port.arvalid) else None
        self.written = bool(ctx.get(port.awvalid))
        if self.written:
            self.values[ctx.get(port.awaddr)] = ctx.get(port.wdata)


def talk(bus: str, data: bytes, answers: int, pauses: float = 0.0) -> tuple[list, Registers]:
    """Send bytes; return the answers and the registers. The bridge must be silent afterwards."""
    block = bridge(bus)
    top, generator = block.top, random.Random(1)
    registers = Registers(top.registers)
    sent = bytearray()

    async def host(ctx):
        left, offers, quiet = list(data), False, 0
        while left or sent.count(FLAG) < 2 * answers or quiet < 40:
            assert quiet < 10 * PAYLOAD_BYTES, f"{sent.count(FLAG) // 2} of {answers} answers"
            offers = bool(left) and (offers or generator.random() >= pauses)
            ctx.set(top.received.valid, offers)
            ctx.set(top.received.payload, left[0] if offers else 0)
            takes = generator.random() >= pauses
            ctx.set(top.sent.ready, takes)
            registers.step(ctx)
            quiet += 1
            if ctx.get(top.sent.valid) and takes:
                sent.append(ctx.get(top.sent.payload))
                quiet = 0
            if offers and ctx.get(top.received.ready):
                left.pop(0)
                offers, quiet = False, 0
            await ctx.tick()

    block.run(host)
    bodies = [body_of(part) for part in bytes(sent).split(bytes([FLAG])) if part]
    assert None not in bodies
    return [parse_answer(body) for body in bodies], registers


def framed(command, tag, address, length, payload=b""):
    return frame(request(command, tag, address, length, payload))


def okay(answers):
    assert [answer.status for answer in answers] == [Status.OKAY] * len(answers)
    return [answer.payload for answer in answers]


@pytest.mark.parametrize("pauses", [0.0, 0.3])
@pytest.mark.parametrize("bus", BUSES)
def test_memory_holds_what_was_written_at_any_place_and_length(bus, pauses):
    generator = random.Random(7)
    image = bytearray(generator.randbytes(256))
    stream = framed(Command.WRITE_MEMORY, 0, 0, 256, bytes(image))
    expected = [b""]
    for tag in range(1, 40):
        first = generator.randrange(256)
        length = generator.randint(1, min(20, 256 - first))
        if tag % 2:
            data = bytes(
                generator.choices([0x7D, 0x7E, 0x20, 0x5E, generator.randrange(256)], k=length)
            )
            image[first : first + length] = data
            stream += framed(Command.WRITE_MEMORY, tag, first, length, data)
            expected.append(b"")
        else:
            stream += framed(Command.READ_MEMORY, tag, first, length)
            expected.append(bytes(image[first : first + length]))
    stream += framed(Command.READ_MEMORY, 40, 0, 256)
    answers, _ = talk(bus, stream, 41, pauses)
    assert [answer.tag for answer in answers] == list(range(41))
    assert okay(answers) == [*expected, bytes(image)]


@pytest.mark.parametrize("bus", BUSES)
def test_the_longest_payload_passes_at_every_offset_in_a_word(bus):
    data = random.Random(3).randbytes(PAYLOAD_BYTES)
    offset = BUSES[bus].bus_bytes - 1
    stream = framed(Command.WRITE_MEMORY, 1, offset, PAYLOAD_BYTES, data)
    stream += framed(Command.READ_MEMORY, 2, offset, PAYLOAD_BYTES)
    answers, _ = talk(bus, stream, 2)
    assert okay(answers) == [b"", data]


@pytest.mark.parametrize("bus", BUSES)
def test_registers_of_core_and_board_are_read_and_written(bus):
    stream = framed(Command.WRITE_REGISTERS, 1, 0x14, 4, b"\x01\x02\x03\x04")
    stream += framed(Command.WRITE_REGISTERS, 2, 0x1C, 4, b"\x05\x06\x07\x08")
    stream += framed(Command.READ_REGISTERS, 3, 0x14, 12)
    session = BOARD_OFFSETS["SESSION"]
    stream += framed(Command.WRITE_REGISTERS, 4, session, 4, b"abcd")
    stream += framed(Command.READ_REGISTERS, 5, BOARD_OFFSETS["LINK_ID"], BOARD_SPACE_BYTES)
    answers, registers = talk(bus, stream, 5)
    payloads = okay(answers)
    assert registers.values == {0x14: 0x04030201, 0x1C: 0x08070605}
    assert payloads[2] == b"\x01\x02\x03\x04" + bytes(4) + b"\x05\x06\x07\x08"
    starts = range(0, BOARD_SPACE_BYTES, 4)
    words = [int.from_bytes(payloads[4][n : n + 4], "little") for n in starts]
    given = {**BOARD, "LINK_ID": LINK_MAGIC, "LINK_VERSION": LINK_VERSION}
    given["SESSION"] = int.from_bytes(b"abcd", "little")
    assert dict(zip(BOARD_OFFSETS, words, strict=True)) == dict.fromkeys(BOARD_OFFSETS, 0) | given


REFUSED = {
    "no command": (9, 0, 4, b""),
    "command 0": (0, 0, 4, b""),
    "nothing to read": (Command.READ_MEMORY, 0, 0, b""),
    "too much to read": (Command.READ_MEMORY, 0, PAYLOAD_BYTES + 1, b""),
    "behind the memory": (Command.READ_MEMORY, MEMORY_BYTES - 3, 4, b""),
    "far behind the memory": (Command.WRITE_MEMORY, 0xFFFFFFFF, 1, b"x"),
    "less than announced": (Command.WRITE_MEMORY, 0, 4, b"xyz"),
    "more than announced": (Command.WRITE_MEMORY, 0, 4, b"xyzuv"),
    "between registers": (Command.READ_REGISTERS, 2, 4, b""),
    "half a register": (Command.WRITE_REGISTERS, 0x14, 2, b"ab"),
    "two registers at once": (Command.WRITE_REGISTERS, 0x14, 8, b"abcdefgh"),
    "behind the registers": (Command.READ_REGISTERS, BOARD_OFFSETS["SESSION"], 8, b""),
}


def test_a_wrong_request_is_refused_and_changes_nothing():
    stream = framed(Command.WRITE_MEMORY, 0, 0, 8, b"original")
    for tag, (command, address, length, payload) in enumerate(REFUSED.values(), 1):
        stream += framed(command, tag, address, length, payload)
    stream += framed(Command.READ_MEMORY, 99, 0, 8)
    answers, registers = talk("32", stream, len(REFUSED) + 2)
    refused = {name: answer.status for name, answer in zip(REFUSED, answers[1:-1], strict=True)}
    assert refused == dict.fromkeys(REFUSED, Status.REFUSED)
    assert all(answer.payload == b"" for answer in answers[:-1])
    assert answers[-1].payload == b"original"
    assert not registers.values


def test_a_damaged_frame_is_dropped_and_the_next_one_is_answered():
    generator = random.Random(5)
    good = framed(Command.READ_MEMORY, 1, 0, 4)
    pieces = [b"\x7d", b"\x7e\x7e\x7e", bytes(2 * PAYLOAD_BYTES)]  # noise between frames
    for place in range(1, len(good) - 1):
        flipped = bytearray(good)
        flipped[place] ^= 1 << generator.randrange(8)
        pieces += [bytes(flipped), good[:place] + good[place + 1 :], good[:place]]
    stream = b"".join(piece + framed(Command.READ_MEMORY, 2, 0, 4) for piece in pieces)
    answers, _ = talk("32", stream, len(pieces))
    assert [answer.tag for answer in answers] == [2] * len(pieces)


class Wires(wiring.Component):
    """Two serial ports whose clocks differ."""

    received: Out(stream.Signature(8))
    sent: In(stream.Signature(8))
    busy: Out(1)
    cut: In(1)

    def __init__(self, ours: int, theirs: int):
        self.divisors = ours, theirs
        super().__init__()

    def elaborate(self, platform) -> Module:
        m = Module()
        ours, theirs = map(Uart, self.divisors)
        m.submodules.ours, m.submodules.theirs = ours, theirs
        m.d.comb += [theirs.rx.eq(ours.tx & ~self.cut), self.busy.eq(ours.busy | theirs.busy)]
        wiring.connect(m, wiring.flipped(self.sent), ours.sent)
        wiring.connect(m, theirs.received, wiring.flipped(self.received))
        return m


def through(
    ours: int, theirs: int, data: bytes, cut=range(0), *, after: int = 0, waits: bool = False
) -> bytes:
    """Send bytes through wires that are low in some cycles.

    `after`: cycles before the first byte; `waits`: take all bytes at the end.
    """
    wires = Simulated(Wires(ours, theirs))
    top, arrived = wires.top, bytearray()

    async def bench(ctx):
        left, cycle = list(data), 0
        while left or ctx.get(top.busy):
            ctx.set(top.cut, cycle in cut)
            ctx.set(top.sent.valid, bool(left) and cycle >= after)
            ctx.set(top.sent.payload, left[0] if left else 0)
            ctx.set(top.received.ready, not waits or cycle > (len(data) + 2) * 11 * ours)
            if ctx.get(top.received.valid) and ctx.get(top.received.ready):
                arrived.append(ctx.get(top.received.payload))
            if left and cycle >= after and ctx.get(top.sent.ready):
                left.pop(0)
            await ctx.tick()
            cycle += 1

    wires.run(bench)
    return bytes(arrived)


@pytest.mark.parametrize(("ours", "theirs"), [(4, 4), (27, 27), (26, 27), (27, 26)])
def test_bytes_pass_a_serial_port_even_if_the_rates_differ(ours, theirs):
    data = bytes([0x55, 0, 0xFF, 0x7E, *random.Random(2).randbytes(20)])
    assert through(ours, theirs, data) == data


def test_a_serial_port_keeps_bytes_until_they_are_taken_and_loses_those_beyond():
    data = bytes(range(RECEIVED_BYTES + 5))
    assert through(4, 4, data, waits=True) == data[:RECEIVED_BYTES]


def test_a_glitch_is_no_byte_and_a_byte_without_stop_bit_is_lost():
    assert through(8, 8, b"\xff", cut=range(5, 7), after=40) == b"\xff"
    assert through(8, 8, b"\x55\xaa", cut=range(73, 85)) == b"\xaa"
