"""Concatenation, resizing and slices: values that are made by lying where they do."""

import numpy as np
import pytest

from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import (
    Builder,
    Graph,
    Output,
    QConcat,
    QLut,
    QMaxPool,
    QResize,
    QSlice,
    Quantisation,
    Rearranging,
    TensorType,
    Value,
    evaluate,
    is_accelerated,
    parse_graph,
    print_graph,
    verify,
)
from tilewright.compiler.graph.operators import OPERATORS, Pad
from tilewright.compiler.module import Module
from tilewright.compiler.pipeline import compile_module
from tilewright.errors import CompileError
from tilewright.flows.verify.fuzz.fuzz_runs import random_inputs
from tilewright.isa.configuration import PRESETS, Configuration
from tilewright.isa.instructions import Load, Store
from tilewright.runtime import Session, load, open_device, save
from tilewright.runtime.compare import Comparison
from tilewright.runtime.session import Run

from .branching_networks import NETWORKS
from .onnx_models import model, node, run_onnxruntime, scalars, value

ONE = Quantisation(0.05, 0)


def run(graph: Graph, machine: Configuration, device: str = "sim") -> tuple[Module, Run]:
    """Compile and run on random inputs; every layer and output equals the integer reference."""
    module = compile_module(graph, machine, keep_all=True)
    inputs = random_inputs(graph, 3)
    with open_device(device, machine) as opened:
        found = Session(module, opened).run(inputs)
    comparison = Comparison(module)
    comparison.add(inputs, found)
    assert comparison.equal, comparison.first_difference()
    assert comparison.not_kept == []
    return module, found


def network(name: str, even: bool) -> Graph:
    return import_model(NETWORKS[name](even=even).SerializeToString())


def copied(module: Module) -> dict[str, int]:
    """Instructions of each concatenation and resized value."""
    return {
        layer.output: len(layer.places)
        for segment in module.segments
        for layer in segment.layers
        if issubclass(OPERATORS.get(layer.op, QMaxPool), Rearranging)
    }


# Networks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("machine", ["16x16", "8x8", "4x4"])
@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("name", NETWORKS)
def test_branching_networks_are_one_segment_that_equals_the_reference(name, even, machine):
    graph = network(name, even)
    module, found = run(graph, PRESETS[machine])
    assert len(module.segments) == 1
    hosted = {n.op for n in graph.nodes if not is_accelerated(n)}
    assert hosted <= {"quantize", "dequantize", "transpose", "reshape"}
    assert any(isinstance(node.attributes, Rearranging) for node in graph.nodes)
    print(f"{name}, {machine}: {found.profile.cycles} cycles, use {found.profile.utilisation:.1%}")


@pytest.mark.slow
@pytest.mark.parametrize("machine", ["16x16", "4x4"])
@pytest.mark.parametrize("name", NETWORKS)
def test_branching_networks_run_on_the_hardware_in_the_cycles_that_sim_tells(name, machine):
    for even in (True, False):
        graph = network(name, even)
        _, hardware = run(graph, PRESETS[machine], "rtl")
        _, model = run(graph, PRESETS[machine])
        assert hardware.profile.cycles == model.profile.cycles


@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_integer_meaning_has_the_bits_of_onnxruntime(name, even):
    proto = NETWORKS[name](even=even)
    graph = import_model(proto.SerializeToString())
    inputs = random_inputs(graph, 1)
    expected = run_onnxruntime(proto, inputs, optimise=False)
    for output, array in evaluate(graph, inputs).items():
        # A tie of a layer in between may fall the other way; one in a thousand at most.
        assert np.mean(array != expected[output]) < 1e-3


@pytest.mark.parametrize("name", sorted({*NETWORKS} - {"cross stage"}))
def test_nothing_is_copied_in_a_network_of_one_quantisation(name):
    module, _ = run(network(name, True), PRESETS["16x16"])
    assert copied(module)
    assert set(copied(module).values()) == {0}


def test_what_a_split_gives_is_read_where_it_lies_and_copied_into_a_concatenation():
    module, _ = run(network("cross stage", True), PRESETS["16x16"])
    (segment,) = module.segments
    counts = [len(layer.places) for layer in segment.layers if layer.op == "qslice"]
    assert len(counts) == 2
    assert min(counts) > 0
    assert [len(layer.places) for layer in segment.layers if layer.op == "qconcat"] == [0]


def test_a_kept_module_knows_where_parts_lie(tmp_path):
    graph = network("unet", True)
    module, found = run(graph, PRESETS["8x8"])
    save(module, tmp_path / "unet.tw")
    loaded = load(tmp_path / "unet.tw")
    assert loaded.segments == module.segments
    with open_device("sim", PRESETS["8x8"]) as opened:
        again = Session(loaded, opened).run(random_inputs(graph, 3))
    assert found.layers.keys() == again.layers.keys()
    for name, array in found.layers.items():
        np.testing.assert_array_equal(again.layers[name], array)


# Single cases -----------------------------------------------------------------------------------


class Making:
    """A graph of pools, which leave values alone, tables and movements."""

    def __init__(self, *shapes: tuple[int, int, int, int]) -> None:
        self.builder = Builder("made")
        self.inputs = [
            self.builder.input(Value(f"in{i}", TensorType("int8", shape, ONE)))
            for i, shape in enumerate(shapes)
        ]

    def stored(self, source: str) -> str:
        """The same values, made on the accelerator."""
        return self.builder.emit(QMaxPool((1, 1), (1, 1), (0, 0, 0, 0)), [source], "pool")

    def looked_up(self, source: str, seed: int = 0) -> str:
        values = np.random.default_rng(seed).permutation(np.arange(-128, 128)).astype(np.int8)
        table = self.builder.constant(values, "table")
        return self.builder.emit(QLut(), [source, table], "table", quantisation=ONE)

    def concat(self, *sources: str, axis: int = 3) -> str:
        return self.builder.emit(QConcat(axis), sources, "concat")

    def resize(self, source: str, rows: int, columns: int) -> str:
        return self.builder.emit(QResize((rows, columns)), [source], "resize")

    def cut(self, source: str, operator: QSlice) -> str:
        return self.builder.emit(operator, [source], "slice")

    def graph(self, *outputs: str) -> Graph:
        shown = [Output(f"y{i}", name) for i, name in enumerate(outputs)]
        return verify(self.builder.graph(shown))


MACHINES = ("4x4", "8x16", "16x16")


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("axis", [0, 1, 2, 3])
@pytest.mark.parametrize("channels", [3, 16, 21])
def test_values_are_joined_along_any_axis(axis, channels, machine):
    shape = [2, 5, 4, channels]
    longer = [n + (i == axis) for i, n in enumerate(shape)]
    making = Making((2, 5, 4, channels), (longer[0], longer[1], longer[2], longer[3]))
    parts = [making.stored(name) for name in making.inputs]
    graph = making.graph(making.concat(*parts, axis=axis))
    module, _ = run(graph, PRESETS[machine])
    assert set(copied(module).values()) == {0}


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("factors", [(1, 1), (2, 2), (3, 1), (1, 5), (2, 3)])
@pytest.mark.parametrize("channels", [3, 16, 21])
def test_pixels_are_repeated(channels, factors, machine):
    making = Making((2, 5, 4, channels))
    graph = making.graph(making.resize(making.stored("in0"), *factors))
    module, _ = run(graph, PRESETS[machine])
    assert set(copied(module).values()) == {0}


CUTS = (
    QSlice((0, 0, 0, 0), (2, 5, 6, 21), (1, 1, 1, 1)),
    QSlice((0, 0, 0, 3), (2, 5, 6, 20), (1, 1, 1, 1)),
    QSlice((1, 2, 0, 16), (2, 4, 6, 21), (1, 1, 1, 1)),
    QSlice((0, 1, 0, 20), (2, 5, 6, 21), (1, 2, 3, 1)),
)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("operator", CUTS)
def test_slices_are_read_where_they_lie(operator, machine):
    making = Making((2, 5, 6, 21))
    taken = making.cut(making.stored("in0"), operator)
    graph = making.graph(making.looked_up(taken), taken)
    module, _ = run(graph, PRESETS[machine])
    assert set(copied(module).values()) == {0}


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("operator", CUTS)
def test_slices_that_become_parts_are_copied(operator, machine):
    making = Making((2, 5, 6, 21))
    taken = making.cut("in0", operator)
    joined = making.concat(taken, making.stored(taken))
    module, _ = run(making.graph(joined), PRESETS[machine])
    counts = copied(module)
    assert counts[taken] > 0
    assert counts[joined] == 0


@pytest.mark.parametrize("machine", MACHINES)
def test_what_the_host_gives_is_copied(machine):
    making = Making((1, 6, 5, 7), (1, 6, 5, 9))
    graph = making.graph(making.concat("in0", "in1"), making.resize("in0", 2, 2))
    module, _ = run(graph, PRESETS[machine])
    assert min(copied(module).values()) > 0


@pytest.mark.parametrize("order", [("c", "d"), ("d", "c")])
@pytest.mark.parametrize("scale", [0.05, 0.02])
def test_a_constant_is_joined_on_the_host(scale: float, order: tuple[str, str]) -> None:
    """As position codes and class tokens are, in a quantisation of their own or that of all."""
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["r"]),
        node("DequantizeLinear", ["w", "t", "z"], ["v"]),
        node("Conv", ["r", "v"], ["f"]),
        node("QuantizeLinear", ["f", "s", "z"], ["g"]),
        node("DequantizeLinear", ["g", "s", "z"], ["d"]),
        node("DequantizeLinear", ["k", "t", "z"], ["c"]),
        node("Concat", order, ["j"], axis=1),
        node("QuantizeLinear", ["j", "s", "z"], ["h"]),
        node("DequantizeLinear", ["h", "s", "z"], ["y"]),
    ]
    generator = np.random.default_rng(5)
    constants = {
        "w": generator.integers(-64, 64, (5, 4, 1, 1), np.int8),
        "k": generator.integers(-128, 128, (1, 3, 6, 7), np.int8),
        **scalars(s=0.05, t=scale, z=np.int8(0)),
    }
    proto = model(nodes, [value("x", np.float32, (1, 4, 6, 7))], ["y"], constants)
    graph = import_model(proto.SerializeToString())
    _, found = run(graph, PRESETS["16x16"])
    (got,) = found.outputs.values()
    expected = run_onnxruntime(proto, random_inputs(graph, 3))["y"]
    np.testing.assert_allclose(got, expected, atol=0.0501)
    assert any(is_accelerated(one) for one in graph.nodes)


def test_a_value_in_two_results_is_copied_into_one():
    making = Making((1, 6, 5, 7))
    x = making.stored("in0")
    first, second = making.concat(x, making.stored(x)), making.concat(making.looked_up(x), x)
    module, _ = run(making.graph(first, second), PRESETS["8x8"])
    assert sorted(map(bool, copied(module).values())) == [False, True]


def test_a_value_twice_in_one_result_is_stored_and_copied():
    making = Making((1, 6, 5, 7))
    x = making.stored("in0")
    module, _ = run(making.graph(making.concat(x, x, x)), PRESETS["8x8"])
    (segment,) = module.segments
    (layer,) = (layer for layer in segment.layers if layer.op == "qconcat")
    stores = [i for i in (segment.program[place] for place in layer.places) if isinstance(i, Store)]
    assert stores


def test_tables_of_nodes_with_one_name_are_told_apart():
    """Each part of a concatenation has its change of scale from the same node of the model."""
    making = Making((1, 6, 5, 7))
    parts = [making.looked_up("in0", seed) for seed in range(3)]
    run(making.graph(making.concat(*parts)), PRESETS["8x8"])


def test_results_may_be_parts_of_results():
    """A resized concatenation in a concatenation: everything is stored where it is read."""
    making = Making((1, 3, 5, 7), (1, 6, 10, 4))
    inner = making.concat(making.stored("in0"), making.looked_up("in0"))
    outer = making.concat(making.stored("in1"), making.resize(inner, 2, 2))
    graph = making.graph(making.looked_up(outer), making.looked_up(inner), inner, outer)
    module, _ = run(graph, PRESETS["8x8"])
    assert set(copied(module).values()) == {0}
    loads = [i for s in module.segments for i in s.program if isinstance(i, Load)]
    assert loads


def test_parts_do_not_touch_each_other_where_places_are_used_again():
    """Without `keep_all`, values that are no longer needed give their place to others."""
    making = Making((1, 8, 8, 5))
    x = making.stored("in0")
    for _ in range(3):
        y = making.looked_up(making.looked_up(x))
        x = making.looked_up(making.concat(making.stored(y), making.looked_up(x)))
    graph = making.graph(x)
    inputs = random_inputs(graph, 0)
    module = compile_module(graph, PRESETS["8x8"])
    with open_device("sim", PRESETS["8x8"]) as opened:
        found = Session(module, opened).run(inputs)
    comparison = Comparison(module)
    comparison.add(inputs, found)
    assert comparison.equal, comparison.first_difference()
    kept = compile_module(graph, PRESETS["8x8"], keep_all=True)
    assert module.segments[0].data_bytes < kept.segments[0].data_bytes


def test_host_steps_between_parts_are_possible():
    making = Making((1, 4, 4, 6))
    x = making.stored("in0")
    padded = making.builder.emit(Pad((0, 0, 0, 0), (0, 0, 0, 2), 1.0), [x], "pad", quantisation=ONE)
    graph = making.graph(making.looked_up(making.concat(x, padded)))
    module, _ = run(graph, PRESETS["4x4"])
    assert len(module.segments) == 2


# The graph --------------------------------------------------------------------------------------


def test_movements_print_and_parse():
    making = Making((1, 4, 4, 6))
    graph = making.graph(making.resize(making.concat("in0", "in0", axis=1), 2, 3))
    text = print_graph(graph)
    assert 'qconcat(%in0, %in0) {axis=1} @ "concat"' in text
    assert "{factors=(2, 3)}" in text
    assert parse_graph(text, {}) == graph


def test_quantisation_is_passed_on_where_all_parts_have_the_same():
    making = Making((1, 4, 4, 6))
    name = making.concat("in0", "in0")
    assert making.builder.types[name].quantisation == ONE
    assert making.builder.types[making.resize(name, 2, 2)].quantisation == ONE


@pytest.mark.parametrize(
    ("operator", "shapes", "message"),
    [
        (
            QConcat(3),
            [(1, 4, 4, 6), (1, 4, 5, 6)],
            "`qconcat`: expected one type, and shapes that differ on axis 3 only, got "
            "int8[1, 4, 4, 6], int8[1, 4, 5, 6]; correct the operands",
        ),
        (
            QConcat(4),
            [(1, 4, 4, 6)],
            "`qconcat`: expected int8 tensors of rank 4 and an axis from 0 to 3, got "
            "int8[1, 4, 4, 6]; correct the operands",
        ),
        (
            QResize((2, 0)),
            [(1, 4, 4, 6)],
            "`qresize`: expected int8 [N,H,W,C] and factors of 1 or more, got int8[1, 4, 4, 6]; "
            "correct the operands",
        ),
    ],
)
def test_operands_that_do_not_fit_are_refused(operator, shapes, message):
    making = Making(*shapes)
    with pytest.raises(CompileError) as raised:
        making.builder.emit(operator, making.inputs, "node")
    assert str(raised.value) == message
