"""Every form of attention, norms, gates and positions runs as one program when quantised."""

import numpy as np
import pytest

from tilewright.compiler.exporters import export_onnx
from tilewright.compiler.frontend.recipe import import_model
from tilewright.compiler.graph import Graph, evaluate
from tilewright.compiler.importers import import_onnx
from tilewright.compiler.pipeline import compile_module
from tilewright.compiler.quantiser import quantise
from tilewright.compiler.quantiser.batches import make_batches
from tilewright.compiler.quantiser.options import QuantiserOptions
from tilewright.isa.configuration import PRESETS

from .attention_networks import assert_one_program
from .mask_forms import MASKED
from .norm_forms import NORMS
from .onnx_models import run_onnxruntime
from .relative_forms import RELATIVE
from .transformer_forms import FORMS as USUAL
from .transformer_forms import Block

FORMS = USUAL | MASKED | RELATIVE | NORMS
QUICK_NORMS = (
    *("torch's normalize", "norm of channels", "norm of heads, rotary"),
    *("SwinV2, windows", "XCiT"),
)
"""Of those in `norm_forms`, which differ little."""
MACHINE = PRESETS["8x8"].replace(name="rows-8x8", row_statistics="all")


def quantised(graph: Graph, block: Block) -> Graph:
    drawn = [block.draw(seed) for seed in range(20, 28)]
    stacked = {name: np.stack([each[name] for each in drawn]) for name in drawn[0]}
    result = quantise(graph, make_batches(graph, stacked), QuantiserOptions(effort="quick"))
    return import_model(export_onnx(result.graph).SerializeToString())


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow)
        if name in NORMS and name not in QUICK_NORMS
        else name
        for name in FORMS
    ],
)
def test_a_form_is_one_program(name: str) -> None:
    block = Block(len(name))
    proto = block.model(FORMS[name](block))
    graph = import_onnx(proto.SerializeToString())
    given = block.draw(7)
    (in_float,) = evaluate(graph, given).values()
    (reference,) = run_onnxruntime(proto, given).values()
    np.testing.assert_allclose(in_float, reference, rtol=2e-4, atol=2e-5)
    assert_one_program(compile_module(quantised(graph, block), MACHINE), given, in_float)
