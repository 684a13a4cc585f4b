"""Keys that LOAD transposes are computed before the queries and values beside them."""

import numpy as np

from tilewright.compiler.graph import Graph, evaluate
from tilewright.compiler.graph.operators import Multiplying
from tilewright.compiler.passes.keys_first import keys_first
from tilewright.compiler.pipeline import compile_module
from tilewright.isa.configuration import DEFAULT

from .test_transformer_forms import FORMS, Block, import_onnx, quantised

MACHINE = DEFAULT.replace(row_statistics="all", transposed_weights="int8")


def attention() -> Graph:
    """A block in which queries, keys and values are dense layers of the same rows."""
    name = next(name for name in FORMS if name.startswith("Attention"))
    block = Block(len(name))
    proto = block.model(FORMS[name](block))
    graph = quantised(import_onnx(proto.SerializeToString()), block)
    return compile_module(graph, MACHINE).graph


def order(graph: Graph) -> tuple[int, list[int]]:
    """Place of the keys' layer, and of the layers that read the same rows."""
    names = [node.output.name for node in graph.nodes]
    (scores,) = (
        node
        for node in graph.nodes
        if isinstance(node.attributes, Multiplying) and node.attributes.transposed
    )
    keys = graph.producer(scores.inputs[1])
    assert keys is not None
    beside = [one.output.name for one in graph.users(keys.inputs[0]) if one.op == keys.op]
    return names.index(keys.output.name), [names.index(one) for one in beside]


def test_keys_are_computed_before_queries_and_values():
    place, beside = order(attention())
    assert len(beside) == 3
    assert place == min(beside)


def test_a_graph_in_another_order_means_the_same():
    graph = attention()
    moved = keys_first(graph)
    x = np.random.default_rng(1).normal(0, 1, graph.inputs[0].type.shape).astype(np.float32)
    given = {graph.inputs[0].name: x}
    for name, array in evaluate(moved, given).items():
        np.testing.assert_array_equal(array, evaluate(graph, given)[name])
    assert keys_first(moved).nodes == moved.nodes
