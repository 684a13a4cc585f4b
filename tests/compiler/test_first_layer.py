"""Windows that are gathered from an image, or slide along its rows, and what multiplies them."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler.accelerator.kernels import build_kernel
from tilewright.compiler.accelerator.kernels.first_layer import find_images
from tilewright.compiler.accelerator.sliding import Slide, Window, lane_channels
from tilewright.compiler.accelerator.weights import pack_weights, stored_bytes
from tilewright.compiler.graph import Graph, QConv, evaluate
from tilewright.compiler.pipeline import compile_module
from tilewright.compiler.placement import STRICT_PLACEMENT
from tilewright.compiler.tensor import Patches
from tilewright.compiler.tensor import evaluate as evaluate_kernel
from tilewright.errors import CompileError
from tilewright.isa.configuration import PRESETS, Configuration
from tilewright.isa.semantics import Machine

from .test_lowering import CONFIGURATIONS, activations, out_extent, single_node


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_gathered_windows_are_the_pixels_of_each_window_one_after_the_other(data):
    """Compared with a loop over every window, row and pixel."""
    rows, pixels = data.draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    row_step, column_step, dilation = data.draw(st.tuples(*[st.integers(1, 3)] * 3))
    channels, high, wide = data.draw(st.tuples(st.integers(1, 4), *[st.integers(1, 4)] * 2))
    run = pixels * channels
    patches = Patches(rows, run, pixels, row_step, column_step, dilation)
    height = (high - 1) * row_step + (rows - 1) * dilation + 1
    width = (wide - 1) * column_step + pixels
    generator = np.random.default_rng(high * 7 + wide)
    image = generator.integers(-128, 128, (2, height, width, channels)).astype(np.int8)
    lanes = rows * run + 3
    got = patches.gather(image, (2, high, wide, lanes))
    assert not got[..., rows * run :].any()
    for n, r, x, row, pixel in itertools.product(
        range(2), range(high), range(wide), range(rows), range(pixels)
    ):
        first = (row * pixels + pixel) * channels
        expected = image[n, r * row_step + row * dilation, x * column_step + pixel]
        np.testing.assert_array_equal(got[n, r, x, first : first + channels], expected)


@st.composite
def images(draw) -> tuple[Graph, int]:
    """Convolutions of few channels, at any stride, padded at any side, also of uint8 weights."""
    seed = draw(st.integers(0, 2**32 - 1))
    generator = np.random.default_rng(seed)
    kernel = draw(st.tuples(st.integers(1, 10), st.integers(1, 7)))
    strides = draw(st.tuples(st.integers(1, 5), st.integers(1, 5)))
    dilations = draw(st.sampled_from([(1, 1), (1, 1), (1, 1), (2, 1), (3, 1), (1, 2)]))
    pads = draw(st.tuples(*[st.integers(0, 3)] * 4))
    channels, channels_out = draw(st.tuples(st.integers(1, 8), st.integers(1, 20)))
    batch = draw(st.sampled_from([1, 1, 2]))
    least = [dilations[i] * (kernel[i] - 1) + 1 - pads[i] - pads[i + 2] for i in (0, 1)]
    height = draw(st.integers(max(1, least[0]), max(1, least[0]) + 9))
    width = draw(st.integers(max(1, least[1]), max(1, least[1]) + 9))
    out_shape = (
        batch,
        out_extent(height, kernel[0], strides[0], dilations[0], pads[0], pads[2]),
        out_extent(width, kernel[1], strides[1], dilations[1], pads[1], pads[3]),
        channels_out,
    )
    zero_point = int(generator.integers(-128, 128))
    attributes = QConv("conv", strides, pads, dilations, 1, zero_point, -7, -128, 127)
    lowest = draw(st.sampled_from([-128, -128, -100, 0]))
    weights = generator.integers(lowest, lowest + 256, (*kernel, channels, channels_out))
    constants = (
        weights.astype(np.int8 if lowest == -128 else np.int16),
        generator.integers(-(2**14), 2**14, channels_out).astype(np.int32),
        generator.uniform(0.0005, 0.01, channels_out).astype(np.float32),
    )
    return single_node(attributes, [(batch, height, width, channels)], out_shape, constants), seed


def gathers(graph: Graph, configuration: Configuration) -> bool:
    """Whether the input lies in memory as an image; if so, the kernel is evaluated too."""
    found = find_images(graph, graph.nodes, ["in0"], configuration)
    if not found:
        return False
    inputs = activations(graph, 1)
    top, left, bottom, right = found["in0"].border
    border = ((0, 0), (top, bottom), (left, right), (0, 0))
    stored = np.pad(inputs["in0"], border, constant_values=found["in0"].fill)
    kernel = build_kernel(graph.nodes[0], graph, configuration, found)
    (name,) = kernel.inputs
    tensor = kernel.tensors[name]
    assert tensor.patches is not None
    got = evaluate_kernel(kernel, {name: tensor.patches.gather(stored, tensor.shape)})
    expected = evaluate(graph, inputs)["out"]
    got = got.reshape(*expected.shape[:3], -1)  # shifted weights have an axis of their own
    np.testing.assert_array_equal(got[..., : expected.shape[3]], expected)
    return True


@pytest.mark.parametrize("name", CONFIGURATIONS)
@pytest.mark.parametrize("changes", [{}, {"act_depth": 64, "wgt_depth": 64, "acc_depth": 32}])
def test_first_layers_keep_their_meaning(name, changes):
    configuration = PRESETS[name].replace(name=f"{name}-first", **changes)
    gathered = 0

    @settings(max_examples=25, deadline=None)
    @given(case=images())
    def keep_their_meaning(case):
        nonlocal gathered
        graph, seed = case
        inputs = activations(graph, seed)
        try:
            (segment,) = compile_module(graph, configuration, placement=STRICT_PLACEMENT).segments
        except CompileError as refusal:
            # Taps are not split: more of them than weights fit are refused.
            if not changes or "no tile fits" not in str(refusal):
                raise
            return
        gathered += gathers(graph, configuration)
        window = segment.image(inputs)
        Machine(configuration, window).run(segment.program)
        np.testing.assert_array_equal(
            segment.outputs[0].read(window), evaluate(graph, inputs)["out"]
        )

    keep_their_meaning()
    assert gathered > 0


@pytest.mark.parametrize(
    ("kernel", "strides", "dilation", "outputs", "rows"),
    [
        ((10, 4), (2, 2), 1, 64, 4),  # 16 bytes fill the lanes; three rows would be loaded thrice
        ((10, 4), (2, 2), 1, 16, 4),  # two rows would be loaded faster, but take five steps
        ((10, 4), (1, 1), 1, 64, 4),
        ((10, 4), (2, 2), 2, 64, 4),
        ((5, 4), (2, 1), 1, 64, 5),  # four rows would save less than half of the loads
        ((5, 4), (1, 1), 1, 16, 1),
        ((3, 3), (3, 1), 1, 64, 3),  # windows share nothing
    ],
)
@pytest.mark.parametrize("lowest", [-128, 0])
def test_rows_of_windows_that_share_them_are_gathered_once(
    kernel, strides, dilation, outputs, rows, lowest
):
    """The last tap may reach rows that have no weights, also where uint8 weights are shifted."""
    generator = np.random.default_rng(5)
    span = (kernel[0] - 1) * dilation + 1
    attributes = QConv("conv", strides, (1, 0, 0, 0), (dilation, 1), 1, 3, -7, -128, 127)
    weights = generator.integers(lowest, lowest + 256, (*kernel, 1, outputs))
    constants = (
        weights.astype(np.int8 if lowest == -128 else np.int16),
        generator.integers(-(2**14), 2**14, outputs).astype(np.int32),
        generator.uniform(0.0005, 0.002, outputs).astype(np.float32),
    )
    out = (1, (31 - span) // strides[0] + 1, (12 - kernel[1]) // strides[1] + 1, outputs)
    graph = single_node(attributes, [(1, 30, 12, 1)], out, constants)
    machine = PRESETS["16x16"]
    assert find_images(graph, graph.nodes, ["in0"], machine)["in0"].rows == rows
    assert gathers(graph, machine)
    (segment,) = compile_module(graph, machine, placement=STRICT_PLACEMENT).segments
    inputs = activations(graph, 3)
    window = segment.image(inputs)
    Machine(machine, window).run(segment.program)
    np.testing.assert_array_equal(segment.outputs[0].read(window), evaluate(graph, inputs)["out"])


@settings(max_examples=300, deadline=None)
@given(
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 7)),
    dilation=st.integers(1, 3),
    taps=st.integers(1, 8),
    name=st.sampled_from(CONFIGURATIONS),
)
def test_packed_taps_multiply_each_pixel_of_a_window_by_its_weight_once(
    kernel, dilation, taps, name
):
    """Summed over groups, tap `j` of the newest pixel `p` meets pixel `p - j`."""
    configuration = PRESETS[name]
    taps = min(taps, configuration.lanes_in)
    configuration = configuration.replace(name="taps", depthwise_taps=taps)
    span = (kernel[1] - 1) * dilation + 1
    slide = Slide("x", "kx", 1, dilation, span)
    window = Window(slide, None, 1, 1)
    block = lane_channels(configuration)
    weights = np.random.default_rng(taps).integers(1, 128, (*kernel, 2 * block)).astype(np.int8)
    count, step = slide.groups(taps)
    used = slide.used(taps)
    assert (count - 1) * step + used == span
    assert step <= used
    stored = stored_bytes(window, configuration)
    packed = np.frombuffer(pack_weights(weights, window, configuration), np.int8)
    packed = np.pad(packed.reshape(-1, stored), ((0, 0), (0, configuration.tile_bytes - stored)))
    packed = packed.reshape(2, kernel[0], count, configuration.lanes_in, configuration.lanes_out)
    assert not packed[:, :, :, used:].any()
    assert not packed[..., block:].any()
    meets = np.zeros((kernel[0], span, 2 * block), int)
    for half, group, tap in itertools.product(range(2), range(count), range(used)):
        newest = group * step + used - 1
        meets[:, newest - tap, half * block : (half + 1) * block] += packed[
            half, :, group, tap, :block
        ]
    np.testing.assert_array_equal(meets[:, ::dilation], weights)
    assert not np.delete(meets, np.arange(0, span, dilation), axis=1).any()


def test_taps_of_channels_that_are_no_whole_blocks_are_refused():
    weights = np.zeros((1, 1, 6), np.int8)
    with pytest.raises(CompileError) as caught:
        pack_weights(weights, Window(Slide("x", "kx", 1, 1, 1), None, 1, 1), PRESETS["4x4"])
    assert str(caught.value) == "6 channels cannot be cut into whole blocks of 4"


def test_a_window_as_wide_as_the_taps_is_one_group():
    assert Slide("x", "kx", 1, 1, 5).groups(5) == (1, 0)
    assert Slide("x", "kx", 1, 1, 7).groups(5) == (2, 2)
    assert Slide("x", "kx", 1, 2, 13).groups(5) == (3, 4)
    assert Slide("x", "kx", 2, 1, 5).steps(4, 5) == 11
