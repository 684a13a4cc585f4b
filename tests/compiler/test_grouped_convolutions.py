"""Grouped convolutions multiply within blocks of whole groups, not all channels by all."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.aligned import round_up
from tilewright.compiler.accelerator.kernels.convolution import expand_groups
from tilewright.compiler.frontend import import_model
from tilewright.compiler.pipeline import compile_module
from tilewright.isa.configuration import PRESETS
from tilewright.runtime.devices import open_device
from tilewright.runtime.session import Session

from .onnx_models import run_onnxruntime
from .test_constant_operands import Model

BLOCK = 8


@given(st.integers(1, 40), st.integers(1, 20), st.integers(1, 20), st.sampled_from([8, 500]))
def test_blocks_hold_the_weights_of_their_groups(
    groups: int, inputs: int, outputs: int, most: int
) -> None:
    random = np.random.default_rng(groups)
    weights = random.integers(1, 100, (1, 2, inputs, groups * outputs)).astype(np.int8)
    blocks = expand_groups(weights, groups, BLOCK, most)
    count, _, _, ci, co = blocks.shape
    assert ci % BLOCK == co % BLOCK == 0
    assert count * ci == round_up(groups * inputs, BLOCK)
    assert count * co == round_up(groups * outputs, BLOCK)
    dense = np.zeros((2, count * ci, count * co), np.int8)
    for first in range(count):
        places = slice(first * ci, first * ci + ci), slice(first * co, first * co + co)
        dense[:, *places] = blocks[first, 0]
    for group in range(groups):
        rows = slice(group * inputs, (group + 1) * inputs)
        columns = slice(group * outputs, (group + 1) * outputs)
        np.testing.assert_array_equal(dense[:, rows, columns], weights[0, ..., columns])
        dense[:, rows, columns] = 0
    assert not dense.any(), "zeros between groups"


def run(groups: int, channels: int, machine: str, transposed: bool = False) -> int:
    """Compare a layer and a sum with ONNX Runtime; return the cycles."""
    built = Model()
    x = built.quantised("x")
    shape, kind = (channels, channels // groups, 3, 3), "Conv"
    if transposed:
        shape, kind = (channels, channels // groups, 2, 2), "ConvTranspose"
    attributes: dict[str, Any] = {"strides": [2, 2]} if transposed else {"pads": [1] * 4}
    y = built.node(kind, [x, built.weights(*shape)], group=groups, **attributes)
    y = built.quantised(y, 0.1)
    if not transposed:
        y = built.quantised(built.node("Add", [y, x]), 0.13)
    proto = built.made([y], x=(1, channels, 6, 6))
    inputs = {"x": np.random.default_rng(1).normal(size=(1, channels, 6, 6)).astype(np.float32)}
    configuration = PRESETS[machine]
    module = compile_module(import_model(proto.SerializeToString()), configuration)
    rows = [row for row in module.report["placement"]["rows"] if "conv" in row["op"]]
    assert {row["target"] for row in rows} == {"accelerator"}, "it fits"
    with open_device("sim", configuration) as device:
        result = Session(module, device).run(inputs)
    (got,), (expected,) = (
        list(each.values()) for each in (result.outputs, run_onnxruntime(proto, inputs, False))
    )
    assert np.abs(got - expected).max() <= 0.13 + 1e-6, "one step, for ties"
    assert np.mean(got != expected) < 0.01
    assert len(np.unique(expected)) > 20
    assert result.profile.cycles is not None
    return result.profile.cycles


@pytest.mark.parametrize(
    ("machine", "groups", "channels"),
    [
        *(("8x8", *sizes) for sizes in ((8, 64), (2, 32), (4, 48), (3, 24), (2, 20), (5, 40))),
        *(("8x16", *sizes) for sizes in ((8, 64), (4, 48), (2, 20))),
        *(("tiny", *sizes) for sizes in ((6, 12), (2, 8))),
    ],
)
def test_groups_are_exact(machine: str, groups: int, channels: int) -> None:
    run(groups, channels, machine)


@pytest.mark.parametrize("transposed", [False, True])
def test_groups_take_their_share_of_the_cycles(transposed: bool) -> None:
    dense = run(1, 64, "8x8", transposed)
    assert run(8, 64, "8x8", transposed) < dense / 3
