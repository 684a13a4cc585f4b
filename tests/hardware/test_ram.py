"""RAMs in every description against an array: each shape of block, masks, held data."""

import gc

import numpy as np
import pytest

from tilewright.errors import HardwareError
from tilewright.hardware.ram import Ram
from tilewright.hardware.soc import banked_ram
from tilewright.hardware.soc.banked_ram import BankedRam, bank_words
from tilewright.hardware.technology import Technology
from tilewright.isa.pipeline import RAM_CYCLES

from .conftest import Batch, Several

CYCLES = 50_000
QUICK = [(12, 12, 4), (200, 60, 20)]
SLOW = [(16, 9, None), (512, 32, 8), (1024, 40, None), (2048, 27, 9), (4096, 10, 5)]
SLOW += [(8192, 3, None), (16384, 2, 1), (32768, 3, None)]


def expected_data(ram: Ram, stimuli: dict[str, np.ndarray]) -> np.ndarray:
    """Output of a RAM in every cycle, -1 before the first read."""
    contents = [0] * ram.depth
    granule = (1 << ram.granularity) - 1
    output, arriving = -1, [None] * RAM_CYCLES
    outputs = []
    columns = (stimuli[name].tolist() for name in STIMULI)
    for reads, read_from, write, enables, write_to, data in zip(*columns, strict=True):
        outputs.append(output)
        arriving.append(contents[read_from] if reads else None)
        value = arriving.pop(1)
        output = output if value is None else value
        if write:
            bits = range(ram.width // ram.granularity)
            mask = sum(granule << (n * ram.granularity) for n in bits if enables >> n & 1)
            contents[write_to] = contents[write_to] & ~mask | data & mask
    return np.array(outputs)


STIMULI = (
    "read_enable",
    "read_address",
    "write",
    "write_enable",
    "write_address",
    "write_data",
)


def random_stimuli(ram: Ram) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(ram.depth)
    # Few addresses, so that words are read again; both ends and all address bits among them.
    rows = rng.integers(0, ram.depth, 12)
    rows[:2] = 0, ram.depth - 1
    stimuli = {
        "read_enable": rng.integers(0, 2, CYCLES),
        "read_address": rng.choice(rows, CYCLES),
        "write": rng.integers(0, 2, CYCLES),
        "write_enable": rng.integers(0, 1 << len(ram.write_enable), CYCLES),
        "write_address": rng.choice(rows, CYCLES),
        "write_data": rng.integers(0, 1 << ram.width, CYCLES),
    }
    # No program reads a word in the cycle in which it is written.
    stimuli["read_enable"] &= stimuli["read_address"] != stimuli["write_address"]
    return stimuli


@pytest.mark.parametrize("technology", [None, *Technology], ids=str)
@pytest.mark.parametrize(
    "shapes", [QUICK, pytest.param(SLOW, marks=pytest.mark.slow)], ids=["small", "large"]
)
def test_reads_return_what_was_written(shapes, technology, tmp_path):
    check_rams([Ram(*shape) for shape in shapes], technology, tmp_path)


@pytest.mark.parametrize("technology", [None, Technology.ECP5], ids=str)
def test_banks_are_one_ram(technology, tmp_path, monkeypatch):
    monkeypatch.setattr(banked_ram, "DEEPEST", 64)
    sizes = {96: [64, 32], 192: [64, 64, 64], 44: [32, 8, 4], 16: [16]}
    assert {words: bank_words(words) for words in sizes} == sizes
    check_rams([BankedRam(words, 16) for words in sizes], technology, tmp_path)


def check_rams(those, technology, tmp_path):
    rams = {f"ram{index}": ram for index, ram in enumerate(those)}
    stimuli = {name: random_stimuli(ram) for name, ram in rams.items()}
    inputs = {f"{name}__{port}": values for name in rams for port, values in stimuli[name].items()}
    outputs = Batch(Several(rams), tmp_path, technology).run(CYCLES, **inputs)
    for name, ram in rams.items():
        expected = expected_data(ram, stimuli[name])
        known = expected >= 0
        assert known.sum() > CYCLES / 2
        np.testing.assert_array_equal(
            outputs[f"{name}__read_data"][known], expected[known], f"{ram.depth} x {ram.width}"
        )


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_a_granularity_that_does_not_divide_is_refused():
    with pytest.raises(HardwareError) as problem:
        Ram(16, 32, granularity=12)
    assert str(problem.value) == (
        "RAM of 32-bit words: `granularity` must divide the width, not `12` bits"
    )
    del problem
    gc.collect()  # the refused block is reported as unused here, not in a later test
