"""Fewer cycles by overlap at about the same area, and by more area.

The first rows have one array. In the first of them nothing overlaps: a tile is loaded, computed and
stored before the next one, and main memory has few short bursts open. Each further row adds one way
to overlap. The last rows have all of them, and more lanes. Cycles are exact; look-up tables are
estimated, multipliers exact, both for an ECP5.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...compiler.frontend import import_model
from ...compiler.graph import Graph
from ...compiler.options import DEFAULT_OPTIONS, Options
from ...compiler.placement import STRICT_PLACEMENT
from ...isa.configuration import PRESETS, Configuration
from ...isa.memory_model import MemoryModel
from ..execution.compile_graph import compile_graph
from ..sweep.evaluators import resources

BASE = PRESETS["8x8"].replace(
    name="no overlap", bus_bits=32, burst_beats=4, outstanding_bursts=2, queue_depth=2
)
ALONE = Options(pipeline_depth=1, fuse=False)
ADDED = (
    ("units work at the same time", {}),
    ("more and longer bursts, deep queues",
     {"burst_beats": 16, "outstanding_bursts": 32, "queue_depth": 8}),
    ("a bus of 128 bits", {"bus_bits": 128}),
)  # fmt: skip
"""Ways to overlap, each added to those before it, with the parameters that it changes."""

SIZES = ("4x4", "8x8", "16x16", "32x32")
LATENCY_CYCLES = 64


@dataclass(frozen=True, slots=True)
class ShapeStep:
    """A machine and a compiler of the comparison.

    Parameters
    ----------
    text
        Name of the step.
    lanes
        The array.
    """

    text: str
    configuration: Configuration
    options: Options = DEFAULT_OPTIONS

    @property
    def lanes(self) -> str:
        """Rows and columns of the array."""
        return f"{self.configuration.lanes_in}x{self.configuration.lanes_out}"


@dataclass(frozen=True, slots=True)
class ShapeRow:
    """Exact cycles of a step, and its resources."""

    step: ShapeStep
    cycles: int
    lut: int
    multipliers: int


def steps() -> Iterator[ShapeStep]:
    """Yield the steps at one area, then those of each size."""
    yield ShapeStep("nothing overlaps", BASE, ALONE)
    configuration = BASE
    for text, changes in ADDED:
        configuration = configuration.replace(name=text, **changes)
        yield ShapeStep(text, configuration)
    for size in SIZES:
        lanes = int(size.partition("x")[0])
        vector = min(lanes, 16)
        yield ShapeStep(
            "all of these",
            configuration.replace(
                name=size, lanes_in=lanes, lanes_out=lanes, vector_lanes=vector
            ),
        )  # fmt: skip


def measure(graph: Graph, step: ShapeStep) -> ShapeRow:
    """Compile a network as a step does, and count.

    Raises
    ------
    CompileError
        When a layer does not fit.
    """
    module = compile_graph(
        graph, step.configuration, options=step.options, placement=STRICT_PLACEMENT, lean=True,
        memory=MemoryModel(latency_cycles=LATENCY_CYCLES),
    )  # fmt: skip
    figures = resources(step.configuration).figures
    return ShapeRow(step, module.report["cycles"], figures["lut"], figures["multipliers"])


def table(rows: Sequence[ShapeRow]) -> str:
    """Return the rows as a Markdown table; factors are relative to the first and the smallest."""
    lines = [
        "| array | | cycles | fewer | LUT | multipliers |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    count = len(ADDED) + 1
    for place, row in enumerate(rows):
        first = rows[0] if place < count else rows[count]
        lines.append(
            f"| {row.step.lanes} | {row.step.text} | {row.cycles:,} | "
            f"{first.cycles / row.cycles:.2f} times | {row.lut:,} ({row.lut / first.lut:.2f} "
            f"times) | {row.multipliers:,} ({row.multipliers / first.multipliers:.2f} times) |"
        )
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table of cycles and area of a model."""
    parser = argparse.ArgumentParser(
        prog="python -m tilewright.flows.bench.area_shape", description=__doc__
    )
    parser.add_argument("model", type=Path, help="a quantised network")
    options = parser.parse_args(arguments)
    graph = import_model(options.model)
    print(table([measure(graph, step) for step in steps()]), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
