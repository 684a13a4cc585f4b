"""Scratchpads against arrays: clients on different banks in the same cycle, masks, latency."""

import numpy as np
import pytest
from amaranth.hdl import Fragment
from amaranth.sim import Simulator

from tilewright.hardware.scratchpad import Scratchpad
from tilewright.hardware.technology import Technology
from tilewright.isa.configuration import PRESETS, Memory
from tilewright.isa.pipeline import READ_LATENCY

CASES = [("tiny", Memory.ACT, False), ("4x4", Memory.WGT, False), ("8x16", Memory.ACC, True)]
CASES += [("tiny", Memory.PARAM, False)]


def row_value(ctx, port) -> int:
    return sum(ctx.get(word) << (len(word) * index) for index, word in enumerate(port.data))


@pytest.mark.parametrize("platform", [None, Technology.SIMULATION], ids=["portable", "simulation"])
@pytest.mark.parametrize(("name", "memory", "announces"), CASES, ids=lambda value: str(value))
def test_every_client_sees_what_was_written(name, memory, announces, platform):
    configuration = PRESETS[name].replace(act_depth=8, acc_depth=8)
    pad = Scratchpad(configuration, memory, ["left", "right"], ["above", "below"], announces)
    banks, rows = configuration.banks(memory), configuration.rows(memory)
    depth = configuration.depth(memory)
    row_bytes = configuration.row_bytes(memory)
    granule = 4 if memory is Memory.ACC else 1
    contents = np.zeros((rows, row_bytes), dtype=np.uint8)
    rng = np.random.default_rng(5)
    readers = [pad.read_left, pad.read_right]
    writers = [pad.write_above, pad.write_below]

    def draw():
        """Return random rows to read and to write in a cycle."""
        reading = [int(rng.integers(rows)) if rng.random() < 0.7 else None for _ in readers]
        writing = [int(rng.integers(rows)) if rng.random() < 0.7 else None for _ in writers]
        for pair in (reading, writing):
            banks = [row // depth for row in pair if row is not None]
            if len(banks) == 2 and banks[0] == banks[1]:
                pair[1] = None
        # A row that is read while it is written has undefined data, so it does not happen.
        return reading, [None if row in reading else row for row in writing]

    async def bench(ctx):
        expected = []
        cycles = [([None, None], [None, None]), *(draw() for _ in range(300))]
        following = [writing[0] for _, writing in cycles[1:]] + [None]
        for (reading, writing), next_row in zip(cycles, following, strict=True):
            if announces:
                bank = 0 if next_row is None else 1 << (next_row // depth)
                ctx.set(writers[0].announced, bank)
            for port, row in zip(readers, reading, strict=True):
                ctx.set(port.enable, row is not None)
                ctx.set(port.address, row if row is not None else int(rng.integers(rows)))
            expected.append([None if r is None else contents[r].tobytes() for r in reading])
            for port, row in zip(writers, writing, strict=True):
                data = rng.integers(0, 256, row_bytes, dtype=np.uint8)
                mask = rng.integers(0, 2, row_bytes // granule)
                ctx.set(port.enable, row is not None)
                ctx.set(port.address, row or 0)
                word_bytes = len(port.data[0]) // 8
                bits = len(port.mask[0])
                for word, (target, enables) in enumerate(zip(port.data, port.mask, strict=True)):
                    part = data[word * word_bytes : (word + 1) * word_bytes]
                    ctx.set(target, int.from_bytes(part.tobytes(), "little"))
                    chosen = mask[word * bits : (word + 1) * bits]
                    ctx.set(enables, sum(int(bit) << n for n, bit in enumerate(chosen)))
                if row is not None:
                    contents[row] = np.where(np.repeat(mask, granule), data, contents[row])
            await ctx.tick()
            if len(expected) >= READ_LATENCY:
                for port, value in zip(readers, expected[-READ_LATENCY], strict=True):
                    if value is not None:
                        assert row_value(ctx, port) == int.from_bytes(value, "little")

    assert banks > 1 or memory is Memory.PARAM
    simulator = Simulator(Fragment.get(pad, platform))
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


def test_two_readers_of_one_bank_are_caught():
    configuration = PRESETS["tiny"]
    pad = Scratchpad(configuration, Memory.ACT, ["left", "right"], ["above"])

    async def bench(ctx):
        for port in (pad.read_left, pad.read_right):
            ctx.set(port.enable, 1)
        await ctx.tick()
        await ctx.tick()

    simulator = Simulator(pad)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    with pytest.raises(AssertionError, match="two clients read one bank in the same cycle"):
        simulator.run()
