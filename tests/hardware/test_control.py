"""Every register of the contract over AXI4-Lite, and a run from start to end."""

import random

import pytest
from amaranth.sim import Simulator

from tilewright.hardware.control import SETTINGS, Control
from tilewright.hardware.counters import CounterBank, counters_of
from tilewright.isa.configuration import CONTRACT_VERSION, PRESETS
from tilewright.isa.instructions import Unit
from tilewright.isa.registers import MAGIC, OFFSETS, REGISTERS, UNIT_COUNTERS, Error

CONFIGURATION = PRESETS["tiny"]
BUSY, DONE, FAILED = 1, 2, 4


class Bus:
    """An AXI4-Lite master with random pauses that sends address and data in any order."""

    def __init__(self, ctx, port, seed: int = 0):
        self.ctx, self.port = ctx, port
        self.random = random.Random(seed)

    async def write(self, name: str, value: int, strobe: int = 15) -> None:
        ctx, port = self.ctx, self.port
        ctx.set(port.awaddr, OFFSETS[name] + self.random.randrange(4))
        ctx.set(port.wdata, value)
        ctx.set(port.wstrb, strobe)
        pending = {"aw", "w"}
        while pending:
            sending = {channel for channel in pending if self.random.random() < 0.6}
            for channel in ("aw", "w"):
                ctx.set(getattr(port, f"{channel}valid"), channel in sending)
            pending -= {c for c in sending if ctx.get(getattr(port, f"{c}ready"))}
            await ctx.tick()
        ctx.set(port.awvalid, 0)
        ctx.set(port.wvalid, 0)
        while self.random.random() < 0.5:
            await ctx.tick()
        ctx.set(port.bready, 1)
        response, *_ = (await ctx.tick().sample(port.bresp).until(port.bvalid),)
        assert response == (0,)
        ctx.set(port.bready, 0)

    async def read(self, name: str) -> int:
        ctx, port = self.ctx, self.port
        ctx.set(port.araddr, OFFSETS[name])
        ctx.set(port.arvalid, 1)
        await ctx.tick().until(port.arready)
        ctx.set(port.arvalid, 0)
        while self.random.random() < 0.5:
            await ctx.tick()
        ctx.set(port.rready, 1)
        value, response = await ctx.tick().sample(port.rdata, port.rresp).until(port.rvalid)
        ctx.set(port.rready, 0)
        assert response == 0
        return value


def simulate(process, configuration=CONFIGURATION) -> None:
    control = Control(configuration)

    async def bench(ctx):
        await process(ctx, control, Bus(ctx, control.bus))

    simulator = Simulator(control)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


def test_constants_and_settings_read_back():
    async def process(ctx, control, bus):
        assert await bus.read("ID") == MAGIC
        assert await bus.read("VERSION") == CONTRACT_VERSION
        assert await bus.read("CONFIGURATION") == CONFIGURATION.hash
        for number, name in enumerate(SETTINGS):
            await bus.write(name, 0x01020304 * (number + 1))
        for number, name in enumerate(SETTINGS):
            assert await bus.read(name) == 0x01020304 * (number + 1)
            assert ctx.get(getattr(control, name.lower())) == 0x01020304 * (number + 1)
        await bus.write("DATA_BASE", 0, strobe=3)
        assert await bus.read("DATA_BASE") != 0
        await bus.write("ID", 5)
        assert await bus.read("ID") == MAGIC

    simulate(process)


@pytest.mark.parametrize("counters", ["all", "basic", "none"])
def test_every_register_of_the_contract_shows_its_own_value(counters):
    configuration = CONFIGURATION.replace(counters=counters)

    async def process(ctx, control, bus):
        await bus.write("CONTROL", 1)
        await ctx.tick()
        for unit in Unit:
            state, grows = control.states[unit], control.increments[unit.name]
            ctx.set(state.working, 1)
            ctx.set(state.waiting, unit)
            ctx.set(state.starved, unit & 1)
            ctx.set(state.queued, 2)
            ctx.set(control.tokens[unit], 0x010203 * (unit + 1))
            for name in counters_of(configuration, unit):
                ctx.set(grows[name], (unit + UNIT_COUNTERS.index(name)) % 2)
        await ctx.tick().repeat(50)
        for unit in Unit:
            for name in counters_of(configuration, unit):
                ctx.set(control.increments[unit.name][name], 0)
        values = {register.name: await bus.read(register.name) for register in REGISTERS}
        assert (values["CYCLES_LOW"] > 50) == (counters != "none")
        for unit in Unit:
            expected = 1 | unit << 1 | (unit & 1) << 5 | 2 << 8
            assert values[f"{unit.name}_STATE"] == expected
            assert values[f"{unit.name}_TOKENS"] == 0x010203 * (unit + 1)
            for index, name in enumerate(UNIT_COUNTERS):
                value = values[f"{unit.name}_{name.upper()}"]
                counts = name in counters_of(configuration, unit) and (unit + index) % 2
                assert value == (50 if counts else 0), name

    simulate(process, configuration)


def test_a_run_ends_when_all_units_are_dry():
    async def process(ctx, control, bus):
        await bus.write("PROGRAM_BYTES", 64)
        await bus.write("CONTROL", 1)
        assert await bus.read("STATUS") == BUSY
        await bus.write("PROGRAM_BYTES", 128)
        assert await bus.read("PROGRAM_BYTES") == 64
        ctx.set(control.halted, 1)
        await ctx.tick().repeat(100)
        assert not ctx.get(control.interrupt)
        ctx.set(control.dry, 1)
        await ctx.tick().repeat(2)
        assert ctx.get(control.interrupt)
        assert await bus.read("STATUS") == DONE
        ctx.set(control.dry, 0)
        ctx.set(control.halted, 0)
        await bus.write("CONTROL", 1)
        assert await bus.read("STATUS") == BUSY
        assert await bus.read("CYCLES_LOW") < 60

    simulate(process)


def test_an_error_drains_and_is_kept():
    async def process(ctx, control, bus):
        await bus.write("CONTROL", 1)
        ctx.set(control.draining, 1)
        ctx.set(control.error, Error.MEMORY_RESPONSE)
        await ctx.tick().repeat(3)
        assert ctx.get(control.stop)
        assert await bus.read("STATUS") == BUSY | FAILED | Error.MEMORY_RESPONSE << 4
        ctx.set(control.draining, 0)
        await ctx.tick().repeat(2)
        assert await bus.read("STATUS") == FAILED | Error.MEMORY_RESPONSE << 4
        assert ctx.get(control.interrupt)
        assert ctx.get(control.stop)

    simulate(process)


@pytest.mark.parametrize("failed", [False, True], ids=["running", "failed"])
def test_a_stop_clears_when_transfers_have_drained(failed):
    async def process(ctx, control, bus):
        await bus.write("CONTROL", 1)
        ctx.set(control.draining, 1)
        ctx.set(control.error, Error.OUT_OF_WINDOW if failed else Error.NONE)
        await ctx.tick().repeat(3)
        await bus.write("CONTROL", 2)
        clears = 0
        for cycle in range(30):
            if cycle == 20:
                ctx.set(control.draining, 0)
            if ctx.get(control.clear):
                assert cycle >= 20
                ctx.set(control.error, Error.NONE)
                clears += 1
            assert ctx.get(control.stop)
            await ctx.tick()
        assert clears == 1
        assert await bus.read("STATUS") == 0

    simulate(process)


def test_counters_are_exact_in_every_cycle():
    """Totals stay right while they are read as often as possible, and across clears."""
    bits, chance = 10, random.Random(3)
    most = {"a": 1, "b": 8, "c": 1, "d": 3}
    bank = CounterBank(most, bits)
    names = bank.totals

    async def bench(ctx):
        totals = dict.fromkeys(names, 0)
        history, asked, rate, answered = [], "", 1.0, 0
        for cycle in range(6000):
            if cycle % 500 == 0:
                rate = chance.choice([0.1, 0.9, 1.0])
            clear, enable = cycle in (10, 11, 3000), chance.random() < 0.99
            steps = {name: chance.random() < rate and top for name, top in most.items()}
            if not asked and chance.random() < 0.9:
                asked = chance.choice(names)
            for name, step in steps.items():
                ctx.set(bank.increments[name], step)
            ctx.set(bank.clear, clear)
            ctx.set(bank.enable, enable)
            ctx.set(bank.ask, bool(asked))
            ctx.set(bank.place, names.index(asked or "a"))
            history.append(dict(totals))
            if ctx.get(bank.answers):
                # A total that is asked for with a clear may be an old one.
                follows = asked == "CYCLES_HIGH" and totals["CYCLES_LOW"] < 2 * len(names) + 5
                if asked and not follows and not set(range(cycle - 6, cycle)) & {10, 11, 3000}:
                    assert ctx.get(bank.total) == history[cycle - 5][asked], (cycle, asked)
                asked = ""
                answered += 1
            cycles = (totals["CYCLES_HIGH"] << bits) + totals["CYCLES_LOW"] + 1
            steps |= {"CYCLES_LOW": 1, "CYCLES_HIGH": 0}
            if enable:
                totals = {name: (totals[name] + step) % (1 << bits) for name, step in steps.items()}
                totals["CYCLES_HIGH"] = cycles >> bits
            if clear:
                totals = dict.fromkeys(names, 0)
            await ctx.tick()
        assert answered > 900

    simulator = Simulator(bank)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
