"""Matrix products: what follows and precedes them is done in the kernel, wherever values lie."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler.cpu import Epilogue, HeadProduct, MatrixProduct, real_epilogue
from tilewright.compiler.graph import Graph, evaluate
from tilewright.compiler.graph import operators as ops
from tilewright.compiler.graph.build import Builder
from tilewright.compiler.host import HostKernel

from ...processor import VECTOR_LEVELS, target_at
from .agreement import assert_agrees, run_kernels, selected
from .networks import built, imported, node, normal

pytestmark = pytest.mark.processor

TOLERANCES = (1e-4, 1e-5)


def scaled_by(factor: float) -> Epilogue:
    return Epilogue(("mul", "sum", factor), "float32")


def one_kernel(graph: Graph, inputs: dict[str, np.ndarray]) -> HostKernel:
    """The kernel that a graph becomes as a whole."""
    (kernel,) = assert_agrees(graph, inputs, *TOLERANCES)
    assert kernel.nodes == graph.nodes
    assert not kernel.exact
    return kernel


@pytest.mark.parametrize("shape", [(7, 33), (2, 5, 33), (2, 1, 3, 33), (1, 33)])
def test_leading_axes_are_rows(shape: tuple[int, ...]) -> None:
    x = normal(*shape)

    def make(builder: Builder) -> str:
        product = builder.emit(ops.MatMul(), ["x", builder.constant(normal(33, 20))])
        total = builder.emit(ops.Binary("Add"), [builder.constant(normal(20)), product])
        return builder.emit(ops.Unary("Relu"), [total])

    kernel = one_kernel(built({"x": x}, make), {"x": x})
    assert isinstance(kernel.description, MatrixProduct)
    assert kernel.description.rows == x.size // 33


@pytest.mark.parametrize("kind", ["Relu", "Sigmoid", "Tanh", "Gelu", "HardSwish", "Swish"])
def test_a_residual_comes_before_the_activation(kind: str) -> None:
    x, other = normal(3, 8, 16), normal(3, 8, 24)

    def make(builder: Builder) -> str:
        product = builder.emit(ops.MatMul(), ["x", builder.constant(normal(16, 24))])
        biased = builder.emit(ops.Binary("Add"), [product, builder.constant(normal(1, 24))])
        total = builder.emit(ops.Binary("Add"), ["other", biased])
        return builder.emit(ops.Unary(kind, (1.0,) if kind == "Swish" else ()), [total])

    inputs = {"x": x, "other": other}
    kernel = one_kernel(built(inputs, make), inputs)
    assert kernel.inputs == {"x": "x", "residual": "other"}


def test_a_gate_on_the_product_itself_is_its_activation() -> None:
    x = normal(5, 16)

    def make(builder: Builder) -> str:
        product = builder.emit(ops.MatMul(), ["x", builder.constant(normal(16, 24))])
        gate = builder.emit(ops.Unary("Sigmoid"), [product])
        return builder.emit(ops.Binary("Mul"), [gate, product])

    one_kernel(built({"x": x}, make), {"x": x})


def test_gemm_is_a_product_with_its_factors() -> None:
    x = normal(9, 16)
    gemm = node("Gemm", "x w b", "t", transB=1, alpha=0.5, beta=3.0)
    weights = {"w": normal(12, 16), "b": normal(12)}
    clip = node("Clip", "t low high")
    weights |= {"low": np.array(0, np.float32), "high": np.array(6, np.float32)}
    graph = imported([gemm, clip], {"x": x}, weights)
    kernel = one_kernel(graph, {"x": x})
    assert isinstance(kernel.description, MatrixProduct)
    assert kernel.description.epilogue == real_epilogue("relu6")


@pytest.mark.parametrize("shape", [(8, 1), (8, 12)])
def test_a_bias_for_each_row_is_none_of_the_product(shape: tuple[int, int]) -> None:
    x = normal(8, 16)
    graph = imported([node("Gemm", "x w b")], {"x": x}, {"w": normal(16, 12), "b": normal(*shape)})
    kernels = assert_agrees(graph, {"x": x}, *TOLERANCES)
    assert [len(kernel.nodes) for kernel in kernels] == [1, 1]


RAISED = "Div x root s, Erf s e, Add e one r, "
GELUS = {
    "halved last": RAISED + "Mul x r p, Mul p half y",
    "halved first": "Mul x half h, Mul x inverse s, Erf s e, Add one e r, Mul h r y",
    "halved between": RAISED + "Mul half r h, Mul x h y",
    "another factor": RAISED + "Mul x r p, Mul p third y",
    "turned around": RAISED.replace("x root", "root x") + "Mul x r p, Mul p half y",
}


@pytest.mark.parametrize("form", GELUS)
def test_gelu_as_exporters_write_it_is_an_activation(form: str) -> None:
    a = normal(6, 10)
    values = {"root": 2**0.5, "inverse": 0.5**0.5, "one": 1, "half": 0.5, "third": 1 / 3}
    weights = {name: np.array(value, np.float32) for name, value in values.items()}
    nodes = [node("MatMul", "a w", "x")]
    for step in GELUS[form].split(", "):
        op, *names, output = step.split()
        nodes.append(node(op, " ".join(names), output))
    weights = {name: value for name, value in weights.items() if name in GELUS[form].split()}
    graph = imported(nodes, {"a": a}, weights | {"w": normal(10, 30)})
    kernel = assert_agrees(graph, {"a": a}, *TOLERANCES)[0]
    assert isinstance(kernel.description, MatrixProduct)
    whole = form.startswith("halved")
    assert kernel.description.epilogue == real_epilogue("gelu" if whole else "")
    assert (len(kernel.nodes) == 6) == whole


def test_a_value_that_is_read_before_gelu_stays() -> None:
    a = normal(6, 10)

    def make(builder: Builder) -> list[str]:
        x = builder.emit(ops.MatMul(), ["a", builder.constant(normal(10, 12))])
        scaled = builder.emit(
            ops.Binary("Div"), [x, builder.constant(np.array([2**0.5], np.float32))]
        )
        curve = builder.emit(ops.Unary("Erf"), [scaled])
        raised = builder.emit(
            ops.Binary("Add"), [curve, builder.constant(np.array([1], np.float32))]
        )
        product = builder.emit(ops.Binary("Mul"), [x, raised])
        half = builder.emit(
            ops.Binary("Mul"), [product, builder.constant(np.array([0.5], np.float32))]
        )
        return [x, half]

    graph = built({"a": a}, make)
    first, second = assert_agrees(graph, {"a": a}, *TOLERANCES)
    assert len(first.nodes) == 1
    assert len(second.nodes) == 5


def test_half_of_a_value_that_is_shown_is_not_lost() -> None:
    a = normal(6, 10)

    def make(builder: Builder) -> list[str]:
        def number(value: float) -> str:
            return builder.constant(np.array(value, np.float32))

        x = builder.emit(ops.MatMul(), ["a", builder.constant(normal(10, 12))])
        half = builder.emit(ops.Binary("Mul"), [x, number(0.5)])
        scaled = builder.emit(ops.Binary("Div"), [x, number(2**0.5)])
        curve = builder.emit(ops.Unary("Erf"), [scaled])
        raised = builder.emit(ops.Binary("Add"), [curve, number(1)])
        return [half, builder.emit(ops.Binary("Mul"), [half, raised])]

    kernels = assert_agrees(built({"a": a}, make), {"a": a}, *TOLERANCES)
    assert len(kernels[0].nodes) == 1


# Products of two activations ---------------------------------------------------------------------

PERMUTATIONS = {
    "as they are": (None, None, None),
    "heads inside": ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)),
    "keys turned": (None, (0, 1, 3, 2), None),
    "values inside": (None, (0, 2, 1, 3), (0, 2, 1, 3)),
    "in another way": ((1, 0, 2, 3), (2, 0, 1, 3), (3, 0, 1, 2)),
}


@pytest.mark.parametrize("name", PERMUTATIONS)
@pytest.mark.parametrize("factor", [1.0, 0.25])
def test_transposes_and_factors_are_part_of_attention(name: str, factor: float) -> None:
    before_a, before_b, after = PERMUTATIONS[name]
    shapes = {"a": (2, 3, 17, 8), "b": (2, 3, 8, 19)}
    inputs = {}
    for key, order in (("a", before_a), ("b", before_b)):
        order = order or (0, 1, 2, 3)
        inputs[key] = normal(*(shapes[key][order.index(axis)] for axis in range(4)))

    def make(builder: Builder) -> str:
        operands = []
        for key, order in (("a", before_a), ("b", before_b)):
            operands.append(builder.emit(ops.Transpose(order), [key]) if order else key)
        result = builder.emit(ops.MatMul(), operands)
        if factor != 1.0:
            result = builder.emit(
                ops.Binary("Mul"), [result, builder.constant(np.array([factor], np.float32))]
            )
        return builder.emit(ops.Transpose(after), [result]) if after else result

    graph = built(inputs, make)
    kernels = assert_agrees(graph, inputs, *TOLERANCES)
    (kernel,) = kernels
    assert isinstance(kernel.description, HeadProduct)
    assert kernel.description.epilogue == scaled_by(factor)
    assert (kernel.nodes == graph.nodes) == (name != "in another way")


def test_a_factor_before_the_product_counts() -> None:
    inputs = {"q": normal(1, 6, 2, 8), "k": normal(1, 6, 2, 8)}

    def make(builder: Builder) -> str:
        scaled = builder.emit(ops.Binary("Mul"), ["q", builder.constant(np.array(0.5, np.float32))])
        query = builder.emit(ops.Transpose((0, 2, 1, 3)), [scaled])
        key = builder.emit(ops.Transpose((0, 2, 3, 1)), ["k"])
        divided = builder.emit(
            ops.Binary("Div"), [key, builder.constant(np.array(4.0, np.float32))]
        )
        return builder.emit(ops.MatMul(), [query, divided])

    kernel = one_kernel(built(inputs, make), inputs)
    assert isinstance(kernel.description, HeadProduct)
    assert kernel.description.epilogue == scaled_by(0.125)
    assert kernel.description.joined == (True, True, False)


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("shape", [(), (1, 1, 1, 1)])
def test_a_factor_of_zero_is_no_factor(before: bool, shape: tuple[int, ...]) -> None:
    inputs = {"a": normal(2, 4, 8), "b": normal(2, 8, 4)}

    def make(builder: Builder) -> str:
        zero = builder.constant(np.zeros(shape, np.float32))
        left = builder.emit(ops.Binary("Mul"), ["a", zero]) if before else "a"
        product = builder.emit(ops.MatMul(), [left, "b"])
        return product if before else builder.emit(ops.Binary("Mul"), [product, zero])

    assert assert_agrees(built(inputs, make), inputs, *TOLERANCES)


def test_a_transpose_that_another_node_reads_stays() -> None:
    inputs = {"a": normal(2, 5, 3, 8), "b": normal(2, 3, 8, 4)}

    def make(builder: Builder) -> list[str]:
        turned = builder.emit(ops.Transpose((0, 2, 1, 3)), ["a"])
        return [builder.emit(ops.MatMul(), [turned, "b"]), builder.emit(ops.Unary("Exp"), [turned])]

    kernels = assert_agrees(built(inputs, make), inputs, *TOLERANCES)
    assert sorted(type(kernel.description).__name__ for kernel in kernels) == [
        "Elementwise",
        "HeadProduct",
    ]
    assert all(len(kernel.nodes) == 1 for kernel in kernels)


def test_heads_of_a_batch_of_sequences_in_one_axis() -> None:
    """As PyTorch's attention has them: [tokens, batch * heads, channels]."""
    inputs = {"a": normal(9, 6, 8), "b": normal(9, 6, 8)}

    def make(builder: Builder) -> str:
        query = builder.emit(ops.Transpose((1, 0, 2)), ["a"])
        key = builder.emit(ops.Transpose((1, 2, 0)), ["b"])
        return builder.emit(ops.MatMul(), [query, key])

    one_kernel(built(inputs, make), inputs)


@pytest.mark.parametrize("constant", ["a", "b"])
def test_one_operand_may_be_a_constant(constant: str) -> None:
    arrays = {"a": normal(3, 4, 8), "b": normal(3, 8, 5)}

    def make(builder: Builder) -> str:
        held = builder.constant(arrays[constant])
        names = [held if name == constant else name for name in arrays]
        return builder.emit(ops.MatMul(), names)

    inputs = {name: array for name, array in arrays.items() if name != constant}
    kernel = one_kernel(built(inputs, make), inputs)
    assert kernel.description.constants == (constant,)


def test_other_types_stay_with_the_definition() -> None:
    a, b = normal(4, 8).astype(np.float64), normal(8, 4).astype(np.float64)
    graph = built({"a": a, "b": b}, lambda x: x.emit(ops.MatMul(), ["a", "b"]))
    assert not selected(graph)


EXTENTS = st.integers(1, 40)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_random_products(data: st.DataObject) -> None:
    rows, inner, columns = (data.draw(EXTENTS) for _ in range(3))
    lead = tuple(data.draw(st.lists(st.integers(1, 3), max_size=3)))
    other = data.draw(st.sampled_from([lead, (), (1,) * len(lead), lead[-1:]]))
    inputs = {"a": normal(*lead, rows, inner), "b": normal(*other, inner, columns)}
    graph = built(inputs, lambda x: x.emit(ops.MatMul(), ["a", "b"]))
    assert len(assert_agrees(graph, inputs, *TOLERANCES)) == 1


BROADCAST = [
    ((6, 1, 9, 20), (1, 5, 20, 33)),
    ((2, 3, 17, 40), (1, 3, 40, 7)),
    ((2, 3, 1, 40), (3, 40, 64)),
    ((11, 16), (4, 16, 33)),
    ((1, 3, 10, 12), (2, 1, 12, 5)),
    ((2, 1, 1, 5, 6), (1, 3, 4, 6, 37)),
    ((2, 3, 4, 5, 6), (3, 4, 6, 18)),
    ((2, 2, 70, 1024), (2, 1, 1024, 16)),
]


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize(("left", "right"), BROADCAST)
def test_products_are_broadcast(left: tuple[int, ...], right: tuple[int, ...], level: str) -> None:
    inputs = {"a": normal(*left), "b": normal(*right)}

    def make(builder: Builder) -> str:
        product = builder.emit(ops.MatMul(), ["a", "b"])
        factor = builder.constant(np.array(0.5, np.float32))
        return builder.emit(ops.Binary("Mul"), [product, factor])

    graph, target = built(inputs, make), target_at(level)
    (kernel,) = selected(graph, target)
    assert isinstance(kernel.description, HeadProduct)
    assert len(kernel.nodes) == 2
    got = run_kernels(graph, inputs, target)[graph.outputs[0].value]
    (expected,) = evaluate(graph, inputs).values()
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=2e-4)


def test_a_broadcast_in_the_middle_of_other_axes_stays_with_numpy() -> None:
    inputs = {"a": normal(2, 1, 2, 5, 6), "b": normal(2, 3, 1, 6, 7)}
    graph = built(inputs, lambda b: b.emit(ops.MatMul(), ["a", "b"]))
    assert not selected(graph)


def test_a_transposed_operand_may_be_broadcast() -> None:
    inputs = {"a": normal(4, 3, 9, 16), "b": normal(1, 3, 20, 16)}

    def make(builder: Builder) -> str:
        turned = builder.emit(ops.Transpose((0, 1, 3, 2)), ["b"])
        return builder.emit(ops.MatMul(), ["a", turned])

    one_kernel(built(inputs, make), inputs)
