"""Boxes of tensors move as NumPy slicing and padding say, whatever is cut off or left over."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler.accelerator.dma import Resident, load_box, store_box
from tilewright.isa.configuration import PRESETS, Memory
from tilewright.isa.encoding import encode
from tilewright.isa.semantics import Machine

CONFIGURATIONS = [PRESETS["4x4"].replace(dma_loops=2, extent_bits=4), PRESETS["16x16"]]


@st.composite
def boxes(draw):
    shape = tuple(draw(st.integers(1, 7)) for _ in range(draw(st.integers(1, 4))))
    box = []
    for extent in shape:
        low = draw(st.integers(-3, extent + 1))
        box.append((low, low + draw(st.integers(1, 6))))
    return shape, tuple(box)


@settings(deadline=None)
@given(boxes(), st.integers(-128, 127), st.sampled_from(CONFIGURATIONS), st.integers(0, 5))
def test_loaded_boxes_are_padded_slices(case, pad, configuration, local):
    shape, box = case
    generator = np.random.default_rng(0)
    base = 3
    dram = generator.integers(0, 256, base + int(np.prod(shape))).astype(np.uint8)
    machine = Machine(configuration, dram)
    for load in load_box(Resident(base, shape), box, Memory.ACT, local, pad, configuration):
        encode(load, configuration)
        machine.execute(load)
    tensor = dram[base:].view(np.int8).reshape(shape)
    grids = np.ix_(*(np.arange(low, high) for low, high in box))
    inside = np.ones([high - low for low, high in box], dtype=bool)
    clipped = []
    for grid, extent in zip(grids, shape, strict=True):
        inside = inside & (grid >= 0) & (grid < extent)
        clipped.append(np.clip(grid, 0, extent - 1))
    expected = np.where(inside, tensor[tuple(clipped)], pad).astype(np.int8)
    got = machine.memories[Memory.ACT][local : local + expected.size].view(np.int8)
    np.testing.assert_array_equal(got.reshape(expected.shape), expected)


@settings(deadline=None)
@given(boxes(), st.sampled_from(CONFIGURATIONS))
def test_stored_boxes_land_where_slicing_puts_them(case, configuration):
    shape, box = case
    box = tuple(
        (min(max(low, 0), extent - 1), max(min(high, extent), min(max(low, 0), extent - 1) + 1))
        for (low, high), extent in zip(box, shape, strict=True)
    )
    machine = Machine(configuration, np.zeros(int(np.prod(shape)), dtype=np.uint8))
    count = int(np.prod([high - low for low, high in box]))
    values = np.arange(1, count + 1).astype(np.uint8)
    machine.memories[Memory.ACT][7 : 7 + count] = values
    for store in store_box(Resident(0, shape), box, Memory.ACT, 7, configuration):
        encode(store, configuration)
        machine.execute(store)
    expected = np.zeros(shape, dtype=np.uint8)
    slices = tuple(slice(low, high) for low, high in box)
    expected[slices] = values.reshape([high - low for low, high in box])
    np.testing.assert_array_equal(machine.memories[Memory.DRAM].reshape(shape), expected)
