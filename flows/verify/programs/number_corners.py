"""Corners of arithmetic, found by executing a program: sums that wrap, results that saturate.

Each step is computed a second time in integers that do not wrap, and compared with what the
machine's 32 bits hold.
"""

from collections.abc import Sequence
from math import prod

import numpy as np

from ....isa.configuration import Configuration, Memory
from ....isa.instructions import Gemm, Instruction, ReduceMode, Vector
from ....isa.numbers import requantise
from ....isa.semantics import Machine, combine_operands, depthwise_sums, first_steps, reduce_steps

NUMBER_CORNERS = (
    "gemm sum wraps up",
    "gemm sum wraps down",
    "vector sum wraps",
    "vector bias wraps",
    "requantised above int8",
    "requantised below int8",
    "requantised at a tie",
    "clamped from below",
    "clamped from above",
    "look-up of the first entry",
    "look-up of the last entry",
    "scale zero",
    "scale negative",
    "scale subnormal",
    "scale infinite",
    "scale not a number",
)

HIGH, LOW = (1 << 31) - 1, -(1 << 31)


def corners_of_numbers(
    program: Sequence[Instruction], configuration: Configuration, image: np.ndarray
) -> set[str]:
    """The `NUMBER_CORNERS` that a program meets when it starts from a copy of `image`."""
    machine = _Watched(configuration, image.copy())
    machine.run(program)
    return machine.met


class _Watched(Machine):
    """A machine that records corners while it executes."""

    def __init__(self, configuration: Configuration, dram: np.ndarray) -> None:
        super().__init__(configuration, dram)
        self.met: set[str] = set()

    def _note(self, corner: str, holds: np.ndarray | np.bool_) -> None:
        if np.any(holds):
            self.met.add(corner)

    def _gemm(self, gemm: Gemm) -> None:
        lanes_in, lanes_out = self.configuration.lanes_in, self.configuration.lanes_out
        act = self.view(Memory.ACT).astype(np.float64)
        tiles = self.view(Memory.WGT).reshape(-1, lanes_in, lanes_out).astype(np.float64)
        shape = (gemm.tiles(), gemm.rows())
        act_rows = gemm.addresses("act").reshape(shape)
        acc_rows = gemm.addresses("acc").reshape(shape)
        wgt_tiles = gemm.addresses("wgt").reshape(shape)[:, 0]
        before = self.view(Memory.ACC).astype(np.int64)
        vectors, weights = act[act_rows], tiles[wgt_tiles]
        if gemm.depthwise:
            products = depthwise_sums(gemm, vectors, weights, self.configuration)
        else:
            products = np.matmul(vectors, weights)
        products = products.astype(np.int64)
        for step, fresh in enumerate(first_steps(gemm)):
            if fresh:
                before[acc_rows[step]] = 0
            np.add.at(before, acc_rows[step], products[step])
        self._note("gemm sum wraps up", before > HIGH)
        self._note("gemm sum wraps down", before < LOW)
        super()._gemm(gemm)

    def _vector(self, vector: Vector) -> None:
        lanes = self.configuration.vector_lanes
        reductions = prod(loop.extent for loop in vector.reduce_loops)
        act = self.memories[Memory.ACT].view(np.int8).reshape(-1, lanes)
        acc = self.memories[Memory.ACC].view(np.int32).reshape(-1, lanes)
        rows = vector.addresses("a").reshape(-1, reductions)
        a = (acc if vector.a_from_acc else act)[rows].astype(np.int32)
        b = act[vector.addresses("b").reshape(-1, reductions)].astype(np.int32)
        x = combine_operands(vector, a, b if vector.combine.reads("b") else None)
        t = reduce_steps(vector, x, axis=1)
        if vector.reduce is ReduceMode.SUM:
            self._note("vector sum wraps", x.sum(axis=1, dtype=np.int64) != t)
        param = vector.addresses("param").reshape(-1, reductions)[:, 0]
        pairs = self.view(Memory.PARAM)[param]
        if vector.bias:
            bias = pairs[..., 0].view(np.int32)
            exact = t.astype(np.int64) + bias
            t = t + bias
            self._note("vector bias wraps", exact != t)
        if vector.becomes_byte:
            self._finish(vector, t, pairs[..., 1].view(np.float32))
        super()._vector(vector)

    def _finish(self, vector: Vector, t: np.ndarray, scale: np.ndarray) -> None:
        q = t.astype(np.int64)
        if vector.scale:
            q = requantise(t, scale).astype(np.int64)
            with np.errstate(all="ignore"):
                exact = t.astype(np.float32) * scale
                near = (np.abs(exact) < 256) & (np.abs(t) < 1 << 24)
                self._note("requantised at a tie", near & (np.abs(exact) % 1 == 0.5))
            self._note("scale zero", scale == 0)
            self._note("scale negative", scale < 0)
            tiny = np.abs(scale) < np.finfo(np.float32).tiny
            self._note("scale subnormal", tiny & (scale != 0))
            self._note("scale infinite", np.isinf(scale))
            self._note("scale not a number", np.isnan(scale))
        total = q + vector.zero_point
        self._note("requantised above int8", total > 127)
        self._note("requantised below int8", total < -128)
        value = np.clip(total, -128, 127)
        self._note("clamped from below", value < vector.low)
        self._note("clamped from above", value > vector.high)
        if vector.looks_up_bytes:
            index = np.minimum(np.maximum(value, vector.low), vector.high)
            self._note("look-up of the first entry", index == -128)
            self._note("look-up of the last entry", index == 127)
