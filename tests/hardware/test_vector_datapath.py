"""VECTOR's datapath against NumPy: random instructions, idle cycles anywhere, exact timing."""

import itertools

import numpy as np
import pytest
from amaranth.hdl import Fragment, Instance, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from tilewright.flows.verify.programs.random_configurations import EXTRA_OPERATIONS
from tilewright.hardware.technology import Technology
from tilewright.hardware.vector_datapath import VectorDatapath, constants_layout
from tilewright.isa.configuration import Configuration
from tilewright.isa.instructions import ReduceMode
from tilewright.isa.numbers import quantise_output
from tilewright.isa.vector_operations import Operation

from ..isa.python_laws import law_by_python

CONFIGURATIONS = {
    "two lanes, one table": Configuration(
        name="two", lanes_in=2, lanes_out=2, vector_lanes=2, lut_tables=1, depthwise_taps=2
    ),
    "four lanes, eight tables": Configuration(
        name="four", lanes_in=4, lanes_out=8, vector_lanes=4, lut_tables=8
    ),
    "two lanes, more operations": Configuration(
        name="more",
        lanes_in=4,
        lanes_out=4,
        vector_lanes=2,
        extra_operations=(
            *EXTRA_OPERATIONS,
            "halved = a + (a_multiplier >> 1)",
        ),
    ),
}
GARBAGE_BITS = 32


class SplitConstants(wiring.Component):
    """The datapath with one port per constant, each narrow enough for the batch driver."""

    def __init__(self, configuration: Configuration):
        self.datapath = VectorDatapath(configuration)
        self.fields = list(constants_layout(configuration))
        members = dict(self.datapath.signature.members)
        del members["constants"]
        constants = {f"constant_{name}": In(field.shape) for name, field in self.fields}
        super().__init__(members | constants)

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.datapath = self.datapath
        for name, _ in self.fields:
            m.d.comb += self.datapath.constants[name].eq(getattr(self, f"constant_{name}"))
        for path, member, inner in self.datapath.signature.flatten(self.datapath):
            if path[0] != "constants":
                outer = self
                for step in path:
                    outer = outer[step] if isinstance(step, int) else getattr(outer, step)
                m.d.comb += inner.eq(outer) if member.flow is In else outer.eq(inner)
        return m


class Stimuli:
    """A table of inputs that grows by instructions, with the outputs that NumPy expects."""

    def __init__(self, configuration: Configuration, seed: int, cycles: int):
        self.rng = np.random.default_rng(seed)
        self.lanes = configuration.vector_lanes
        self.operations = configuration.operations
        self.tables = np.zeros((configuration.lut_tables, 256), np.int8)
        self.now = 1
        rng, lanes = self.rng, self.lanes
        names = ["bias", "scale", "a_acc", "a_act", "b"]
        self.inputs = {  # garbage wherever no step says otherwise
            f"{name}__{lane}": rng.integers(0, 1 << GARBAGE_BITS, cycles)
            for name in names
            for lane in range(lanes)
        }
        for name in ("first", "last", "table_address", "table_data"):
            self.inputs[name] = rng.integers(0, 1 << GARBAGE_BITS, cycles)
        constants = [f"constant_{name}" for name, _ in constants_layout(configuration)]
        for name in ("valid", "table_bytes", *constants):
            self.inputs[name] = np.zeros(cycles, np.int64)
        self.expected = {
            name: np.zeros(cycles, np.int64) for name in ("totals_valid", "results_valid", "busy")
        }
        self.slices: list[tuple[str, int, np.ndarray]] = []

    def write_tables(self, rows: int) -> None:
        """Overwrite random bytes of random rows, one row per cycle."""
        flat = self.tables.reshape(-1, 4)
        for _ in range(rows):
            row, mask = int(self.rng.integers(len(flat))), int(self.rng.integers(16))
            data = self.rng.integers(-128, 128, 4).astype(np.int8)
            chosen = (mask >> np.arange(4) & 1).astype(bool)
            flat[row, chosen] = data[chosen]
            self.inputs["table_address"][self.now] = row
            self.inputs["table_data"][self.now] = int(data.view(np.uint32)[0])
            self.inputs["table_bytes"][self.now] = mask
            self.now += 1

    def random_constants(self) -> dict[str, int]:
        """Immediate fields of a random instruction."""
        rng = self.rng
        flags = ("a_from_acc", "to_acc", "bias", "scale", "lookup")
        low, high = np.sort(rng.integers(-128, 128, 2))
        return {
            **{name: int(rng.integers(2)) for name in flags},
            "combine": int(rng.integers(len(self.operations))),
            "reduce": int(rng.choice(list(ReduceMode))),
            "a_multiplier": int(rng.integers(-(2**15), 2**15)),
            "b_multiplier": int(rng.integers(-(2**15), 2**15)),
            "zero_point": int(rng.integers(-128, 128)),
            "low": int(low) if rng.random() < 0.5 else -128,
            "high": int(high) if rng.random() < 0.5 else 127,
            "table": int(rng.integers(len(self.tables))),
        }

    def instruction(self, constants: dict[str, int], slices: int, steps: int, idle: float) -> None:
        """Append an instruction: `slices` reductions of `steps` steps, idle cycles in between."""
        begin = self.now
        self.now += 1  # the constants are there before the first step
        for _ in range(slices):
            self.reduction(constants, steps, idle)
        latency = VectorDatapath.RESULTS_LATENCY
        if constants["to_acc"]:
            latency = VectorDatapath.TOTALS_LATENCY
        self.now += latency  # drained: busy is low from here on
        for name, value in constants.items():
            self.inputs[f"constant_{name}"][begin : self.now] = value

    def reduction(self, constants: dict[str, int], steps: int, idle: float) -> None:
        """Append one reduction and its expected result."""
        rng, shape = self.rng, (steps, self.lanes)
        a_acc = (rng.integers(-(2**31), 2**31, shape) >> rng.integers(0, 31, shape)).astype("i4")
        at_ends = rng.choice([-(2**31), 2**31 - 256], shape) + rng.integers(0, 256, shape)
        a_acc = np.where(rng.random(shape) < 0.1, at_ends.astype("i4"), a_acc)
        a_act, b = rng.integers(-128, 128, (2, *shape)).astype(np.int8)
        for step in range(steps):
            while rng.random() < idle:
                self.now += 1
            values = {"valid": 1, "first": step == 0, "last": step == steps - 1}
            for lane in range(self.lanes):
                values[f"a_acc__{lane}"] = a_acc[step, lane]
                values[f"a_act__{lane}"] = a_act[step, lane]
                values[f"b__{lane}"] = b[step, lane]
            for name, value in values.items():
                self.inputs[name][self.now] = value
            self.expected["busy"][self.now + 1 : self.now + 1 + VectorDatapath.PARAM_DELAY - 1] = 1
            self.now += 1

        operation = self.operations[constants["combine"]]
        a = a_acc if constants["a_from_acc"] else a_act
        totals = reduce_steps(operation, constants, a, b)
        sizes = np.abs(totals.astype(np.int64)) + 1
        bias = rng.integers(-(2**20), 2**20, self.lanes).astype(np.int32)
        scale = (rng.uniform(1, 300, self.lanes) / sizes).astype(np.float32)
        parameters = self.now - 1 + VectorDatapath.PARAM_DELAY
        for lane in range(self.lanes):
            self.inputs[f"bias__{lane}"][parameters] = bias[lane]
            self.inputs[f"scale__{lane}"][parameters] = scale.view(np.uint32)[lane]
        if constants["bias"]:
            totals = totals + bias
        if constants["to_acc"]:
            self.expect("totals", VectorDatapath.TOTALS_LATENCY, totals)
            return
        results = quantise_output(
            totals,
            scale if constants["scale"] else None,
            constants["zero_point"],
            constants["low"],
            constants["high"],
        )
        if constants["lookup"]:
            results = self.tables[constants["table"]][results.astype(int) + 128]
        self.expect("results", VectorDatapath.RESULTS_LATENCY, results)

    def expect(self, port: str, latency: int, values: np.ndarray) -> None:
        """Note a slice that must appear `latency` cycles after the step just appended."""
        at = self.now - 1 + latency
        self.expected["busy"][self.now : at + 1] = 1
        self.expected[f"{port}_valid"][at] = 1
        self.slices.append((port, at, values))


def reduce_steps(
    operation: Operation, constants: dict[str, int], a: np.ndarray, b: np.ndarray
) -> np.ndarray:
    """Combine int[steps, lanes] and reduce to int32[lanes], as VECTOR's law says."""
    fields = {
        "a_multiplier": 1 if constants["a_from_acc"] else constants["a_multiplier"],
        "b_multiplier": constants["b_multiplier"],
    }
    pairs = zip(a.flat, b.flat, strict=True)
    x = [law_by_python(operation.law, {"a": p, "b": q, **fields}) for p, q in pairs]
    x = np.array(x, dtype=np.int32).reshape(a.shape)
    if constants["reduce"] == ReduceMode.MAX:
        return x.max(axis=0)
    return x.astype(np.int64).sum(axis=0).astype(np.int32)


@pytest.fixture(
    scope="module",
    params=[
        "four lanes, eight tables",
        "two lanes, more operations",
        pytest.param("two lanes, one table", marks=pytest.mark.slow),
    ],
)
def datapath(request, compile_block):
    configuration = CONFIGURATIONS[request.param]
    return configuration, compile_block(SplitConstants(configuration))


def assert_outputs(datapath, stimuli: Stimuli) -> None:
    _, block = datapath
    outputs = block.run(len(stimuli.inputs["valid"]), **stimuli.inputs)
    for name, values in stimuli.expected.items():
        np.testing.assert_array_equal(outputs[name], values, err_msg=name)
    for port, cycle, values in stimuli.slices:
        got = [outputs[f"{port}__{lane}"][cycle] for lane in range(stimuli.lanes)]
        assert got == values.tolist(), f"`{port}` in cycle {cycle}"


@pytest.mark.parametrize("idle", [0.0, 0.3])
def test_random_instructions_follow_the_law(datapath, idle):
    stimuli = Stimuli(datapath[0], seed=int(idle * 10), cycles=25_000)
    count = 0
    while stimuli.now < 24_000:
        stimuli.write_tables(int(stimuli.rng.integers(40)))
        steps = int(stimuli.rng.choice([1, 1, 2, 9]))
        slices = int(stimuli.rng.integers(1, 30))
        stimuli.instruction(stimuli.random_constants(), slices, steps, idle)
        count += 1
    assert count > 80
    assert_outputs(datapath, stimuli)


@pytest.mark.parametrize("reduce", list(ReduceMode), ids=lambda code: code.name)
def test_every_operation_runs_without_bubbles(datapath, reduce):
    codes = range(len(datapath[0].operations))
    stimuli = Stimuli(datapath[0], seed=5, cycles=1_000 * len(codes))
    for combine, a_from_acc in itertools.product(codes, (0, 1)):
        constants = stimuli.random_constants()
        constants |= {"combine": combine, "reduce": reduce, "a_from_acc": a_from_acc, "to_acc": 0}
        begin = stimuli.now
        stimuli.instruction(constants, slices=50, steps=4, idle=0)
        assert stimuli.now - begin == 1 + 200 + VectorDatapath.RESULTS_LATENCY
    assert_outputs(datapath, stimuli)


def test_table_bytes_are_written_one_by_one(datapath):
    stimuli = Stimuli(datapath[0], seed=6, cycles=20_000)
    stimuli.write_tables(2_000)
    constants = stimuli.random_constants()
    constants |= {"to_acc": 0, "lookup": 1, "low": -128, "high": 127, "scale": 0, "bias": 0}
    constants |= {"combine": 0, "a_from_acc": 0, "zero_point": 0}
    for table in range(len(stimuli.tables)):
        stimuli.instruction(constants | {"table": table}, slices=1_000, steps=1, idle=0)
    assert_outputs(datapath, stimuli)


def count_multipliers(fragment: Fragment) -> int:
    if isinstance(fragment, Instance):
        return fragment.type == "MULT18X18D"
    return sum(count_multipliers(part) for part, *_ in fragment.subfragments)


@pytest.mark.parametrize(
    ("blocks", "taken"), [(None, 12), (-3, 8), (8, 8), (11, 8), (12, 12), (15, 12), (99, 16)]
)
def test_lanes_share_the_multipliers_that_the_chip_has_equally(blocks, taken):
    block = VectorDatapath(CONFIGURATIONS["four lanes, eight tables"], blocks)
    assert count_multipliers(Fragment.get(block, Technology.ECP5)) == taken
