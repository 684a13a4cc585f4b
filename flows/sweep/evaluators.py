"""The rungs of a sweep: each gives records of one machine with each of some memories.

`bound` is the certified lower bound and takes milliseconds; `sim` compiles the network with
schedules that exact times choose, and times the program with each memory; `rtl` runs it on the
simulated hardware; `resources` counts what the machine takes of a chip. All of them give the same
numbers in every process.
"""

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import TilewrightError, ToolError
from ...isa.configuration import Configuration
from ...sim.memory_model import MemoryModel
from ..execution.compile_cache import CODE, source_digest
from .records import LOST, Record, digest_of

if TYPE_CHECKING:
    from ...compiler.graph import Graph

BOUND, SIM, RTL, RESOURCES = "bound", "sim", "rtl", "resources"

ROOT = Path(__file__).parents[2]
SOURCES = {
    BOUND: ("flows/sweep/bounds.py", "sim/memory_model.py"),
    SIM: ("sim/memory_model.py", "flows/execution/retiming.py"),
    RTL: ("hardware", "sim"),
    RESOURCES: ("flows/sweep/resources.py", "hardware"),
}
"""Code that the results of a rung follow from, besides the compiler's for all but the last."""


@cache
def version_of(evaluator: str) -> str:
    """A hash of the source of an evaluator."""
    paths = [
        path
        for source in SOURCES[evaluator]
        for path in sorted([ROOT / source, *(ROOT / source).rglob("*")])
        if path.suffix in CODE
    ]
    parts = [digest_of(path.read_text()) for path in paths]
    return digest_of(" ".join([source_digest() if evaluator != RESOURCES else "", *parts]))


def graph_digest(graph: "Graph") -> str:
    """A hash of a network: its operators, types and constants."""
    from ...compiler.graph import print_graph

    return digest_of(print_graph(graph))


def bound(
    graph: "Graph", configuration: Configuration, memories: Sequence[MemoryModel]
) -> list[Record]:
    """The least cycles that any program of the network takes, and the busiest unit, by memory."""
    from .bounds import lower_bounds

    def evaluate() -> list[Record]:
        found = lower_bounds(graph, configuration, memories)
        return [Record({"cycles": each.cycles, "unit": each.unit}) for each in found]

    return _kept_failures(evaluate, len(memories))


def sim(
    graph: "Graph", configuration: Configuration, memories: Sequence[MemoryModel]
) -> list[Record]:
    """The exact cycles of the program that `tilewright compile` makes, by memory.

    A program does not depend on the memory, so it is compiled once. It is not kept in the cache:
    the record holds what a sweep asks for, and a thousand programs would fill the disk.
    """
    from ..execution.compile_graph import compile_graph
    from ..execution.retiming import Setting, retime

    def evaluate() -> list[Record]:
        module = compile_graph(graph, configuration, cache=False)
        settings = [Setting({}, configuration, memory) for memory in memories]
        macs = sum(layer.macs for segment in module.segments for layer in segment.layers)
        about = {"macs": macs, "instructions": module.report["instructions"]}
        return [Record({"cycles": cycles, **about}) for cycles in retime(module, settings)]

    return _kept_failures(evaluate, len(memories))


def rtl(
    graph: "Graph", configuration: Configuration, memories: Sequence[MemoryModel]
) -> list[Record]:
    """The cycles of the same program on the RTL, by memory; the first time builds a simulator."""
    from ...runtime.devices import open_device
    from ...runtime.session import Session
    from ..execution.compile_graph import compile_graph
    from ..execution.samples import random_samples

    def evaluate() -> list[Record]:
        module = compile_graph(graph, configuration, cache=False)
        sample = next(iter(random_samples(module.graph, 1, 0)))
        found = []
        for memory in memories:
            with open_device("rtl", configuration, memory) as device:
                results = Session(module, device).run(sample).results
            found.append(Record({"cycles": sum(result.cycles or 0 for result in results)}))
        return found

    return _kept_failures(evaluate, len(memories))


def resources(configuration: Configuration) -> Record:
    """What a machine takes of a chip, by arithmetic."""
    from .resources import resources_of

    return Record(resources_of(configuration))


def _kept_failures(evaluate: Callable[[], list[Record]], count: int) -> list[Record]:
    """The records, or as many failures with the text of the error."""
    try:
        return evaluate()
    except ToolError as problem:
        text = f"{LOST}{problem}"
    except TilewrightError as problem:
        text = str(problem)
    except (ArithmeticError, AssertionError, LookupError, MemoryError, TypeError, ValueError) as e:
        text = f"unexpected {type(e).__name__}: {e}; this is a fault of Tilewright: report it"
    return [Record(error=" ".join(text.split()))] * count
