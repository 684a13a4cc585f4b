"""A depthwise convolution written by hand, on every machine: the values that NumPy computes."""

from dataclasses import dataclass

import numpy as np
import pytest

from tilewright.isa.checker import check
from tilewright.isa.configuration import PRESETS, Configuration, Memory
from tilewright.isa.encoding import encode_program
from tilewright.isa.instructions import Gemm, Instruction, Load, Loop, Store
from tilewright.isa.memory_model import MemoryModel
from tilewright.isa.semantics import Machine
from tilewright.isa.tokens import synthesise_tokens
from tilewright.sim.functional import FunctionalMachine
from tilewright.sim.native_functional import NativeMachine
from tilewright.sim.rtl import RtlCore
from tilewright.sim.timing import time_program

KERNEL = 3
NAMES = ("tiny", "4x4", "8x8", "16x8", "8x16")
DATA_BYTES = 1 << 14


@dataclass(frozen=True)
class Case:
    """A convolution of one block of channels, its program, and memory before and after.

    A pass streams the lines of the image against up to `depthwise_taps` columns of the kernel. With
    stride 2, one pass has the even columns and one the odd ones, so that no step is in vain but the
    first of each line.
    """

    configuration: Configuration
    stride: int

    @property
    def side(self) -> int:
        """Height and width of the image."""
        return 5 if self.configuration.name == "tiny" else 9

    @property
    def channels(self) -> int:
        return max(self.configuration.lanes_in, self.configuration.lanes_out)

    @property
    def blocks(self) -> int:
        """ACT rows of a pixel."""
        return self.channels // self.configuration.lanes_in

    @property
    def outputs(self) -> int:
        """Height and width of the result."""
        return (self.side - KERNEL) // self.stride + 1

    @property
    def passes(self) -> list[tuple[int, dict[int, int]]]:
        """How many pixels late each pass begins, and its kernel columns by tap."""
        if self.stride == 2:
            return [(0, {0: 2, 1: 0}), (1, {0: 1})]
        taps = self.configuration.depthwise_taps
        return [
            (late, {tap: KERNEL - 1 - late - tap for tap in range(min(taps, KERNEL - late))})
            for late in range(0, KERNEL, taps)
        ]

    @property
    def run(self) -> int:
        """Steps of a line: its outputs, and those that fill the taps."""
        return self.outputs + (KERNEL - 1) // self.stride

    def tiles(self, weights: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Weights [KERNEL, KERNEL, channels] as GEMM takes them; what does not count is wild."""
        configuration, passes = self.configuration, self.passes
        lanes_in, lanes_out = configuration.lanes_in, configuration.lanes_out
        shape = (configuration.depthwise_parts, self.blocks, KERNEL, len(passes))
        tiles = rng.integers(-128, 128, (*shape, lanes_in, lanes_out))
        tiles[..., : configuration.depthwise_taps, :] = 0
        for part, block, ky, number in np.ndindex(*shape):
            for output in range(lanes_out):
                channel = part * lanes_out + output
                if output // lanes_in == block or lanes_in >= lanes_out:
                    for tap, kx in passes[number][1].items():
                        tiles[part, block, ky, number, tap, output] = weights[ky, kx, channel]
        return tiles.astype(np.int8)

    def program(self, tile_bytes: int, result: int) -> tuple[Instruction, ...]:
        """Load, multiply each part, store the complete sums; `result` says where."""
        configuration, blocks, out = self.configuration, self.blocks, self.outputs
        lanes_in, row_bytes = configuration.lanes_in, configuration.row_bytes(Memory.ACC)
        passes = self.passes
        lead = passes[-1][0] * blocks
        line, tiles = self.side * blocks, blocks * KERNEL * len(passes)
        image_bytes = self.side * line * lanes_in
        body: list[Instruction] = [
            Load(destination=Memory.ACT, length=image_bytes, memory=0, local=lead * lanes_in),
            Load(destination=Memory.WGT, length=tile_bytes, memory=image_bytes, local=0),
        ]
        for part in range(configuration.depthwise_parts):
            acc = part * out * self.run
            body += [
                Gemm(
                    depthwise=True,
                    part=part,
                    act=lead,
                    wgt=part * tiles,
                    acc=acc,
                    tile_loops=(
                        Loop(blocks, (1, KERNEL * len(passes), 0)),
                        Loop(KERNEL, (line, len(passes), 0)),
                        Loop(len(passes), (-lead, 1, 0)),
                    ),
                    row_loops=(
                        Loop(out, (self.stride * line, self.run)),
                        Loop(self.run, (self.stride * blocks, 1)),
                    ),
                ),
                Store(
                    source=Memory.ACC,
                    length=out * row_bytes,
                    local=(acc + self.run - out) * row_bytes,
                    memory=result + part * out * out * row_bytes,
                    loops=(Loop(out, (self.run * row_bytes, out * row_bytes)),),
                ),
            ]
        return synthesise_tokens(body, configuration)

    def prepared(self) -> tuple[tuple[Instruction, ...], np.ndarray, np.ndarray]:
        """The program, main memory before it and after it."""
        rng = np.random.default_rng([self.stride, self.configuration.hash])
        image = rng.integers(-128, 128, (self.side, self.side, self.channels)).astype(np.int8)
        weights = rng.integers(-128, 128, (KERNEL, KERNEL, self.channels))
        tiles = self.tiles(weights, rng)
        program = self.program(tiles.nbytes, image.nbytes + tiles.nbytes)
        before = np.zeros(DATA_BYTES, dtype=np.uint8)
        loaded = np.concatenate([image.reshape(-1), tiles.reshape(-1)]).view(np.uint8)
        before[: loaded.size] = loaded
        after, sums = before.copy(), convolution(image, weights, self.stride)
        groups = sums.reshape(*sums.shape[:2], self.configuration.depthwise_parts, -1)
        stored = np.ascontiguousarray(groups.transpose(2, 0, 1, 3)).astype("<i4")
        after[loaded.size :][: stored.nbytes] = stored.reshape(-1).view(np.uint8)
        check(program, self.configuration, DATA_BYTES)
        return program, before, after


def convolution(image: np.ndarray, weights: np.ndarray, stride: int) -> np.ndarray:
    """Depthwise and without padding, int64[outputs, outputs, channels]."""
    windows = np.lib.stride_tricks.sliding_window_view(image, (KERNEL, KERNEL), axis=(0, 1))
    windows = windows[::stride, ::stride].astype(np.int64)
    return np.einsum("yxcij,ijc->yxc", windows, weights)


CASES = [
    pytest.param(Case(PRESETS[name], stride), id=f"{name}-stride-{stride}")
    for name in NAMES
    for stride in (1, 2)
]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kind", [Machine, FunctionalMachine, NativeMachine])
def test_a_depthwise_convolution_is_what_numpy_computes(case, kind):
    program, dram, expected = case.prepared()
    kind(case.configuration, dram).run(program)
    np.testing.assert_array_equal(dram, expected)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_the_hardware_computes_it_in_the_cycles_foretold(case):
    program, dram, expected = case.prepared()
    core = RtlCore(case.configuration)
    core.memory = MemoryModel()
    result = core.run(encode_program(program, case.configuration), dram, program)
    core.close()
    np.testing.assert_array_equal(dram, expected)
    assert result.cycles == time_program(program, case.configuration, MemoryModel()).cycles
