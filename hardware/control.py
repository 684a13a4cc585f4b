"""The host's registers on AXI4-Lite, and the state machine that starts and stops a run.

Names, offsets and meanings come from `isa.registers`; a test compares each register with it.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Shape, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..isa.configuration import CONTRACT_VERSION, Configuration
from ..isa.instructions import Unit
from ..isa.registers import (
    MAGIC,
    OFFSETS,
    REGISTER_SPACE_BYTES,
    REGISTERS,
    Error,
    counter_registers,
)
from .axi_lite import AxiLiteRegisters, axi_lite_port
from .counters import CounterBank, counters_of, increments_layout, most_per_cycle
from .layouts import MASK_BITS
from .selection import choose
from .token_gate import state_signature
from .tokens import COUNT_BITS

REGISTER_BITS = 32
REGISTER_BYTES = REGISTER_BITS // 8
ADDRESS_BITS = (REGISTER_SPACE_BYTES - 1).bit_length()

WRITABLE = tuple(register.name for register in REGISTERS if register.writable)
SETTINGS = tuple(name for name in WRITABLE if name != "CONTROL")


class Control(wiring.Component):
    """Start, stop and observe the machine.

    A start clears all units, queues and tokens (`clear`), and FETCH begins in the next cycle. A run
    ends when FETCH has reached HALT and every unit is dry. After an error or a stop, the units make
    no new requests (`stop`), and the run ends when all outstanding transfers have arrived. Settings
    cannot change while the machine is busy.

    Members
    -------
    bus : In(AXI4-Lite)
    clear : Out(1)
        Reset everything but memories and settings.
    clears : Out(1)
        `clear` is set in the next cycle.
    start : Out(1)
        FETCH starts.
    stop : Out(1)
        No new requests are made and no instructions dispatched.
    program_base, program_bytes, data_base, data_bytes : Out(32)
    halted : In(1)
        FETCH has reached HALT.
    dry : In(1)
        No unit has an instruction.
    draining : In(1)
        Memory transfers are outstanding.
    error : In(Error)
        Error of any unit; stays until `clear`.
    dispatched : In(1)
        An instruction goes to its queue.
    states, tokens : In, per unit
        Values that the registers show.
    increments : In, per unit
        Increments of the performance counters.
    interrupt : Out(1)
        The run is done, or an error stopped it.
    """

    def __init__(self, configuration: Configuration):
        self.configuration = configuration
        units = len(Unit)
        super().__init__(
            {
                "bus": In(axi_lite_port(ADDRESS_BITS)),
                "clear": Out(1),
                "clears": Out(1),
                "start": Out(1),
                "stop": Out(1, init=1),
                **{name.lower(): Out(REGISTER_BITS) for name in SETTINGS},
                "halted": In(1),
                "dry": In(1),
                "draining": In(1),
                "error": In(Shape.cast(Error)),
                "dispatched": In(1),
                "states": In(state_signature(configuration)).array(units),
                "increments": In(
                    data.StructLayout(
                        {unit.name: increments_layout(configuration, unit) for unit in Unit}
                    )
                ),
                "tokens": In(MASK_BITS * COUNT_BITS).array(units),
                "interrupt": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.bus = bus = AxiLiteRegisters(ADDRESS_BITS)
        wiring.connect(m, wiring.flipped(self.bus), bus.port)

        written = {name: Signal(name=f"writes_{name.lower()}") for name in WRITABLE}
        for name, writes in written.items():
            m.d.comb += writes.eq(bus.write & (bus.write_offset == OFFSETS[name]))
        busy, done = Signal(), Signal()
        for name in SETTINGS:
            setting = getattr(self, name.lower())
            with m.If(written[name] & ~busy):
                m.d.sync += setting.eq(bus.write_data)

        commands = written["CONTROL"].replicate(2) & bus.write_data
        error = Signal(Shape.cast(Error))
        self._run(m, commands[0], commands[1], busy, done, error)
        self._read(m, bus, busy, self._values(m, busy, done, error))
        return m

    def _run(self, m: Module, start: Value, stop: Value, busy: Signal, done: Signal, error) -> None:
        """Step from start to done; `error` stays set when `clear` resets the units' errors."""
        clears = self.clears
        # A register, since the units are far away. While `stop` is set, no transfer begins.
        drained = Signal()
        m.d.sync += drained.eq(self.stop & ~self.draining)
        m.d.comb += self.interrupt.eq(~busy & (done | (error != Error.NONE)))
        with m.FSM() as run:
            m.d.comb += busy.eq(~run.ongoing("Idle"))
            # `clear` and `stop` are registers, because they reach all units. The units also stop in
            # the cycle of a reset, so that no request is lost.
            m.d.sync += self.clear.eq(clears)
            m.d.sync += self.stop.eq(1)
            with m.State("Idle"):
                with m.If(stop):
                    m.d.comb += clears.eq(1)
                    m.next = "Clear"
                with m.Elif(start):
                    m.d.comb += clears.eq(1)
                    m.d.sync += [done.eq(0), error.eq(Error.NONE)]
                    m.next = "Prepare"
            with m.State("Prepare"):
                m.d.sync += self.stop.eq(0)
                m.next = "Start"
            with m.State("Start"):
                m.d.comb += self.start.eq(1)
                m.d.sync += self.stop.eq(0)
                m.next = "Run"
            with m.State("Run"):
                with m.If(stop):
                    m.next = "Drain"
                with m.Elif(self.error != Error.NONE):
                    m.d.sync += error.eq(self.error)
                    m.next = "Fail"
                with m.Elif(self.halted & self.dry):
                    m.d.sync += done.eq(1)
                    m.next = "Idle"
                with m.Else():
                    m.d.sync += self.stop.eq(0)
            with m.State("Fail"):
                with m.If(stop):
                    m.next = "Drain"
                with m.Elif(drained):
                    m.next = "Idle"
            with m.State("Drain"), m.If(drained):
                m.d.comb += clears.eq(1)
                m.next = "Clear"
            with m.State("Clear"):
                m.d.sync += [done.eq(0), error.eq(Error.NONE)]
                m.next = "Idle"

    def _values(self, m: Module, busy: Signal, done: Signal, error: Signal) -> dict[str, Value]:
        """Return the value of every register that is not a counter."""
        values: dict[str, Value] = {
            "ID": Const(MAGIC, REGISTER_BITS),
            "VERSION": Const(CONTRACT_VERSION, REGISTER_BITS),
            "CONFIGURATION": Const(self.configuration.hash, REGISTER_BITS),
            "CONTROL": Const(0, REGISTER_BITS),
            "STATUS": Cat(busy, done, error != Error.NONE, Const(0, 1), error),
            **{name: getattr(self, name.lower()) for name in SETTINGS},
        }
        for unit in Unit:
            state = self.states[unit]
            bits = Cat(
                state.working,
                state.waiting,
                state.waiting_to_signal,
                state.starved,
                Const(0, 2),
                state.queued,
            )
            # One cycle late, because the unit may be far away on the chip.
            values[f"{unit.name}_STATE"] = Signal(len(bits), name=f"{unit.name.lower()}_state")
            m.d.sync += values[f"{unit.name}_STATE"].eq(bits)
            values[f"{unit.name}_TOKENS"] = self.tokens[unit]
        return values

    def _read(self, m: Module, bus, busy: Signal, values: dict[str, Value]) -> None:
        """Answer reads; every read passes through the counters, if any, whatever its register."""
        names = {register.offset // REGISTER_BYTES: register.name for register in REGISTERS}
        words = [names.get(word, "") for word in range(REGISTER_SPACE_BYTES // REGISTER_BYTES)]
        index = bus.read_offset[(REGISTER_BYTES - 1).bit_length() :]
        shown = Signal(REGISTER_BITS, reset_less=True)
        decoded, answers = Signal(), Signal()
        m.d.sync += [
            decoded.eq(bus.read & ~answers),
            shown.eq(choose([values.get(name, Const(0)) for name in words], index)),
        ]
        m.d.comb += bus.read_valid.eq(answers)
        if not counter_registers(self.configuration.counters):
            m.d.comb += [answers.eq(decoded), bus.read_data.eq(shown)]
            return

        counters = self._count(m, busy)
        place_of = {name: place for place, name in enumerate(counters.totals)}
        places = [Const(place_of.get(n, place_of["NONE"]), len(counters.place)) for n in words]
        is_total = Signal(reset_less=True)
        m.d.sync += [
            counters.place.eq(choose(places, index)),
            is_total.eq(choose([Const(name not in values, 1) for name in words], index)),
        ]
        m.d.comb += [
            counters.ask.eq(decoded),
            answers.eq(counters.answers),
            bus.read_data.eq(Mux(is_total, counters.total, shown)),
        ]

    def _count(self, m: Module, busy: Signal) -> CounterBank:
        """Add the performance counters."""
        kinds = {unit: counters_of(self.configuration, unit) for unit in Unit}
        events = {
            f"{unit.name}_{name.upper()}": most_per_cycle(name, self.configuration)
            for unit, names in kinds.items()
            for name in names
        }
        # The last total stays zero, and the registers of all counters that cannot count show it.
        m.submodules.counters = counters = CounterBank({**events, "FETCHED": 1, "NONE": 0})
        m.d.comb += [
            counters.clear.eq(self.clear),
            counters.enable.eq(busy),
            counters.increments.FETCHED.eq(self.dispatched),
        ]
        for unit, names in kinds.items():
            for name in names:
                m.d.comb += counters.increments[f"{unit.name}_{name.upper()}"].eq(
                    self.increments[unit.name][name]
                )
        return counters
