"""Whole networks: float in, integer layers out, and how close they come."""

import numpy as np
import pytest

from tilewright.compiler.graph import QMatMul, is_accelerated
from tilewright.compiler.importers import import_onnx
from tilewright.compiler.quantiser import (
    METHODS,
    QuantisedNetwork,
    QuantiserOptions,
    accelerated_share,
    evaluate_quality,
    make_batches,
    quantise,
)
from tilewright.errors import CompileError, InputError

from .networks import Net, attention_network, small_network


def quantised(net: Net, output: str, **options) -> QuantisedNetwork:
    graph = net.graph(output)
    batches = make_batches(graph, net.inputs(24))
    return quantise(graph, batches, QuantiserOptions(**options))


@pytest.mark.parametrize("method", METHODS)
def test_every_layer_is_integer_and_unseen_samples_agree(method: str) -> None:
    net, output = small_network()
    result = quantised(net, output, method=method)
    integer = result.integer_graph()
    accelerated = [node.op for node in integer.nodes if is_accelerated(node)]
    assert sorted(accelerated) == ["qadd", "qavgpool", "qconv", "qconv", "qconv", "qconv"]
    assert accelerated_share(integer) == 1.0
    unseen = make_batches(net.graph(output), net.inputs(40, seed=5))
    agreement = evaluate_quality(result, integer, unseen, np.zeros(40, np.int64))
    assert agreement.samples == 40
    assert agreement.sqnr_db > (15 if method == "entropy" else 30)
    assert agreement.same_class is not None
    assert agreement.same_class >= 0.9
    assert agreement.accuracy == pytest.approx(agreement.float_accuracy, abs=0.1)


def test_the_integer_network_computes_what_its_float_form_says() -> None:
    net, output = small_network()
    result = quantised(net, output)
    unseen = make_batches(net.graph(output), net.inputs(40, seed=5))
    expected, got = unseen.output(result.graph), unseen.output(result.integer_graph())
    # Float sums may fall to the other side of a tie: a step of the logits, and rarely.
    assert np.mean(np.abs(expected - got) > 1e-6) < 0.02


def test_each_layer_is_accounted_for() -> None:
    net, output = small_network()
    for quality in quantised(net, output).layers:
        assert quality.low < quality.high
        assert quality.alone_db >= quality.through_db - 3
        assert 20 < quality.through_db < 70
        assert 0 <= quality.clipped_share < 0.02


def test_attention_is_integer_but_for_its_softmax() -> None:
    net, output = attention_network()
    result = quantised(net, output)
    integer = result.integer_graph()
    kinds = [node.op for node in integer.nodes]
    assert (kinds.count("qmatmul"), kinds.count("qconv"), kinds.count("softmax")) == (2, 5, 1)
    assert accelerated_share(integer) == 1.0
    products = [node.attributes for node in integer.nodes if isinstance(node.attributes, QMatMul)]
    assert all(each.zero_point_a == each.zero_point_b == 0 for each in products)
    unseen = make_batches(net.graph(output), net.inputs(20, seed=5))
    agreement = evaluate_quality(result, integer, unseen, None)
    assert agreement.sqnr_db > 30
    assert agreement.same_class is None, "an output like the input is no row of classes"


def test_trying_all_methods_is_no_worse_than_any() -> None:
    net, output = small_network()
    ends = [quantised(net, output, method=method).end_db for method in METHODS]
    best = quantised(net, output, method="auto")
    assert best.end_db == pytest.approx(max(ends), abs=0.2)
    assert best.method in METHODS


def test_a_layer_kept_in_float_is_computed_on_the_host() -> None:
    net, output = small_network()
    result = quantised(net, output, keep_float=("conv3",))
    integer = result.integer_graph()
    assert [node.name for node in integer.nodes if node.op == "conv"] == ["conv3"]
    assert 0 < accelerated_share(integer) < 1


def fragile_network() -> tuple[Net, str]:
    """A layer whose large and small outputs both matter: eight bits cannot hold them."""
    net = Net(3, 8, 8)
    x = net.conv("x", 8, 3, kernel=1)
    net.held["c0"][0] *= 3000
    x = net.conv(x, 8, 8, kernel=1)
    net.held["c2"][:, 0] = 0
    x = net.node("Relu", x)
    x = net.node("Flatten", net.node("GlobalAveragePool", x))
    return net, net.dense(x, 8, 5)


def test_a_layer_that_would_cost_too_much_stays_in_float() -> None:
    net, output = fragile_network()
    steps = {"equalise": False, "method": "minmax"}
    lost = quantised(net, output, rescue=False, **steps)
    saved = quantised(net, output, rescue=True, **steps)
    assert lost.rescued == ()
    # The second layer loses what it reads: it is given back together with the first one.
    assert saved.rescued == ("conv1", "conv0")
    assert lost.end_db < 15 < 40 < saved.end_db
    assert [layer.layer.kind for layer in saved.layers] == ["pool", "dense"]


def test_little_effort_is_enough_for_layers_in_float() -> None:
    net, output = fragile_network()
    steps = {"equalise": False, "method": "minmax"}
    assert quantised(net, output, effort="quick", **steps).rescued == ("conv1", "conv0")


def test_layers_before_a_logarithm_stay_in_float_together() -> None:
    net = Net(6, 16)
    x = net.node("Abs", net.dense_rows("x", 16, 16))
    x = net.node("Log", net.node("Add", x, net.constant(1e-7)))
    output = net.dense_rows(net.node("Relu", net.dense_rows(x, 16, 16)), 16, 8)
    lost, saved = (quantised(net, output, rescue=each, method="minmax") for each in (False, True))
    assert len(saved.rescued) > 1
    assert saved.end_db > lost.end_db + 5
    assert quantised(net, output, rescue=False).end_db > lost.end_db + 5  # rounds the Log's results


def test_a_layer_is_not_blamed_for_the_noise_before_it() -> None:
    net, output = fragile_network()
    layers = quantised(net, output, equalise=False, method="minmax", rescue=False).layers
    (pool,) = (quality for quality in layers if quality.layer.kind == "pool")
    assert pool.alone_db > 40
    assert pool.through_db < 5


def test_nothing_is_rescued_where_all_is_well() -> None:
    net, output = small_network()
    assert quantised(net, output).rescued == ()


def test_a_quantised_model_is_refused() -> None:
    net = Net(4)
    scale = net.constant(0.1)
    x = net.node("DequantizeLinear", net.node("QuantizeLinear", "x", scale), scale)
    with pytest.raises(CompileError) as refusal:
        quantised(net, net.dense(x, 4, 2))
    assert str(refusal.value) == (
        "model `model`: expected a float model to quantise, got one with QuantizeLinear (node "
        "`quantizelinear0`); give the float model that it was made from, or run it as it is, "
        "without calibration"
    )


def test_a_model_without_weights_is_refused() -> None:
    net = Net(4)
    with pytest.raises(CompileError, match="expected a convolution or dense layer with constant"):
        quantised(net, net.node("Relu", "x"))


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(
        CompileError, match="expected one of minmax, percentile, entropy, mse, auto"
    ):
        QuantiserOptions(method="best")


def test_samples_that_give_no_numbers_are_refused() -> None:
    net, output = small_network()
    graph, inputs = net.graph(output), net.inputs(3)
    inputs["x"][1] = np.nan
    with pytest.raises(InputError, match="calibration: value `x`: expected finite numbers"):
        quantise(graph, make_batches(graph, inputs))


def test_weights_stored_as_integers_are_taken_for_what_they_stand_for() -> None:
    net, output = small_network()
    plain = quantised(net, output)
    name, scale = "c0", np.float32(0.02)
    integers = np.clip(np.rint(net.held[name] / scale), -127, 127).astype(np.int8)
    net.held[name] = integers * scale
    folded = quantised(net, output)
    net.held |= {"stored": integers, "scale": np.array(scale)}
    del net.held[name]
    proto = net.model(output)
    dequantise = proto.graph.node.add()
    dequantise.op_type, dequantise.name = "DequantizeLinear", "stored_weights"
    dequantise.input.extend(["stored", "scale"])
    dequantise.output.append(name)
    proto.graph.node.insert(0, dequantise)
    del proto.graph.node[-1]
    graph = import_onnx(proto.SerializeToString())
    stored = quantise(graph, make_batches(graph, net.inputs(24)))
    assert stored.end_db == pytest.approx(folded.end_db, abs=0.01)
    assert stored.end_db != plain.end_db


def test_every_output_has_its_noise() -> None:
    net, output = small_network()
    middle = net.nodes[-2].output[0]
    proto = net.model(output)
    proto.graph.output.add().name = middle
    graph = import_onnx(proto.SerializeToString())
    batches = make_batches(graph, net.inputs(8))
    result = quantise(graph, batches)
    found = evaluate_quality(result, result.integer_graph(), batches, None).outputs
    assert [each.name for each in found] == [output, middle]
    assert all(30 < each.sqnr_db < 70 for each in found)


def test_samples_of_several_rows_are_counted_once() -> None:
    net = Net(3, 8)
    net.held["shape"] = np.array([3, 4])
    graph = net.graph(net.node("Reshape", net.dense_rows("x", 8, 4), "shape"))
    batches = make_batches(graph, net.inputs(6))
    result = quantise(graph, batches)
    found = evaluate_quality(result, result.integer_graph(), batches, np.zeros(6, np.int64))
    assert found.samples == 6
    assert found.noisiest is not None
    assert found.noisiest.index < 6
    assert (found.same_class, found.accuracy) == (None, None), "three rows have no one class"
