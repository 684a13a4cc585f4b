"""Several samples at a time give what single ones give, or are not put together."""

import numpy as np
import onnx
import pytest
from onnx import helper

from tilewright.compiler.graph import Builder, Graph, Output, TensorType, Value
from tilewright.compiler.graph import operators as ops
from tilewright.compiler.importers import import_onnx
from tilewright.compiler.quantiser import quantise
from tilewright.compiler.quantiser.batches import Batches, make_batches, set_batch
from tilewright.errors import CompileError, InputError

from .networks import output_of, small_network


def test_a_network_in_batches_gives_what_it_gives_for_single_samples() -> None:
    net, output = small_network()
    graph, inputs = net.graph(output), net.inputs(7)
    batches = make_batches(graph, inputs, size=3)
    assert batches.size == 3
    np.testing.assert_allclose(batches.output(graph), output_of(graph, inputs), rtol=1e-5)
    sizes = [next(iter(part.values())).shape[0] for _, part in batches.graphs(graph)]
    assert sizes == [3, 3, 1]


def test_nodes_of_several_outputs_take_batches_too() -> None:
    net, _ = small_network()
    logits = net.nodes[-2].output[0]
    net.held["k"] = np.array([2])
    net.nodes.append(helper.make_node("TopK", [logits, "k"], ["largest", "places"], name="topk"))
    graph, inputs = net.graph("largest"), net.inputs(5)
    batches = make_batches(graph, inputs, size=2)
    assert batches.size == 2
    np.testing.assert_allclose(batches.output(graph), output_of(graph, inputs), rtol=1e-5)
    result = quantise(graph, batches)
    assert result.end_db > 30


def mixing_network(mask: tuple[float, ...] = (1, 1, 1, 1)) -> Graph:
    """A network whose result for a sample depends on the others beside it."""
    builder = Builder("mixing", [Value("x", TensorType("float32", (1, 4)))])
    y = builder.emit(ops.Softmax(0, 2), ["x"])
    y = builder.emit(ops.Binary("Mul"), [y, builder.constant(np.array(mask, np.float32))])
    return builder.graph([Output("y", y)])


def test_samples_that_would_mix_are_taken_one_at_a_time() -> None:
    graph = mixing_network()
    assert set_batch(graph, 2) is not None
    inputs = {"x": np.random.default_rng(0).standard_normal((4, 1, 4)).astype(np.float32)}
    assert make_batches(graph, inputs).size == 1
    np.testing.assert_allclose(Batches(inputs).output(graph).sum(axis=1), 1, rtol=1e-6)


@pytest.mark.filterwarnings("error")
def test_infinities_of_a_mask_do_not_hide_samples_that_mix() -> None:
    inputs = {"x": np.random.default_rng(0).standard_normal((4, 1, 4)).astype(np.float32)}
    assert make_batches(mixing_network((1, -np.inf, 1, 1)), inputs).size == 1


@pytest.mark.filterwarnings("error")
def test_samples_with_infinities_that_stay_apart_are_batched() -> None:
    builder = Builder("masked", [Value("x", TensorType("float32", (1, 4)))])
    mask = builder.constant(np.array([0, -np.inf, 0, 0], np.float32))
    graph = builder.graph([Output("y", builder.emit(ops.Binary("Add"), ["x", mask]))])
    inputs = {"x": np.random.default_rng(0).standard_normal((4, 1, 4)).astype(np.float32)}
    assert make_batches(graph, inputs, size=2).size == 2


def test_a_model_for_several_samples_is_left_as_it_is() -> None:
    builder = Builder("pairs", [Value("x", TensorType("float32", (2, 4)))])
    graph = builder.graph([Output("y", builder.emit(ops.Unary("Relu"), ["x"]))])
    assert set_batch(graph, 6) is None
    assert make_batches(graph, {"x": np.ones((3, 2, 4), np.float32)}).size == 1


def test_no_sample_is_refused() -> None:
    net, output = small_network()
    with pytest.raises(InputError, match="expected at least one sample, got none"):
        make_batches(net.graph(output), net.inputs(0))


def fixed_network() -> Graph:
    """A network with a shape that is written down for one sample."""
    builder = Builder("fixed", [Value("x", TensorType("float32", (1, 4)))])
    y = builder.emit(ops.Reshape((2, 2)), ["x"])
    return builder.graph([Output("y", builder.emit(ops.Unary("Relu"), [y]))])


def test_a_form_that_takes_no_batches_takes_samples_one_at_a_time() -> None:
    graph = fixed_network()
    inputs = {"x": np.random.default_rng(0).standard_normal((5, 1, 4)).astype(np.float32)}
    together = Batches(inputs, size=3)
    assert set_batch(graph, 3) is None
    np.testing.assert_array_equal(together.output(graph), np.maximum(inputs["x"].reshape(10, 2), 0))
    assert together.fitting(graph).size == 1
    assert together.fitting(mixing_network()) is together
    assert together.fitting(mixing_network(), graph).size == 1


def decoding(mode: str) -> Graph:
    """A cache of one sequence, written at a position, as in decoding step by step."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["k"]),
        helper.make_node("Reshape", ["k", "shape"], ["k4"]),
        helper.make_node("TensorScatter", ["cache", "k4", "at"], ["y"], mode=mode),
    ]
    types = {"x": (1, [1, 1, 8]), "cache": (1, [1, 2, 16, 4]), "at": (7, [1])}
    inputs = [helper.make_tensor_value_info(name, *kind) for name, kind in types.items()]
    chance = np.random.default_rng(0)
    held = {"w": chance.normal(size=(8, 8)).astype(np.float32), "shape": np.array([1, 2, 1, 4])}
    made = helper.make_graph(
        nodes, "step", inputs, [helper.make_tensor_value_info("y", 1, [1, 2, 16, 4])],
        [onnx.numpy_helper.from_array(data, name) for name, data in held.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 24)]
    return import_onnx(helper.make_model(made, opset_imports=opsets).SerializeToString())


def steps(*places: int) -> dict[str, np.ndarray]:
    """Samples of `decoding`, each of which writes at one place."""
    count = len(places)
    return {
        "x": np.random.default_rng(1).normal(size=(count, 1, 1, 8)).astype(np.float32),
        "cache": np.zeros((count, 1, 2, 16, 4), np.float32),
        "at": np.array(places).reshape(count, 1),
    }


def test_an_operator_that_fixes_its_samples_is_run_one_by_one() -> None:
    graph = decoding("linear")
    batches = make_batches(graph, steps(*range(4)))
    assert batches.size == 1
    assert len(list(batches.run(graph))) == 4


@pytest.mark.parametrize("place", [-1, 16])
def test_places_beyond_a_cache_are_told_with_those_that_fit(place: int) -> None:
    with pytest.raises(CompileError) as found:
        list(Batches(steps(2, place)).run(decoding("linear")))
    assert str(found.value).endswith(
        "`TensorScatter`: expected `write_indices` from 0 to 15 for 1 of 16 places of the cache "
        f"along axis -2, got {place}; correct the indices of this input"
    )
    if place > 0:
        assert len(list(Batches(steps(2, place)).run(decoding("circular")))) == 2
