"""Exported C, compiled for this processor, drives a core as `Session` does: the same bytes."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

from tilewright import compile_graph, import_model
from tilewright.compiler.graph import Builder as GraphBuilder
from tilewright.compiler.graph import (
    Output,
    QMaxPool,
    QSlice,
    Quantisation,
    TensorType,
    Value,
)
from tilewright.flows.bare_metal.folder import write_folder
from tilewright.flows.bare_metal.host_board import VerilatedCore
from tilewright.flows.bare_metal.network import network_in_c
from tilewright.isa.configuration import CONTRACT_VERSION, PRESETS
from tilewright.isa.registers import Error
from tilewright.runtime import Session, load, open_device, save

from ...networks.builder import Builder
from .c_board import CORE_BASE, CBoard, SimCore

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


def same_as_sim(module, board, core, samples):
    """Outputs, and the whole data window of a network with one segment."""
    board.connect(core)
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
    same_as_sim(digits, CBoard(digits, tmp_path, cached=cached), core, scans[:5])
    clears, runs = core.programs[::2], core.programs[1::2]
    assert len(set(clears)) == len(set(runs)) == 1
    assert len(runs) == 5
    assert clears != runs


def test_make_without_a_board_says_what_it_needs(digits, tmp_path):
    write_folder(tmp_path / "c", network_in_c(digits))
    done = subprocess.run(["make", "-C", tmp_path / "c"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == (
        "Makefile:11: *** expected a header that says where the core and its memory are, such as "
        "`make BOARD=../board.h`; docs/guide/bare-metal.md has one of two lines.  Stop.\n"
    )
    subprocess.run(["make", "-C", tmp_path / "c", "clean"], check=True)


def test_make_without_the_header_of_a_board_says_what_it_holds(digits, tmp_path):
    """Make's own rules would compile without the header, and report a page of errors."""
    write_folder(tmp_path / "c", network_in_c(digits))
    make = ["make", "-C", tmp_path / "c", "BOARD=../board.h"]
    done = subprocess.run(make, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == (
        "Makefile:16: *** there is no `../board.h`, the header that says where the core and its "
        "memory are; docs/guide/bare-metal.md has one of two lines.  Stop.\n"
    )


@pytest.mark.slow
def test_digits_in_c_drive_the_hardware(digits, scans, tmp_path):
    same_as_sim(digits, CBoard(digits, tmp_path), VerilatedCore(SMALL), scans[:3])


@pytest.mark.slow
@pytest.mark.skipif(not KEYWORDS.is_file(), reason=f"no shared models at `{KEYWORDS}`")
def test_keywords_in_c_drive_the_hardware(tmp_path):
    module = compile_graph(import_model(KEYWORDS), SMALL)
    with np.load(KEYWORDS.with_suffix(".npz")) as file:
        samples = file["inputs"][:3, None]
    same_as_sim(module, CBoard(module, tmp_path), VerilatedCore(SMALL), samples)


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
    same_as_sim(module, CBoard(module, tmp_path), SimCore(SMALL), samples)


BOARD = """
#define TILEWRIGHT_REGISTERS 0x40000000u
#define TILEWRIGHT_MEMORY 0x80000000u
"""


def test_a_board_of_two_addresses_needs_no_library(digits, tmp_path):
    write_folder(tmp_path / "c", network_in_c(digits))
    (tmp_path / "board.h").write_text(BOARD)
    flags = "CFLAGS=-Os -ffreestanding -fno-pie -fno-stack-protector -Wconversion -Werror"
    make = ["make", "-s", "-C", tmp_path / "c", "BOARD=../board.h", flags]
    subprocess.run(make, check=True)
    listing = ["nm", "--format=posix", tmp_path / "c" / "libnetwork.a"]
    lines = subprocess.run(listing, capture_output=True, text=True, check=True).stdout.splitlines()
    symbols = [line.split()[:2] for line in lines if not line.endswith(":")]
    defined = {name for name, kind in symbols if kind != "U"}
    assert {"network_load", "network_run"} <= defined
    assert {name for name, kind in symbols if kind == "U"} <= defined | {"memcpy", "memset"}


def test_a_board_without_addresses_is_told_what_is_missing(digits, tmp_path):
    write_folder(tmp_path / "c", network_in_c(digits))
    board = tmp_path / "board.h"
    board.touch()
    command = ["make", "-C", tmp_path / "c", f"BOARD={board}"]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.returncode
    assert "define TILEWRIGHT_MEMORY, the CPU's address of the memory" in made.stderr


@pytest.fixture(scope="module")
def board(digits, tmp_path_factory):
    return CBoard(digits, tmp_path_factory.mktemp("board"))


@pytest.fixture
def driven(board):
    core = SimCore(SMALL)
    board.connect(core)
    board.place(CORE_BASE)
    return board, core


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


def test_values_that_lie_backwards_in_memory_are_read_from_an_artifact_and_in_c(tmp_path):
    """A recurrent layer that reads its steps from the last to the first has such a value."""
    pool = QMaxPool((1, 1), (1, 1), (0, 0, 0, 0))
    builder = GraphBuilder("backwards")
    x = builder.input(Value("x", TensorType("int8", (2, 5, 3, 8), Quantisation(1.0, 0))))
    y = builder.emit(pool, [x])
    z = builder.emit(QSlice((1, 4, 2, 0), (-1, -1, 0, 8), (-1, -2, -1, 1)), [y])
    graph = builder.graph((Output("z", z), Output("pooled", builder.emit(pool, [z]))))
    module = compile_graph(graph, SMALL)
    strides = [place.strides for place in module.segments[0].outputs]
    assert any(min(each, default=0) < 0 for each in strides)
    save(module, tmp_path / "backwards.tw")
    loaded = load(tmp_path / "backwards.tw")
    assert loaded.segments == module.segments
    sample = np.random.default_rng(0).integers(-128, 128, (2, 5, 3, 8), np.int8)
    same_as_sim(loaded, CBoard(loaded, tmp_path), SimCore(SMALL), [sample])
