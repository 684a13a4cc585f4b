"""Main memory of an SDR SDRAM, behind AXI4: a burst at a time, its bank closed after each one."""

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...errors import HardwareError
from ...isa.configuration import Configuration
from ...isa.sdram import BUFFERED_BURSTS, MODE_CYCLES, STARTUP_REFRESHES, Sdram
from ..axi import LEN_BITS, RESPONSE_OKAY, read_port, write_port
from ..queue import Queue
from .port_arbiter import bursts_in_flight
from .sdram_merger import SdramMerger
from .sdram_pins import PRECHARGE_ALL, SdramCommand, sdram_pins


class SdramController(wiring.Component):
    """Serve bursts one at a time, in a time that depends on nothing but their length.

    A burst opens a row, moves a word per cycle, and closes the row. If a read and a write wait, the
    direction goes first that was not served last. A write waits until all its beats are there, a
    read until fewer than `BUFFERED_BURSTS` of those before have beats left to take. A refresh goes
    before any burst. `SdramSchedule` gives the cycles, `MemoryModel` holds exactly.

    If bytes of the chip cannot be masked, a burst's first and last beat are read before it is
    written, and their other bytes are written as they were. Beats between them must be whole, as
    those of STORE are. The write is answered at the time of one that reads nothing: what comes
    later is served later.

    Parameters
    ----------
    configuration : Configuration
    sdram : Sdram
    clock_hz : int

    Members
    -------
    read : In(read_port)
    write : In(write_port)
        Addresses beyond the memory wrap. Bursts stay within a row, as those of the core do.
    restart : In(1)
        Refresh after tRFC, and from then on at the regular times; nothing may be in flight.
    pins : Out(sdram_pins)
        Registers; they go through `SdramPads` to the chip.

    Raises
    ------
    HardwareError
        If the chip does not fit the bus, or bursts are longer than its rows.
    """

    def __init__(self, configuration: Configuration, sdram: Sdram, clock_hz: int):
        self.configuration, self.sdram = configuration, sdram
        self.cycles = sdram.at(clock_hz)
        if configuration.bus_bits < sdram.data_bits:
            raise HardwareError(
                f"SDRAM `{sdram.name}`: `bus_bits` = {configuration.bus_bits} is narrower than its "
                f"{sdram.data_bits} data pins; raise `bus_bits`"
            )
        if configuration.burst_bytes > sdram.row_bytes:
            raise HardwareError(
                f"SDRAM `{sdram.name}`: bursts of {configuration.burst_bytes} bytes are longer "
                f"than its rows of {sdram.row_bytes} bytes; lower `burst_beats`"
            )
        self.beat_words = configuration.bus_bits // sdram.data_bits
        self.schedule = self.cycles.schedule(self.beat_words)
        super().__init__(
            {
                "read": In(read_port(configuration)),
                "write": In(write_port(configuration)),
                "restart": In(1),
                "pins": Out(sdram_pins(sdram)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        cycles, schedule, pins = self.cycles, self.schedule, self.pins
        m.submodules.reads = reads = self._bursts(m, "ar", self.read)
        m.submodules.writes = writes = self._bursts(m, "aw", self.write)
        writing, wrote, wrote_last = Signal(), Signal(), Signal()
        left = Signal(range(self.beat_words << LEN_BITS), reset_less=True)
        column = Signal(self.sdram.column_bits, reset_less=True)
        bank = Signal(self.sdram.bank_bits, reset_less=True)
        moves, ends, starts = Signal(), Signal(), Signal()
        m.d.comb += ends.eq(left == 0)
        readable = self._read(m, starts & ~writing, moves & ~wrote, left, ends)
        merger = None if self.sdram.has_masks else SdramMerger(self.sdram, self.beat_words, cycles)
        sent = merger.sent if merger else moves & wrote & ends
        written, mask, writable = self._write(m, starts & writing, moves & wrote, left, sent)
        if merger:
            m.submodules.merger = merger
            m.d.comb += [
                merger.left.eq(left),
                merger.moves.eq(moves & wrote),
                merger.new.eq(written),
                merger.mask.eq(mask),
                merger.read.eq(pins.read),
            ]
            written = merger.written
        refreshed = Signal()
        due, held = self._refresh(m, refreshed)

        has_read, has_write = reads.output.valid & readable, writes.output.valid & writable
        m.d.comb += [
            writing.eq(has_write & ~(has_read & wrote_last)),
            reads.output.ready.eq(starts & ~writing),
            writes.output.ready.eq(starts & writing),
        ]
        chosen = Mux(writing, writes.output.payload.word, reads.output.payload.word)
        length = Mux(writing, writes.output.payload.length, reads.output.payload.length)
        parts = self._parts(chosen)

        wait = Signal(range(max(cycles.startup, cycles.rfc, schedule.rest_cycles) + 1))
        refreshes = Signal(range(STARTUP_REFRESHES + 1), init=STARTUP_REFRESHES)
        m.d.sync += [
            pins.cke.eq(1),
            pins.cs_n.eq(0),
            pins.command.eq(SdramCommand.NOTHING),
            pins.drives.eq(0),
            pins.mask.eq(0),
            pins.written.eq(written),
        ]
        with m.If(wait != 0):
            m.d.sync += wait.eq(wait - 1)
        with m.If(self.restart):
            m.d.sync += wrote_last.eq(0)
        with m.FSM(init="Power up"):
            with m.State("Power up"):
                m.d.sync += [wait.eq(cycles.startup), pins.mask.eq(-1)]
                m.next = "Start up"
            with m.State("Start up"), m.If(wait == 0):
                m.d.sync += [
                    pins.command.eq(SdramCommand.PRECHARGE),
                    pins.address.eq(1 << PRECHARGE_ALL),
                    wait.eq(schedule.rest_cycles - 1),
                ]
                m.next = "First refreshes"
            with m.State("First refreshes"), m.If(wait == 0):
                with m.If(refreshes != 0):
                    m.d.sync += [
                        pins.command.eq(SdramCommand.REFRESH),
                        wait.eq(cycles.rfc - 1),
                        refreshes.eq(refreshes - 1),
                    ]
                with m.Else():
                    # Bursts of one word, in ascending order.
                    m.d.sync += [
                        pins.command.eq(SdramCommand.MODE),
                        pins.bank.eq(0),
                        pins.address.eq(cycles.cas << 4),
                        wait.eq(MODE_CYCLES - 1),
                    ]
                    m.next = "Idle"
            with m.State("Idle"), m.If((wait == 0) & ~held):
                with m.If(due):
                    m.d.comb += refreshed.eq(1)
                    m.d.sync += [pins.command.eq(SdramCommand.REFRESH), wait.eq(cycles.rfc - 1)]
                with m.Elif(has_read | has_write):
                    m.d.comb += starts.eq(1)
                    m.d.sync += [
                        pins.command.eq(SdramCommand.ACTIVATE),
                        pins.bank.eq(parts.bank),
                        pins.address.eq(parts.row),
                        column.eq(parts.column),
                        bank.eq(parts.bank),
                        left.eq(Cat(C(self.beat_words - 1, self._word_bits), length)),
                        wrote.eq(writing),
                        wrote_last.eq(writing),
                        wait.eq(cycles.rcd - 2),
                    ]
                    m.next = "Open"
            with m.State("Open"), m.If(wait == 0):
                m.next = "Move"
                if merger:
                    with m.If(wrote):
                        m.next = "Fetch"
            if merger:
                with m.State("Fetch"):
                    m.d.comb += merger.fetches.eq(1)
                    m.d.sync += [
                        pins.command.eq(SdramCommand.READ),
                        pins.address.eq(column + merger.offset),
                    ]
                    with m.If(merger.fetch_ends):
                        m.d.sync += wait.eq(cycles.answer - 1)
                        m.next = "Fetched"
                with m.State("Fetched"), m.If(wait == 0):
                    m.next = "Move"
            with m.State("Move"):
                m.d.comb += moves.eq(1)
                m.d.sync += [
                    pins.command.eq(Mux(wrote, SdramCommand.WRITE, SdramCommand.READ)),
                    pins.address.eq(column),
                    pins.drives.eq(wrote),
                    pins.mask.eq(Mux(wrote, mask, 0)),
                    column.eq(column + 1),
                    left.eq(left - 1),
                ]
                with m.If(ends):
                    m.d.sync += wait.eq(
                        Mux(wrote, schedule.write_close_cycles, schedule.read_close_cycles)
                    )
                    m.next = "Close"
            with m.State("Close"), m.If(wait == 0):
                m.d.sync += [
                    pins.command.eq(SdramCommand.PRECHARGE),
                    pins.address.eq(0),
                    pins.bank.eq(bank),
                    wait.eq(schedule.rest_cycles - 1),
                ]
                m.next = "Idle"
        return m

    @property
    def _word_bits(self) -> int:
        return (self.beat_words - 1).bit_length()

    def _parts(self, word: Value) -> data.View:
        """Return row, bank and column of a word."""
        sdram = self.sdram
        layout = data.StructLayout(
            {"column": sdram.column_bits, "bank": sdram.bank_bits, "row": sdram.row_bits}
        )
        return data.View(layout, word)

    def _bursts(self, m: Module, prefix: str, port) -> Queue:
        """Return a queue of the bursts of an address channel, which has room for all in flight."""
        word_bits = (self.sdram.size_bytes * 8 // self.sdram.data_bits - 1).bit_length()
        bursts = Queue(
            data.StructLayout({"word": word_bits, "length": LEN_BITS}),
            bursts_in_flight(self.configuration),
        )
        lane_bits = (self.sdram.data_bits // 8 - 1).bit_length()
        m.d.comb += [
            bursts.input.valid.eq(getattr(port, f"{prefix}valid")),
            getattr(port, f"{prefix}ready").eq(bursts.input.ready),
            bursts.input.payload.word.eq(getattr(port, f"{prefix}addr")[lane_bits:]),
            bursts.input.payload.length.eq(getattr(port, f"{prefix}len")),
        ]
        return bursts

    def _refresh(self, m: Module, refreshed: Value) -> tuple[Value, Value]:
        """Return whether a refresh is due, and whether a restart still delays the next command."""
        timer = Signal(range(self.cycles.refi), init=self.cycles.refi - 1)
        held = Signal(range(self.cycles.rfc))
        due = Signal()
        with m.If(refreshed):
            m.d.sync += due.eq(0)
        m.d.sync += timer.eq(Mux(timer == 0, self.cycles.refi - 1, timer - 1))
        with m.If(timer == 0):
            m.d.sync += due.eq(1)
        with m.If(held != 0):
            m.d.sync += held.eq(held - 1)
        with m.If(self.restart):
            m.d.sync += [timer.eq(self.cycles.refi - 1), held.eq(self.cycles.rfc - 1), due.eq(1)]
        return due, held != 0

    def _read(self, m: Module, starts: Value, moves: Value, left: Signal, ends: Value) -> Value:
        """Take the words that were asked for; return whether there is room for a burst."""
        bits = self.configuration.bus_bits
        beat = data.StructLayout({"data": bits, "last": 1})
        depth = BUFFERED_BURSTS * self.configuration.burst_beats
        m.submodules.read_beats = beats = Queue(beat, depth)
        words = Signal(bits, reset_less=True)
        # Whether a word is a beat's last and a burst's last accompanies it through the chip.
        way = self.cycles.answer
        valids = Signal(way)
        beat_ends, burst_ends = Signal(way, reset_less=True), Signal(way, reset_less=True)
        collected = Cat(words, self.pins.read)[-bits:]
        m.d.sync += [
            valids.eq(Cat(moves, valids)),
            beat_ends.eq(Cat(left[: self._word_bits] == 0, beat_ends)),
            burst_ends.eq(Cat(ends, burst_ends)),
        ]
        with m.If(valids[-1]):
            m.d.sync += words.eq(collected)
        taken = self.read.rvalid & self.read.rready & self.read.rlast
        unfinished = Signal(range(BUFFERED_BURSTS + 1))
        m.d.sync += unfinished.eq(unfinished + starts - taken)
        m.d.comb += [
            beats.input.valid.eq(valids[-1] & beat_ends[-1]),
            beats.input.payload.data.eq(collected),
            beats.input.payload.last.eq(burst_ends[-1]),
            self.read.rvalid.eq(beats.output.valid),
            self.read.rdata.eq(beats.output.payload.data),
            self.read.rlast.eq(beats.output.payload.last),
            self.read.rresp.eq(RESPONSE_OKAY),
            beats.output.ready.eq(self.read.rready),
        ]
        return unfinished != BUFFERED_BURSTS

    def _write(
        self, m: Module, starts: Value, moves: Value, left: Signal, sent: Value
    ) -> tuple[Value, Value, Value]:
        """Keep beats until their burst is complete, and answer a burst once it is `sent`.

        Returns
        -------
        The word to write with its mask, and whether a burst is complete.
        """
        write, bus_bytes = self.write, self.configuration.bus_bytes
        beat = data.StructLayout({"data": 8 * bus_bytes, "strobe": bus_bytes})
        # Without masks, a burst's beats are still there for a while when it is answered.
        depth = (BUFFERED_BURSTS + (not self.sdram.has_masks)) * self.configuration.burst_beats
        m.submodules.write_beats = beats = Queue(beat, depth)
        complete = Signal(range(BUFFERED_BURSTS + 1))
        kept = Signal(range(BUFFERED_BURSTS + 1))
        room, added = Signal(), Signal()
        m.d.comb += [
            room.eq(kept != BUFFERED_BURSTS),
            write.wready.eq(room),
            added.eq(write.wvalid & room & write.wlast),
            beats.input.valid.eq(write.wvalid & room),
            beats.input.payload.data.eq(write.wdata),
            beats.input.payload.strobe.eq(write.wstrb),
            beats.output.ready.eq(moves & (left[: self._word_bits] == 0)),
            write.bresp.eq(RESPONSE_OKAY),
        ]
        # The response comes as late as the last beat of a read would.
        ended = Signal(self.cycles.answer)
        unanswered = Signal(range(bursts_in_flight(self.configuration) + 1))
        m.d.sync += [
            ended.eq(Cat(sent, ended)),
            complete.eq(complete + added - starts),
            kept.eq(kept + added - ended[-1]),
            unanswered.eq(unanswered + ended[-1] - (write.bvalid & write.bready)),
        ]
        m.d.comb += write.bvalid.eq(unanswered != 0)
        index = ~left[: self._word_bits]
        oldest = beats.output.payload
        return (
            oldest.data.word_select(index, self.sdram.data_bits),
            ~oldest.strobe.word_select(index, self.sdram.data_bits // 8),
            complete != 0,
        )
