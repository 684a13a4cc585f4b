"""The rungs of a sweep that need no synthesis: each evaluates one machine with several memories.

`bound` computes the certified lower bound, in milliseconds. `sim` compiles the network for each
memory, with schedules chosen by exact times, and times the program. `rtl` runs the same programs on
the simulated hardware. `resources` counts the multipliers and memories that the machine takes, and
estimates its logic. All of them give the same numbers in every process.
"""

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ...collector import paused_collector
from ...errors import TilewrightError, ToolError, UsageError
from ...hardware.technology import Technology
from ...isa.configuration import Configuration
from ...isa.memory_model import MemoryModel
from ...runtime.wire import JobError, JobVerdict
from ..area.counts import count_blocks, scratchpad_bits
from ..area.energy import energy_of
from ..area.model import estimate
from ..execution.compile_cache import CODE, source_digest
from ..synthesis.devices import FpgaDevice
from .records import LOST, Record, digest_of

if TYPE_CHECKING:
    from ...compiler.graph import Graph

BOUND, SIM, RTL, RESOURCES = "bound", "sim", "rtl", "resources"
SYNTHESIS, PLACEMENT = "synthesis", "placement"

REPORT = "this is a fault of Tilewright: report it"

REQUIRED = {
    BOUND: {"cycles": int, "unit": str},
    SIM: {"cycles": int, "macs": int, "energy_nj": int, "limits": dict, "layers": list},
    RTL: {"cycles": int},
}
"""Figures that a result of a rung must have."""

KINDS = {int: "a whole number", str: "a word", dict: "numbers by name", list: "a list"}
"""Names of the kinds of figures."""

ROOT = Path(__file__).parents[2]
SOURCES = {
    BOUND: ("flows/sweep/bounds.py",),
    SIM: (
        *("flows/sweep/path_limits.py", "flows/reports/page/causes.py"),
        *("flows/execution/timed.py", "flows/area/energy.py"),
    ),
    RTL: ("hardware", "sim"),
    RESOURCES: ("flows/area", "hardware/blocks.py", "isa"),
    SYNTHESIS: tuple(f"flows/synthesis/{name}.py" for name in ("devices", "flow", "netlist")),
    PLACEMENT: ("flows/synthesis/place_and_route.py",),
}
"""Code that determines the results of a rung, besides the compiler, the RTL and `flow_hash`."""

COMPILED = (BOUND, SIM, RTL)
"""Rungs whose results depend on the compiler."""


@cache
def version_of(evaluator: str) -> str:
    """Return a hash of the source of an evaluator."""
    paths = [
        path
        for source in SOURCES[evaluator]
        for path in sorted([ROOT / source, *(ROOT / source).rglob("*")])
        if path.suffix in (*CODE, ".json")
    ]
    if evaluator not in (SYNTHESIS, PLACEMENT):  # their results take hours to compute again
        paths.append(Path(__file__))
    parts = [digest_of(path.read_text("utf-8")) for path in paths]
    return digest_of(" ".join([source_digest() if evaluator in COMPILED else "", *parts]))


def graph_digest(graph: "Graph") -> str:
    """Return a hash of a network: its operators, types and constants."""
    from ...compiler.graph import print_graph

    return digest_of(print_graph(graph))


def checked(evaluator: str, record: Record) -> Record:
    """Return a result, or a failure if it lacks a figure or has an impossible one."""
    for name, kind in REQUIRED[evaluator].items() if record.error is None else ():
        value = record.figures.get(name)
        if type(value) is not kind or (isinstance(value, int) and value < 0):
            return Record(
                error=f"`{evaluator}`: expected {KINDS[kind]} as `{name}`, got `{value}`; {REPORT}"
            )
    return record


def bound(
    graph: "Graph",
    configuration: Configuration,
    memories: Sequence[MemoryModel],
    program_for: MemoryModel | None = None,
) -> list[Record]:
    """Return the lower bound and the busiest unit for each memory; it holds for every program."""
    from .bounds import lower_bounds

    def evaluate() -> list[Record]:
        found = lower_bounds(graph, configuration, memories)
        return [Record({"cycles": each.cycles, "unit": each.unit}) for each in found]

    return kept_failures(evaluate, len(memories))


def sim(
    graph: "Graph",
    configuration: Configuration,
    memories: Sequence[MemoryModel],
    program_for: MemoryModel | None = None,
) -> list[Record]:
    """Return, for each memory, the exact cycles of the program that `tilewright compile` makes.

    A machine that a layer does not fit fails: its cycles would lack those of the layer.

    `limits` has the cycles of the critical path by what takes them, and `layers` each layer's name,
    cycles and limit.

    The programs do not go to the cache, because thousands of them would fill the disk; the record
    has all that a sweep needs. What cycles do not depend on is left out, the checker's proof too.

    Parameters
    ----------
    program_for
        The main memory that the program is made for; None for the one that it runs with.
    """
    from ...compiler.placement import STRICT_PLACEMENT
    from ...compiler.scheduling.kernel_programs import ProgramStore
    from ..execution.compile_graph import compile_graph
    from .path_limits import path_limits

    store = ProgramStore()

    def evaluate(memory: MemoryModel) -> Record:
        module = compile_graph(
            graph,
            configuration,
            placement=STRICT_PLACEMENT,
            lean=True,
            memory=program_for or memory,
            store=store,
        )
        macs = sum(layer.macs for segment in module.segments for layer in segment.layers)
        energy = energy_of(
            (instruction for segment in module.segments for instruction in segment.program),
            configuration,
        )
        path = path_limits(module, memory)
        return Record(
            {
                "cycles": path.cycles,
                "macs": macs,
                "instructions": module.report["instructions"],
                "energy_nj": round(1e9 * energy.middle),
                "limits": dict(path.limits),
                "layers": [[one.name, one.cycles, one.limit] for one in path.layers],
            }
        )

    with paused_collector():
        return kept_failures(lambda: list(map(evaluate, memories)), len(memories))


def rtl(
    graph: "Graph",
    configuration: Configuration,
    memories: Sequence[MemoryModel],
    program_for: MemoryModel | None = None,
    device: str = "rtl",
) -> list[Record]:
    """Return the cycles of the programs of `sim` on the RTL; may build a simulator.

    Parameters
    ----------
    device
        The simulator's address; an agent may have it.
    """
    from ...compiler.placement import STRICT_PLACEMENT
    from ...runtime.devices import open_device
    from ...runtime.session import Session
    from ..execution.compile_graph import compile_graph
    from ..execution.samples import random_samples

    def evaluate() -> list[Record]:
        found = []
        for memory in memories:
            module = compile_graph(
                graph,
                configuration,
                placement=STRICT_PLACEMENT,
                cache=False,
                memory=program_for or memory,
            )
            sample = next(iter(random_samples(module.graph, 1, 0)))
            with open_device(device, configuration, memory) as opened:
                results = Session(module, opened).run(sample).results
            found.append(Record({"cycles": sum(result.cycles or 0 for result in results)}))
        return found

    return kept_failures(evaluate, len(memories))


def resources(configuration: Configuration, device: FpgaDevice | None = None) -> Record:
    """Return the multipliers, memories and logic of a machine on a chip, by arithmetic.

    The multipliers are the fewest that it can be built with.

    Parameters
    ----------
    device
        The chip for which its logic is estimated; None for an ECP5 with the fewest multipliers.

    Raises
    ------
    UsageError
        If only synthesis can tell the block RAMs of the machine on this chip.
    """
    technology, multipliers, chip = Technology.ECP5, None, {}
    if device is not None:
        technology, multipliers = device.family.technology, device.capacity.get("multipliers")
        chip = {"chip": device.name}
    asic = estimate(configuration, Technology.ASIC).total
    on_any = {"gates": asic["gates"], "ram_bits": scratchpad_bits(configuration).total(), **chip}
    if technology is Technology.ASIC:
        return Record({"multipliers": 0, "ram": 0, "lut": 0, "ff": asic["ff"], **on_any})
    counts = count_blocks(configuration, technology)
    if counts.ram is None:
        raise UsageError(
            f"`{configuration.name}` on `{chip.get('chip')}`: a queue or a bank is so deep that "
            "its block RAMs are known only after synthesis (`tilewright synth --no-place`); lower "
            "`queue_depth` or the depth of the scratchpad, or choose another device"
        )
    logic = estimate(configuration, technology, multipliers)
    exact = {"multipliers": counts.multipliers, "ram": counts.ram}
    return Record({**exact, "lut": logic.lut, "ff": logic.ff, **on_any})


def kept_failures(evaluate: Callable[[], list[Record]], count: int) -> list[Record]:
    """Return the records, or `count` failures with the text of the error."""
    try:
        return evaluate()
    except (ToolError, OSError, MemoryError) as problem:  # of this computer, not of the machine
        text = f"{LOST}{str(problem) or type(problem).__name__}"
    except JobError as problem:
        text = f"{LOST if problem.verdict is JobVerdict.LOST else ''}{problem}"
    except TilewrightError as problem:
        text = str(problem)
    except Exception as e:
        text = f"unexpected {type(e).__name__}: {e}; {REPORT}"
    return [Record(error=" ".join(text.split()))] * count
