"""VECTOR's unit against the executable semantics, its scratchpads around it."""

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import connect

from tilewright.flows.verify.programs.random_programs import random_program
from tilewright.hardware.scratchpad import Scratchpad
from tilewright.hardware.vector import VectorUnit
from tilewright.isa.configuration import PRESETS, Configuration, Memory
from tilewright.isa.instructions import Vector
from tilewright.isa.semantics import Machine

from .rows import read_rows, write_rows
from .simulated import simulated
from .transfers import command_bits

CASES = {
    "tiny": PRESETS["tiny"],
    "4x4": PRESETS["4x4"].replace(act_depth=16, acc_depth=16, param_depth=4, lut_tables=1),
    "8x16": PRESETS["8x16"].replace(act_depth=16, acc_depth=8, param_depth=4, lut_tables=1),
    "16x8": PRESETS["16x8"].replace(act_depth=8, acc_depth=16, param_depth=4, lut_tables=2),
    "narrow": PRESETS["8x8"].replace(
        act_depth=8, acc_depth=8, param_depth=4, lut_tables=1, vector_lanes=2, reduce_loops=1
    ),
}


class VectorHarness(wiring.Component):
    """VECTOR with its scratchpads; the test fills them."""

    def __init__(self, configuration: Configuration):
        self.unit = VectorUnit(configuration)
        self.act = Scratchpad(configuration, Memory.ACT, ["a", "b", "test"], ["unit", "test"])
        self.acc = Scratchpad(configuration, Memory.ACC, ["a", "test"], ["unit", "test"])
        self.param = Scratchpad(configuration, Memory.PARAM, ["unit"], ["test"])
        super().__init__({})

    def elaborate(self, platform):
        m = Module()
        m.submodules.unit = unit = self.unit
        m.submodules.act, m.submodules.acc = self.act, self.acc
        m.submodules.param = self.param
        connect(m, unit.a_act, self.act.read_a)
        connect(m, unit.b_act, self.act.read_b)
        connect(m, unit.a_acc, self.acc.read_a)
        connect(m, unit.param, self.param.read_unit)
        connect(m, unit.act, self.act.write_unit)
        connect(m, unit.acc, self.acc.write_unit)
        return m


def legal_vectors(configuration: Configuration, seed: int, count: int) -> list[Vector]:
    """VECTOR instructions taken from random programs."""
    found: list[Vector] = []
    while len(found) < count:
        program, _ = random_program(configuration, seed, length=60, data_bytes=4096)
        found += [i for i in program if isinstance(i, Vector) and i.steps() <= 100]
        seed += 1000
    return found[:count]


async def fill(ctx, bench: VectorHarness, machine: Machine) -> None:
    rows = {m: machine.view(m).copy().view(np.uint8) for m in (Memory.ACT, Memory.ACC)}
    await write_rows(ctx, bench.act.write_test, rows[Memory.ACT])
    await write_rows(ctx, bench.acc.write_test, rows[Memory.ACC])
    param = machine.memories[Memory.PARAM]
    row_bytes = machine.configuration.row_bytes(Memory.PARAM)
    await write_rows(ctx, bench.param.write_test, param.reshape(-1, row_bytes))
    ctx.set(bench.unit.table_bytes, 15)
    for row, word in enumerate(machine.memories[Memory.LUT].view(np.uint32)):
        ctx.set(bench.unit.table_address, row)
        ctx.set(bench.unit.table_data, int(word))
        await ctx.tick()
    ctx.set(bench.unit.table_bytes, 0)


@pytest.mark.parametrize("pause", [0.0, 0.6], ids=["at-speed", "with-pauses"])
@pytest.mark.parametrize("name", CASES)
def test_results_equal_the_definition(name, pause):
    configuration = CASES[name]
    rng = np.random.default_rng([ord(c) for c in name])
    program = legal_vectors(configuration, int(10 * pause), 8)
    machine = Machine(configuration, np.zeros(0, dtype=np.uint8))
    for memory in (Memory.ACT, Memory.LUT, Memory.ACC):
        machine.memories[memory][:] = rng.integers(0, 256, machine.memories[memory].size)
    machine.view(Memory.ACC)[::2] >>= 18
    param = machine.view(Memory.PARAM)
    param[..., 0] = rng.integers(-5000, 5000, param.shape[:2]).astype(np.int32).view(np.uint32)
    scales = np.exp2(rng.uniform(-10, 0, param.shape[:2])).astype(np.float32)
    param[..., 1] = scales.view(np.uint32)

    block = simulated(VectorHarness, configuration)
    bench = block.top
    outcome = {}

    async def commands(ctx):
        await fill(ctx, bench, machine)
        for index, vector in enumerate(program):
            machine.execute(vector, index)
        stream = bench.unit.commands
        for vector in program:
            while rng.random() < pause:
                await ctx.tick()
            ctx.set(stream.payload.as_value(), command_bits(vector, configuration))
            ctx.set(stream.valid, 1)
            await ctx.tick().until(stream.ready)
            ctx.set(stream.valid, 0)

    async def retirements(ctx):
        retired = 0
        while retired < len(program):
            ctx.set(bench.unit.retired.ready, int(rng.random() >= pause))
            _, _, valid, ready = await ctx.tick().sample(
                bench.unit.retired.valid, bench.unit.retired.ready
            )
            retired += valid & ready
        for memory, pad in ((Memory.ACT, bench.act), (Memory.ACC, bench.acc)):
            outcome[memory] = await read_rows(ctx, pad.read_test, configuration.rows(memory))

    block.run(commands, retirements)
    for memory, got in outcome.items():
        expected = machine.memories[memory].reshape(got.shape)
        np.testing.assert_array_equal(got, expected, err_msg=memory.name)
