"""The host's registers on AXI4-Lite, and the state machine that starts and stops a run.

Names, offsets and meanings come from `isa.registers`; a test compares each register with it.
"""

from amaranth.hdl import Cat, Const, Module, Shape, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..isa.configuration import CONTRACT_VERSION, Configuration
from ..isa.instructions import Unit
from ..isa.registers import (
    MAGIC,
    OFFSETS,
    REGISTER_SPACE_BYTES,
    REGISTERS,
    UNIT_COUNTERS,
    Error,
)
from .axi_lite import AxiLiteRegisters, axi_lite_port
from .counters import UnitCounters, increments_signature
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
    states, increments, tokens : In, per unit
        Values that the registers show.
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
                "start": Out(1),
                "stop": Out(1),
                **{name.lower(): Out(REGISTER_BITS) for name in SETTINGS},
                "halted": In(1),
                "dry": In(1),
                "draining": In(1),
                "error": In(Shape.cast(Error)),
                "dispatched": In(1),
                "states": In(state_signature(configuration)).array(units),
                "increments": In(increments_signature(configuration)).array(units),
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
        values = self._values(m, busy, done, error)
        named = {register.offset // REGISTER_BYTES: register.name for register in REGISTERS}
        words = range(REGISTER_SPACE_BYTES // REGISTER_BYTES)
        table = [values[named[word]] if word in named else Const(0) for word in words]
        index = bus.read_offset[(REGISTER_BYTES - 1).bit_length() :]
        m.d.comb += bus.read_data.eq(choose(table, index))
        return m

    def _run(self, m: Module, start: Value, stop: Value, busy: Signal, done: Signal, error) -> None:
        """Step from start to done; `error` stays set when `clear` resets the units' errors."""
        m.d.comb += self.interrupt.eq(~busy & (done | (error != Error.NONE)))
        with m.FSM() as run:
            m.d.comb += busy.eq(~run.ongoing("Idle"))
            # The units also stop in the cycle of a reset, so that no request is lost.
            m.d.comb += self.stop.eq(~run.ongoing("Start") & ~run.ongoing("Run"))
            with m.State("Idle"):
                with m.If(stop):
                    m.next = "Clear"
                with m.Elif(start):
                    m.d.sync += [done.eq(0), error.eq(Error.NONE)]
                    m.next = "Prepare"
            with m.State("Prepare"):
                m.d.comb += self.clear.eq(1)
                m.next = "Start"
            with m.State("Start"):
                m.d.comb += self.start.eq(1)
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
            with m.State("Fail"):
                with m.If(stop):
                    m.next = "Drain"
                with m.Elif(~self.draining):
                    m.next = "Idle"
            with m.State("Drain"), m.If(~self.draining):
                m.next = "Clear"
            with m.State("Clear"):
                m.d.comb += self.clear.eq(1)
                m.d.sync += [done.eq(0), error.eq(Error.NONE)]
                m.next = "Idle"

    def _values(self, m: Module, busy: Signal, done: Signal, error: Signal) -> dict[str, Value]:
        """Return the value of every register."""
        fetched = Signal(REGISTER_BITS)
        cycles = Signal(2 * REGISTER_BITS)
        with m.If(self.clear):
            m.d.sync += [fetched.eq(0), cycles.eq(0)]
        with m.Else():
            m.d.sync += fetched.eq(fetched + self.dispatched)
            with m.If(busy):
                m.d.sync += cycles.eq(cycles + 1)
        status = Cat(busy, done, error != Error.NONE, Const(0, 1), error)
        values: dict[str, Value] = {
            "ID": Const(MAGIC, REGISTER_BITS),
            "VERSION": Const(CONTRACT_VERSION, REGISTER_BITS),
            "CONFIGURATION": Const(self.configuration.hash, REGISTER_BITS),
            "CONTROL": Const(0, REGISTER_BITS),
            "STATUS": status,
            "FETCHED": fetched,
            "CYCLES_LOW": cycles[:REGISTER_BITS],
            "CYCLES_HIGH": cycles[REGISTER_BITS:],
            **{name: getattr(self, name.lower()) for name in SETTINGS},
        }
        for unit in Unit:
            counters = UnitCounters(self.configuration)
            m.submodules[f"{unit.name.lower()}_counters"] = counters
            m.d.comb += [
                counters.clear.eq(self.clear),
                counters.enable.eq(busy),
            ]
            wiring.connect(m, wiring.flipped(self.increments[unit]), counters.increments)
            state = self.states[unit]
            values[f"{unit.name}_STATE"] = Cat(
                state.working,
                state.waiting,
                state.waiting_to_signal,
                state.starved,
                Const(0, 2),
                state.queued,
            )
            values[f"{unit.name}_TOKENS"] = self.tokens[unit]
            for name, count in zip(UNIT_COUNTERS, counters.counts, strict=True):
                values[f"{unit.name}_{name.upper()}"] = count
        return values
