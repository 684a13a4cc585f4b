"""Exported C runs on a soft CPU beside the core, in Verilator, and gives what `sim` gives.

Runs where the extra `firmware` is installed; see `conftest.py`.
"""

import struct
from pathlib import Path

import numpy as np
import pytest

from tilewright import compile_graph, import_model
from tilewright.flows.bare_metal.folder import object_code
from tilewright.flows.bare_metal.network import network_in_c
from tilewright.hardware.soc.block_memory import LATENCY_CYCLES
from tilewright.isa.configuration import PRESETS
from tilewright.isa.memory_model import MemoryModel
from tilewright.runtime import Session, open_device
from tilewright.sim.board import VirtualBoard

from ...exchange import exchange
from .firmware import COMPILER, firmware

pytestmark = pytest.mark.slow

SMALL = PRESETS["4x4"]
MEMORY_BYTES = 1 << 17
CLOCK_HZ = 25_000_000

HEAD = struct.Struct("<iI")
"""Before an output: the result of `network_run`, and the core's cycles."""

OTHER_CODE_BYTES = 8192
"""More than `main`, the start and the compiler's functions for floats take."""

DIGITS = Path(__file__).parents[3] / "examples" / "digits"
KEYWORDS = Path(__file__).parents[4] / "shared" / "models" / "kws_dscnn" / "kws_int8_qdq.onnx"


def same_as_sim(model: Path, samples: np.ndarray, folder: Path) -> None:
    """The program's answers are outputs and cycles of `sim` with the memory of the board."""
    module = compile_graph(import_model(model), SMALL)
    board = VirtualBoard(SMALL, MEMORY_BYTES, CLOCK_HZ, program=firmware(module, folder))
    assert exchange(board, b"", 4) == bytes(4)
    with open_device("sim", SMALL, MemoryModel(latency_cycles=LATENCY_CYCLES)) as sim:
        session = Session(module, sim)
        for sample in samples:
            run = session.run(sample)
            (output,) = run.outputs.values()
            answer = exchange(board, sample.tobytes(), HEAD.size + output.nbytes)
            assert HEAD.unpack_from(answer) == (0, run.results[-1].cycles)
            assert answer[HEAD.size :] == output.tobytes()
    board.close()


def test_a_soft_cpu_runs_the_digits(tmp_path):
    with np.load(DIGITS / "test_digits.npz") as file:
        samples = file["inputs"][:3, None]
    same_as_sim(DIGITS / "digits_int8_qdq.onnx", samples, tmp_path)


@pytest.mark.skipif(not KEYWORDS.is_file(), reason=f"no shared models at `{KEYWORDS}`")
def test_a_soft_cpu_finds_keywords(tmp_path):
    with np.load(KEYWORDS.with_suffix(".npz")) as file:
        samples = file["inputs"][:2, None]
    same_as_sim(KEYWORDS, samples, tmp_path)


def test_the_sizes_that_an_export_tells_are_most_of_the_firmware(tmp_path, monkeypatch):
    module = compile_graph(import_model(DIGITS / "digits_int8_qdq.onnx"), SMALL)
    image = firmware(module, tmp_path)
    monkeypatch.setenv("CC", COMPILER)
    code, sizes = object_code(tmp_path / "c"), network_in_c(module).sizes
    assert code
    told = code.text_bytes + sizes.program + sizes.clearing + sizes.constants
    assert told < len(image) < told + OTHER_CODE_BYTES
