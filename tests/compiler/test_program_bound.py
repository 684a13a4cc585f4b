"""The bound of a program: work before and behind a layer that needs a whole image adds up."""

import random
from itertools import pairwise, product

import pytest

from tilewright.compiler.accelerator.lower_bound import UNITS, gathered_load, transposed_load
from tilewright.compiler.graph import Graph, QAvgPool, QMatMul
from tilewright.compiler.pipeline import compile_module
from tilewright.compiler.pipeline.network_bound import network_work
from tilewright.compiler.scheduling.program_bound import (
    READ_BURST_CYCLES,
    WRITE_BURST_CYCLES,
    ProgramWork,
)
from tilewright.compiler.tensor import Patches, Tensor, View
from tilewright.isa.configuration import PRESETS, Memory
from tilewright.isa.encoding import word_bytes
from tilewright.isa.instructions import Halt, Load, Loop, Store
from tilewright.isa.memory_model import MemoryModel
from tilewright.isa.pipeline import VECTOR_RESULT_CYCLES
from tilewright.isa.sdram import SDRAMS
from tilewright.sim.timing import ExactMeasure, time_program

from .test_fusion import Network
from .test_matmuls import product as matmul

MACHINE = PRESETS["8x8"]
MEMORY = MemoryModel(latency_cycles=1)
GEMM, VECTOR, LOAD = map(UNITS.index, ("gemm", "vector", "load"))


def work_of(graph: Graph) -> ProgramWork:
    """The work of the only program of a graph."""
    (work,) = network_work(graph, MACHINE)
    return work


def pooled(size: int, channels: int, kernel: int = 1, *, middle: bool = False) -> Graph:
    """A convolution, the mean of its image, perhaps one more, and one with many weights."""
    net = Network((1, size, size, 8))
    image = net.conv(net.input, "image", 8)
    mean = net.pool(image, "mean", QAvgPool((size, size), (1, 1), (0, 0, 0, 0), 0, 0, 0.01, 0))
    last = net.conv(mean, "middle", 8) if middle else mean
    return net.graph(net.conv(last, "last", channels, kernel))


def chain(*channels: int) -> Graph:
    """Convolutions of single pixels, none of which needs a whole image."""
    net = Network((1, 16, 16, 8))
    last = net.input
    for number, count in enumerate(channels):
        last = net.conv(last, f"conv {number}", count)
    return net.graph(last)


def test_work_before_and_behind_a_mean_adds_up():
    work = work_of(pooled(16, 64))
    pixels = 16 * 16
    # VECTOR finishes the image and sums it; then it finishes the last layer.
    steps = (pixels + pixels) * 8 // MACHINE.vector_lanes
    blocks_of_results = 64 // MACHINE.vector_lanes
    begin = 2 * MEMORY.latency_cycles + word_bytes(MACHINE) // MACHINE.bus_bytes - 1
    last = VECTOR_RESULT_CYCLES + 1 + MEMORY.latency_cycles
    least = (
        begin + work.demand.before[VECTOR] + steps + VECTOR_RESULT_CYCLES + blocks_of_results + last
    )
    assert work.bound(MEMORY).cycles == least
    assert least > begin + work.demand.cycles + MEMORY.latency_cycles


def test_layers_of_single_pixels_overlap():
    work = work_of(chain(8, 8, 8))
    assert not work.gemm[1:].any()
    assert not work.vector[1:].any()
    begin = 2 * MEMORY.latency_cycles + word_bytes(MACHINE) // MACHINE.bus_bytes - 1
    assert work.bound(MEMORY).cycles == begin + work.demand.cycles + MEMORY.latency_cycles


def test_weights_behind_a_cut_are_loaded_behind_it_unless_they_fit():
    held = sum(map(MACHINE.size_bytes, (Memory.WGT, Memory.PARAM, Memory.LUT)))
    channels = 512
    work = work_of(chain(8, channels, channels))
    behind_first = work.sizes[1, -1] + held
    # The second layer may have begun, but no pixel of the third can do without all its weights.
    assert channels * channels < behind_first < work.demand.traffic[0]


def test_taps_that_meet_only_padding_may_come_before():
    """Of a 3x3 window on one pixel, only the middle tap needs the mean."""
    padded, plain = (work_of(pooled(16, 64, kernel, middle=True)) for kernel in (3, 1))
    mean = 2  # the cut; the layer behind the next one needs all of its channels
    assert 0 < padded.gemm[mean, -1] <= plain.gemm[mean, -1]
    assert padded.demand.busy[GEMM] > 2 * plain.demand.busy[GEMM]


@pytest.mark.parametrize("latency", [1, 64, 900])
def test_latency_counts_before_the_first_work_and_after_the_last(latency):
    memory = MemoryModel(latency_cycles=latency)
    for graph in (pooled(8, 8), chain(8)):
        work = work_of(graph)
        assert work.bound(memory).cycles >= work.demand.cycles + 3 * latency


def test_a_port_reads_instructions_too():
    work = work_of(chain(8))
    slow = MemoryModel(latency_cycles=1, cycles=100)
    beats = (work.demand.traffic[0] + work.words * word_bytes(MACHINE)) // MACHINE.bus_bytes
    # Two LOADs of constants, GEMM, VECTOR, STORE, HALT; the image may be part of another LOAD.
    assert work.words == 6
    assert work.bound(slow).cycles >= 100 * (beats - 2)


@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize("memory", [MEMORY, MemoryModel(latency_cycles=700, cycles=3)])
def test_no_program_with_a_mean_beats_its_bound(kernel, memory):
    for graph in (pooled(16, 512, kernel), chain(8, 512, 512, 64)):
        module = compile_module(graph, MACHINE, measure=ExactMeasure(memory), memory=memory)
        exact = sum(time_program(one.program, MACHINE, memory).cycles for one in module.segments)
        bound = module.report["bound"]
        assert isinstance(bound, int)
        assert work_of(graph).demand.cycles < bound <= exact
        assert work_of(graph).bound(memory).cycles <= exact


def test_axes_that_are_too_long_to_compare_weaken_the_bound(monkeypatch):
    graph = pooled(16, 64, 3, middle=True)
    whole = work_of(graph)
    monkeypatch.setattr("tilewright.compiler.scheduling.program_bound.MAX_PLACES", 0)
    weak = work_of(graph)
    assert weak.gemm[2, -1] == 0 < whole.gemm[2, -1]
    assert weak.demand.cycles < weak.bound(MEMORY).cycles <= whole.bound(MEMORY).cycles


def drawn(seed: int) -> Graph:
    """A random network of windows, strides, residuals, tables, poolings and means."""
    chance = random.Random(seed)
    net = Network((1, chance.choice((1, 5, 12)), chance.choice((1, 6, 16)), 8))
    last, channels = net.input, 8
    for number in range(chance.randint(3, 7)):
        name, shape = f"n{number}", net.builder.types[last].shape
        kind = chance.choice(("conv", "conv", "depthwise", "mean", "table", "residual"))
        if kind == "mean":
            whole = QAvgPool((shape[1], shape[2]), (1, 1), (0, 0, 0, 0), 0, 0, 0.01, 0)
            last = net.pool(last, name, whole)
        elif kind == "table":
            last = net.table(last, name)
        elif kind == "residual":
            last = net.add(net.conv(last, f"{name} branch", channels, 3), last, name)
        else:
            groups = channels if kind == "depthwise" else 1
            channels = channels if groups > 1 else chance.choice((8, 24, 200))
            last = net.conv(last, name, channels, chance.choice((1, 3, 5)), 1, groups)
    return net.graph(last)


@pytest.mark.parametrize("seed", range(12))
def test_no_program_of_a_drawn_network_beats_its_bound(seed):
    graph, machine = drawn(seed), PRESETS[("4x4", "8x8", "16x8")[seed % 3]]
    module = compile_module(graph, machine)
    (work,) = network_work(graph, machine)
    (segment,) = module.segments
    slow = MemoryModel(latency_cycles=700, cycles=3)
    sdram = MemoryModel.of_sdram(SDRAMS["sdr-x16"], machine, 100_000_000)
    for memory in (MEMORY, MemoryModel(), slow, sdram):
        exact = time_program(segment.program, machine, memory).cycles
        assert work.demand.cycles < work.bound(memory).cycles <= exact


def repeated(kind: type[Load] | type[Store], bursts: int, latency: int) -> int:
    """Cycles of a transfer of so many bytes, one a burst."""
    if kind is Load:
        copy = Load(
            destination=Memory.ACT, length=1, memory=0, local=0, loops=(Loop(bursts, (2, 1)),)
        )
    else:
        copy = Store(source=Memory.ACT, length=1, local=0, memory=0, loops=(Loop(bursts, (1, 2)),))
    model = MemoryModel(latency_cycles=latency)
    return time_program((copy, Halt()), MACHINE, model).cycles


@pytest.mark.parametrize(
    ("kind", "further"), [(Load, READ_BURST_CYCLES), (Store, WRITE_BURST_CYCLES)]
)
def test_a_burst_waits_until_an_earlier_one_leaves_its_place(kind, further):
    for latency, turns in product((64, 300), (1, 5)):
        once, several = (
            repeated(kind, 1 + count * MACHINE.outstanding_bursts, latency) for count in (0, turns)
        )
        assert several - once == turns * (latency + further)


@pytest.mark.parametrize(
    ("transposes", "bursts"), [("none", 64 * 64 - 64 * 64 // 8), ("int8", 64 * 64 // 128)]
)
def test_an_operand_in_columns_takes_bursts_of_bytes_or_of_columns(transposes, bursts):
    machine = PRESETS["8x8"].replace(transposed_weights=transposes)
    graph = matmul(QMatMul(1, 0.001, 0, 0, 0, transposed=True), 1, 256, 64, 64)
    memory = MemoryModel(latency_cycles=300)
    module = compile_module(graph, machine, measure=ExactMeasure(memory), memory=memory)
    (exact,) = (time_program(one.program, machine, memory).cycles for one in module.segments)
    (work,) = network_work(graph, machine)
    # The rows, scales and sums are read in bursts of 128 bytes.
    assert work.demand.bursts[0] == bursts + (256 * 64 + 2 * 4 * 64) // 128
    assert 0.8 * exact < work.bound(memory).cycles <= exact


def test_a_gathered_run_takes_a_burst():
    net = Network((1, 18, 18, 3))
    (work,) = network_work(net.graph(net.conv(net.input, "conv", 8, 3)), MACHINE)
    runs = 20 * 18  # of 9 bytes: each line of the image, with its border, for 18 windows
    constants = 3 * 16 * 8, 2 * 4 * 8
    # The last window of a line may share a burst with the next line.
    assert work.demand.bursts[0] == runs - 20 + constants[0] // 128
    assert work.demand.busy[LOAD] == runs * 2 + sum(constants) // MACHINE.bus_bytes


def least_runs(places: list[tuple[int, int]]) -> int:
    """The least number of runs for bytes (memory, scratchpad), given in the scratchpad's order."""
    apart = [memory - local for memory, local in places]
    return 1 + sum(one != other for one, other in pairwise(apart))


@pytest.mark.parametrize("seed", range(120))
def test_gathered_windows_take_no_fewer_runs_and_pieces(seed):
    """In the order of the image, if what no one reads may be loaded, too."""
    draw = random.Random(seed)
    rows, pixels, channels, pace, step, dilation = (
        draw.choice(range(1, most + 1)) for most in (4, 4, 4, 4, 4, 2)
    )
    run = pixels * channels
    images, lines, columns = (draw.randint(1, most) for most in (3, 4, 6))
    lanes = -(-rows * run // MACHINE.lanes_in) * MACHINE.lanes_in
    line = ((columns - 1) * pace + pixels + draw.randint(0, 3)) * channels
    image = ((lines - 1) * step + (rows - 1) * dilation + 1 + draw.randint(0, 2)) * line
    patches = Patches(rows, run, pixels, step, pace, dilation)
    shape = images, lines, columns, lanes
    places = [
        (
            n * image + (y * step + row * dilation) * line + x * pace * channels + byte,
            ((n * lines + y) * columns + x) * lanes + row * run + byte,
        )
        for n, y, x, row, byte in product(*map(range, (images, lines, columns, rows, run)))
    ]
    tensor = Tensor("windows", "int8", shape, patches=patches)
    least = gathered_load(len(places), tensor, patches, MACHINE)
    beat, width = MACHINE.bus_bytes, MACHINE.row_bytes(Memory.ACT)
    pieces = {(memory - local, memory // beat, local // width) for memory, local in places}
    assert least.bursts <= least_runs(places)
    assert least.cycles <= len(pieces)


@pytest.mark.parametrize("seed", range(100))
def test_operands_in_columns_take_no_fewer_runs(seed):
    """In the order of weight tiles, if what no one reads may be loaded, too."""
    draw = random.Random(seed)
    depth, columns = (draw.randint(1, 40) for _ in range(2))
    channels = draw.choice([depth, -(-depth // 8) * 8, depth + draw.randint(0, 8)])
    inputs, outputs = MACHINE.lanes_in, MACHINE.lanes_out
    down, across = -(-depth // inputs), -(-columns // outputs)
    places = [
        (
            column * channels + row,
            (column // outputs * down + row // inputs) * MACHINE.tile_bytes
            + row % inputs * outputs
            + column % outputs,
        )
        for row, column in product(range(depth), range(columns))
    ]
    if draw.random() < 0.5:  # inputs outside
        moved = across * MACHINE.tile_bytes
        places = [
            (
                memory,
                local % MACHINE.tile_bytes
                + local // MACHINE.tile_bytes % down * moved
                + local // MACHINE.tile_bytes // down * MACHINE.tile_bytes,
            )
            for memory, local in places
        ]
    asked = tuple(frozenset(range(size)) for size in (1, 1, 1, depth, columns))
    view = View(((0, 1), (1, 1), (0, 0), (3, 1), (2, 1)))
    least = transposed_load(asked, view, MACHINE)
    assert least.bursts <= least_runs(sorted(places, key=lambda place: place[1]))
