"""The hardware of rows: biases and scales of drawn slices, with idle cycles between them."""

import numpy as np
import pytest
from amaranth.sim import Simulator

from tilewright.hardware.row_statistics import RowStatistics
from tilewright.isa.instructions import Statistic
from tilewright.isa.row_statistics import factor_pattern, row_parameters


@pytest.mark.parametrize("statistic", list(Statistic)[1:])
@pytest.mark.parametrize("lanes", [2, 8])
def test_rows_have_the_parameters_of_their_definition(lanes, statistic):
    draw = np.random.default_rng(lanes)
    epsilon, centre = int(draw.integers(-3, 100000)), int(draw.integers(-128, 128))
    factor = factor_pattern(float(np.exp(draw.uniform(-9, 9))))
    slices, expected = [], []
    for row in range(24):
        shape = int(draw.integers(1, 5)), lanes
        values = draw.integers(-128, 128, shape)
        entries = values**2 if row % 5 == 0 else draw.integers(0, 1 << 16, shape)
        if row % 7 == 0:
            entries = np.zeros_like(values)
        elements = int(draw.integers(0, values.size + 1)) if row % 2 else values.size
        valid = (np.arange(values.size) < elements).reshape(shape)
        constants = epsilon, factor
        found = row_parameters(statistic, values[valid], entries[valid], centre, constants)
        expected.append(found)
        ends = [(n == 0, n == shape[0] - 1) for n in range(shape[0])]
        slices += zip(values, entries, valid, ends, strict=True)
    dut, found = RowStatistics(lanes), []

    async def bench(ctx):
        for name, value in (
            ("statistic", int(statistic)),
            ("centre", centre),
            ("epsilon", epsilon),
            ("factor", factor),
        ):
            ctx.set(getattr(dut, name), value)
        cycle, due = 0, []
        while slices or due:
            takes = bool(slices) and draw.random() < 0.8
            ctx.set(dut.valid, takes)
            if takes:
                values, entries, valid, (first, last) = slices.pop(0)
                ctx.set(dut.first, first)
                ctx.set(dut.last, last)
                ctx.set(dut.mask, int(sum(int(bit) << lane for lane, bit in enumerate(valid))))
                for lane in range(lanes):
                    ctx.set(dut.values[lane], int(values[lane]))
                    ctx.set(dut.entries[lane], int(entries[lane]))
                due += [cycle + dut.LATENCY] * last
            if due and due[0] == cycle:
                due.pop(0)
                found.append((ctx.get(dut.bias), ctx.get(dut.scale)))
            await ctx.tick()
            cycle += 1

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert all(each in (None, mine) for mine, each in zip(ours, theirs, strict=True))
