"""Energy: published figures at published sizes, and sums over the accesses of a program."""

import pytest

from tilewright.flows.area.energy import SRAM_PJ, energy_of, sram_pj_per_byte
from tilewright.isa.configuration import PRESETS, Memory
from tilewright.isa.encoding import word_bytes
from tilewright.isa.instructions import Combine, Gemm, Halt, Load, Loop, Store, Vector

MACHINE = PRESETS["4x4"]
WORD_J = 1e-12 * word_bytes(MACHINE) * 1300 / 8
"""Least energy of reading an instruction."""


@pytest.mark.parametrize(("size", "energy"), SRAM_PJ)
def test_memories_of_published_sizes_have_published_energies(size, energy):
    assert 8 * sram_pj_per_byte(size) == pytest.approx(energy)


def test_larger_memories_take_more_energy_at_every_size():
    energies = [sram_pj_per_byte(1 << bits) for bits in range(6, 24)]
    assert energies == sorted(energies)


def test_main_memory_counts_data_and_program():
    load = Load(destination=Memory.ACT, length=64, memory=0, local=0, loops=(Loop(3, (64, 64)),))
    found = energy_of([load, Halt()], MACHINE)
    assert found.least_memory == pytest.approx(2 * WORD_J + 1e-12 * 192 * 1300 / 8)
    assert found.greatest_memory == pytest.approx(2 * found.least_memory)
    written = 1e-12 * 192 * sram_pj_per_byte(MACHINE.bank_bytes(Memory.ACT))
    assert found.scratchpads == pytest.approx(written)
    assert found.arithmetic == 0
    fill = Load(destination=Memory.ACT, fill=True, length=64, local=0, loops=(Loop(3, (0, 64)),))
    assert energy_of([fill, Halt()], MACHINE).least_memory == pytest.approx(2 * WORD_J)


def test_every_lane_of_the_array_counts_in_every_step():
    gemm = Gemm(act=0, wgt=0, acc=0, row_loops=(Loop(5, (1, 1)),))
    found = energy_of([gemm], MACHINE)
    assert found.arithmetic == pytest.approx(1e-12 * 5 * 16 * 0.3)
    accumulators = 2 * 5 * 16 * sram_pj_per_byte(MACHINE.bank_bytes(Memory.ACC))
    rows = 5 * 4 * sram_pj_per_byte(MACHINE.bank_bytes(Memory.ACT))
    tile = 16 * sram_pj_per_byte(MACHINE.bank_bytes(Memory.WGT))
    assert found.scratchpads == pytest.approx(1e-12 * (accumulators + rows + tile))


def test_an_operation_with_two_operands_reads_both():
    one, two = (
        energy_of([Vector(combine=combine, dst=0, a=0)], MACHINE)
        for combine in (Combine.A, Combine.ADD)
    )
    byte = sram_pj_per_byte(MACHINE.bank_bytes(Memory.ACT))
    assert two.scratchpads - one.scratchpads == pytest.approx(1e-12 * 4 * byte)
    assert two.arithmetic == one.arithmetic


def test_stores_read_their_scratchpad():
    store = Store(source=Memory.ACC, length=32, local=0, memory=0)
    read = 32 * sram_pj_per_byte(MACHINE.bank_bytes(Memory.ACC))
    assert energy_of([store], MACHINE).scratchpads == pytest.approx(1e-12 * read)
