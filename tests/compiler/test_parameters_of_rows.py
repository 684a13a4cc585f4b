"""Parameters of a norm stay in PARAM while those of the product before it are loaded."""

import numpy as np
import pytest

from tests.compiler.attention_networks import Attention, assert_one_program, quantised
from tests.compiler.onnx_models import value
from tests.networks.small_transformers import SmallWriter, draw
from tilewright.compiler.accelerator.scratchpads import Scratchpads
from tilewright.compiler.graph import evaluate
from tilewright.compiler.importers import import_onnx
from tilewright.isa.configuration import PRESETS, Configuration, Memory

TOKENS, WIDTH, HIDDEN = 197, 192, 768
MACHINE = PRESETS["16x16"].replace(
    name="rows-16x16", row_statistics="all", transposed_weights="int8"
)


def check(hidden: int, machine: Configuration) -> None:
    """A product of `hidden` inputs, a residual sum, a norm and another product."""
    writer = SmallWriter(Attention(1, 1, WIDTH, TOKENS, "none", "none"))
    inner = "x"
    if hidden != WIDTH:
        inner = writer.emit("Gelu", writer.linear("x", hidden))
    rows = writer.emit("Add", "x", writer.linear(inner, WIDTH, hidden))
    y = writer.linear(writer.layer_norm(rows), WIDTH)
    proto = writer.model(y, value("x", np.float32, (1, TOKENS, WIDTH)))
    graph = import_onnx(proto.SerializeToString())
    module = quantised(graph, draw(proto, 2, 5), machine)
    given = {name: array[0] for name, array in draw(proto, 1, 9).items()}
    (in_float,) = evaluate(graph, given).values()
    assert_one_program(module, given, in_float)


def test_a_norm_behind_a_product_has_room_for_both_parameters():
    """The tile that fits either of them alone replaced one before its use."""
    check(WIDTH, MACHINE.replace(name="few", param_depth=64))


@pytest.mark.parametrize("seed", [2, 8])
def test_what_earlier_kernels_left_takes_no_room_from_a_norm(seed, monkeypatch):
    """Parameters of earlier kernels fragment PARAM, as in DeiT-Tiny."""
    empty = Scratchpads.of

    def used(configuration: Configuration) -> Scratchpads:
        pads, chance = empty(configuration), np.random.default_rng(seed)
        arena = pads.arenas[Memory.PARAM]
        for _ in range(40):
            size = int(chance.integers(1, 30))
            low = int(chance.integers(0, arena.size - size + 1))
            arena.take(None, size, (low, low + size))
        return pads

    monkeypatch.setattr(Scratchpads, "of", staticmethod(used))
    check(HIDDEN, MACHINE)
