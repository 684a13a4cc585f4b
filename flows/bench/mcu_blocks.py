"""Inverted residual blocks of small images, as deep in MCUNet: cycles beside their lower bounds.

A block expands its channels with a 1x1 convolution, filters each channel with a KxK window, and
projects to fewer channels; a block that keeps its shape adds its input. Weights are random, from a
fixed seed. The shapes are those of MCUNet (Lin et al., NeurIPS 2020) and its relatives. The bound
of a block is that of all its nodes in one kernel, which no program undercuts.
"""

import argparse
import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from ...atomic_write import write_output
from ...compiler.accelerator.kernels import build_kernel
from ...compiler.accelerator.lower_bound import UNITS, demand_of
from ...compiler.graph import Builder, Graph, Output, QAdd, QConv, TensorType, Value
from ...compiler.pipeline import compile_module
from ...compiler.pipeline.network_bound import network_work
from ...compiler.placement import STRICT_PLACEMENT
from ...isa.configuration import Configuration
from ...isa.settings import DEFAULT_MEMORY, load_configuration
from ...sim.timing import ExactMeasure

ADD = QAdd((9, 7), 5, 0.08, -3)
"""The sum of a block and its input."""


@dataclass(frozen=True, slots=True)
class McuBlock:
    """An inverted residual block on a square image.

    Parameters
    ----------
    size
        Rows and columns.
    channels_in, channels_out
        Channels before and behind the block; if they are equal, the block adds its input.
    expansion
        Channels inside the block for each channel before it.
    kernel
        Rows and columns of the window.
    """

    size: int
    channels_in: int
    channels_out: int
    expansion: int
    kernel: int

    @property
    def name(self) -> str:
        """Shape in short."""
        channels = f"{self.channels_in}-{self.channels_out}"
        return f"{self.size}x{self.size} {channels} e{self.expansion} k{self.kernel}"


BLOCKS = tuple(
    McuBlock(size, before, after, expansion, kernel)
    for size, before, after in (
        *((7, 56, 56), (7, 96, 96), (7, 96, 160), (7, 160, 160)),
        *((5, 96, 96), (5, 160, 160), (5, 192, 192), (5, 192, 336)),
    )
    for expansion, kernel in ((3, 5), (4, 7), (5, 3), (6, 3))
)
"""Every shape with four pairs of expansion and window."""


def block_graph(block: McuBlock, seed: int = 0) -> Graph:
    """A quantised block with random weights, input `x`, output `out`."""
    generator = np.random.default_rng(seed)
    shape = (1, block.size, block.size, block.channels_in)
    builder = Builder(block.name, [Value("x", TensorType("int8", shape))])

    def convolution(x: str, name: str, channels: int, kernel: int, depthwise: bool) -> str:
        depth = 1 if depthwise else builder.types[x].shape[3]
        weights = generator.integers(-127, 128, (kernel, kernel, depth, channels)).astype(np.int8)
        spread = 40 / math.sqrt(kernel * kernel * depth) / 73**2
        operands = [
            builder.constant(weights, f"{name}.weights"),
            builder.constant(generator.integers(-999, 999, channels).astype(np.int32), "bias"),
            builder.constant(np.full(channels, spread, np.float32), "scale"),
        ]
        kind, groups = ("depthwise", channels) if depthwise else ("conv", 1)
        pad = kernel // 2
        operator = QConv(kind, (1, 1), (pad, pad, pad, pad), (1, 1), groups, 3, -4)
        return builder.emit(operator, [x, *operands], name)

    inside = block.channels_in * block.expansion
    result = convolution("x", "expand", inside, 1, depthwise=False)
    result = convolution(result, "depthwise", inside, block.kernel, depthwise=True)
    result = convolution(result, "project", block.channels_out, 1, depthwise=False)
    if block.channels_in == block.channels_out:
        result = builder.emit(ADD, [result, "x"], "add")
    return builder.graph([Output("out", result)])


def measure(blocks: Sequence[McuBlock], configuration: Configuration) -> Iterator[dict]:
    """Compile each block alone and yield its figures, in cycles."""
    for block in blocks:
        graph = block_graph(block)
        report = compile_module(
            graph, configuration, measure=ExactMeasure(), placement=STRICT_PLACEMENT, lean=True
        ).report
        (work,) = network_work(graph, configuration)
        bound = work.bound(DEFAULT_MEMORY)
        nodes = list(node_figures(graph, configuration))
        yield {
            "block": block.name,
            "cycles": report["cycles"],
            "bound": bound.cycles,
            "unit": bound.unit,
            "ratio": report["cycles"] / bound.cycles,
            "utilisation": sum(node["full_array"] for node in nodes) / report["cycles"],
            "layers": report["layers"],
            "nodes": nodes,
        }


def node_figures(graph: Graph, configuration: Configuration) -> Iterator[dict]:
    """Yield what each node asks of the units, alone: cycles, and those of a full array."""
    for node in graph.nodes:
        kernel = build_kernel(node, graph, configuration)
        full = kernel.macs / (configuration.lanes_in * configuration.lanes_out)
        busy = demand_of(kernel, configuration).busy
        yield {"node": node.name, "full_array": full, **dict(zip(UNITS, busy, strict=True))}


def main(arguments: list[str] | None = None) -> int:
    """Compare the cycles of each block with its bound."""
    parser = argparse.ArgumentParser(
        prog="python -m tilewright.flows.bench.mcu_blocks", description=__doc__
    )
    parser.add_argument("--config", default="16x16", help="preset or JSON file")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--nodes", action="store_true", help="print what each node asks for")
    options = parser.parse_args(arguments)
    configuration = load_configuration(options.config)
    console, rows = Console(stderr=True), []
    for row in measure(BLOCKS, configuration):
        console.print(f"{row['block']}: {row['cycles']:,} cycles, {row['ratio']:.3f} of the bound")
        rows.append(row)
    Console(width=100).print(table(rows, configuration))
    if options.nodes:
        Console(width=100).print(node_table(rows))
    if options.json:
        text = json.dumps(rows, indent=2) + "\n"
        write_output(options.json, text, f"`--json {options.json}`")
    return 0


def table(rows: Sequence[dict], configuration: Configuration) -> Table:
    """The figures of every block, and the geometric mean of the ratios."""
    mean = math.exp(sum(math.log(row["ratio"]) for row in rows) / len(rows))
    result = Table(title=f"{configuration.name}: {mean:.3f} of the bound, geometric mean")
    for name in ("block", "cycles", "bound", "unit", "ratio", "utilisation"):
        result.add_column(name, justify="left" if name in ("block", "unit") else "right")
    for row in rows:
        result.add_row(
            *(row["block"], f"{row['cycles']:,}", f"{row['bound']:,}", row["unit"]),
            *(f"{row['ratio']:.3f}", f"{row['utilisation']:.1%}"),
        )
    return result


def node_table(rows: Sequence[dict]) -> Table:
    """What each node of each block asks of the units."""
    result = Table(title="cycles of the units for each node alone")
    for name in ("block", "node", "full array", *UNITS):
        result.add_column(name, justify="left" if name in ("block", "node") else "right")
    for row in rows:
        for node in row["nodes"]:
            busy = (f"{node[unit]:,}" for unit in UNITS)
            result.add_row(row["block"], node["node"], f"{node['full_array']:,.0f}", *busy)
    return result


if __name__ == "__main__":
    sys.exit(main())
