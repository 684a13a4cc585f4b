"""A wider memory port may only lose by the arbiter's decisions; see `flows.verify.grant_order`."""

import pytest

from tilewright.flows.verify import agreement
from tilewright.flows.verify.agreement import check_ports, random_case
from tilewright.flows.verify.grant_order import cycles_in_order_of, read_order
from tilewright.isa.configuration import PRESETS, Memory
from tilewright.isa.instructions import Halt, Load, Store, Sync, Unit
from tilewright.isa.memory_model import MemoryModel
from tilewright.sim.timing import time_program

WIDE = PRESETS["8x8"].replace(bus_bits=256, burst_beats=4)
NARROW = WIDE.replace(bus_bits=128, burst_beats=8)
MEMORY = MemoryModel(latency_cycles=50, outstanding_bursts=1)
COPY = [
    Load(destination=Memory.ACT, length=16, memory=4096, local=0, signal=frozenset({Unit.STORE})),
    Store(source=Memory.ACT, length=16, local=0, memory=8192, wait=frozenset({Unit.LOAD})),
    Sync(target=Unit.GEMM),
    Sync(target=Unit.GEMM),
    Halt(),
]


def test_a_prefetch_that_comes_earlier_delays_a_load():
    """With 256 bits, FETCH asks for the last words before LOAD asks for its data."""
    narrow, wide = (time_program(COPY, machine, MEMORY) for machine in (NARROW, WIDE))
    assert read_order(narrow) == [True, True, False, True]
    assert read_order(wide) == [True, True, True, False]
    assert wide.cycles > narrow.cycles


def test_in_the_same_order_the_wider_port_does_not_lose():
    narrow = time_program(COPY, NARROW, MEMORY)
    assert cycles_in_order_of(narrow, WIDE) < narrow.cycles


@pytest.mark.parametrize("machine", [NARROW, WIDE], ids=["128 bits", "256 bits"])
def test_a_run_in_its_own_order_takes_its_own_cycles(machine):
    timing = time_program(COPY, machine, MEMORY)
    assert cycles_in_order_of(timing, machine) == timing.cycles


def test_weights_may_be_stored_as_for_a_narrower_port():
    """By the estimate, whole tiles load faster with 64 bits and 4 bursts; here they do not."""
    assert check_ports(random_case(9004)) == [434, 380, 358, 351]


def test_a_loss_by_the_order_alone_is_accepted():
    """With 256 bits, one burst of 400 cycles comes later here: 1.5 % of the run."""
    cycles = check_ports(random_case(5060))
    assert cycles[-1] > cycles[-2]


def test_a_loss_beyond_the_order_is_named(monkeypatch):
    monkeypatch.setattr(agreement, "cycles_in_order_of", lambda timing, machine: timing.cycles + 1)
    with pytest.raises(agreement.AgreementError, match="the same order of bursts"):
        check_ports(random_case(5060))
