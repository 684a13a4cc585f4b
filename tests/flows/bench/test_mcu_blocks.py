"""The bench of MCUNet's blocks: what a block consists of, its figures and the tables."""

import math

import numpy as np
import pytest
from rich.console import Console

from tilewright.compiler.graph import evaluate
from tilewright.flows.bench.mcu_blocks import McuBlock, block_graph, measure, node_table, table
from tilewright.isa.configuration import PRESETS

MACHINE = PRESETS["8x8"]
SMALL = (McuBlock(5, 16, 16, 3, 5), McuBlock(7, 8, 24, 4, 3))


@pytest.fixture(scope="module")
def rows():
    return list(measure(SMALL, MACHINE))


def test_a_block_that_keeps_its_shape_adds_its_input():
    same, wider = (block_graph(block) for block in SMALL)
    assert [node.name for node in same.nodes] == ["expand", "depthwise", "project", "add"]
    assert [node.name for node in wider.nodes] == ["expand", "depthwise", "project"]
    x = np.random.default_rng(0).integers(-128, 128, (1, 5, 5, 16)).astype(np.int8)
    out = evaluate(same, {"x": x})["out"]
    assert out.shape == (1, 5, 5, 16)
    assert len(np.unique(out)) > 20


def test_the_bound_holds(rows):
    for block, row in zip(SMALL, rows, strict=True):
        inside = block.channels_in * block.expansion
        taps = block.channels_in + block.kernel**2 + block.channels_out
        full = block.size**2 * inside * taps / MACHINE.lanes_in / MACHINE.lanes_out
        assert row["bound"] <= row["cycles"]
        assert row["utilisation"] == pytest.approx(full / row["cycles"])
        multiplied = sum(node["gemm"] for node in row["nodes"])
        assert full < multiplied <= row["cycles"]


def test_the_tables_have_every_block_and_node(rows):
    console = Console(width=100, record=True)
    console.print(table(rows, MACHINE))
    console.print(node_table(rows))
    text = console.export_text()
    mean = math.sqrt(math.prod(row["ratio"] for row in rows))
    assert f"8x8: {mean:.3f} of the bound, geometric mean" in text
    assert text.count("5x5 16-16 e3 k5") == 1 + 4
    assert text.count("7x7 8-24 e4 k3") == 1 + 3
