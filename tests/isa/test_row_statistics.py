"""Statistics over rows: a few VECTORs compute softmax and norms as the integer meanings define."""

import numpy as np
import pytest

from tilewright.errors import ConfigurationError, IsaError
from tilewright.isa.checker import check
from tilewright.isa.configuration import PRESETS, Configuration, Memory
from tilewright.isa.encoding import decode_program, encode_program
from tilewright.isa.instructions import Combine, Load, Loop, ResultKind, Statistic, Store, Vector
from tilewright.isa.meanings import layer_norm, norm_constants, rms_norm, softmax
from tilewright.isa.meanings.softmax import exponential_table
from tilewright.isa.meanings.steps import look_up
from tilewright.isa.numbers import quantise_output
from tilewright.isa.row_statistics import (
    factor_pattern,
    inverse_root,
    reciprocal,
    row_parameters,
    wide,
)
from tilewright.isa.semantics import Machine
from tilewright.isa.tokens import synthesise_tokens
from tilewright.sim.functional import FunctionalMachine
from tilewright.sim.native_functional import NativeMachine

MACHINES = [
    PRESETS[name].replace(name=f"rows-{name}", row_statistics="all")
    for name in ("4x4", "8x16", "16x8")
]
FIRST, SECOND, RESULTS = 0, 1 << 12, 1 << 13
"""Addresses in memory: the input, parameters and tables, and results."""

SQUARES = 2
"""LUT's table of squares, behind that of exponentials."""


class Sketch:
    """A program and the image of memory that it reads."""

    def __init__(self, machine: Configuration, x: np.ndarray) -> None:
        self.machine, self.shape = machine, x.shape
        lanes = machine.vector_lanes
        self.slices = -(-x.shape[1] // lanes)
        padded = np.full((x.shape[0], self.slices * lanes), 77, np.int8)
        padded[:, : x.shape[1]] = x
        self.dram = np.zeros(1 << 14, np.uint8)
        self.place, self.program = SECOND, []
        self.dram[: padded.size] = padded.view(np.uint8).reshape(-1)
        self.load(Memory.ACT, 0, padded.view(np.uint8), FIRST)

    def load(self, memory: Memory, local: int, data: np.ndarray, at: int | None = None) -> None:
        given = np.ascontiguousarray(data).view(np.uint8).reshape(-1)
        where = self.place if at is None else at
        self.dram[where : where + given.size] = given
        self.place += 0 if at is not None else given.size
        self.program.append(Load(destination=memory, length=given.size, memory=where, local=local))

    def parameters(self, row: int, bias, scale) -> None:
        """Fill rows of PARAM with a bias and a scale per lane."""
        lanes = self.machine.vector_lanes
        bias, scale = (
            np.resize(each, -(-np.size(each) // lanes) * lanes) for each in (bias, scale)
        )
        pairs = np.stack([bias.astype(np.int32), scale.astype(np.float32).view(np.int32)], axis=-1)
        self.load(Memory.PARAM, row * lanes * 8, pairs)

    def vector(self, moves: tuple[int, int] = (1, 0), **fields) -> None:
        """Append a VECTOR over all rows; `moves` are the strides of `param` to the next row, and
        inside."""
        n = self.slices
        loops = Loop(self.shape[0], (n, n, 0, moves[0])), Loop(n, (1, 1, 0, moves[1]))
        self.program.append(Vector(**fields, map_loops=loops))

    def result(self, kind: type[Machine]) -> np.ndarray:
        size = self.shape[0] * self.slices * self.machine.vector_lanes
        act = self.machine.size_bytes(Memory.ACT) // 2
        store = Store(source=Memory.ACT, length=size, local=act, memory=RESULTS)
        program = synthesise_tokens([*self.program, store], self.machine)
        check(program, self.machine, self.dram.size)
        assert decode_program(encode_program(program, self.machine), self.machine) == program
        machine = kind(self.machine, self.dram.copy())
        machine.run(program)
        found = machine.memories[Memory.DRAM][RESULTS : RESULTS + size].view(np.int8)
        return found.reshape(self.shape[0], -1)[:, : self.shape[1]]

    @property
    def dst(self) -> int:
        """The second half of ACT, in slices."""
        return self.machine.size_bytes(Memory.ACT) // 2 // self.machine.vector_lanes


def rows_of(seed: int, rows: int, length: int) -> np.ndarray:
    chance = np.random.default_rng(seed)
    return np.clip(np.rint(chance.normal(3, 40, (rows, length))), -128, 127).astype(np.int8)


def softmax_program(machine: Configuration, x, x_scale, y_scale, zero_point, bounds) -> Sketch:
    sketch = Sketch(machine, x)
    distances = np.arange(-255, 1)
    entries = look_up(wide(distances, 1), exponential_table(x_scale)).astype(np.uint16)
    sketch.load(Memory.LUT, 0, entries)
    sketch.parameters(4, [0], np.array([factor_pattern(1 / y_scale)], np.uint32).view(np.float32))
    sketch.vector(
        result=ResultKind.NONE, statistic=Statistic.MAXIMUM, dst=0, a=0, param=5, **bounds
    )
    sketch.vector(
        to_acc=True, result=ResultKind.ENTRY, statistic=Statistic.SUM, bias=True, zero_point=127,
        dst=0, a=0, param=5, **bounds,
    )  # fmt: skip
    sketch.vector(a_from_acc=True, scale=True, zero_point=zero_point, dst=sketch.dst, a=0, param=5)
    return sketch


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
@pytest.mark.parametrize("causal", [False, True], ids=("padded", "causal"))
def test_three_vectors_compute_softmax(machine, causal):
    x = rows_of(1, 7, 45)
    x[3] = 127
    x[4] = -128
    valid = np.arange(3, 10) if causal else np.full(7, 43)
    bounds = {"bound": int(valid[0]), "bound_step": int(causal)}
    sketch = softmax_program(machine, x, 0.04, 1 / 256, -128, bounds)
    expected = softmax(x, 0.04, 1 / 256, -128, valid)
    for kind in (Machine, FunctionalMachine, NativeMachine):
        assert np.array_equal(sketch.result(kind), expected)


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
@pytest.mark.parametrize("about_mean", [True, False], ids=("layer norm", "RMS norm"))
def test_three_vectors_compute_norms(machine, about_mean):
    channels, centre = 48, -5
    x = rows_of(2, 6, channels)
    x[1] = 9  # no spread but `epsilon`
    x[2] = np.where(np.arange(channels) % 2, 127, -128)
    chance = np.random.default_rng(3)
    gamma, beta = chance.normal(1, 0.4, channels), chance.normal(0, 0.5, channels)
    constants = norm_constants(gamma, beta, 1e-5, 0.02, 0.03)
    sketch = Sketch(machine, x)
    around = 0 if about_mean else centre
    sketch.load(Memory.LUT, 256 * (SQUARES if machine.lut_tables > 2 else 0),
                ((np.arange(-128, 128) - around) ** 2).astype(np.uint16))  # fmt: skip
    pattern = np.array([factor_pattern(constants.factor / 256)], np.uint32).view(np.float32)
    sketch.parameters(4, [constants.epsilon], pattern)
    sketch.parameters(16, constants.bias, constants.scale)
    sketch.vector(
        result=ResultKind.NONE, statistic=Statistic.VARIANCE if about_mean else Statistic.POWER,
        b_multiplier=centre, table=SQUARES if machine.lut_tables > 2 else 0, dst=0, a=0, param=5,
    )  # fmt: skip
    sketch.vector(
        to_acc=True, result=ResultKind.WIDE, combine=Combine.ADD, a_multiplier=channels,
        b_multiplier=0, bias=True, scale=True, dst=0, a=0, b=sketch.dst, param=5,
    )  # fmt: skip
    sketch.vector(
        (0, 1), a_from_acc=True, bias=True, scale=True, zero_point=4, dst=sketch.dst, a=0, param=16
    )
    meant = layer_norm(x, constants, 4) if about_mean else rms_norm(x, centre, constants, 4)
    for kind in (Machine, FunctionalMachine, NativeMachine):
        assert np.array_equal(sketch.result(kind), meant)


def test_parameters_of_rows_are_those_of_numbers():
    values, none = np.array([3, -7, 5]), np.zeros(0, np.int64)
    factor = factor_pattern(3.0)
    assert row_parameters(Statistic.MAXIMUM, values, values, 0, (0, 0)) == (-5, None)
    assert row_parameters(Statistic.MAXIMUM, none, none, 0, (0, 0)) == (128, None)
    assert row_parameters(Statistic.SUM, values, np.array([1, 2, 5]), 0, (9, factor)) == (
        None, int(reciprocal(8, factor)),
    )  # fmt: skip
    assert row_parameters(Statistic.VARIANCE, values, values**2, 0, (9, factor)) == (
        -1, int(inverse_root(3 * 83 - 1 + 9, factor)),
    )  # fmt: skip
    assert row_parameters(Statistic.POWER, values, values**2, -4, (9, factor)) == (
        12, int(inverse_root(3 * 83 + 9, factor)),
    )  # fmt: skip


def test_any_contents_of_the_constants_have_one_meaning():
    """An empty row divides by 1; exponents wrap; signs of factors and low bits don't count."""
    none = np.zeros(0, np.int64)
    one = factor_pattern(1.0)
    nearly_one = one - (1 << 6)  # the greatest entry of the reciprocals is 1 less than a power of 2
    plain = row_parameters(Statistic.SUM, none, none, 0, (0, one))
    assert plain == (None, nearly_one)
    for pattern in (one | 1 << 31, one | 63):
        assert row_parameters(Statistic.SUM, none, none, 0, (0, pattern)) == plain
    huge = np.full(4, 65535)
    tiny = row_parameters(Statistic.SUM, huge, huge, 0, (0, 0))[1]
    assert tiny is not None
    assert tiny >> 23 == (0 - 1 - 17) % 256
    below = row_parameters(Statistic.VARIANCE, huge, np.zeros(4, int), 0, (-5, one))
    assert below == (-4 * 65535, nearly_one)


@pytest.mark.parametrize("factor", [1.0, 1.9999999, 0.75, 3e-20, 1 / 3])
def test_a_factor_keeps_18_bits(factor):
    value = float(np.array([factor_pattern(factor)], np.uint32).view(np.float32)[0])
    assert abs(value / factor - 1) <= 2.0**-18


def test_wide_results_and_entries_need_no_statistic():
    machine = MACHINES[0]
    x = rows_of(4, 2, 8)
    sketch = Sketch(machine, x)
    table = np.arange(256, dtype=np.uint16) * 251
    sketch.load(Memory.LUT, 0, table)
    program = [
        *sketch.program,
        Vector(to_acc=True, result=ResultKind.WIDE, dst=0, a=0),
        Vector(to_acc=True, result=ResultKind.ENTRY, bound=2, dst=1, a=0, low=-3),
    ]
    state = Machine(machine, sketch.dram.copy())
    state.run(program)
    acc = state.view(Memory.ACC).reshape(-1, machine.vector_lanes)
    assert np.array_equal(acc[0], wide(x[0, :4], 1))
    entries = table[quantise_output(x[0, :4].astype(np.int32), None, 0, -3).astype(int) + 128]
    assert np.array_equal(acc[1], np.where(np.arange(4) < 2, entries, 0))


FIELDS = {"result": ResultKind.NONE, "statistic": Statistic.SUM, "bound": 5, "bound_step": 1}


@pytest.mark.parametrize("name", FIELDS)
def test_a_machine_without_the_option_refuses_its_fields(name):
    vector = Vector(dst=0, a=0, **{name: FIELDS[name]})
    with pytest.raises(IsaError, match=rf"no statistics over rows .* leave out `{name}`"):
        encode_program([vector], PRESETS["4x4"])
    assert decode_program(encode_program([vector], MACHINES[0]), MACHINES[0]) == (vector,)


def test_entries_need_two_tables():
    with pytest.raises(ConfigurationError, match="`lut_tables` must be at least 2"):
        PRESETS["tiny"].replace(row_statistics="all")
