"""Exported C, compiled for this processor, drives a core as `Session` does: the same bytes."""

from pathlib import Path

import numpy as np
import pytest

from tilewright import compile_graph, import_model
from tilewright.isa.configuration import CONTRACT_VERSION, PRESETS
from tilewright.isa.registers import Error
from tilewright.runtime import Session, open_device

from ...networks.builder import Builder
from .c_board import CORE_BASE, CBoard, SimCore, VerilatedCore

DIGITS = Path(__file__).parents[3] / "examples" / "digits"
KEYWORDS = Path(__file__).parents[4] / "shared" / "models" / "kws_dscnn" / "kws_int8_qdq.onnx"
SMALL = PRESETS["4x4"]


@pytest.fixture(scope="module")
def digits():
    return compile_graph(import_model(DIGITS / "digits_int8_qdq.onnx"), SMALL)


@pytest.fixture(scope="module")
def scans():
    with np.load(DIGITS / "test_digits.npz") as file:
        return file["inputs"][:, None]


def same_as_sim(module, board, samples):
    """Outputs, and the whole data window of a network with one segment."""
    assert board.load() == 0
    with open_device("sim", module.configuration) as sim:
        session = Session(module, sim)
        for sample in samples:
            run = session.run(sample)
            result, outputs = board.run(sample)
            assert result == 0
            for ours, theirs in zip(outputs, run.outputs.values(), strict=True):
                np.testing.assert_array_equal(ours, theirs)
            if len(module.segments) == 1:
                window = run.results[0].dram
                np.testing.assert_array_equal(board.memory[: window.size], window)


@pytest.mark.parametrize("cached", [False, True])
def test_digits_in_c_leave_the_bytes_of_sim(digits, scans, tmp_path, cached):
    core = SimCore(SMALL)
    same_as_sim(digits, CBoard(digits, core, tmp_path, cached=cached), scans[:5])
    clears, runs = core.programs[::2], core.programs[1::2]
    assert len(set(clears)) == len(set(runs)) == 1
    assert len(runs) == 5
    assert clears != runs


@pytest.mark.slow
def test_digits_in_c_drive_the_hardware(digits, scans, tmp_path):
    same_as_sim(digits, CBoard(digits, VerilatedCore(SMALL), tmp_path), scans[:3])


@pytest.mark.slow
@pytest.mark.skipif(not KEYWORDS.is_file(), reason=f"no shared models at `{KEYWORDS}`")
def test_keywords_in_c_drive_the_hardware(tmp_path):
    module = compile_graph(import_model(KEYWORDS), SMALL)
    with np.load(KEYWORDS.with_suffix(".npz")) as file:
        samples = file["inputs"][:3, None]
    same_as_sim(module, CBoard(module, VerilatedCore(SMALL), tmp_path), samples)


def two_segments():
    """Images in ONNX's layout, convolutions around a softmax, and the index of the largest."""
    builder = Builder()

    def quantised(x, scale, zero):
        parameters = builder.hold(scale), builder.hold(zero, "int8")
        levels = builder.add("QuantizeLinear", x, *parameters)
        return builder.add("DequantizeLinear", levels, *parameters)

    def convolution(x, channels):
        return builder.add("Conv", x, quantised(builder.draw(8, channels, 3, 3), 0.01, 0))

    x = quantised(convolution(quantised("x", 0.02, -7), 3), 0.05, 3)
    x = builder.add("Softmax", x, axis=3)
    x = quantised(convolution(quantised(x, 1 / 256, -128), 8), 0.02, 0)
    found = builder.add("ArgMax", builder.add("Reshape", x, builder.whole(1, 8, 16)), axis=2)
    return builder.model({"x": ("float32", [1, 3, 8, 8])}, [x, found])


def test_a_network_of_two_segments_leaves_the_outputs_of_sim(tmp_path):
    path = tmp_path / "two.onnx"
    path.write_bytes(two_segments())
    module = compile_graph(import_model(path), SMALL)
    assert len(module.segments) == 2
    samples = np.random.default_rng(0).normal(size=(3, 1, 3, 8, 8)).astype(np.float32)
    same_as_sim(module, CBoard(module, SimCore(SMALL), tmp_path), samples)


@pytest.fixture
def driven(digits, tmp_path):
    core = SimCore(SMALL)
    return CBoard(digits, core, tmp_path), core


@pytest.mark.parametrize(
    ("register", "value", "result"),
    [
        ("ID", 0, "NO_CORE"),
        ("VERSION", CONTRACT_VERSION + 1, "OTHER_VERSION"),
        ("CONFIGURATION", 0, "OTHER_MACHINE"),
    ],
)
def test_another_core_is_refused(driven, register, value, result):
    board, core = driven
    core.registers[register] = value
    assert board.load() == number_of(result)


@pytest.mark.parametrize("base", [CORE_BASE + 64, (1 << 32) - 4096])
def test_memory_that_the_core_does_not_reach_is_refused(driven, base):
    board, _ = driven
    board.place(base)
    assert board.load() == number_of("BAD_ADDRESS")


def test_an_error_of_the_core_is_returned(driven, scans):
    board, core = driven
    assert board.load() == 0
    core.fails = Error.OUT_OF_WINDOW
    assert board.run(scans[0])[0] == Error.OUT_OF_WINDOW
    core.fails = Error.NONE
    assert board.run(scans[0])[0] == 0


def test_a_core_that_does_not_end_is_left(driven, scans):
    board, core = driven
    assert board.load() == 0
    core.hangs = True
    assert board.run(scans[0])[0] == number_of("TIMED_OUT")
    assert core.registers["STATUS"] == 0


def number_of(result):
    """As the enumeration of tilewright.h counts."""
    names = ("NO_CORE", "OTHER_VERSION", "OTHER_MACHINE", "BAD_ADDRESS", "TIMED_OUT")
    return 16 + names.index(result)
