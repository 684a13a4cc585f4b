"""Requests of the link as accesses of memory and registers."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ...isa.configuration import Configuration
from ...isa.link import (
    ANSWER,
    ANSWER_HEAD,
    BOARD_OFFSETS,
    BOARD_SPACE_BYTES,
    LINK_MAGIC,
    LINK_VERSION,
    Command,
    Status,
)
from ...isa.pipeline import RAM_CYCLES
from ...isa.registers import REGISTER_SPACE_BYTES
from ..axi import BURST_INCR, RESPONSE_OKAY, read_port, write_port
from ..axi_lite import DATA_BITS, STROBE_BITS, axi_lite_port
from ..control import ADDRESS_BITS
from ..selection import choose
from .frame_receiver import REQUEST_LAYOUT, payload_words
from .frame_sender import BODY_LAYOUT


class CommandExecutor(wiring.Component):
    """Execute requests, one at a time, and compose their answers.

    Memory is accessed in single beats; a read and all writes of a request end before its answer.

    Parameters
    ----------
    configuration : Configuration
    board : dict[str, int]
        Memory and clock, by the names of `isa.link.BOARD_REGISTERS`; others read 0.
    payload_bytes : int
        Most bytes of a request.

    Members
    -------
    requests : In(stream of REQUEST_LAYOUT)
        Taken when the answer is complete.
    payload_bytes, payload : In
        Bytes behind the head, and the word at `payload_address`, `RAM_CYCLES` after
        `payload_enable`; see `FrameReceiver`.
    payload_enable, payload_address : Out
    body : Out(stream of BODY_LAYOUT)
        The answer.
    read : Out(read_port)
    write : Out(write_port)
    registers : Out(AXI4-Lite)
    busy : Out(1)
        A request is executed.
    """

    def __init__(self, configuration: Configuration, board: dict[str, int], payload_bytes: int):
        self.configuration, self.board = configuration, board
        self.most = payload_bytes
        self.words = payload_words(configuration.bus_bytes, payload_bytes)
        super().__init__(
            {
                "requests": In(stream.Signature(REQUEST_LAYOUT)),
                "payload_bytes": In(range(payload_bytes + 1)),
                "payload": In(configuration.bus_bits),
                "payload_enable": Out(1),
                "payload_address": Out(range(self.words)),
                "body": Out(stream.Signature(BODY_LAYOUT)),
                "read": Out(read_port(configuration)),
                "write": Out(write_port(configuration)),
                "registers": Out(axi_lite_port(ADDRESS_BITS)),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        bus_bytes = self.configuration.bus_bytes
        head, body = self.requests.payload, self.body
        is_memory = (head.command == Command.READ_MEMORY) | (head.command == Command.WRITE_MEMORY)
        writes = (head.command == Command.WRITE_MEMORY) | (head.command == Command.WRITE_REGISTERS)
        refused = self._refused(head, is_memory, writes)

        at = Signal(len(head.address), reset_less=True)
        left = Signal(range(self.most + 1), reset_less=True)
        beat = Signal(8 * bus_bytes, reset_less=True)
        word = Signal(range(self.words), reset_less=True)
        waited = Signal(range(max(RAM_CYCLES, ANSWER_HEAD.size)))
        status = Signal(Status)
        lane_bits = (bus_bytes - 1).bit_length()
        lane = at[:lane_bits]
        ends_beat = Mux(is_memory, lane.all(), at[:2].all())
        unanswered = self._memory(m, at, left, self.payload, status)
        self._registers(m, at, self.payload)
        session = Signal(DATA_BITS)

        # A byte of the head, then those that were read, then the status.
        titles = Cat(Const(ANSWER, 8) | head.command, head.tag)
        with m.FSM() as steps:
            m.d.comb += self.busy.eq(~steps.ongoing("Wait") | self.requests.valid)
            with m.State("Wait"):
                m.d.sync += [at.eq(head.address), left.eq(head.length), word.eq(0), waited.eq(0)]
                with m.If(self.requests.valid):
                    m.d.sync += status.eq(Mux(refused, Status.REFUSED, Status.OKAY))
                    m.next = "Head"
            with m.State("Head"):
                m.d.comb += [body.valid.eq(1), body.payload.byte.eq(titles.word_select(waited, 8))]
                with m.If(body.ready):
                    m.d.sync += waited.eq(waited + 1)
                    with m.If(waited == ANSWER_HEAD.size - 1):
                        m.d.sync += waited.eq(0)
                        with m.If(status != Status.OKAY):
                            m.next = "Status"
                        with m.Elif(writes):
                            m.next = "Fetch"
                        with m.Elif(is_memory):
                            m.next = "Read memory"
                        with m.Else():
                            m.next = "Read register"

            with m.State("Read memory"):
                m.d.comb += self.read.arvalid.eq(1)
                with m.If(self.read.arready):
                    m.next = "Take beat"
            with m.State("Take beat"):
                m.d.comb += self.read.rready.eq(1)
                m.d.sync += beat.eq(self.read.rdata)
                with m.If(self.read.rvalid):
                    with m.If(self.read.rresp != RESPONSE_OKAY):
                        m.d.sync += status.eq(Status.MEMORY_RESPONSE)
                    m.next = "Send"
            with m.State("Read register"):
                with m.If(at[ADDRESS_BITS:] == 0):
                    m.d.comb += self.registers.arvalid.eq(1)
                    with m.If(self.registers.arready):
                        m.next = "Take register"
                with m.Else():
                    m.d.sync += beat.eq(self._shown(at, session).replicate(bus_bytes // 4))
                    m.next = "Send"
            with m.State("Take register"):
                m.d.comb += self.registers.rready.eq(1)
                m.d.sync += beat.eq(self.registers.rdata.replicate(bus_bytes // 4))
                with m.If(self.registers.rvalid):
                    m.next = "Send"
            with m.State("Send"):
                m.d.comb += [body.valid.eq(1), body.payload.byte.eq(beat.word_select(lane, 8))]
                with m.If(body.ready):
                    m.d.sync += [at.eq(at + 1), left.eq(left - 1)]
                    with m.If(left == 1):
                        m.next = "Status"
                    with m.Elif(ends_beat):
                        with m.If(is_memory):
                            m.next = "Read memory"
                        with m.Else():
                            m.next = "Read register"

            with m.State("Fetch"):
                m.d.comb += self.payload_enable.eq(waited == 0)
                m.d.sync += waited.eq(waited + 1)
                with m.If(waited == RAM_CYCLES - 1):
                    m.d.sync += waited.eq(0)
                    with m.If(is_memory):
                        m.d.sync += [self.write.awvalid.eq(1), self.write.wvalid.eq(1)]
                        m.next = "Write memory"
                    with m.Elif(at[ADDRESS_BITS:] == 0):
                        m.d.sync += [self.registers.awvalid.eq(1), self.registers.wvalid.eq(1)]
                        m.next = "Write register"
                    with m.Else():
                        m.next = "Write board"
            # The word that was read stays until the next one is.
            with (
                m.State("Write memory"),
                m.If(~(self.write.awvalid | self.write.wvalid)),
            ):
                m.d.sync += [
                    at.eq(Cat(Const(0, lane_bits), at[lane_bits:] + 1)),
                    word.eq(word + 1),
                    left.eq(left - (bus_bytes - lane)),
                ]
                with m.If(left <= bus_bytes - lane):
                    m.next = "Wait for responses"
                with m.Else():
                    m.next = "Fetch"
            with m.State("Wait for responses"), m.If(unanswered == 0):
                m.next = "Status"
            with m.State("Write register"), m.If(self.registers.bvalid):
                m.next = "Status"
            with m.State("Write board"):
                with m.If(at == BOARD_OFFSETS["SESSION"]):
                    m.d.sync += session.eq(self.registers.wdata)
                m.next = "Status"
            with m.State("Status"):
                m.d.comb += [
                    body.valid.eq(1),
                    body.payload.byte.eq(status),
                    body.payload.last.eq(1),
                    self.requests.ready.eq(body.ready),
                ]
                with m.If(body.ready):
                    m.next = "Wait"
        m.d.comb += self.payload_address.eq(word)
        return m

    def _refused(self, head, is_memory: Value, writes: Value) -> Value:
        """Whether a request is not one, or leaves what it accesses."""
        length = head.length
        end = head.address + length
        space = Mux(is_memory, self.board["MEMORY_BYTES"], REGISTER_SPACE_BYTES + BOARD_SPACE_BYTES)
        wrong = (length == 0) | (length > self.most) | (end > space)
        wrong |= ((head.command < min(Command)) | (head.command > max(Command))).bool()
        wrong |= writes & (length != self.payload_bytes)
        odd = (head.address[:2] | length[:2]).any() | (writes & (length != STROBE_BITS))
        return wrong | (~is_memory & odd)

    def _shown(self, at: Value, session: Signal) -> Value:
        """Return the register of the board at an address."""
        constants = {"LINK_ID": LINK_MAGIC, "LINK_VERSION": LINK_VERSION, **self.board}
        values: dict[str, Value] = {n: Const(constants.get(n, 0), DATA_BITS) for n in BOARD_OFFSETS}
        values["SESSION"] = session
        index = at[2 : 2 + (len(BOARD_OFFSETS) - 1).bit_length()]
        return choose([values[name] for name in BOARD_OFFSETS], index)

    def _memory(self, m: Module, at: Signal, left: Signal, word: Value, status: Signal) -> Signal:
        """Connect the memory port; return the number of writes without a response."""
        bus_bytes = self.configuration.bus_bytes
        lane_bits = (bus_bytes - 1).bit_length()
        unanswered = Signal(range(self.most // bus_bytes + 2))
        address = Cat(Const(0, lane_bits), at[lane_bits:])
        for port, prefix in ((self.read, "ar"), (self.write, "aw")):
            m.d.comb += [
                getattr(port, f"{prefix}addr").eq(address),
                getattr(port, f"{prefix}len").eq(0),
                getattr(port, f"{prefix}size").eq(lane_bits),
                getattr(port, f"{prefix}burst").eq(BURST_INCR),
            ]
        write = self.write
        end = at[:lane_bits] + left
        m.d.comb += [
            write.wdata.eq(word),
            write.wstrb.eq(
                Cat((at[:lane_bits] <= lane) & (end > lane) for lane in range(bus_bytes))
            ),
            write.wlast.eq(1),
            write.bready.eq(1),
        ]
        with m.If(write.awready):
            m.d.sync += write.awvalid.eq(0)
        with m.If(write.wready):
            m.d.sync += write.wvalid.eq(0)
        m.d.sync += unanswered.eq(unanswered + (write.wvalid & write.wready) - write.bvalid)
        with m.If(write.bvalid & (write.bresp != RESPONSE_OKAY)):
            m.d.sync += status.eq(Status.MEMORY_RESPONSE)
        return unanswered

    def _registers(self, m: Module, at: Signal, word: Value) -> None:
        """Connect the port of the core's registers."""
        port = self.registers
        lane_bits = (self.configuration.bus_bytes - 1).bit_length()
        m.d.comb += [
            port.araddr.eq(at),
            port.awaddr.eq(at),
            port.wdata.eq(word.word_select(at[2:lane_bits], DATA_BITS) if lane_bits > 2 else word),
            port.wstrb.eq((1 << STROBE_BITS) - 1),
            port.bready.eq(1),
        ]
        with m.If(port.awready):
            m.d.sync += port.awvalid.eq(0)
        with m.If(port.wready):
            m.d.sync += port.wvalid.eq(0)
