"""Products whose channels are read in parts: the same values from a product for each part."""

import numpy as np
import pytest

from tests.compiler.onnx_models import model, node, scalars, value
from tilewright.compiler.frontend.recipe import import_model
from tilewright.compiler.graph import QConv, evaluate
from tilewright.compiler.importers import import_onnx
from tilewright.compiler.passes import fold_constants, split_products

TOKENS, DEPTH = 5, 12


def steps(form: str) -> tuple[int, list, list[str]]:
    """The number of channels, the nodes behind the product `y`, and the outputs."""
    if form == "split":
        nodes = [
            node("Split", ["y"], ["a", "b", "c"], axis=-1, num_outputs=3),
            node("Transpose", ["c"], ["d"], perm=[0, 2, 1]),
        ]
        return 18, nodes, ["a", "b", "d"]
    if form == "two of three":
        nodes = [
            node("Slice", ["y", "n0", "n4", "n2"], ["a"]),
            node("Slice", ["y", "n8", "n12", "n2"], ["part"]),
            node("Transpose", ["part"], ["b"], perm=[0, 2, 1]),
        ]
        return 12, nodes, ["a", "b"]
    if form == "by head":
        nodes = [
            node("Reshape", ["y", "by_head"], ["r"]),
            node("Transpose", ["r"], ["turned"], perm=[0, 2, 3, 1]),
            node("Split", ["turned"], ["a", "b"], axis=2, num_outputs=2),
        ]
        return 24, nodes, ["a", "b"]
    if form == "selected":
        nodes = [
            node("Reshape", ["y", "by_part"], ["r"]),
            node("Transpose", ["r"], ["turned"], perm=[2, 0, 3, 1, 4]),
            *(node("Gather", ["turned", f"i{n}"], [name], axis=0) for n, name in enumerate("abc")),
            node("Transpose", ["b"], ["d"], perm=[0, 1, 3, 2]),
        ]
        return 24, nodes, ["a", "c", "d"]
    if form == "parts of parts":
        nodes = [
            node("Split", ["y"], ["p", "q"], axis=-1, num_outputs=2),
            node("Slice", ["p", "n0", "n4", "n2"], ["low"]),
            node("Slice", ["p", "n4", "n8", "n2"], ["high"]),
            node("Neg", ["high"], ["less"]),
            node("Concat", ["less", "low"], ["turned"], axis=-1),
            node("Mul", ["p", "sines"], ["kept"]),
            node("Add", ["turned", "kept"], ["a"]),
            node("Transpose", ["q"], ["turned_q"], perm=[2, 0, 1]),
            node("Relu", ["turned_q"], ["b"]),
        ]
        return 16, nodes, ["a", "b"]
    half, rest = ("n0", "n4"), ("n4", "n8")
    nodes = [node("Slice", ["y", *ends, "n2"], [n]) for n, ends in (("l", half), ("h", rest))]
    if form == "halves that meet":
        nodes += [
            node("Mul", ["l", "number"], ["part"]),
            node("Sub", ["part", "h"], ["apart"]),
            node("Transpose", ["h"], ["turned_h"], perm=[0, 2, 1]),
        ]
        return 8, nodes, ["apart", "turned_h"]
    if form == "gates":
        return 8, [*nodes, node("Sigmoid", ["l"], ["gate"])], ["gate", "h"]
    nodes.append(node("Transpose", ["l"], ["turned"], perm=[0, 2, 1]))
    if form == "read whole as well":
        return 8, [*nodes, node("Relu", ["y"], ["all"])], ["turned", "h", "all"]
    assert form == "some rows"
    some = [
        node("Slice", ["y", "n0", "n2", "n1"], ["top"]),
        node("Slice", ["top", "n4", "n8", "n2"], ["part"]),
    ]
    return 8, [nodes[0], nodes[2], *some], ["turned", "part"]


SPLIT = {"split": 3, "two of three": 2, "by head": 2, "selected": 3, "parts of parts": 2}
WHOLE = ("gates", "halves that meet", "read whole as well", "some rows")
CONSTANTS = {f"n{n}": np.array([n]) for n in (0, 1, 2, 4, 8, 12)} | {
    "by_head": np.array([1, TOKENS, 2, 12]),
    "by_part": np.array([1, TOKENS, 3, 2, 4]),
    **{f"i{n}": np.array(n) for n in range(3)},
    "sines": np.sin(np.arange(8, dtype=np.float32)),
    "number": np.array(0.5, np.float32),
}


def network(form: str, quantised: str = "", seed: int = 0):
    chance = np.random.default_rng(seed)
    channels, behind, outputs = steps(form)
    behind = list(behind)
    bias = chance.normal(0, 1, channels).astype(np.float32)
    constants = CONSTANTS | {"bias": bias}
    if not quantised:
        constants["w"] = chance.normal(0, 0.3, (DEPTH, channels)).astype(np.float32)
        ahead = [node("MatMul", ["x", "w"], ["m"]), node("Add", ["m", "bias"], ["y"])]
    else:
        scales = chance.uniform(0.01, 0.02, channels).astype(np.float32)
        constants |= {
            "wi": chance.integers(-127, 128, (DEPTH, channels)).astype(np.int8),
            "ws": scales if "channels" in quantised else np.array(0.02, np.float32),
            "wz": np.zeros(channels if "channels" in quantised else (), np.int8),
            "bi": np.rint(bias * 20).astype(np.int8),
        } | scalars(s=0.03, z=np.int8(4), t=0.11, u=np.int8(-7), bs=0.05)
        ahead = [
            node("QuantizeLinear", ["x", "s", "z"], ["xq"]),
            node("DequantizeLinear", ["xq", "s", "z"], ["xd"]),
            node("DequantizeLinear", ["wi", "ws", "wz"], ["w"], axis=1),
            node("DequantizeLinear", ["bi", "bs"], ["held"]),
            node("MatMul", ["xd", "w"], ["m"]),
        ]
        last = "m"
        if "twice" in quantised:  # as ONNX Runtime's quantiser does
            ahead += [
                node("QuantizeLinear", ["m", "t", "u"], ["mq"]),
                node("DequantizeLinear", ["mq", "t", "u"], ["md"]),
            ]
            last = "md"
        ahead += [
            node("Add", [last, "held"], ["sum"]),
            node("QuantizeLinear", ["sum", "t", "u"], ["yq"]),
            node("DequantizeLinear", ["yq", "t", "u"], ["y"]),
        ]
    inputs = [value("x", np.float32, (1, TOKENS, DEPTH))]
    return model([*ahead, *behind], inputs, outputs, constants, 18).SerializeToString()


def products(graph) -> int:
    return sum(node.op in ("matmul", "qconv") for node in graph.nodes)


@pytest.mark.parametrize("form", [*SPLIT, *WHOLE])
def test_floats_stay_the_same(form):
    graph = fold_constants(import_onnx(network(form)))
    split = split_products(graph)
    assert products(split) == SPLIT.get(form, 1)
    if form in SPLIT and form != "parts of parts":
        moves = {node.op for node in split.nodes}
        assert not moves & {"slice", "gather", "concat"}
    given = {"x": np.random.default_rng(1).normal(0, 1, (1, TOKENS, DEPTH)).astype(np.float32)}
    expected, found = evaluate(graph, given), evaluate(split, given)
    for name, array in expected.items():
        assert np.allclose(array, found[name], rtol=1e-5, atol=1e-5)
        assert array.shape == found[name].shape


@pytest.mark.parametrize("quantised", ["once", "by channels", "twice", "twice by channels"])
@pytest.mark.parametrize("form", [*SPLIT, *WHOLE])
def test_integers_are_equal(form, quantised):
    proto = network(form, quantised, seed=2)
    graph, whole = import_model(proto), fold_constants(import_onnx(proto))
    layers = [node.attributes for node in graph.nodes]
    weighted = [each for each in layers if isinstance(each, QConv) and each.kind == "dense"]
    assert len(weighted) == SPLIT.get(form, 1)
    given = {"x": np.random.default_rng(3).normal(0, 2, (1, TOKENS, DEPTH)).astype(np.float32)}
    expected, found = evaluate(whole, given), evaluate(graph, given)
    for name, array in expected.items():
        assert np.array_equal(array, found[name]), name
