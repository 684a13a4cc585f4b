"""How fast the RTL simulator is: printed, and bounded from below by far less than it reaches."""

import time

import numpy as np
import pytest

from tilewright.isa.configuration import DEFAULT, Memory
from tilewright.isa.encoding import encode_program
from tilewright.isa.instructions import Gemm, Halt, Load, Loop, Store, Sync, Unit, Vector
from tilewright.sim.rtl import RtlCore

LEAST_CYCLES_PER_SECOND = 150_000
"""A broken build falls below this, a busy machine does not."""


def busy_program():
    """Convolution tiles with GEMM always busy, and the other three units beside it."""
    act_slices = DEFAULT.bank_bytes(Memory.ACT) // DEFAULT.vector_lanes
    weights = Load(
        destination=Memory.WGT, length=4096, memory=0, local=DEFAULT.bank_bytes(Memory.WGT)
    )
    tile = Gemm(
        act=0,
        wgt=0,
        acc=0,
        tile_loops=(Loop(36, (8, 1, 0)),),
        row_loops=(Loop(14, (16, 14)), Loop(14, (1, 1))),
    )
    requantise = Vector(
        a_from_acc=True,
        bias=True,
        scale=True,
        a=DEFAULT.acc_depth * DEFAULT.lanes_out // DEFAULT.vector_lanes,
        dst=3 * act_slices,
        map_loops=(Loop(784, (1, 1, 0, 0)),),
    )
    results = Store(
        source=Memory.ACT, length=2048, memory=32768, local=2 * DEFAULT.bank_bytes(Memory.ACT)
    )
    begin = [
        Load(destination=Memory.ACT, length=8192, memory=0, local=0),
        Load(
            destination=Memory.WGT,
            length=9216,
            memory=0,
            local=0,
            signal=frozenset({Unit.GEMM}),
        ),
        Sync(target=Unit.GEMM, wait=frozenset({Unit.LOAD})),
    ]
    return [*begin, *[weights, tile, requantise, results] * 80, Halt()]


@pytest.mark.slow
def test_the_default_configuration_simulates_fast(capsys):
    program = busy_program()
    code = encode_program(program, DEFAULT)
    dram = np.random.default_rng(1).integers(0, 256, 1 << 16, dtype=np.uint8)
    core = RtlCore(DEFAULT)
    rates = []
    for _ in range(3):
        began = time.process_time()
        run = core.run(code, dram, program)
        rates.append(run.cycles / (time.process_time() - began))
    core.close()
    with capsys.disabled():
        print(f"\n16x16: {max(rates):,.0f} cycles/s on the RTL ({run.cycles:,} cycles, GEMM busy)")
    assert run.counters["GEMM_BUSY"] > 0.98 * run.cycles
    assert max(rates) > LEAST_CYCLES_PER_SECOND
