"""Queues of every description: payloads in order, level, and when both sides stall."""

from collections import deque

import numpy as np
import pytest
from amaranth.hdl import Fragment
from amaranth.sim import Simulator

from tilewright.hardware.queue import Queue
from tilewright.hardware.technology import Technology


@pytest.mark.parametrize("platform", [None, Technology.ICE40], ids=str)
@pytest.mark.parametrize("depth", [2, 3, 17, 32])
def test_payloads_leave_in_order(depth, platform):
    queue = Queue(8, depth)
    rng = np.random.default_rng(depth)

    async def bench(ctx):
        waiting: deque[int] = deque()
        fullest = 0
        for cycle in range(4_000):
            # Phases in which it runs empty, and full.
            offers = rng.random() < (0.9 if cycle // 100 % 2 else 0.4)
            takes = rng.random() < (0.4 if cycle // 100 % 2 else 0.9)
            payload = int(rng.integers(256))
            ctx.set(queue.input.valid, offers)
            ctx.set(queue.input.payload, payload)
            ctx.set(queue.output.ready, takes)
            assert ctx.get(queue.level) == len(waiting)
            assert ctx.get(queue.input.ready) == (len(waiting) < depth)
            assert ctx.get(queue.output.valid) == bool(waiting)
            enters = offers and len(waiting) < depth
            if waiting:
                assert ctx.get(queue.output.payload) == waiting[0]
                if takes:
                    waiting.popleft()
            if enters:
                waiting.append(payload)
            fullest = max(fullest, len(waiting))
            await ctx.tick()
        assert fullest == depth

    simulator = Simulator(Fragment.get(queue, platform))
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
