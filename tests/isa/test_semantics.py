"""Instructions do what NumPy says that the operators do which they were made for."""

import numpy as np
import pytest

from tilewright.errors import ProgramError
from tilewright.isa.configuration import PRESETS, Memory
from tilewright.isa.instructions import Combine, Gemm, Halt, Load, Loop, ReduceMode, Store, Vector
from tilewright.isa.numbers import quantise_output
from tilewright.isa.pipeline import LINE_STEPS
from tilewright.isa.semantics import Machine

CONFIGURATIONS = [PRESETS["4x4"], PRESETS["8x16"], PRESETS["16x8"]]
DATA_BYTES = 1 << 13


@pytest.fixture(params=CONFIGURATIONS, ids=lambda configuration: configuration.name)
def machine(request) -> Machine:
    """Every memory full of random bytes."""
    chance = np.random.default_rng(5)
    machine = Machine(request.param, np.zeros(DATA_BYTES, dtype=np.uint8))
    for data in machine.memories.values():
        data[:] = chance.integers(0, 256, data.size)
    return machine


def slices(machine: Machine, memory: Memory) -> np.ndarray:
    """A memory as VECTOR sees it, [slices, vector_lanes]."""
    kind = np.int32 if memory is Memory.ACC else np.int8
    lanes = machine.configuration.vector_lanes
    return machine.memories[memory].view(kind).reshape(-1, lanes)


@pytest.mark.parametrize("accumulate", [False, True])
def test_one_gemm_is_a_strided_convolution_over_channel_blocks(machine, accumulate):
    lanes_in, lanes_out = machine.configuration.lanes_in, machine.configuration.lanes_out
    blocks, kernel, side, stride = 2, 3, 3, 2
    window = (side - 1) * stride + kernel
    image = machine.view(Memory.ACT)[: blocks * window * window].astype(np.int64)
    image = image.reshape(blocks, window, window, lanes_in).copy()
    tiles = blocks * kernel * kernel
    weights = machine.view(Memory.WGT)[: tiles * lanes_in].astype(np.int64)
    weights = weights.reshape(blocks, kernel, kernel, lanes_in, lanes_out).copy()
    before = machine.view(Memory.ACC)[: side * side].astype(np.int64).reshape(side, side, lanes_out)
    expected = before.copy() if accumulate else np.zeros_like(before)
    for y in range(side):
        for x in range(side):
            patch = image[:, y * stride : y * stride + kernel, x * stride : x * stride + kernel]
            expected[y, x] += np.einsum("bkli,bklio->o", patch, weights)
    machine.execute(
        Gemm(
            accumulate=accumulate,
            act=0,
            wgt=0,
            acc=0,
            tile_loops=(
                Loop(blocks, (window * window, kernel * kernel, 0)),
                Loop(kernel, (window, kernel, 0)),
                Loop(kernel, (1, 1, 0)),
            ),
            row_loops=(Loop(side, (stride * window, side)), Loop(side, (stride, 1))),
        )
    )
    got = machine.view(Memory.ACC)[: side * side].reshape(side, side, lanes_out)
    assert np.array_equal(got, expected.astype(np.int32))


def test_a_tile_loop_that_moves_acc_overwrites_each_new_row(machine):
    lanes_in, lanes_out = machine.configuration.lanes_in, machine.configuration.lanes_out
    act = machine.view(Memory.ACT)[:2].astype(np.int32)
    weights = machine.view(Memory.WGT)[: 6 * lanes_in].astype(np.int32)
    weights = weights.reshape(3, 2, lanes_in, lanes_out)
    expected = np.einsum("bi,obic->oc", act, weights)
    machine.execute(Gemm(act=0, wgt=0, acc=7, tile_loops=(Loop(3, (0, 2, 1)), Loop(2, (1, 1, 0)))))
    assert np.array_equal(machine.view(Memory.ACC)[7:10], expected)


@pytest.mark.parametrize("extents", [(), (2,), (7,), (3, 4), (5, 1)])
@pytest.mark.parametrize("taps", [1, 2, 3, 4])
def test_a_depthwise_gemm_multiplies_channels_with_earlier_rows(machine, taps, extents):
    machine.configuration = machine.configuration.replace(depthwise_taps=taps)
    lanes_in, lanes_out = machine.configuration.lanes_in, machine.configuration.lanes_out
    act, acc = machine.view(Memory.ACT).astype(np.int32), machine.view(Memory.ACC)
    weights = machine.view(Memory.WGT).reshape(-1, lanes_in, lanes_out).astype(np.int32)
    run = next((extent for extent in reversed(extents) if extent > 1), 1)
    for part in range(machine.configuration.depthwise_parts):
        gemm = Gemm(
            depthwise=True,
            part=part,
            act=5,
            wgt=1,
            acc=0,
            tile_loops=(Loop(2, (3, 1, 0)),),
            row_loops=tuple(
                Loop(extent, strides)
                for extent, strides in zip(extents, ((9, 11), (2, 1)), strict=False)
            ),
        )
        channels = [part * lanes_out + output % lanes_in for output in range(lanes_out)]
        rows, targets = gemm.addresses("act"), gemm.addresses("acc")
        expected = acc.copy()
        expected[targets] = 0
        for step, target in enumerate(targets):
            for tap in range(min(taps, step % run + 1)):
                vector = act[rows[step - tap]]
                tile = weights[1 + step // gemm.rows()]
                expected[target] += vector[channels] * tile[tap]
        machine.execute(gemm)
        assert np.array_equal(acc, expected)


@pytest.mark.parametrize(
    "extents", [(), (4,), (4, 3), (3, 1, 4), (2, 3, 2), (2, LINE_STEPS), (2, LINE_STEPS + 1)]
)
def test_a_depthwise_gemm_combines_lines(extents):
    """With every weight 1 a sum counts the pixels of its window, of those that count at all."""
    configuration = PRESETS["16x16"].replace(
        depthwise_taps=2, depthwise_lines="two", row_loops=4, acc_depth=512
    )
    machine = Machine(configuration, np.zeros(0, np.uint8))
    machine.view(Memory.ACT)[:] = 1
    tile = machine.view(Memory.WGT).reshape(-1, 16, 16)[0]
    tile[:] = np.array([1, 10, 2, 20, 4, 40, *[99] * 10])[:, None]
    strides = [int(np.prod(extents[level + 1 :])) for level in range(len(extents))]
    loops = [Loop(extent, (1, stride)) for extent, stride in zip(extents, strides, strict=True)]
    machine.execute(Gemm(depthwise=True, act=0, wgt=0, acc=0, row_loops=tuple(loops)))
    *outer, lines, run = (1, 1, *(extent for extent in extents if extent > 1))
    kept = 1 if run > LINE_STEPS else 3
    expected = [
        sum((1, 2, 4)[line] * (1 + 10 * (step > 0)) for line in range(min(kept, place + 1)))
        for _ in range(int(np.prod(outer)))
        for place in range(lines)
        for step in range(run)
    ]
    got = machine.view(Memory.ACC)[: len(expected)]
    assert np.array_equal(got, np.broadcast_to(np.array(expected)[:, None], got.shape))


def test_max_pooling_is_a_reduction(machine):
    act = slices(machine, Memory.ACT)
    image = act[:64].reshape(4, 2, 4, 2, -1).copy()
    base = act.shape[0] // 2
    machine.execute(
        Vector(
            reduce=ReduceMode.MAX,
            dst=base,
            a=0,
            map_loops=(Loop(4, (4, 16, 0, 0)), Loop(4, (1, 2, 0, 0))),
            reduce_loops=(Loop(2, (8, 0)), Loop(2, (1, 0))),
        )
    )
    assert np.array_equal(act[base : base + 16].reshape(4, 4, -1), image.max(axis=(1, 3)))


def test_depthwise_convolution_is_a_sum_of_products(machine):
    act = slices(machine, Memory.ACT)
    base = act.shape[0] // 2
    expected = sum(
        act[step : step + 5].astype(np.int32) * act[base + step].astype(np.int32)
        for step in range(3)
    )
    machine.execute(
        Vector(
            combine=Combine.MUL,
            to_acc=True,
            dst=2,
            a=0,
            b=base,
            map_loops=(Loop(5, (1, 1, 0, 0)),),
            reduce_loops=(Loop(3, (1, 1)),),
        )
    )
    assert np.array_equal(slices(machine, Memory.ACC)[2:7], expected)


@pytest.mark.parametrize("from_acc", [False, True])
def test_a_residual_sum_is_scaled_per_channel_and_clamped(machine, from_acc):
    act, acc = slices(machine, Memory.ACT), slices(machine, Memory.ACC)
    pairs = machine.view(Memory.PARAM)
    pairs[3, :, 0] = np.arange(pairs.shape[1])
    pairs[3, :, 1] = np.geomspace(1e-3, 1e-1, pairs.shape[1]).astype(np.float32).view(np.uint32)
    acc[:4] //= 1 << 16
    base = act.shape[0] // 2
    first = acc[:4].copy() if from_acc else act[:4].astype(np.int32) * 77
    total = first + act[base : base + 4].astype(np.int32) * -5 + pairs[3, :, 0].astype(np.int32)
    expected = quantise_output(total, pairs[3, :, 1].view(np.float32), 4, -100, 90)
    machine.execute(
        Vector(
            a_from_acc=from_acc,
            combine=Combine.ADD,
            a_multiplier=77,
            b_multiplier=-5,
            bias=True,
            scale=True,
            zero_point=4,
            low=-100,
            high=90,
            dst=base,
            a=0,
            b=base,
            param=3,
            map_loops=(Loop(4, (1, 1, 1, 0)),),
        )
    )
    assert np.array_equal(act[base : base + 4], expected)


def test_a_look_up_maps_every_value_by_its_table(machine):
    act = slices(machine, Memory.ACT)
    table = machine.view(Memory.LUT)[1]
    before = act[:40].copy()
    machine.execute(Vector(lookup=True, table=1, dst=0, a=0, map_loops=(Loop(40, (1, 1, 0, 0)),)))
    assert np.array_equal(act[:40], table[before.astype(np.int32) + 128])


def test_sums_and_products_wrap_at_32_bits(machine):
    acc = slices(machine, Memory.ACC)
    acc[0], acc[1] = 2**31 - 1, 5
    machine.execute(
        Vector(a_from_acc=True, to_acc=True, dst=9, a=0, reduce_loops=(Loop(2, (1, 0)),))
    )
    assert np.all(acc[9] == -(2**31) + 4)


def test_overlapping_windows_are_loaded_with_padding_between(machine):
    dram = machine.memories[Memory.DRAM]
    machine.execute(
        Load(destination=Memory.ACT, fill=True, value=0x81, length=60, memory=9, local=1)
    )
    machine.execute(
        Load(
            destination=Memory.ACT,
            length=9,
            memory=100,
            local=3,
            loops=(Loop(4, (6, 14)),),
        )
    )
    expected = np.full(60, 0x81, dtype=np.uint8)
    for run in range(4):
        expected[2 + 14 * run :][:9] = dram[100 + 6 * run :][:9]
    assert np.array_equal(machine.memories[Memory.ACT][1:61], expected)


def test_accumulators_are_stored_little_endian_and_in_order(machine):
    acc = machine.view(Memory.ACC)[5].copy()
    machine.execute(
        Store(
            source=Memory.ACC,
            length=acc.nbytes,
            local=5 * acc.nbytes,
            memory=17,
            loops=(Loop(2, (0, 3)),),
        )
    )
    dram = machine.memories[Memory.DRAM]
    assert np.array_equal(dram[20 : 20 + acc.nbytes].view("<i4"), acc)
    assert np.array_equal(dram[17:20], acc.view(np.uint8)[:3])


def test_a_program_ends_at_halt(machine):
    before = {memory: data.copy() for memory, data in machine.memories.items()}
    machine.run((Halt(), Load(destination=Memory.ACT, fill=True, length=9, local=0)))
    assert all(np.array_equal(machine.memories[memory], before[memory]) for memory in before)


def test_an_access_beyond_the_data_window_is_refused(machine):
    with pytest.raises(ProgramError) as refusal:
        machine.run([Load(destination=Memory.ACT, length=2, memory=DATA_BYTES - 1, local=0)])
    assert str(refusal.value) == (
        "instruction 0 (load): operand `memory` touches bytes 8191 to 8192 of DRAM, which has "
        "8192 bytes; correct the address or the strides"
    )


def test_a_data_window_of_the_wrong_type_is_refused():
    with pytest.raises(ProgramError) as refusal:
        Machine(PRESETS["4x4"], np.zeros((2, 2), dtype=np.int8))
    assert str(refusal.value) == "data window: expected uint8[bytes], got int8(2, 2)"
