"""Einsum: matrix products become MatMul, products without a sum Mul; all others stay Einsum."""

import numpy as np
import pytest

from tilewright.compiler.graph import evaluate
from tilewright.compiler.importers import import_onnx

from .onnx_models import model, node, run_onnxruntime, value

GENERATOR = np.random.default_rng(23)


def random(*shape: int) -> np.ndarray:
    return GENERATOR.standard_normal(shape).astype(np.float32)


EXTENTS = {"b": 2, "t": 5, "q": 3, "d": 8, "h": 4, "k": 6}


@pytest.mark.parametrize(
    ("equation", "moves"),
    [
        ("btd,dhk->bthk", 3),
        ("bthk,bqhk->bhtq", 2),
        ("bhtq,bqhk->bthk", 2),
        ("td,dk->tk", 0),
        ("td,dk->kt", 1),
        ("td, kd", 2),
        ("btd,bd->bt", 2),
        ("td,d->t", 2),
        ("td,td->", 3),
        ("td,kh->tdkh", None),
        ("dt,td->td", None),
        ("btd,dk->bk", None),
    ],
)
@pytest.mark.parametrize("constant", [False, True])
def test_an_einsum_of_two_matrices_is_a_product(
    constant: bool, equation: str, moves: int | None
) -> None:
    first, second = (
        random(*(EXTENTS[letter] for letter in term.strip()))
        for term in equation.partition("->")[0].split(",")
    )
    given = {"x": first} if constant else {"x": first, "w": second}
    shown = [value(name, np.float32, array.shape) for name, array in given.items()]
    nodes = [node("Einsum", ["x", "w"], ["y"], equation=equation)]
    proto = model(nodes, shown, ["y"], {"w": second} if constant else {})
    graph = import_onnx(proto.SerializeToString())
    kinds = [one.op for one in graph.nodes]
    assert kinds.count("matmul") == (moves is not None)
    if moves is not None and not constant:
        assert len(kinds) == 1 + moves
    got = evaluate(graph, given)["y"]
    expected = run_onnxruntime(proto, given)["y"]
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("equation", "operators"),
    [
        ("bhtd,bhdk,bht->bhtk", ["matmul", "binary"]),
        ("td,kd,h->tkh", ["matmul", "binary"]),
        ("bt,td,dk,kq->bq", ["matmul", "matmul", "matmul"]),
        ("td,kh,td->dtkh", ["binary", "binary"]),
        ("td,dk,kh->h", ["einsum", "matmul"]),
        ("...td,...dk->...tk", ["matmul"]),
        ("...td,dk->...tk", ["matmul"]),
        ("...td,...dk", ["einsum"]),
    ],
)
def test_operands_are_combined_from_the_left(equation: str, operators: list[str]) -> None:
    terms = equation.partition("->")[0].replace("...", "bh").split(",")
    given = {f"x{i}": random(*(EXTENTS[letter] for letter in term)) for i, term in enumerate(terms)}
    shown = [value(name, np.float32, array.shape) for name, array in given.items()]
    proto = model([node("Einsum", list(given), ["y"], equation=equation)], shown, ["y"])
    graph = import_onnx(proto.SerializeToString())
    moves = ("reshape", "transpose")
    assert [one.op for one in graph.nodes if one.op not in moves] == operators
    got, expected = evaluate(graph, given)["y"], run_onnxruntime(proto, given)["y"]
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
