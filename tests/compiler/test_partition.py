"""Groups of nodes for the two sides, and the work of compiling long networks."""

import cProfile

import numpy as np

from tilewright.compiler.graph import Builder, Output, TensorType, Value, is_accelerated
from tilewright.compiler.graph import operators as ops
from tilewright.compiler.pipeline import compile_module
from tilewright.compiler.placement.partition import partition
from tilewright.isa.configuration import PRESETS


def test_the_work_of_compiling_grows_with_the_number_of_nodes():
    """Calls of functions are counted, as times depend on the machine."""

    def calls(count: int) -> int:
        builder = Builder("chain", [Value("x", TensorType("float32", (1, 8)))])
        last = "x"
        for index in range(count):
            last = builder.emit(ops.Unary("Neg" if index % 2 else "Relu"), [last])
        graph = builder.graph([Output("y", last)])
        profile = cProfile.Profile()
        profile.enable()
        compile_module(graph, PRESETS["8x8"])
        profile.disable()
        return sum(entry.callcount for entry in profile.getstats())

    calls(10)  # modules are imported, kernels of this machine are made
    assert calls(1200) < 5 * calls(300)


def test_segments_alternate_whatever_the_order_of_the_nodes():
    """Two chains beside each other join in few segments."""
    builder = Builder("pair", [Value(name, TensorType("int8", (1, 2, 2, 4))) for name in "ab"])
    table = builder.constant(np.arange(256).astype(np.int8))
    ends = ["a", "b"]
    for index in range(6):
        for side in (index % 2, 1 - index % 2):
            there = index % 3 == 0
            operator = ops.QLut() if there else ops.Reshape((1, 2, 2, 4))
            ends[side] = builder.emit(operator, [ends[side], *[table] * there])
    graph = builder.graph([Output(name, name) for name in ends])
    groups = partition(graph)
    sides = [{is_accelerated(node) for node in group} for group in groups]
    assert sides == [{True}, {False}, {True}, {False}]
    assert sum(map(len, groups)) == len(graph.nodes)
    ready = {"a", "b", table}
    for node in (node for group in groups for node in group):
        assert ready.issuperset(node.inputs)
        ready.add(node.output.name)
