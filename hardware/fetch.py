"""FETCH: reads the program, checks it, and issues its instructions in order."""

from functools import reduce
from operator import or_

from amaranth.hdl import Assert, Cat, Module, Mux, Shape, Signal, Value, signed
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..isa.configuration import Configuration
from ..isa.durations import fetch_beats
from ..isa.encoding import word_bytes
from ..isa.instructions import FAMILIES, Halt, Sync, Unit, Vector
from ..isa.pipeline import FETCH_BURSTS
from ..isa.registers import Error
from .axi import WINDOW_BITS, read_beat_layout, request_layout
from .layouts import dispatch_layout, instruction_fields
from .logic_adder import LogicAdder
from .queue import Queue


class FetchUnit(wiring.Component):
    """Prefetch instruction words and offer each one once, in program order.

    FETCH makes a request only when the buffer has room for all its beats, so it never stalls the
    read channel that it shares with LOAD. Otherwise an instruction that waits for a full queue
    could block the data of LOAD that this queue is waiting for. A word takes one cycle per beat to
    assemble, and is at `instructions` two cycles after its last beat arrived. The next word begins
    in the cycle after it was taken.

    Members
    -------
    start : In(1)
        Start at `program_base`; ignored while `busy`.
    stop : In(1)
        Make no more requests and offer no more instructions from the next cycle on; beats in
        flight are dropped.
    program_base : In(address_bits)
        Byte address, a multiple of 32.
    program_bytes : In(32)
    requests : Out(stream of request_layout)
    beats : In(stream of read_beat_layout)
        Always ready.
    instructions : Out(stream of dispatch_layout)
        Legal instructions for the units, SYNC included but not HALT.
    busy : Out(1)
        FETCH is running, or has requests in flight.
    halted : Out(1)
        FETCH has reached HALT; stays set until the next start.
    error : Out(Error)
        An illegal instruction, a failed read, or no HALT at the end of the program; stays set
        until the next start. Neither that instruction nor any later one is issued.
    """

    def __init__(self, configuration: Configuration):
        self.configuration = configuration
        bus_bytes = configuration.bus_bytes
        self.word_beats = word_bytes(configuration) // bus_bytes
        self.burst_beats, self.buffer_beats = fetch_beats(configuration)
        super().__init__(
            {
                "start": In(1),
                "stop": In(1),
                "program_base": In(configuration.address_bits),
                "program_bytes": In(WINDOW_BITS),
                "requests": Out(stream.Signature(request_layout(configuration))),
                "beats": In(stream.Signature(read_beat_layout(configuration))),
                "instructions": Out(stream.Signature(dispatch_layout(configuration))),
                "busy": Out(1),
                "halted": Out(1),
                "error": Out(Shape.cast(Error)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        beat_bits = (self.configuration.bus_bytes - 1).bit_length()
        layout = read_beat_layout(self.configuration)
        m.submodules.buffer = buffer = Queue(layout, self.buffer_beats)

        running = Signal()
        starts = Signal()
        ends = Signal()
        # Places in the buffer; the others are taken from the request of a beat until it leaves.
        places = Signal(range(self.buffer_beats + 1), init=self.buffer_beats)
        idle = Signal(init=1)
        m.d.comb += [
            starts.eq(self.start & ~self.busy & ~self.stop),
            self.busy.eq(running | ~idle),
        ]
        with m.If(starts):
            m.d.sync += [running.eq(1), self.halted.eq(0), self.error.eq(Error.NONE)]
        with m.Elif(ends | self.stop):
            m.d.sync += running.eq(0)

        # Requests: aligned bursts through the program, each prepared in two cycles and issued in
        # the next. `settled` means that the conditions describe the registers as they are.
        position = Signal(self.configuration.address_bits - beat_bits, reset_less=True)
        left_beats = Signal(WINDOW_BITS - beat_bits, reset_less=True)
        burst_bits = (self.burst_beats - 1).bit_length()
        # Minus the beats of the burst, so that one adder updates `places`.
        negated = Signal(signed(burst_bits + 1), reset_less=True)
        settled, fits, free, near_end, exhausted = Signal(), Signal(), Signal(), Signal(), Signal()
        prepared = Signal()
        bursts = Signal(range(FETCH_BURSTS + 1))
        requested = self.requests.valid & self.requests.ready
        left_in_burst = left_beats[:burst_bits]
        m.d.comb += [
            self.requests.valid.eq(prepared),
            self.requests.payload.address.eq(position << beat_bits),
            self.requests.payload.beats_minus_one.eq(~negated[:burst_bits]),
        ]
        m.d.sync += [
            settled.eq(~starts & ~requested),
            fits.eq(places >= self.burst_beats),
            free.eq(bursts != FETCH_BURSTS),
            near_end.eq(left_beats[burst_bits:] == 0),
            exhausted.eq(~starts & settled & near_end & (left_in_burst == 0)),
        ]
        with m.If(starts):
            m.d.sync += [
                prepared.eq(0),
                position.eq(self.program_base >> beat_bits),
                left_beats.eq(self.program_bytes >> beat_bits),
            ]
        with m.Elif(requested):
            m.d.sync += [
                prepared.eq(0),
                position.eq(position - negated),
                left_beats.eq(left_beats + negated),
            ]
        with m.Elif(~running | ends | self.stop):
            m.d.sync += prepared.eq(0)
        with m.Elif(~prepared):
            place_in_burst = position[:burst_bits]
            to_boundary_negated = Cat(place_in_burst, 1).as_signed()
            last_burst = near_end & ~(left_in_burst + place_in_burst)[-1]
            m.d.sync += [
                prepared.eq(settled & fits & free & ~(near_end & (left_in_burst == 0))),
                negated.eq(Mux(last_burst, -left_in_burst, to_boundary_negated)),
            ]

        leaves = buffer.output.valid & buffer.output.ready
        ends_burst = self.beats.valid & self.beats.payload.last
        m.d.comb += [
            self.beats.ready.eq(1),
            buffer.input.valid.eq(self.beats.valid),
            buffer.input.payload.eq(self.beats.payload),
        ]
        m.submodules.adder = adder = LogicAdder(len(places))
        m.d.comb += [
            adder.a.eq(places),
            adder.b.eq(-1),
            adder.c.eq(negated),
            adder.d.eq(requested.replicate(len(places))),
            adder.carry.eq(leaves),
        ]
        m.d.sync += [
            places.eq(adder.sum),
            idle.eq((places == self.buffer_beats) & ~requested),
            bursts.eq(bursts + requested - ends_burst),
            Assert(~self.beats.valid | buffer.input.ready, "the buffer has no room for a beat"),
        ]

        # Words: `expects` selects the slot of the next beat. The slot loads in every cycle until
        # that beat is there, so its enable is a register. The next word begins when this one has
        # gone.
        beat = buffer.output.payload
        slots = [
            Signal(self.configuration.bus_bits, name=f"word_{index}", reset_less=True)
            for index in range(self.word_beats)
        ]
        word = Value.cast(Cat(slots))
        following = Value.cast(Cat(slots[:-1], beat.data))
        expects = Signal(self.word_beats)
        complete = Signal()
        failed = Signal()
        present = Signal()
        taken = Signal()
        shifts = Signal()
        m.d.comb += [
            present.eq(running & complete),
            buffer.output.ready.eq(~present),
            shifts.eq(buffer.output.valid & buffer.output.ready),
        ]
        for slot, loads in zip(slots, expects, strict=True):
            with m.If(loads):
                m.d.sync += slot.eq(beat.data)
        completes = shifts & expects[-1]
        with m.If(~running | taken):
            m.d.sync += [expects.eq(1), complete.eq(0)]
        with m.Elif(shifts):
            m.d.sync += Cat(expects, complete).eq(Cat(expects, complete) << 1)
        with m.If(~running):
            m.d.sync += failed.eq(0)
        with m.Elif(shifts):
            m.d.sync += failed.eq(failed | beat.failed)

        dry = running & exhausted & idle & ~present
        arrives = running & completes & ~failed & ~beat.failed
        self._check(m, word, following, expects[-1], arrives, present, failed, dry, taken, ends)
        return m

    def _check(
        self, m: Module, word, following, loads, arrives, present, failed, dry, taken, ends
    ) -> None:
        """Issue the word, or end the program; a word is classified while its last beat enters."""
        header = instruction_fields(following, Sync, self.configuration)
        vector = instruction_fields(following, Vector, self.configuration)
        halts = header.opcode == Halt.opcode
        known = reduce(or_, (header.opcode == family.opcode for family in FAMILIES))
        last_code = len(self.configuration.operations) - 1
        meaningless = (header.opcode == Vector.opcode) & (vector.combine > last_code)
        meaningless |= halts & (header.wait | header.signal).any()
        legal = Signal()
        is_halt = Signal()
        offers = Signal()
        is_sync = Signal()
        units = Signal(len(Unit))
        syncs = header.opcode == Sync.opcode
        owned = [family for family in FAMILIES if family.unit is not None]
        with m.If(loads):
            m.d.sync += [
                legal.eq(known & ~meaningless),
                is_halt.eq(halts),
                is_sync.eq(syncs),
                *(
                    units[family.unit].eq(
                        (header.opcode == family.opcode) | (syncs & (header.target == family.unit))
                    )
                    for family in owned
                ),
            ]
        with m.If(taken | self.stop):
            m.d.sync += offers.eq(0)
        with m.Elif(loads):
            issues = known & ~meaningless & ~halts
            m.d.sync += offers.eq(arrives & issues)

        instruction = self.instructions.payload
        complete_header = instruction_fields(word, Sync, self.configuration)
        m.d.comb += [
            instruction.is_sync.eq(is_sync),
            instruction.units.eq(units),
            instruction.wait.eq(complete_header.wait),
            instruction.signal.eq(complete_header.signal),
            instruction.word.eq(word),
            self.instructions.valid.eq(offers),
            taken.eq(self.instructions.valid & self.instructions.ready),
        ]

        with m.If(present & ~self.stop):
            with m.If(failed):
                m.d.comb += ends.eq(1)
                m.d.sync += self.error.eq(Error.MEMORY_RESPONSE)
            with m.Elif(~legal):
                m.d.comb += ends.eq(1)
                m.d.sync += self.error.eq(Error.ILLEGAL_INSTRUCTION)
            with m.Elif(is_halt):
                m.d.comb += ends.eq(1)
                m.d.sync += self.halted.eq(1)
        with m.Elif(dry & ~self.stop):
            m.d.comb += ends.eq(1)
            m.d.sync += self.error.eq(Error.NO_HALT)
