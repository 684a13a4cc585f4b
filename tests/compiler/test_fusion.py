"""Fusion: the nodes of a kernel, its meaning, and the names of its tensors."""

from dataclasses import replace

import numpy as np
import pytest

from tilewright.aligned import round_up
from tilewright.compiler.accelerator.kernels.common import channel_block
from tilewright.compiler.accelerator.search import Candidate, choose_candidate
from tilewright.compiler.graph import (
    Builder,
    Graph,
    Output,
    QAdd,
    QAvgPool,
    QConv,
    QLut,
    QMaxPool,
    TensorType,
    Value,
    evaluate,
)
from tilewright.compiler.main_memory.segment_layout import lay_out_segment
from tilewright.compiler.options import DEFAULT_OPTIONS
from tilewright.compiler.pipeline import compile_module
from tilewright.compiler.scheduling.candidate_timer import CandidateTimer
from tilewright.compiler.scheduling.fusion import Group, form_groups
from tilewright.compiler.scheduling.given_schedules import Part
from tilewright.compiler.scheduling.kernel_programs import KernelPrograms
from tilewright.compiler.tensor import Kernel
from tilewright.compiler.tensor import evaluate as evaluate_kernel
from tilewright.isa.configuration import PRESETS, Configuration
from tilewright.isa.semantics import Machine
from tilewright.sim.timing import ExactMeasure

ALIKE = QAdd((3, 2), 5, 0.4, -3, -128, 127)
MACHINE = PRESETS["8x8"].replace(name="many-banks", act_banks=16, act_depth=512)
CHANNELWISE_BY_BLOCKS = MACHINE.replace(name="no-taps", depthwise_taps=0)


class Network:
    """Accelerated nodes on one input, each with the name that the test gives."""

    def __init__(self, shape: tuple[int, ...], name: str = "in") -> None:
        self.builder, self.chance = Builder("network"), np.random.default_rng(0)
        self.input = self.builder.input(Value(name, TensorType("int8", shape)))

    def constant(self, data: np.ndarray) -> str:
        """A constant with a name that no test asks for."""
        return self.builder.constant(data, "held")

    def conv(self, source: str, name: str, channels: int, kernel=1, stride=1, groups=1) -> str:
        """A convolution that keeps its image's size, but for the stride."""
        channels_in = self.builder.types[source].shape[3]
        pads = ((kernel - 1) // 2, (kernel - 1) // 2, kernel // 2, kernel // 2)
        shape = (kernel, kernel, channels_in // groups, channels)
        chance = self.chance
        constants = (
            chance.integers(-128, 128, shape).astype(np.int8),
            chance.integers(-(2**12), 2**12, channels).astype(np.int32),
            chance.uniform(0.002, 0.004, channels).astype(np.float32),
        )
        kind = "depthwise" if groups == channels_in > 1 else "conv"
        operator = QConv(kind, (stride, stride), pads, (1, 1), groups, 3, -2)
        held = [self.constant(data) for data in constants]
        return self.builder.emit(operator, [source, *held], f"node {name}", name)

    def add(self, first: str, second: str, name: str) -> str:
        """Both values in one."""
        return self.builder.emit(ALIKE, [first, second], f"node {name}", name)

    def table(self, source: str, name: str) -> str:
        """A random table."""
        table = self.constant(self.chance.integers(-128, 128, 256).astype(np.int8))
        return self.builder.emit(QLut(), [source, table], f"node {name}", name)

    def pool(self, source: str, name: str, operator: QMaxPool | QAvgPool) -> str:
        """A pooling."""
        return self.builder.emit(operator, [source], f"node {name}", name)

    def graph(self, *outputs: str) -> Graph:
        """The whole, values that leave it named."""
        return self.builder.graph([Output(f"shown {name}", name) for name in outputs])


MAXIMUM = QMaxPool((3, 3), (2, 2), (1, 1, 1, 1), (1, 1), -128, 127)
AVERAGE = QAvgPool((3, 2), (2, 1), (1, 0, 0, 1), 5, 17, 0.17, -3, -128, 127)


def groups_of(graph: Graph, configuration: Configuration) -> list[Group]:
    """As compiling forms them, with nothing gathered and only the graph's outputs leaving."""
    layout = lay_out_segment(graph, graph.nodes, configuration, DEFAULT_OPTIONS)
    formed = form_groups(replace(layout, images={}))
    return [group for group in formed if isinstance(group, Group)]


def assert_kernels_mean_the_graph(graph: Graph, configuration: Configuration) -> list[Group]:
    """Evaluate every group's expression on what the graph's definition gives for its inputs."""
    (given,) = graph.inputs
    chance = np.random.default_rng(1)
    inputs = {given.name: chance.integers(-128, 128, given.type.shape).astype(np.int8)}
    every = [value.name for node in graph.nodes for value in node.outputs]
    shown = Graph(
        graph.name, graph.inputs, tuple(Output(name, name) for name in every), graph.nodes,
        graph.constants,
    )  # fmt: skip
    values = {**inputs, **evaluate(shown, inputs)}
    groups = groups_of(graph, configuration)
    for group in groups:
        kernel = group.kernel
        lanes = round_up(1, channel_block(configuration))
        arrays = {}
        for name in kernel.inputs:
            data = values[kernel.tensors[name].value]
            spare = -data.shape[3] % lanes
            arrays[name] = np.pad(data, [(0, 0)] * 3 + [(0, spare)])
        expected = values[group.output]
        got = evaluate_kernel(kernel, arrays)[..., : expected.shape[3]]
        np.testing.assert_array_equal(got, expected, err_msg=group.name)
    return groups


def assert_runs_as_defined(graph: Graph, configuration: Configuration) -> None:
    """The compiled program against the graph's definition."""
    (given,) = graph.inputs
    data = np.random.default_rng(2).integers(-128, 128, given.type.shape).astype(np.int8)
    (segment,) = compile_module(graph, configuration).segments
    window = segment.image({given.name: data})
    Machine(configuration, window).run(segment.program)
    expected = evaluate(graph, {given.name: data})
    read = {binding.name: binding.read(window) for binding in segment.outputs}
    for output in graph.outputs:
        np.testing.assert_array_equal(read[output.value], expected[output.name])


def bottleneck(**names: str) -> Graph:
    """A network's usual block; `names` renames its values."""
    net = Network((1, 12, 7, 11), names.get("in", "in"))
    wide = net.conv(net.input, names.get("wide", "wide"), 24)
    deep = net.conv(wide, names.get("deep", "deep"), 24, kernel=3, groups=24)
    thin = net.conv(deep, names.get("thin", "thin"), 11)
    return net.graph(net.add(thin, net.input, names.get("sum", "sum")))


@pytest.fixture(autouse=True)
def eager(monkeypatch):
    """Everything that can be fused is, also where it takes longer than its parts."""

    def free(kernel: Kernel, configuration: Configuration, *options) -> Candidate:
        return replace(choose_candidate(kernel, configuration, *options), estimated_cycles=0)

    monkeypatch.setattr("tilewright.compiler.scheduling.fusion.choose_candidate", free)


@pytest.mark.parametrize("name", ["4x4", "8x8", "8x16", "16x8"])
def test_a_fused_kernel_means_what_its_nodes_mean(name):
    groups = assert_kernels_mean_the_graph(bottleneck(), PRESETS[name])
    assert any(len(group.nodes) > 1 for group in groups)
    net = Network((1, 13, 6, 5))
    conv = net.conv(net.input, "conv", 9, kernel=3)
    other = net.conv(net.input, "other", 9)
    total = net.table(net.add(conv, other, "total"), "table")
    graph = net.graph(net.pool(total, "most", MAXIMUM))
    groups = assert_kernels_mean_the_graph(graph, PRESETS[name])
    assert any(len(group.nodes) > 1 for group in groups)
    net = Network((1, 13, 6, 5))
    graph = net.graph(net.pool(net.conv(net.input, "conv", 9, kernel=3), "mean", AVERAGE))
    assert_kernels_mean_the_graph(graph, PRESETS[name])


def test_a_whole_block_becomes_one_kernel():
    (group,) = assert_kernels_mean_the_graph(bottleneck(), MACHINE)
    assert group.op == "conv+depthwise+conv+qadd"
    assert group.name == "node wide + node deep + node thin + node sum"
    assert group.inputs[0] == "in"
    assert group.output == "sum"
    assert group.kernel.macs == sum(part.macs for part in group.parts)


@pytest.mark.parametrize(
    "names",
    [
        {"in": "bias", "wide": "bias.0", "deep": "bias.1", "thin": "acc.2", "sum": "scale.3"},
        {"in": "x", "wide": "x.1", "deep": "x.2", "thin": "x.3", "sum": "w.1"},
        {"in": "x", "wide": "part 3 x", "deep": "part 1 acc", "thin": "again x", "sum": "value x"},
    ],
)
def test_values_may_be_called_as_tensors_that_fusing_renames(names):
    """Exporters number values of one origin as `x`, `x.1`, `x.2`."""
    graph = bottleneck(**names)
    (group,) = assert_kernels_mean_the_graph(graph, MACHINE)
    made = {stage.output.name for stage in group.kernel.stages}
    assert len(made) == len(group.kernel.stages)
    assert not made & set(group.kernel.inputs)
    assert_runs_as_defined(graph, MACHINE)


def test_a_value_with_a_second_reader_is_stored():
    net = Network((1, 9, 9, 8))
    wide = net.conv(net.input, "wide", 16)
    deep = net.conv(wide, "deep", 16, kernel=3, groups=16)
    graph = net.graph(net.add(deep, wide, "sum"))
    groups = assert_kernels_mean_the_graph(graph, MACHINE)
    assert [group.output for group in groups] == ["wide", "sum"]
    assert_runs_as_defined(graph, MACHINE)


def test_a_value_that_is_shown_is_stored():
    net = Network((1, 9, 9, 8))
    conv = net.conv(net.input, "conv", 16)
    graph = net.graph(net.table(conv, "table"), conv)
    assert [group.output for group in groups_of(graph, MACHINE)] == ["conv", "table"]
    assert_runs_as_defined(graph, MACHINE)


@pytest.mark.parametrize("follower", ["add", "table", "most", "mean"])
def test_channels_in_blocks_are_stored_before_something_else_reads_them(follower):
    """A machine without taps cuts a depthwise convolution's channels into blocks of lanes."""
    net = Network((1, 9, 5, 21))
    deep = net.conv(net.input, "deep", 21, kernel=3, groups=21)
    if follower == "add":
        net.add(deep, net.input, "end")
    elif follower == "table":
        net.table(deep, "end")
    else:
        net.pool(deep, "end", MAXIMUM if follower == "most" else AVERAGE)
    graph = net.graph("end")
    assert [g.output for g in groups_of(graph, CHANNELWISE_BY_BLOCKS)] == ["deep", "end"]
    assert_runs_as_defined(graph, CHANNELWISE_BY_BLOCKS)


@pytest.mark.parametrize("configuration", [MACHINE, CHANNELWISE_BY_BLOCKS])
@pytest.mark.parametrize("groups", [1, 3, 24])
def test_a_strided_1x1_convolution_of_any_groups_keeps_its_meaning(configuration, groups):
    net = Network((2, 9, 7, 24))
    graph = net.graph(net.conv(net.input, "few", 24, stride=2, groups=groups))
    assert_runs_as_defined(graph, configuration)


def test_a_strided_1x1_convolution_gathers_what_a_depthwise_one_has_stored():
    net = Network((1, 9, 7, 16))
    deep = net.conv(net.input, "deep", 16, kernel=3, groups=16)
    graph = net.graph(net.conv(deep, "few", 8, stride=2))
    assert [group.output for group in groups_of(graph, MACHINE)] == ["deep", "few"]
    assert_runs_as_defined(graph, MACHINE)


def test_a_pool_by_parts_of_a_row_leaves_room_at_whole_rows():
    """VECTOR works on 2 channels at a time, GEMM reads rows of 8."""
    machine = PRESETS["4x4"].replace(
        name="narrow-vector", lanes_in=8, vector_lanes=2, act_depth=64, bus_bits=64
    )
    net = Network((1, 11, 11, 9))
    mean = net.pool(net.input, "mean", QAvgPool((11, 11), (1, 1), (0, 0, 0, 0), 0, 0, 0.01, 0))
    assert_runs_as_defined(net.graph(net.conv(mean, "conv", 1)), machine)


@pytest.mark.parametrize(
    ("alone", "together", "apart", "fused"),
    [
        (9000, 9000, None, True),
        (10, 50, None, True),
        (9000, 9500, 9500, True),
        (9000, 9500, 9499, False),
        (9000, 18001, None, False),
    ],
    ids=["within the longer one", "within their bound", "no slower", "slower", "above their sum"],
)
def test_kernels_are_timed_one_after_the_other_only_if_that_decides(
    monkeypatch, alone, together, apart, fused
):
    timed = []

    def cycles(timer: CandidateTimer, *parts: Part) -> int:
        timed.append(len(parts))
        if len(parts) == 2:
            assert apart is not None, "the time together decides already"
            return apart
        return together if len(parts[0][0].stages) > 2 else alone

    monkeypatch.setattr(CandidateTimer, "cycles", cycles)
    monkeypatch.setattr("tilewright.compiler.pipeline.schedule.refine", lambda groups, *_: groups)
    net = Network((1, 12, 7, 11))
    graph = net.graph(net.add(net.conv(net.input, "conv", 11), net.input, "sum"))
    (segment,) = compile_module(graph, MACHINE, measure=ExactMeasure()).segments
    assert (len(segment.layers) == 1) == fused
    assert (2 in timed) == (apart is not None)


@pytest.mark.parametrize("later", [60, 90], ids=["faster", "slower"])
def test_a_node_leaves_its_group_for_a_later_node_if_that_is_faster(monkeypatch, later):
    """Three nodes do not fit together; the middle one may be fused with either of the others."""
    costs = {
        ("wide + deep",): 150,
        ("wide + deep + thin",): 500,
        ("deep + thin",): later,
        ("wide + deep", "thin"): 180,
        ("wide", "deep + thin"): 100 + later,
    }

    def cycles(timer: CandidateTimer, *parts: Part) -> int:
        names = tuple(kernel.name.replace("node ", "") for kernel, _ in parts)
        return 1_000_000 * costs.get(names, 100 * len(parts))  # more than any bound

    monkeypatch.setattr(CandidateTimer, "cycles", cycles)
    net = Network((1, 12, 7, 11))
    wide = net.conv(net.input, "wide", 24)
    deep = net.conv(wide, "deep", 24, kernel=3, groups=24)
    graph = net.graph(net.conv(deep, "thin", 11))
    timer = CandidateTimer(KernelPrograms({}, 0, MACHINE), MACHINE, ExactMeasure())
    groups = form_groups(lay_out_segment(graph, graph.nodes, MACHINE, DEFAULT_OPTIONS), timer)
    names = [group.name.replace("node ", "") for group in groups]
    assert names == (["wide", "deep + thin"] if later == 60 else ["wide + deep", "thin"])
