"""Noise reduction: equalised channels, narrower ranges, corrected biases.

Each changes the float network by nothing but rounding, and brings the quantised one closer to it.
"""

import numpy as np
import pytest
from onnx import helper

from tilewright.compiler.graph import Graph
from tilewright.compiler.graph import operators as ops
from tilewright.compiler.importers import import_onnx
from tilewright.compiler.passes.clean_activations import MAX_FLOAT32
from tilewright.compiler.quantiser import QuantiserOptions, make_batches, quantise
from tilewright.compiler.quantiser.calibrate import calibrate
from tilewright.compiler.quantiser.equalise import equalise, find_links
from tilewright.compiler.quantiser.layers import find_layers
from tilewright.compiler.quantiser.measure import Noise, last_values
from tilewright.compiler.quantiser.narrow import flat_ends, narrow
from tilewright.compiler.quantiser.points import find_points
from tilewright.compiler.quantiser.prepare import prepare

from .networks import Net, output_of


def uneven_network() -> tuple[Net, str]:
    """A depthwise separable network whose channels have very different ranges."""
    net = Net(3, 10, 10)
    sizes = 10.0 ** net.random.uniform(-2, 1, 16)
    x = net.conv("x", 16, 3)
    net.held["c0"] *= sizes[:, None, None, None].astype(np.float32)
    net.held["c1"] *= sizes.astype(np.float32)
    x = net.node("Relu", x)
    x = net.node("Relu", net.conv(x, 16, 16, group=16))
    net.held["c2"] /= sizes[:, None, None, None].astype(np.float32)
    return net, net.conv(x, 8, 16, kernel=1)


def end_db(graph: Graph, inputs: dict, *, equalised: bool) -> float:
    options = QuantiserOptions(equalise=equalised, correct=False, rescue=False)
    return quantise(graph, make_batches(graph, inputs), options).end_db


def test_equalised_channels_compute_the_same_with_less_noise() -> None:
    net, output = uneven_network()
    graph, inputs = prepare(net.graph(output)), net.inputs(8)
    points = find_points(graph, find_layers(graph))
    links = find_links(graph, points)
    assert len(links) == 2
    calibration = calibrate(graph, points, make_batches(graph, inputs))
    equal = equalise(graph, links, calibration.peaks)
    expected = output_of(graph, inputs)
    np.testing.assert_allclose(output_of(equal, inputs), expected, rtol=1e-3, atol=1e-4)
    peaks = calibrate(equal, points, make_batches(equal, inputs)).peaks[links[0].between]
    assert peaks.max() / peaks.min() < 1.01
    graph = net.graph(output)
    plain, better = (end_db(graph, inputs, equalised=changed) for changed in (False, True))
    assert better > plain + 6


def test_channels_behind_a_clip_are_not_equalised() -> None:
    net = Net(3, 10, 10)
    x = net.node("Clip", net.conv("x", 4, 3), net.constant(0), net.constant(6))
    graph = prepare(net.graph(net.conv(x, 4, 4)))
    assert find_links(graph, find_points(graph, find_layers(graph))) == ()


def test_channels_that_two_layers_read_are_not_equalised() -> None:
    net = Net(3, 10, 10)
    x = net.node("Relu", net.conv("x", 4, 3))
    graph = prepare(net.graph(net.node("Add", net.conv(x, 4, 4), net.conv(x, 4, 4))))
    assert find_links(graph, find_points(graph, find_layers(graph))) == ()


def test_a_sum_before_relu_narrows_its_operands() -> None:
    net = Net(3, 10, 10)
    x = net.node("Relu", net.conv("x", 4, 3))
    y = net.conv(x, 4, 4)
    net.held["c2"] *= np.float32(5)
    output = net.conv(net.node("Relu", net.node("Add", y, x)), 4, 4)
    graph, inputs = prepare(net.graph(output)), net.inputs(8)
    points = find_points(graph, find_layers(graph))
    calibration = calibrate(graph, points, make_batches(graph, inputs))
    narrowed = narrow(graph, points, calibration)
    np.testing.assert_array_equal(output_of(narrowed, inputs), output_of(graph, inputs))
    highest = calibration.histograms[points.layers[0].output].high
    clip = ops.Unary("Clip", (-highest, MAX_FLOAT32))
    (added,) = (node for node in narrowed.nodes if node.attributes == clip)
    assert added.inputs == (points.layers[1].output,)
    assert len(find_layers(narrowed)) == len(points.layers)


def test_a_sum_without_relu_narrows_nothing() -> None:
    net = Net(3, 10, 10)
    x = net.node("Relu", net.conv("x", 4, 3))
    output = net.conv(net.node("Add", net.conv(x, 4, 4), x), 4, 4)
    graph = prepare(net.graph(output))
    points = find_points(graph, find_layers(graph))
    calibration = calibrate(graph, points, make_batches(graph, net.inputs(4)))
    assert narrow(graph, points, calibration) is graph


@pytest.mark.parametrize(
    ("kind", "low", "high"), [("HardSwish", -3, 20), ("HardSigmoid", -2.5, 2.5), ("Elu", -4.6, 20)]
)
def test_the_flat_ends_of_a_function_are_found(kind: str, low: float, high: float) -> None:
    net = Net(3, 10, 10)
    output = net.conv(net.node(kind, net.conv("x", 4, 3)), 4, 4)
    graph = prepare(net.graph(output))
    table = find_layers(graph)[1]
    found = flat_ends(graph, table, -20, 20)
    assert found[0] == pytest.approx(low, abs=0.1)
    assert found[1] == pytest.approx(high, abs=0.1)


def test_a_square_of_mostly_small_values_keeps_them() -> None:
    """A clamp by an eighth of a step there would add to every value of a mean."""
    net = Net(3, 10, 10)
    x = net.node("Relu", net.conv("x", 4, 3))
    output = net.conv(net.node("Pow", x, net.constant(2)), 4, 4)
    graph, inputs = prepare(net.graph(output)), net.inputs(8)
    inputs = {name: array**5 for name, array in inputs.items()}
    points = find_points(graph, find_layers(graph))
    assert [layer.kind for layer in points.layers] == ["conv", "table", "conv"]
    calibration = calibrate(graph, points, make_batches(graph, inputs))
    highest = calibration.histograms[points.layers[0].output].high
    assert flat_ends(graph, points.layers[1], 0, highest)[0] > 0
    clips = [node.attributes for node in narrow(graph, points, calibration).nodes]
    lows = [one.parameters[0] for one in clips if isinstance(one, ops.Unary) and one.parameters]
    assert all(low == -MAX_FLOAT32 for low in lows)


def test_outputs_beside_later_layers_and_behind_masks_count() -> None:
    net = Net(3, 10, 10)
    first = net.conv("x", 3, 3)
    mask = net.node("Mul", net.conv(first, 3, 3), "x")
    model = net.model(mask)
    model.graph.output.append(helper.make_tensor_value_info(first, 1, [1, 3, 10, 10]))
    graph = prepare(import_onnx(model.SerializeToString()))
    points = find_points(graph, find_layers(graph))
    assert set(last_values(graph, points)) == {first, mask}


def test_corrected_biases_take_out_the_mean_error() -> None:
    net = Net(3, 10, 10)
    x = "x"
    for depth in (3, 8, 8, 8):
        x = net.node("Relu", net.conv(x, 8, depth, kernel=1))
    graph, inputs = net.graph(net.conv(x, 8, 8)), net.inputs(8)
    batches = make_batches(graph, inputs)
    options = QuantiserOptions(equalise=False, correct=True)
    corrected = quantise(graph, batches, options)
    plain = quantise(graph, batches, QuantiserOptions(equalise=False, correct=False))
    assert corrected.corrected
    assert corrected.end_db > plain.end_db
    expected = batches.output(graph).mean(axis=(0, 2, 3))
    errors = [
        np.abs(batches.output(each.graph).mean(axis=(0, 2, 3)) - expected).mean()
        for each in (corrected, plain)
    ]
    assert errors[0] < 0.5 * errors[1]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("got", "db"), [([3, -np.inf, 4], 200), ([3, 9, 4.5], 20), ([3, -np.inf, np.inf], -200)]
)
def test_infinities_have_no_power(got, db):
    noise = Noise()
    noise.add(np.array([3, -np.inf, 4]), np.array(got))
    assert noise.sqnr_db == pytest.approx(db)
