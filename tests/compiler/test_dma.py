"""Boxes of tensors move as NumPy slicing and padding say, whatever is cut off or left over."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler.accelerator.dma import DramTensor, LocalBox, load_box, store_box
from tilewright.compiler.accelerator.tile_layout import dense_layout
from tilewright.compiler.accelerator.weights import pack_weights, weight_layout
from tilewright.compiler.te.box import extents_of
from tilewright.isa.configuration import PRESETS, Memory
from tilewright.isa.encoding import encode
from tilewright.isa.semantics import Machine

CONFIGURATIONS = [
    PRESETS["4x4"].replace(dma_loops=2, extent_bits=4),
    PRESETS["16x16"],
    PRESETS["transformer-25"],
]


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
    dimensions = dense_layout(extents_of(box))
    source = DramTensor(base, shape)
    for load in load_box(source, box, LocalBox(Memory.ACT, local, dimensions), pad, configuration):
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
@given(st.data(), st.sampled_from(CONFIGURATIONS), st.booleans())
def test_loaded_tiles_are_packed_weights(data, configuration, turned):
    """LOAD packs an activation, as it was stored or transposed, as the compiler packs constants."""
    shape = tuple(data.draw(st.integers(1, size)) for size in (3, 9, 9))
    ends = [(0, extent + data.draw(st.integers(0, 3))) for extent in shape]
    values = np.random.default_rng(2).integers(-128, 128, shape).astype(np.int8)
    strides = (shape[1] * shape[2], *((1, shape[1]) if turned else (shape[2], 1)))
    dram = np.ascontiguousarray(values.swapaxes(1, 2) if turned else values)
    machine = Machine(configuration, dram.view(np.uint8).ravel())
    padded = np.pad(values, [(0, high - size) for (_, high), size in zip(ends, shape, strict=True)])
    layout = weight_layout(padded.shape, None, configuration)
    source = DramTensor(0, shape, strides)
    target = LocalBox(Memory.WGT, 16, layout.dimensions)
    for load in load_box(source, tuple(ends), target, 0, configuration):
        encode(load, configuration)
        machine.execute(load)
    expected = np.frombuffer(pack_weights(padded, None, configuration), np.int8)
    got = machine.memories[Memory.WGT][16 : 16 + expected.size].view(np.int8)
    np.testing.assert_array_equal(got, expected)


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
    source = LocalBox(Memory.ACT, 7, dense_layout(extents_of(box)))
    for store in store_box(DramTensor(0, shape), box, source, configuration):
        encode(store, configuration)
        machine.execute(store)
    expected = np.zeros(shape, dtype=np.uint8)
    slices = tuple(slice(low, high) for low, high in box)
    expected[slices] = values.reshape([high - low for low, high in box])
    np.testing.assert_array_equal(machine.memories[Memory.DRAM].reshape(shape), expected)


@settings(deadline=None)
@given(st.data(), st.sampled_from(CONFIGURATIONS))
def test_parts_are_stored_without_what_is_not_theirs(data, configuration):
    """Channels of a part, as often as it lies there, and not a byte between."""
    n, height, width = (data.draw(st.integers(1, 3)) for _ in range(3))
    block, blocks = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 3))
    channels = data.draw(st.integers(1, block * blocks))
    rows, columns, room = (data.draw(st.integers(1, 3)) for _ in range(3))
    first = data.draw(st.integers(0, room - 1))
    line = width * columns * (channels + room)
    pixel = channels + room
    whole = np.zeros((n, height * rows, width * columns, pixel), np.int8)
    part = DramTensor(
        first,
        (n, height, width, block * blocks),
        (whole[0].size, rows * line, columns * pixel, 1),
        channels,
        ((rows, line), (columns, pixel)),
    )
    machine = Machine(configuration, np.zeros(whole.size, dtype=np.uint8))
    shape = (n, height, width, blocks, block)
    values = np.random.default_rng(1).integers(-128, 128, shape).astype(np.int8)
    cuts = data.draw(st.booleans())
    for low in range(0, blocks, 1 if cuts else blocks):
        high = low + 1 if cuts else blocks
        box = ((0, n), (0, height), (0, width), (low, high), (0, block))
        piece = np.ascontiguousarray(values[..., low:high, :]).view(np.uint8).ravel()
        machine.memories[Memory.ACT][5 : 5 + piece.size] = piece
        source = LocalBox(Memory.ACT, 5, dense_layout(extents_of(box)))
        for store in store_box(part.shaped(shape), box, source, configuration):
            encode(store, configuration)
            machine.execute(store)
    own = values.reshape(n, height, width, -1)[..., :channels]
    whole[..., first : first + channels] = own.repeat(rows, axis=1).repeat(columns, axis=2)
    found = machine.memories[Memory.DRAM].view(np.int8).reshape(whole.shape)
    np.testing.assert_array_equal(found, whole)
    machine.memories[Memory.ACT][:] = 0
    box = ((0, n), (0, height), (0, width), (0, channels))
    dimensions = dense_layout((n, height, width, channels))
    for load in load_box(part, box, LocalBox(Memory.ACT, 0, dimensions), 0, configuration):
        machine.execute(load)
    loaded = machine.memories[Memory.ACT][: own.size].view(np.int8)
    np.testing.assert_array_equal(loaded.reshape(own.shape), own)
