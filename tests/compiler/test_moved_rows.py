"""Rows and columns in another order, and rows at another pitch, on the accelerator."""

import numpy as np
import pytest

from tilewright.compiler.graph import (
    Builder,
    Graph,
    Output,
    QMaxPool,
    Quantisation,
    TensorType,
    Value,
    evaluate,
)  # fmt: skip
from tilewright.compiler.graph import operators as ops
from tilewright.compiler.passes.keep_rows import keep_rows, rows_in_place
from tilewright.compiler.passes.masks import excludes
from tilewright.compiler.passes.move_pixels import move_pixels
from tilewright.compiler.passes.plain_attention import plain_attention_to_quantise
from tilewright.compiler.pipeline import compile_module
from tilewright.compiler.placement import Placement
from tilewright.isa.configuration import PRESETS
from tilewright.runtime.devices import open_device
from tilewright.runtime.session import Session

MACHINE = PRESETS["8x8"].replace(name="rows-8x8", row_statistics="all")
SAME = QMaxPool((1, 1), (1, 1), (0, 0, 0, 0))


def between_layers(given: tuple[int, ...], move) -> Graph:
    """A movement between two layers that leave values as they are."""
    builder = Builder("moved", [Value("x", TensorType("int8", given, Quantisation(0.1, 2)))])
    moved = move(builder, builder.emit(SAME, ["x"]))
    return builder.graph([Output("y", builder.emit(SAME, [moved]))])


def check(graph: Graph) -> None:
    """The movement is the accelerator's, and moves the same elements."""
    found = rows_in_place(move_pixels(graph))
    assert all(node.op.startswith("q") for node in found.nodes), [n.op for n in found.nodes]
    chance = np.random.default_rng(1)
    x = chance.integers(-128, 128, graph.inputs[0].type.shape).astype(np.int8)
    expected = evaluate(graph, {"x": x})["y"]
    assert np.array_equal(evaluate(found, {"x": x})["y"], expected)
    module = compile_module(graph, MACHINE)
    assert len(module.segments) == 1
    run = Session(module, open_device("sim", MACHINE)).run({"x": x})
    assert np.array_equal(run.outputs["y"], expected)


@pytest.mark.parametrize("seed", range(12))
def test_axes_of_pixels_move_in_any_order(seed):
    chance = np.random.default_rng(seed)
    sizes = *chance.integers(2, 4, chance.integers(2, 5)).tolist(), int(chance.integers(4, 12))
    order = (*chance.permutation(len(sizes) - 1).tolist(), len(sizes) - 1)
    if seed % 3 == 2:  # rows and channels change places
        order = (*order[:-2], order[-1], order[-2])
    moved = [sizes[axis] for axis in order]
    outer = int(np.prod(moved[:-2]))
    given = 1, int(np.prod(sizes[:-2])), sizes[-2], sizes[-1]

    def move(builder: Builder, x: str) -> str:
        turned = builder.emit(ops.Transpose(order), [builder.emit(ops.Reshape(sizes), [x])])
        return builder.emit(ops.Reshape((outer, 1, moved[-2], moved[-1])), [turned])

    check(between_layers(given, move))


RANK_TWO = TensorType("int8", (6, 8), Quantisation(0.1, 2))


def table(builder: Builder, x: str) -> str:
    values = np.arange(256)[::-1].astype(np.uint8).view(np.int8)
    return builder.emit(ops.QLut(), [x, builder.constant(values.copy(), "table")])


@pytest.mark.parametrize("machine", [PRESETS["8x8"], MACHINE], ids=["8x8", "with statistics"])
def test_rows_that_are_images_of_their_own_in_between_do_not_end_a_program(machine):
    """Exporters that flatten tokens for dense layers; the sum reads them as one image."""

    def move(builder: Builder, x: str) -> str:
        apart = builder.emit(ops.Reshape((6, 1, 1, 8)), [x])
        together = builder.emit(ops.Reshape((1, 1, 6, 8)), [table(builder, apart)])
        return builder.emit(ops.QAdd((3, 5), -4, 0.125, 2), [x, together])

    graph = between_layers((1, 1, 6, 8), move)
    module = compile_module(graph, machine)
    assert len(module.segments) == 1
    assert {node.op for node in module.graph.nodes} == {"qmaxpool", "qlut", "qadd"}
    x = np.random.default_rng(2).integers(-128, 128, (1, 1, 6, 8)).astype(np.int8)
    run = Session(module, open_device("sim", machine)).run({"x": x})
    assert np.array_equal(run.outputs["y"], evaluate(graph, {"x": x})["y"])


@pytest.mark.parametrize("keep_all", [False, True])
@pytest.mark.parametrize("machine", [PRESETS["8x8"], MACHINE], ids=["8x8", "with statistics"])
def test_pixels_of_a_host_layer_that_become_channels_are_copied_together(machine, keep_all):
    """Each lies beside padding lanes in memory, so they pass a place without padding."""
    graph = between_layers(
        (1, 2, 4, 1), lambda builder, x: builder.emit(ops.Reshape((1, 1, 1, 8)), [x])
    )
    first, *_ = graph.nodes
    module = compile_module(
        graph, machine, placement=Placement(forced=((first.name, "host"),)), keep_all=keep_all
    )
    (segment,) = module.segments
    assert first.output.name in [one.name for one in segment.inputs]
    x = np.random.default_rng(2).integers(-128, 128, (1, 2, 4, 1)).astype(np.int8)
    run = Session(module, open_device("sim", machine)).run({"x": x})
    assert np.array_equal(run.outputs["y"], evaluate(graph, {"x": x})["y"])


@pytest.mark.parametrize("given", [(1, 1, 6, 8), (6, 1, 1, 8)])
def test_rows_of_the_host_stay_in_the_image_that_a_layer_reads(given):
    builder = Builder("rows", [Value("x", RANK_TWO)])
    image = builder.emit(ops.Reshape(given), ["x"])
    graph = builder.graph([Output("y", table(builder, image))])
    made = {node.op: node for node in keep_rows(graph).nodes}["qlut"]
    assert made.output.type.shape == given


@pytest.mark.parametrize("axes", [(1,), (2,), (1, 2), (2, 1)])
def test_rolled_pixels_are_slices(axes):
    def move(builder: Builder, x: str) -> str:
        for axis in axes:
            places = builder.constant(np.roll(np.arange(6), 2 + axis), f"places{axis}")
            x = builder.emit(ops.Gather(axis), [x, places])
        return x

    check(between_layers((1, 6, 6, 9), move))


TOKENS, CHANNELS = 5, 4
FORWARD = np.arange(TOKENS) - np.arange(TOKENS)[:, None] + TOKENS - 1


def product(move) -> Graph:
    builder = Builder("shifted", [Value("x", TensorType("float32", (2, TOKENS, CHANNELS)))])
    keys = np.random.default_rng(3).normal(0, 1, (2, CHANNELS, 2 * TOKENS - 1))
    held = builder.constant(keys.astype(np.float32), "keys")
    moved = move(builder, builder.emit(ops.MatMul(), ["x", held]))
    return builder.graph([Output("y", builder.emit(ops.Unary("Tanh"), [moved]))])


def gathered(places: np.ndarray):
    whole = np.ascontiguousarray(np.broadcast_to(places, (2, *places.shape)), np.int64)

    def move(builder: Builder, x: str) -> str:
        return builder.emit(ops.GatherElements(2), [x, builder.constant(whole, "places")])

    return move


@pytest.mark.parametrize(
    "places",
    [FORWARD, FORWARD[:, ::-1][::-1], 2 * TOKENS - 2 - FORWARD, np.minimum(FORWARD, 6),
     np.abs(FORWARD - 4), FORWARD[:, :3]],
    ids=["forward", "turned", "backward", "limited", "both ways", "fewer keys"],
)  # fmt: skip
def test_scores_gathered_by_distance_are_rows_at_a_pitch(places):
    graph = product(gathered(places))
    found = plain_attention_to_quantise(graph)
    assert "gather_elements" not in [node.op for node in found.nodes]
    x = np.random.default_rng(4).normal(0, 1, (2, TOKENS, CHANNELS)).astype(np.float32)
    expected = evaluate(graph, {"x": x})["y"]
    np.testing.assert_allclose(evaluate(found, {"x": x})["y"], expected, atol=1e-6)


def test_scores_gathered_otherwise_stay():
    places = FORWARD.copy()
    places[2, 3] = 0
    found = plain_attention_to_quantise(product(gathered(places)))
    assert "gather_elements" in [node.op for node in found.nodes]


@pytest.mark.parametrize(
    ("data", "is_mask"),
    [([0, -100], True), ([0, -np.inf], True), ([0.5, -100], False), ([0, -60, -100], False),
     ([0, -60], False), ([0, -50, -2000], False)],
)  # fmt: skip
def test_constants_that_exclude_scores(data, is_mask):
    builder = Builder("mask")
    name = builder.constant(np.array(data, np.float32), "mask")
    assert excludes(builder.graph([Output("y", name)]), name) == is_mask
