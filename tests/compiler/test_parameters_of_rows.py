"""Parameters of a norm stay in PARAM while those of the product before it are loaded."""

import numpy as np

from tests.compiler.attention_networks import Attention, assert_one_program, quantised
from tests.compiler.onnx_models import value
from tests.networks.small_transformers import SmallWriter, draw
from tilewright.compiler.graph import evaluate
from tilewright.compiler.importers import import_onnx
from tilewright.isa.configuration import PRESETS

TOKENS, WIDTH = 197, 192


def test_a_norm_behind_a_product_has_room_for_both_parameters():
    """The tile that fits either of them alone replaced one before its use, as in DeiT-Tiny."""
    writer = SmallWriter(Attention(1, 1, WIDTH, TOKENS, "none", "none"))
    rows = writer.layer_norm(writer.emit("Add", "x", writer.linear("x", WIDTH)))
    proto = writer.model(writer.linear(rows, WIDTH), value("x", np.float32, (1, TOKENS, WIDTH)))
    machine = PRESETS["16x16"].replace(name="few", row_statistics="all", param_depth=64)
    graph = import_onnx(proto.SerializeToString())
    module = quantised(graph, draw(proto, 4, 5), machine)
    given = {name: array[0] for name, array in draw(proto, 1, 9).items()}
    (in_float,) = evaluate(graph, given).values()
    assert_one_program(module, given, in_float)
