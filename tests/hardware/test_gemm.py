"""GEMM against the executable semantics: sequences of commands, with pauses on both sides."""

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import connect

from tilewright.hardware.gemm import GemmUnit
from tilewright.hardware.scratchpad import Scratchpad
from tilewright.isa.configuration import PRESETS, Configuration, Memory
from tilewright.isa.instructions import Gemm, Loop
from tilewright.isa.pipeline import GEMM_ARRAY_CYCLES, GEMM_REVISIT_STEPS, READ_LATENCY
from tilewright.isa.semantics import Machine

from .rows import read_rows, write_rows
from .simulated import simulated
from .transfers import equivalent_bits


class GemmHarness(wiring.Component):
    """GEMM with its scratchpads; the test writes ACT and WGT."""

    def __init__(self, configuration: Configuration):
        self.unit = GemmUnit(configuration)
        self.act = Scratchpad(configuration, Memory.ACT, ["gemm"], ["test"])
        self.wgt = Scratchpad(configuration, Memory.WGT, ["gemm"], ["test"])
        self.acc = Scratchpad(configuration, Memory.ACC, ["gemm", "test"], ["gemm"], True)
        super().__init__({})

    def elaborate(self, platform):
        m = Module()
        m.submodules.unit, m.submodules.act = self.unit, self.act
        m.submodules.wgt, m.submodules.acc = self.wgt, self.acc
        connect(m, self.unit.act, self.act.read_gemm)
        connect(m, self.unit.wgt, self.wgt.read_gemm)
        connect(m, self.unit.acc_read, self.acc.read_gemm)
        connect(m, self.unit.acc_write, self.acc.write_gemm)
        return m


SMALL = {"act_depth": 16, "acc_depth": 16}
CASES = {
    name: PRESETS[name].replace(wgt_depth=max(8, 2 * PRESETS[name].lanes_in), **SMALL)
    for name in ("tiny", "4x4", "8x8", "8x16", "16x8", "16x16")
}
CASES["4x4"] = CASES["4x4"].replace(wgt_banks=1)
CASES["no taps"] = CASES["4x4"].replace(depthwise_taps=0)
CASES["one tap"] = CASES["4x4"].replace(depthwise_taps=1)
CASES["all taps"] = CASES["8x8"].replace(lanes_out=2, vector_lanes=2, depthwise_taps=8)


def steps_rest_enough(gemm: Gemm, configuration: Configuration) -> bool:
    period = max(gemm.rows(), configuration.lanes_in, GEMM_REVISIT_STEPS)
    times = np.arange(gemm.tiles())[:, None] * period + np.arange(gemm.rows())
    seen: dict[int, int] = {}
    for time, row in zip(times.reshape(-1).tolist(), gemm.addresses("acc").tolist(), strict=True):
        if time - seen.get(row, -GEMM_REVISIT_STEPS) < GEMM_REVISIT_STEPS:
            return False
        seen[row] = time
    return True


def random_gemm(configuration: Configuration, rng: np.random.Generator) -> Gemm:
    """Draw until addresses stay inside and accumulators rest."""
    sizes = {
        "act": configuration.rows(Memory.ACT),
        "wgt": configuration.rows(Memory.WGT) // configuration.lanes_in,
        "acc": configuration.rows(Memory.ACC),
    }
    while True:

        def loops(count: int, moved: tuple[str, ...], most: int) -> tuple[Loop, ...]:
            return tuple(
                Loop(
                    int(rng.integers(1, most)),
                    tuple(int(rng.choice((0, 0, 1, 2, 4, -1, -3))) for _ in moved),
                )
                for _ in range(int(rng.integers(0, count + 1)))
            )

        gemm = Gemm(
            accumulate=bool(rng.integers(2)),
            depthwise=bool(configuration.depthwise_taps and rng.integers(2)),
            part=int(rng.integers(configuration.depthwise_parts)),
            tile_loops=loops(configuration.tile_loops, ("act", "wgt", "acc"), 4),
            row_loops=loops(configuration.row_loops, ("act", "acc"), 6),
            **{name: int(rng.integers(size)) for name, size in sizes.items()},
        )
        inside = all(
            gemm.addresses(name).min() >= 0 and gemm.addresses(name).max() < size
            for name, size in sizes.items()
        )
        if inside and gemm.steps() <= 80 and steps_rest_enough(gemm, configuration):
            return gemm


def run(configuration: Configuration, program: list[Gemm], rng, pause: float):
    """Run a program; return (accumulators, definition's accumulators, cycles taken)."""
    machine = Machine(configuration, np.zeros(0, dtype=np.uint8))
    for memory in (Memory.ACT, Memory.WGT):
        machine.memories[memory][:] = rng.integers(0, 256, machine.memories[memory].size)
    act, wgt = (machine.view(m).copy().view(np.uint8) for m in (Memory.ACT, Memory.WGT))
    for index, gemm in enumerate(program):
        machine.execute(gemm, index)

    block = simulated(GemmHarness, configuration)
    bench = block.top
    outcome = {}

    async def commands(ctx):
        await write_rows(ctx, bench.act.write_test, act)
        await write_rows(ctx, bench.wgt.write_test, wgt)
        stream = bench.unit.commands
        for index, gemm in enumerate(program):
            while rng.random() < pause:
                await ctx.tick()
            ctx.set(stream.payload.as_value(), equivalent_bits(gemm, configuration, index))
            ctx.set(stream.valid, 1)
            await ctx.tick().until(stream.ready)
            ctx.set(stream.valid, 0)

    async def retirements(ctx):
        retired = cycles = 0
        while retired < len(program):
            ctx.set(bench.unit.retired.ready, int(rng.random() >= pause))
            _, _, valid, go, offered = await ctx.tick().sample(
                bench.unit.retired.valid, bench.unit.retired.ready, bench.unit.commands.valid
            )
            retired += valid & go
            cycles += offered or cycles > 0
        outcome["cycles"] = cycles
        outcome["acc"] = await read_rows(ctx, bench.acc.read_test, configuration.rows(Memory.ACC))

    block.run(commands, retirements)
    return outcome["acc"].view(np.int32), machine.view(Memory.ACC), outcome["cycles"]


LARGE = ("16x8", "8x16", "16x16")


@pytest.mark.parametrize(
    ("name", "pause"),
    [
        pytest.param(name, pause, marks=pytest.mark.slow if name in LARGE and pause else ())
        for name in CASES
        for pause in (0.0, 0.7)
    ],
)
def test_accumulators_equal_the_definition(name, pause):
    configuration = CASES[name]
    rng = np.random.default_rng([ord(c) for c in name] + [int(10 * pause)])
    program = [random_gemm(configuration, rng) for _ in range(8)]
    got, expected, _ = run(configuration, program, rng, pause)
    np.testing.assert_array_equal(got, expected)


def test_the_innermost_row_loop_may_stand_at_any_level():
    """Loops of one iteration may stand inside it; a depthwise run does not begin there."""
    configuration = CASES["4x4"].replace(row_loops=3, acc_depth=64)
    nests = [(Loop(6, (1, 1)),), (Loop(2, (2, 3)), Loop(3, (1, 1)))]
    program = [
        Gemm(depthwise=True, act=place, wgt=place % 2, acc=6 * place, row_loops=nests[place % 2])
        for place in range(16)
    ]
    got, expected, _ = run(configuration, program, np.random.default_rng(8), 0.0)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("depthwise", [False, True])
@pytest.mark.parametrize("name", ["tiny", "4x4", pytest.param("8x8", marks=pytest.mark.slow)])
def test_time_is_a_closed_form_of_the_fields(name, depthwise):
    configuration = CASES[name]
    lanes = configuration.lanes_in
    period = max(lanes, GEMM_REVISIT_STEPS)
    rng = np.random.default_rng(3)
    tiles = configuration.rows(Memory.WGT) // lanes

    def command(count: int, rows: int) -> Gemm:
        return Gemm(
            depthwise=depthwise,
            act=0,
            wgt=0,
            acc=0,
            tile_loops=(Loop(count, (0, 1, 0)),),
            row_loops=(Loop(rows, (1, 1)),),
        )

    sums = (lanes - 1).bit_length() + GEMM_ARRAY_CYCLES
    for count, rows in ((1, 1), (tiles, 1), (tiles, period), (tiles, 16)):
        _, _, cycles = run(configuration, [command(count, rows)], rng, 0.0)
        last_row = period + 1 + (count - 1) * max(rows, period) + rows - 1
        assert cycles == last_row + READ_LATENCY + sums + 1 + 1 + 1
        _, _, twice = run(configuration, [command(count, rows)] * 2, rng, 0.0)
        gap = max(GEMM_REVISIT_STEPS - 1, period + 1 - rows)
        assert twice - cycles == (count - 1) * max(rows, period) + rows + gap
