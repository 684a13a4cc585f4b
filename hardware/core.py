"""The whole accelerator: four units with their scratchpads, token gates and the memory port.

This file only connects blocks. `CLIENTS` lists the readers and writers of each scratchpad.
"""

from amaranth.hdl import Cat, Module, Mux, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from ..isa.configuration import Configuration, Memory
from ..isa.durations import commands_in_flight
from ..isa.instructions import Unit
from ..isa.registers import Error
from .axi import read_port, write_port
from .axi_lite import axi_lite_port
from .blocks import array_blocks
from .clock_gating import ClockGating
from .control import ADDRESS_BITS, Control
from .counters import counters_of
from .dispatcher import FAMILY_OF, Dispatcher
from .fetch import FetchUnit
from .gemm import GemmUnit
from .load import LoadUnit
from .read_arbiter import ReadArbiter
from .read_buffer import ReadBuffer
from .scratchpad import Scratchpad
from .store import StoreUnit
from .token_gate import TokenGate
from .tokens import TokenCounters
from .vector import VectorUnit

CLIENTS = {
    Memory.ACT: (("gemm", "vector_a", "vector_b", "store"), ("load", "vector")),
    Memory.WGT: (("gemm",), ("load",)),
    Memory.PARAM: (("vector",), ("load",)),
    Memory.ACC: (("gemm", "vector", "store"), ("gemm", "vector")),
}
"""Readers and writers of each scratchpad. VECTOR holds the look-up tables, one copy per lane."""

EVENTS_PER_UNIT = 2
"""An instruction starts; an instruction retires."""


def _prefixed(prefix: str, *signatures: wiring.Signature) -> dict[str, wiring.Member]:
    return {
        f"{prefix}_{name}": member
        for signature in signatures
        for name, member in signature.members.items()
    }


def core_members(configuration: Configuration) -> dict[str, wiring.Member]:
    """Return the members of `Core`."""
    return {
        **_prefixed("m_axi", read_port(configuration), write_port(configuration)),
        **_prefixed("s_axi", axi_lite_port(ADDRESS_BITS).flip()),
        "interrupt": Out(1),
        "events": Out(EVENTS_PER_UNIT * len(Unit)),
    }


class Core(wiring.Component):
    """The whole accelerator, with its ports to the system.

    Parameters
    ----------
    configuration : Configuration
    multipliers : int, optional
        Multiplier blocks of the chip, for technologies that count them. The lanes of VECTOR take
        those that the array leaves; bytes and cycles do not depend on it.

    Members
    -------
    m_axi_* : AXI4 master, without identifiers
        Program and data.
    s_axi_* : AXI4-Lite slave
        The registers of `isa.registers`.
    interrupt : Out(1)
        Level: the run is done, or an error stopped it.
    events : Out(8)
        For each unit `u`: bit 2u is set when an instruction starts in this cycle and takes its
        tokens (a SYNC too), bit 2u + 1 when one retires.
    """

    def __init__(self, configuration: Configuration, multipliers: int | None = None):
        self.configuration, self.multipliers = configuration, multipliers
        super().__init__(core_members(configuration))

    def elaborate(self, platform) -> Module:
        m = Module()
        configuration = self.configuration
        control = m.submodules.control = Control(configuration)
        gating = ClockGating(m, platform, control.clear, control.clears)

        pads = {}
        has_rows = configuration.row_statistics != "none"
        for memory, (readers, writers) in CLIENTS.items():
            if memory is Memory.PARAM and has_rows:
                writers = (*writers, "vector")
            pads[memory] = Scratchpad(
                configuration, memory, readers, writers, announces=memory is Memory.ACC
            )
            if memory is not Memory.PARAM:
                m.submodules[memory.name.lower()] = pads[memory]
        load, gemm = LoadUnit(configuration), GemmUnit(configuration)
        spare = None if self.multipliers is None else self.multipliers - array_blocks(configuration)
        vector, store = VectorUnit(configuration, spare), StoreUnit(configuration)
        units = dict(zip(Unit, (load, gemm, vector, store), strict=True))
        gates = {
            unit: TokenGate(FAMILY_OF[unit], configuration, commands_in_flight(configuration))
            for unit in Unit
        }
        fetch = FetchUnit(configuration)
        arbiter = ReadArbiter(configuration)
        tokens = TokenCounters(configuration)
        dispatcher = m.submodules.dispatcher = Dispatcher(configuration)
        buffer = ReadBuffer(configuration)
        gating.add("port", {"arbiter": arbiter, "buffer": buffer}, None)
        named_gates = {f"{unit.name.lower()}_gate": gate for unit, gate in gates.items()}
        vector_awake = gates[Unit.VECTOR].commands.valid | vector.busy
        vector_awake |= load.lut.enable | load.param.enable
        moving = [_moves(g.instructions) | g.started | g.ended for g in gates.values()]
        # An idle FETCH may still offer an instruction to a full queue.
        fetching = fetch.busy & (~fetch.instructions.valid | fetch.instructions.ready)
        fetching |= control.start | fetch.requests.valid | fetch.beats.valid
        for name, parts, awake in (
            ("load", {"load": load}, gates[Unit.LOAD].commands.valid | load.busy),
            ("gemm", {"gemm": gemm}, gates[Unit.GEMM].commands.valid | gemm.busy),
            ("vector", {"vector": vector, "param": pads[Memory.PARAM]}, vector_awake),
            ("store", {"store": store}, gates[Unit.STORE].commands.valid | store.busy),
            ("fetch", {"fetch": fetch}, fetching),
            ("gates", {**named_gates, "tokens": tokens}, Cat(moving).any()),
        ):
            gating.add(name, parts, awake)

        wiring.connect(m, fetch.instructions, dispatcher.instructions)
        for unit, gate in gates.items():
            self._connect_unit(m, unit, units[unit], gate, dispatcher, tokens, control)
        self._connect_scratchpads(m, pads, units)
        wiring.connect(m, arbiter.memory, buffer.core)
        self._connect_memory(m, fetch, load, store, arbiter, buffer, control)

        sources = [fetch.error, load.error, store.error]
        error = Value.cast(Error.NONE)
        for source in reversed(sources):
            error = Mux(source != Error.NONE, source, error)
        transferring = fetch.busy | load.busy | store.busy
        m.d.comb += [
            control.halted.eq(fetch.halted),
            control.dry.eq(_all(gate.dry for gate in gates.values())),
            control.draining.eq(transferring),
            control.error.eq(error),
            control.dispatched.eq(_moves(fetch.instructions)),
            self.interrupt.eq(control.interrupt),
        ]
        for name in axi_lite_port(ADDRESS_BITS).members:
            _join(m, self, f"s_axi_{name}", control.bus, name)
        return m

    def _connect_unit(
        self, m, unit: Unit, core, gate: TokenGate, dispatcher, tokens, control
    ) -> None:
        """Connect the queue, tokens, status and events of one unit."""
        wiring.connect(m, getattr(dispatcher, unit.name.lower()), gate.instructions)
        wiring.connect(m, gate.commands, core.commands)
        wiring.connect(m, core.retired, gate.retired)
        wiring.connect(m, gate.state, control.states[unit])
        memory_side = unit in (Unit.LOAD, Unit.STORE)
        state, increments = gate.state, control.increments[unit.name]
        m.d.comb += [
            gate.available.eq(tokens.available[unit]),
            gate.room.eq(tokens.room[unit]),
            tokens.consume[unit].eq(gate.consume),
            tokens.produce[unit].eq(gate.produce),
            gate.busy.eq(core.busy),
            gate.starved.eq(core.starved if memory_side else 0),
            self.events.word_select(unit, EVENTS_PER_UNIT).eq(
                Value.cast(gate.started) | (gate.ended << 1)
            ),
            control.tokens[unit].eq(tokens.counts[unit]),
        ]
        counted = {
            "instructions": gate.ended,
            "busy": state.working,
            **{f"wait{bit}": state.waiting[bit] for bit in range(len(Unit) - 1)},
            "wait_signal": state.waiting_to_signal,
        }
        if memory_side:
            counted |= {"memory": state.starved, "bytes": core.moved_bytes}
        for name in counters_of(self.configuration, unit):
            m.d.comb += increments[name].eq(counted[name])

    def _connect_scratchpads(self, m, pads: dict[Memory, Scratchpad], units) -> None:
        load, gemm, vector, store = (units[unit] for unit in Unit)
        act, wgt, param, acc = (pads[memory] for memory in CLIENTS)
        for client, port in (
            (gemm.act, act.read_gemm),
            (gemm.wgt, wgt.read_gemm),
            (gemm.acc_read, acc.read_gemm),
            (gemm.acc_write, acc.write_gemm),
            (vector.a_act, act.read_vector_a),
            (vector.b_act, act.read_vector_b),
            (vector.a_acc, acc.read_vector),
            (vector.param, param.read_vector),
            (vector.act, act.write_vector),
            (vector.acc, acc.write_vector),
        ):
            wiring.connect(m, client, port)
        if self.configuration.row_statistics != "none":
            wiring.connect(m, vector.param_write, param.write_vector)
        for client, port in (
            (load.act, act.write_load),
            (load.wgt, wgt.write_load),
            (load.param, param.write_load),
        ):
            m.d.comb += [port.enable.eq(client.enable), port.address.eq(client.address)]
            for word, (data, mask) in enumerate(zip(port.data, port.mask, strict=True)):
                m.d.comb += data.eq(client.data.word_select(word, len(data)))
                m.d.comb += mask.eq(client.mask.word_select(word, len(mask)))
        for client, port in ((store.act, act.read_store), (store.acc, acc.read_store)):
            m.d.comb += [port.enable.eq(client.enable), port.address.eq(client.address)]
            for word, data in enumerate(port.data):
                m.d.comb += client.data.word_select(word, len(data)).eq(data)
        m.d.comb += [
            vector.table_address.eq(load.lut.address),
            vector.table_data.eq(load.lut.data),
            vector.table_bytes.eq(Mux(load.lut.enable, load.lut.mask, 0)),
        ]

    def _connect_memory(self, m, fetch, load, store, arbiter, buffer, control) -> None:
        wiring.connect(m, fetch.requests, arbiter.fetch_requests)
        wiring.connect(m, arbiter.fetch_beats, fetch.beats)
        wiring.connect(m, load.requests, arbiter.load_requests)
        wiring.connect(m, arbiter.load_beats, load.beats)
        for port, signature in (
            (buffer.memory, read_port(self.configuration)),
            (store.memory, write_port(self.configuration)),
        ):
            for name in signature.members:
                _join(m, self, f"m_axi_{name}", port, name)
        m.d.comb += [
            fetch.start.eq(control.start),
            fetch.stop.eq(control.stop),
            fetch.program_base.eq(control.program_base),
            fetch.program_bytes.eq(control.program_bytes),
        ]
        for unit in (load, store):
            m.d.comb += [
                unit.stop.eq(control.stop),
                unit.data_base.eq(control.data_base),
                unit.data_bytes.eq(control.data_bytes),
            ]


def _moves(stream) -> Value:
    return stream.valid & stream.ready


def _all(bits) -> Value:
    result = Value.cast(1)
    for bit in bits:
        result = result & bit
    return result


def _join(m: Module, outer, outer_name: str, inner, inner_name: str) -> None:
    """Connect a member of the top level to a member of a block, in the member's direction."""
    outside, inside = getattr(outer, outer_name), getattr(inner, inner_name)
    if outer.signature.members[outer_name].flow is Out:
        m.d.comb += outside.eq(inside)
    else:
        m.d.comb += inside.eq(outside)
