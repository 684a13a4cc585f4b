"""Quantised layers on the host, bit for bit what the accelerator's definition says."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler.cpu import LEVELS, Convolution
from tilewright.compiler.cpu.kernels.byte_winograd import ByteWinogradPlanner
from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import (
    Builder,
    Output,
    TensorType,
    Value,
    evaluate,
    is_accelerated,
)
from tilewright.compiler.graph.macs import all_macs_of
from tilewright.compiler.graph.operators import (
    QAdd,
    QAvgPool,
    QBlend,
    QLut,
    QMatMul,
    QMaxPool,
)
from tilewright.flows.execution.samples import read_samples

from ...processor import levels, target_at
from .agreement import is_guarded, run_kernels, selected
from .integer_graphs import assert_same, of_layer, qconv, seeds, small

MODELS = Path(__file__).parents[4] / "shared" / "models"
NETWORKS = {
    "kws_dscnn/kws_int8_qdq": 11,
    "ic_resnet8/ic_int8_qdq": 14,
    "ad01_autoencoder/ad01_int8_qdq": 10,
}

points = st.integers(-128, 127)


@st.composite
def limits(draw) -> dict[str, int]:
    """Zero points and clamps, most as networks have them."""
    found = {"zero_point_x": draw(points), "zero_point_y": draw(points)}
    if draw(st.booleans()):
        found["low"], found["high"] = draw(points), draw(points)
    return found


def scales_for(random: np.random.Generator, channels: int, taps: int) -> np.ndarray:
    """Factors that spread sums over int8, some of which make every sum a tie or an end."""
    spread = 40 / (60 * 70 * np.sqrt(taps)) * random.uniform(0.3, 3, channels)
    powers = 2.0 ** np.round(np.log2(spread))
    wild = 2.0 ** random.integers(-30, 6, channels)
    kind = random.integers(0, 8, channels)
    return np.where(kind < 5, spread, np.where(kind < 7, powers, wild)).astype(np.float32)


def constants_for(
    shape: tuple[int, int, int, int], zero_point_x: int, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights, the bias with the zero point, and scales."""
    random = np.random.default_rng(seed)
    w = random.integers(-128, 128, shape).astype(np.int8)
    sums = w.astype(np.int64).sum(axis=(0, 1, 2))
    bias = random.integers(-3000, 3000, shape[3]) - zero_point_x * sums
    taps = shape[0] * shape[1] * shape[2]
    return w, bias.astype(np.int32), scales_for(random, shape[3], taps)


@st.composite
def windows(draw) -> dict[str, tuple[int, ...]]:
    """Strides, pads and dilations."""
    pair = st.tuples(st.integers(1, 2), st.integers(1, 2))
    pads = st.tuples(*[st.integers(0, 2)] * 4)
    return {"strides": draw(pair), "pads": draw(pads), "dilations": draw(pair)}


@given(st.data())
@settings(max_examples=20)
def test_convolutions_have_the_bits_of_the_definition(data) -> None:
    kernel = (data.draw(small), data.draw(small))
    depth, channels = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 70))
    geometry, q = data.draw(windows()), data.draw(limits())
    extent = st.integers(5, 12)
    image = (data.draw(st.integers(1, 2)), data.draw(extent), data.draw(extent), depth)
    seed = data.draw(seeds)
    constants = constants_for((*kernel, depth, channels), q["zero_point_x"], seed)
    graph = of_layer(qconv(**geometry, **q), [image], *constants)
    assert_same(graph, data.draw(levels), seed)


@pytest.mark.slow
@given(st.data())
@settings(max_examples=10)
def test_windows_done_with_fewer_products_have_the_bits_of_the_definition(data) -> None:
    """Byte for byte the same as directly, residual and limits included, on every feature set."""
    level, q, seed = data.draw(levels), data.draw(limits()), data.draw(seeds)
    depth, channels = data.draw(st.integers(60, 70)), data.draw(st.sampled_from([64, 70]))
    extent = st.sampled_from([12, 15, 16])
    image = (1, data.draw(extent), data.draw(extent), depth)
    constants = constants_for((3, 3, depth, channels), q["zero_point_x"], seed)
    graph = of_layer(qconv(pads=(1, 1, 1, 1), **q), [image], *constants)
    (kernel,) = selected(graph, target_at(level))
    layer = kernel.description
    assert isinstance(layer, Convolution)
    fewer = isinstance(layer.planner(target_at(level)), ByteWinogradPlanner)
    assert fewer == (layer.narrow and not is_guarded(layer) and level != "amx")
    assert_same(graph, level, seed)


@given(st.data())
@settings(max_examples=15)
def test_depthwise_convolutions_have_the_bits_of_the_definition(data) -> None:
    kernel = (data.draw(small), data.draw(small))
    channels = data.draw(st.integers(2, 40))
    geometry, q = data.draw(windows()), data.draw(limits())
    extent = st.integers(5, 12)
    image = (data.draw(st.integers(1, 2)), data.draw(extent), data.draw(extent), channels)
    seed = data.draw(seeds)
    constants = constants_for((*kernel, 1, channels), q["zero_point_x"], seed)
    graph = of_layer(qconv(channels, **geometry, **q), [image], *constants)
    assert_same(graph, data.draw(levels), seed)


@given(st.data())
@settings(max_examples=15)
def test_grouped_convolutions_have_the_bits_of_the_definition(data) -> None:
    kernel, groups = (data.draw(small), data.draw(small)), data.draw(st.integers(2, 6))
    depth, part = data.draw(st.integers(1, 6)), data.draw(st.sampled_from([1, 2, 3, 4, 16, 33]))
    geometry, q = data.draw(windows()), data.draw(limits())
    extent = st.integers(5, 12)
    image = (data.draw(small), data.draw(extent), data.draw(extent), groups * depth)
    seed = data.draw(seeds)
    constants = constants_for((*kernel, depth, groups * part), q["zero_point_x"], seed)
    graph = of_layer(qconv(groups, **geometry, **q), [image], *constants)
    assert_same(graph, data.draw(levels), seed)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("shape", [(1, 1, 1, 130), (3, 1, 1, 64), (2, 3, 4, 5)])
def test_dense_layers_are_windows_of_the_whole_image(shape: tuple[int, ...], level: str) -> None:
    samples, rows, columns, depth = shape
    constants = constants_for((rows, columns, depth, 33), 9, 4)
    graph = of_layer(qconv(zero_point_x=9), [(samples, rows, columns, depth)], *constants)
    assert_same(graph, level)
    (kernel,) = selected(graph, target_at(level))
    assert kernel.description.operands["x"].shape == (samples, rows * columns * depth)


@st.composite
def additions(draw) -> QAdd:
    """Residual adds as the compiler fits them: multipliers of up to 15 bits, a scale to match."""
    multipliers = (draw(st.integers(-(1 << 15), 1 << 15)), draw(st.integers(1, 1 << 15)))
    scale = draw(st.floats(0.2, 3)) / max(map(abs, multipliers))
    q = draw(limits())
    q["zero_point_y"] = q["zero_point_y"] // 4
    del q["zero_point_x"]
    return QAdd(multipliers, draw(st.integers(-(1 << 20), 1 << 20)), scale, **q)


@given(additions(), st.integers(1, 300), seeds, levels)
@settings(max_examples=15)
def test_residual_adds_have_the_bits_of_the_definition(layer, channels, seed, level) -> None:
    shape = (1, 3, 5, channels)
    assert_same(of_layer(layer, [shape, shape]), level, seed)


@pytest.mark.parametrize("level", LEVELS)
def test_every_pair_of_bytes_is_added_right(level: str) -> None:
    every = np.arange(-128, 128).astype(np.int8)
    a, b = (part.reshape(1, 256, 256, 1) for part in np.meshgrid(every, every))
    graph = of_layer(QAdd((3, 5), 1, 0.125, -3), [a.shape, b.shape])
    got = run_kernels(graph, {"a": a, "b": b}, target_at(level))[graph.outputs[0].value]
    np.testing.assert_array_equal(got, evaluate(graph, {"a": a, "b": b})["out"])


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("place", [0, 1])
def test_a_constant_is_added_in_machine_code(place: int, level: str) -> None:
    """Four sums in NumPy took two thirds of the time of a small BERT in QDQ form."""
    builder = Builder("sum", (Value("x", TensorType("int8", (1, 2, 3, 40))),))
    known = np.arange(-120, 120).astype(np.int8).reshape(1, 2, 3, 40)
    operands = ["x", builder.constant(known, "position")]
    operands = operands if place == 0 else operands[::-1]
    total = builder.emit(QAdd((700, -311), 40, 1 / 900, 4), operands)
    graph = builder.graph([Output("out", total)])
    assert_same(graph, level)
    assert len(selected(graph, target_at(level))) == 1


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("low", [False, True])
@pytest.mark.parametrize(
    ("multiplier", "zero_point"), [(1, -128), (255, 0), (16384, 3), (32767, -128), (32767, 127)]
)
def test_states_have_the_bits_of_the_definition(multiplier, zero_point, low, level) -> None:
    """152 of them in NumPy took nearly all of the time of GTCRN in bytes."""
    layer = QBlend(low, multiplier, zero_point)
    assert_same(of_layer(layer, [(2, 3, 5, 67)] * 4), level)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("low", [False, True])
def test_a_first_state_is_a_constant_of_the_kernel(low: bool, level: str) -> None:
    """Cells begin with a state of zero, two constant bytes in each element."""
    shape = (1, 2, 3, 20)
    values = [Value(name, TensorType("int8", shape)) for name in ("gate", "increment")]
    builder = Builder("first", values)
    state = [builder.constant(np.full(shape, byte, np.int8)) for byte in (1, -128)]
    made = builder.emit(QBlend(low, 700, 5), [*state, "gate", "increment"])
    assert_same(builder.graph([Output("out", made)]), level)


def test_sums_that_float32_does_not_hold_are_left_to_the_definition() -> None:
    for multipliers, kernels in (((1 << 16, (1 << 16) - 1), 1), ((1 << 16, 1 << 16), 0)):
        graph = of_layer(QAdd(multipliers, 0, 0.001, 0), [(1, 2, 2, 8)] * 2)
        assert len(selected(graph)) == kernels


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize(("channels", "groups"), [(3, 1), (40, 1), (40, 2), (6, 6)])
def test_a_residual_is_added_in_the_layer_before(
    channels: int, groups: int, place: int, level: str
) -> None:
    constants = constants_for((3, 3, 6 // groups, channels), 5, 8)
    builder = Builder("block", [Value("a", TensorType("int8", (1, 7, 9, 6)))])
    builder.input(Value("b", TensorType("int8", (1, 7, 9, channels))))
    layer = qconv(groups, pads=(1, 1, 1, 1), zero_point_x=5, zero_point_y=-9)
    own = builder.emit(layer, ["a", *map(builder.constant, constants)])
    operands = [own, "b"] if place == 0 else ["b", own]
    total = builder.emit(QAdd((700, -311), 40, 1 / 900, 4, low=-100), operands)
    assert_same(builder.graph([Output("out", total)]), level)


def test_what_others_see_is_not_added_in_the_layer_before() -> None:
    constants = constants_for((1, 1, 8, 8), 0, 1)
    builder = Builder("twice", [Value("a", TensorType("int8", (1, 4, 4, 8)))])
    own = builder.emit(qconv(), ["a", *map(builder.constant, constants)])
    total = builder.emit(QAdd((1, 1), 0, 0.5, 0), [own, own])
    assert_same(builder.graph([Output("out", total)]), "sse2", kernels=2)
    both = builder.emit(QAdd((1, 1), 0, 0.5, 0), [own, "a"])
    graph = builder.graph([Output("out", both), Output("own", own)])
    assert [len(kernel.nodes) for kernel in selected(graph)] == [1, 1, 1]


@given(st.data())
@settings(max_examples=15)
def test_pools_have_the_bits_of_the_definition(data) -> None:
    kernel = (data.draw(st.integers(1, 5)), data.draw(st.integers(1, 5)))
    geometry, q = data.draw(windows()), data.draw(limits())
    extent = st.integers(9, 12)
    image = (1, data.draw(extent), data.draw(extent), data.draw(st.integers(1, 140)))
    if data.draw(st.booleans()):
        del q["zero_point_x"], q["zero_point_y"]
        layer = QMaxPool(kernel, **geometry, **q)
    else:
        del geometry["dilations"]
        scale = data.draw(st.sampled_from([1.0, 0.5, 1.5, 0.99])) / (kernel[0] * kernel[1])
        constant = data.draw(st.integers(-1000, 1000))
        layer = QAvgPool(kernel, **geometry, constant=constant, scale=scale, **q)
    assert_same(of_layer(layer, [image]), data.draw(levels), data.draw(seeds))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("size", [1, 256, 70001])
def test_tables_are_looked_up(size: int, level: str) -> None:
    table = np.random.default_rng(2).permutation(256).astype(np.uint8).view(np.int8)
    assert_same(of_layer(QLut(), [(1, 1, 1, size)], table), level)


def test_weights_that_are_computed_are_left_to_the_definition() -> None:
    _, bias, scale = constants_for((1, 1, 4, 4), 0, 1)
    builder = Builder("computed", [Value("a", TensorType("int8", (1, 2, 2, 4)))])
    builder.input(Value("w", TensorType("int8", (1, 1, 4, 4))))
    made = builder.emit(qconv(), ["a", "w", builder.constant(bias), builder.constant(scale)])
    assert selected(builder.graph([Output("out", made)])) == ()


@given(st.data())
@settings(max_examples=15)
def test_products_have_the_bits_of_the_definition(data) -> None:
    shared, rows = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 20))
    inner = data.draw(st.one_of(st.integers(1, 20), st.sampled_from([32, 64])))
    columns = data.draw(st.integers(1, 40))
    joined = data.draw(st.tuples(*[st.booleans()] * 3))
    transposed = data.draw(st.booleans())
    repeats = 1 if joined[0] or joined[2] else data.draw(st.integers(1, 3))
    heads = shared * repeats
    samples = data.draw(st.integers(1, 2))
    last = (columns, inner) if transposed else (inner, columns)
    shapes = [
        (samples, 1, first, own * second) if together else (samples, own, first, second)
        for together, own, (first, second) in zip(
            joined, (heads, shared), ((rows, inner), last), strict=False
        )
    ]
    q = data.draw(limits())
    points = (q.pop("zero_point_x"), data.draw(st.sampled_from([0, -128, 7, 127])))
    scale = 1 / (60 * np.sqrt(inner))
    if repeats == 1 and data.draw(st.booleans()):
        scale = tuple(scale / (1 + head) for head in range(heads))
    places = {"transposed": transposed, "joined": joined, "repeats": repeats}
    layer = QMatMul(heads, scale, *points, **q, **places)
    assert_same(of_layer(layer, shapes), data.draw(levels), data.draw(seeds))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("inner", [6, 16])
@pytest.mark.parametrize("zero_points", [(0, 0), (5, -128), (-128, 127)])
def test_zero_points_are_taken_out_of_products(zero_points, inner: int, level: str) -> None:
    first, second = zero_points
    layer = QMatMul(2, 1 / (200 * inner), first, second, 3)
    graph = of_layer(layer, [(1, 2, 5, inner), (1, 2, inner, 37)])
    assert len(np.unique(assert_same(graph, level))) > 20


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("scale", [0.01, (0.01, 0.002)])
@pytest.mark.parametrize("transposed", [False, True])
def test_heads_side_by_side_need_no_whole_groups(transposed, scale, level: str) -> None:
    """Channel attention (EdgeNeXt) multiplies 42 channels of each head."""
    layer = QMatMul(2, scale, 0, 3, 0, transposed, (True, True, True))
    second = (1, 1, 13, 84) if transposed else (1, 1, 42, 26)
    graph = of_layer(layer, [(1, 1, 9, 84), second])
    assert len(np.unique(assert_same(graph, level))) > 20


@pytest.mark.slow
@pytest.mark.skipif(not MODELS.is_dir(), reason=f"no shared models at `{MODELS}`")
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_have_the_bits_of_the_definition(name: str, level: str) -> None:
    model = MODELS / f"{name}.onnx"
    graph = import_model(model)
    (sample, *_) = read_samples(model.with_suffix(".npz"), graph).first(1)
    got, expected = run_kernels(graph, sample, target_at(level)), evaluate(graph, sample)
    for output in graph.outputs:
        np.testing.assert_array_equal(got[output.value], expected[output.name])
    taken = [node for kernel in selected(graph) for node in kernel.nodes]
    quantised = [node for node in graph.nodes if is_accelerated(node)]
    assert len(quantised) == NETWORKS[name]
    assert all(node in taken for node in quantised)


@pytest.mark.parametrize("pixels", [1, 3])
def test_layers_without_samples_are_no_kernels(pixels: int) -> None:
    constants = np.ones((1, 1, 8, 8), np.int8), np.ones(8, np.int32), np.ones(8, np.float32)
    assert selected(of_layer(qconv(), [(2, pixels, pixels, 8)], *constants))
    assert not selected(of_layer(qconv(), [(0, pixels, pixels, 8)], *constants))


def test_spare_products_do_not_count() -> None:
    operands = np.ones((3, 3, 20, 8), np.int8), np.zeros(8, np.int32), np.ones(8, np.float32)
    whole, part = (of_layer(qconv(spare=spare), [(1, 6, 6, 20)], *operands) for spare in (0, 36))
    assert all_macs_of(whole, whole.nodes) == 4 * 4 * 8 * 9 * 20
    assert all_macs_of(part, part.nodes) == 4 * 4 * 8 * 9 * 16
