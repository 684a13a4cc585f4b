"""A transformer's block, and small forms of known transformers and cells, on every device."""

from functools import cache

import numpy as np
import pytest

from tests.compiler.attention_networks import Attention, Writer, compiled, quantised
from tests.compiler.onnx_models import model, node, value
from tests.flows.bare_metal.c_board import CBoard, SimCore
from tests.gate_machine import MACHINE
from tests.networks.small_transformers import NETWORKS, draw
from tests.runtime.stub_board import serve_in_background
from tilewright.compiler.graph import evaluate
from tilewright.compiler.importers import import_onnx
from tilewright.flows.bare_metal.host_board import VerilatedCore
from tilewright.runtime import open_device
from tilewright.runtime.session import Session
from tilewright.sim.board import VirtualBoard

FORM = Attention(2, 1, 8, 8, "padding and causal", "halves", gated=True, normed=True)
INTEGERS = {"qnorm", "qsoftmax", "qmatmul", "qrotate", "qconv", "qadd", "qmul", "qlut"}
"""Operators of the block that the accelerator runs."""

BAD_INDEX = 21
"""As the enumeration of tilewright.h counts."""


@pytest.fixture(scope="module")
def block():
    _, module, given = compiled(FORM, MACHINE)
    assert len(module.segments) == 1
    assert {one.op for one in module.graph.nodes} >= INTEGERS
    (expected,) = evaluate(module.graph, given).values()
    return module, given, expected


def same_as_reference(block, device):
    module, given, expected = block
    with device:
        run = Session(module, device).run(given)
    (found,) = run.outputs.values()
    np.testing.assert_array_equal(found, expected)
    return run.profile.cycles


@pytest.mark.parametrize(
    "name", ["reference", *(pytest.param(name, marks=pytest.mark.slow) for name in ("rtl", "gate"))]
)
def test_a_block_equals_the_reference_in_the_cycles_of_sim(block, name):
    cycles = same_as_reference(block, open_device("sim", MACHINE))
    assert same_as_reference(block, open_device(name, MACHINE)) in (cycles, None)


@pytest.mark.slow
def test_a_block_on_a_virtual_board(block):
    board = VirtualBoard(MACHINE, 1 << 16, 25_000_000)
    with serve_in_background(board) as server:
        device = open_device(server.port.address, MACHINE)
        memory = device.memory
        cycles = same_as_reference(block, device)
    assert cycles == same_as_reference(block, open_device("sim", MACHINE, memory))


# Whole networks -----------------------------------------------------------------------------------


@cache
def network(name: str):
    """A quantised network's module, an input, and the outputs of the reference."""
    proto = NETWORKS[name].build()
    module = quantised(import_onnx(proto.SerializeToString()), draw(proto, 12, 5), MACHINE)
    given = {key: array[0] for key, array in draw(proto, 1, 9).items()}
    assert [step for step in module.steps if isinstance(step, int)] == [0]
    assert {one.op for one in module.graph.nodes} >= NETWORKS[name].layers
    return module, given, evaluate(module.graph, given)


def cycles_of(name: str, device) -> int | None:
    module, given, expected = network(name)
    with device:
        run = Session(module, device).run(given)
    for output, array in expected.items():
        np.testing.assert_array_equal(run.outputs[output], array)
    return run.profile.cycles


@pytest.mark.slow
@pytest.mark.parametrize("device", ["rtl", "gate"])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_equals_the_reference_in_the_cycles_of_sim(name, device):
    cycles = cycles_of(name, open_device("sim", MACHINE))
    assert cycles_of(name, open_device(device, MACHINE)) in (cycles, None)


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_on_a_virtual_board(name):
    with serve_in_background(VirtualBoard(MACHINE, 1 << 16, 25_000_000)) as server:
        device = open_device(server.port.address, MACHINE)
        memory = device.memory
        cycles = cycles_of(name, device)
    assert cycles == cycles_of(name, open_device("sim", MACHINE, memory))


@pytest.mark.slow
@pytest.mark.parametrize("core", [SimCore, VerilatedCore])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_in_exported_c(name, core, tmp_path):
    module, given, expected = network(name)
    result, found = in_c(
        module, core(MACHINE), tmp_path, *(given[i.name] for i in module.graph.inputs)
    )
    assert result == 0
    for array, other in zip(found, expected.values(), strict=True):  # the host's sigmoid is a float
        np.testing.assert_allclose(array, other, rtol=2e-7, atol=0)


# Exported C ---------------------------------------------------------------------------------------


def in_c(module, core, folder, *inputs):
    board = CBoard(module, folder)
    board.connect(core)
    assert board.load() == 0
    return board.run(*inputs)


@pytest.mark.parametrize(
    "core", [SimCore, pytest.param(VerilatedCore, marks=pytest.mark.slow)]
)  # fmt: skip
def test_exported_c_computes_masks_and_runs_the_block(block, core, tmp_path):
    module, given, expected = block
    given = [given[one.name] for one in module.graph.inputs]
    result, (found,) = in_c(module, core(MACHINE), tmp_path, *given)
    assert result == 0
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("mask", ["boolean", "padding"])
def test_exported_c_of_other_masks(mask, tmp_path):
    _, module, given = compiled(Attention(2, 1, 4, 6, mask, "none"), MACHINE)
    (expected,) = evaluate(module.graph, given).values()
    given = [given[one.name] for one in module.graph.inputs]
    result, (found,) = in_c(module, SimCore(MACHINE), tmp_path, *given)
    assert result == 0
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_exported_c_looks_up_tokens(dtype, tmp_path):
    form, words = Attention(2, 1, 4, 6, "added", "halves", normed=True), 11
    writer = Writer(form)
    table = np.random.default_rng(3).normal(0, 1, (words, form.channels)).astype(np.float32)
    writer.nodes.append(node("Gather", [writer.hold(table), "tokens"], ["x"]))
    inputs = [value("tokens", dtype, (1, form.tokens))]
    proto = model(writer.nodes, inputs, [writer.block()], writer.constants, 18)
    chance = np.random.default_rng(4)
    texts = chance.integers(-words, words, (13, 1, form.tokens)).astype(dtype)
    module = quantised(import_onnx(proto.SerializeToString()), {"tokens": texts[1:]}, MACHINE)
    board = CBoard(module, tmp_path)
    board.connect(SimCore(MACHINE))
    assert board.load() == 0
    (expected,) = evaluate(module.graph, {"tokens": texts[0]}).values()
    result, (found,) = board.run(texts[0])
    assert result == 0
    np.testing.assert_array_equal(found, expected)
    for wrong in (words, -words - 1):
        texts[0, 0, 2] = wrong
        assert board.run(texts[0])[0] == BAD_INDEX
