"""The hardware of rows: biases and scales of drawn slices, with idle cycles between them."""

import numpy as np
import pytest
from amaranth.sim import Simulator

from tilewright.hardware.row_statistics import RowStatistics
from tilewright.isa.instructions import Statistic
from tilewright.isa.row_statistics import factor_pattern, row_parameters

Row = tuple[np.ndarray, np.ndarray, int]
"""Values and entries, integers of shape [slices, lanes], and how many elements count."""


def assert_same_parameters(
    lanes: int,
    statistic: Statistic,
    rows: list[Row],
    draw: np.random.Generator,
    epsilon: int,
    in_fabric: bool = False,
) -> None:
    """Compare the block with the definition, with any centre and factor."""
    centre, factor = (
        int(draw.integers(-128, 128)),
        factor_pattern(float(np.exp(draw.uniform(-9, 9)))),
    )
    slices, expected = [], []
    for values, entries, elements in rows:
        valid = (np.arange(values.size) < elements).reshape(values.shape)
        constants = epsilon, factor
        expected.append(row_parameters(statistic, values[valid], entries[valid], centre, constants))
        ends = [(n == 0, n == len(values) - 1) for n in range(len(values))]
        slices += zip(values, np.where(valid, entries, 0), valid, ends, strict=True)
    dut, found = RowStatistics(lanes, in_fabric=in_fabric), []

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


@pytest.mark.parametrize("statistic", list(Statistic)[1:])
@pytest.mark.parametrize("lanes", [2, 8])
def test_rows_have_the_parameters_of_their_definition(lanes, statistic):
    draw = np.random.default_rng(lanes)
    epsilon, rows = int(draw.integers(-3, 100000)), []
    for row in range(24):
        shape = int(draw.integers(1, 5)), lanes
        values = draw.integers(-128, 128, shape)
        entries = values**2 if row % 5 == 0 else draw.integers(0, 1 << 16, shape)
        if row % 7 == 0:
            entries = np.zeros_like(values)
        elements = int(draw.integers(0, values.size + 1)) if row % 2 else values.size
        rows.append((values, entries, elements))
    assert_same_parameters(lanes, statistic, rows, draw, epsilon)


@pytest.mark.parametrize("epsilon", [0, (1 << 31) - 1])
def test_the_longest_rows_have_room(epsilon):
    """S at both ends and beyond the block's operands, D of 40 bits, and E that takes it further."""
    draw = np.random.default_rng(1)
    shape = 128, 32
    greatest = np.full(shape, 65535)
    rows = [(np.full(shape, each), greatest, 4096) for each in (-128, 127, 0)]
    rows += [(np.full(shape, each), np.full(shape, each**2), 4095) for each in (-128, 127, -65)]
    values = draw.integers(-128, 128, shape)
    rows.append((values, values**2, 4000))
    assert_same_parameters(32, Statistic.VARIANCE, rows, draw, epsilon, in_fabric=True)
