"""Chains of elementwise operators: the definition's bits, or functions to within rounding."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler.cpu import LEVELS, Elementwise
from tilewright.compiler.cpu.kernels.formulas import OPERATIONS
from tilewright.compiler.formulas import APPROXIMATED, operations_in
from tilewright.compiler.graph import Graph, evaluate
from tilewright.compiler.graph import operators as ops
from tilewright.compiler.graph.build import Builder
from tilewright.compiler.graph.functions import BINARY, UNARY
from tilewright.compiler.graph.operators import Where
from tilewright.compiler.host import chains

from ...processor import VECTOR_LEVELS, target_at
from .agreement import assert_agrees, run_kernels, selected
from .networks import built, imported, node, normal

PARAMETERS = {
    "Celu": (1.25,),
    "Clip": (-1.0, 2.5),
    "Elu": (1.3,),
    "HardSigmoid": (float(np.float32(0.2)), 0.5),
    "LeakyRelu": (float(np.float32(0.01)),),
    "Selu": (1.6732631921768188, 1.0507010221481323),
    "Shrink": (0.25, 0.5),
    "Swish": (1.5,),
    "ThresholdedRelu": (1.0,),
}
COMPILED = [
    kind
    for kind, function in UNARY.items()
    if "float32" in function.types and OPERATIONS.keys() >= {*operations_in(function.formula)}
]
NEAR = [kind for kind in COMPILED if APPROXIMATED & {*operations_in(UNARY[kind].formula)}]
EXACT = [kind for kind in COMPILED if kind not in NEAR]
COMPARISONS = [kind for kind, function in BINARY.items() if function.test]

EDGES = np.array(
    [
        *(0.0, -0.0, np.nan, np.inf, -np.inf, 0.5, -0.5, 1.5, 2.5, -1.5, -2.5, 0.3, -0.3, -0.7),
        *(1e-45, -1e-45, 3e38, -3e38, 8388607.5, -8388607.5, 8388609, 3e9, -3e9, 3, -3, 6, 127.5),
    ],
    np.float32,
)


MAKE_KERNEL = chains._kernel


def numbers(shape: tuple[int, ...]) -> np.ndarray:
    """Numbers of all sizes, edges of the format among them."""
    found = normal(*shape) * np.float32(4)
    flat = found.reshape(-1)
    where = np.random.default_rng(flat.size).integers(0, len(EDGES), flat.size)
    flat[::3] = EDGES[where][::3]
    return found


def whole(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    generator = np.random.default_rng(5)
    if dtype == "bool":
        return generator.integers(0, 2, shape).astype(bool)
    limits = np.iinfo(dtype)
    return generator.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def assert_same_bits(graph: Graph, inputs: dict[str, np.ndarray], level: str | None = None) -> None:
    """All outputs, signs of zero included; NaNs are one."""
    got, expected = run_kernels(graph, inputs, target_at(level)), evaluate(graph, inputs)
    for output in graph.outputs:
        ours, wanted = got[output.value], expected[output.name]
        assert ours.dtype == wanted.dtype
        assert ours.shape == wanted.shape
        if wanted.dtype == np.float32:
            nothing = np.isnan(wanted)
            np.testing.assert_array_equal(np.isnan(ours), nothing)
            ours, wanted = (np.where(nothing, 0, one).view(np.int32) for one in (ours, wanted))
        np.testing.assert_array_equal(ours, wanted)


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("kind", EXACT)
def test_an_exact_function_has_the_bits_of_the_definition(kind: str, level: str) -> None:
    x = numbers((3, 107))
    graph = built({"x": x}, lambda b: b.emit(ops.Unary(kind, PARAMETERS.get(kind, ())), ["x"]))
    (kernel,) = selected(graph)
    assert kernel.exact
    assert_same_bits(graph, {"x": x}, level)


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("kind", NEAR)
def test_a_function_is_within_rounding(kind: str, level: str) -> None:
    x = numbers((3, 107))
    graph = built({"x": x}, lambda b: b.emit(ops.Unary(kind, PARAMETERS.get(kind, ())), ["x"]))
    (kernel,) = selected(graph)
    assert not kernel.exact
    (name,) = (output.value for output in graph.outputs)
    got = run_kernels(graph, {"x": x}, target_at(level))[name]
    (expected,) = evaluate(graph, {"x": x}).values()
    np.testing.assert_allclose(got, expected, rtol=3e-6, atol=2e-7)


@pytest.mark.parametrize("kind", ["Relu", "Abs", "Neg", "Sign", "BitwiseNot"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_functions_of_integers_wrap(kind: str, dtype: str) -> None:
    x = whole(dtype, (5, 67))
    x[0, :2] = np.iinfo(dtype).min, np.iinfo(dtype).max
    graph = built({"x": x}, lambda b: b.emit(ops.Unary(kind), ["x"]))
    assert [kernel.exact for kernel in selected(graph)] == [True]
    assert_same_bits(graph, {"x": x})


FLOATS = ("Add", "Sub", "Mul", "Div", "Max", "Min", "PRelu", *COMPARISONS)
WHOLE = ("Add", "Sub", "Mul", "Max", "Min", "BitwiseAnd", "BitwiseOr", "BitwiseXor", *COMPARISONS)


@pytest.mark.parametrize("dtype", ["float32", "int8", "uint8", "int32", "int64"])
def test_every_binary_function_has_the_bits_of_the_definition(dtype: str) -> None:
    shape = (6, 41)
    if dtype == "float32":
        a, b = numbers(shape), np.roll(numbers(shape), 7)
        b[::2] = a[::2]
    else:
        a, b = whole(dtype, shape), np.roll(whole(dtype, shape), 3)
        b[::2] = a[::2]
    for kind in FLOATS if dtype == "float32" else WHOLE:
        graph = built({"a": a, "b": b}, lambda x, k=kind: x.emit(ops.Binary(k), ["a", "b"]))
        assert [kernel.exact for kernel in selected(graph)] == [True]
        assert_same_bits(graph, {"a": a, "b": b})


@pytest.mark.parametrize("source", ["float32", "int8", "uint8", "int32", "int64", "bool"])
@pytest.mark.parametrize("target", ["float32", "int8", "uint8", "int32", "int64", "bool"])
def test_conversions_are_exact_or_left_to_numpy(source: str, target: str) -> None:
    x = numbers((4, 50)) if source == "float32" else whole(source, (4, 50))
    graph = built({"x": x}, lambda b: b.emit(ops.Cast(target), ["x"]))
    undefined = source == "float32" and target in ("int8", "uint8", "int64")
    assert len(selected(graph)) == (0 if undefined else 1)
    assert_same_bits(graph, {"x": x})


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("columns", [1, 7, 50, 333])
def test_float16_is_converted_as_the_definition(columns: int, level: str) -> None:
    """Rounded half to even, to infinity beyond its range, and to subnormal numbers."""
    x = numbers((4, columns))
    x[0] *= np.float32(2.0**-20)
    x[1, 0], x[2, 0] = 65519.996, 65520.0
    with np.errstate(over="ignore"):
        halves = x.astype(np.float16)
    there = built(
        {"x": x}, lambda b: b.emit(ops.Cast("float16"), [b.emit(ops.Unary("Neg"), ["x"])])
    )
    back = built(
        {"x": halves}, lambda b: b.emit(ops.Unary("Relu"), [b.emit(ops.Cast("float32"), ["x"])])
    )
    kernels = int(LEVELS[level].halves)
    for graph, array in ((there, x), (back, halves)):
        steps = selected(graph, target_at(level))
        assert sum(len(step.nodes) for step in steps) == 1 + kernels
        assert_same_bits(graph, {"x": array}, level)


def test_arithmetic_of_float16_keeps_its_roundings() -> None:
    x = normal(4, 50).astype(np.float16)
    graph = built(
        {"x": x}, lambda b: b.emit(ops.Binary("Add"), ["x", b.emit(ops.Unary("Relu"), ["x"])])
    )
    assert not selected(graph)


def test_a_pair_of_casts_rounds_in_between() -> None:
    x = numbers((4, 50))

    def make(builder: Builder) -> str:
        half = builder.emit(ops.Cast("float16"), ["x"])
        return builder.emit(ops.Cast("float32"), [half])

    assert_same_bits(built({"x": x}, make), {"x": x})


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("axis", [None, 1, 2])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_quantisation_saturates_as_the_definition(dtype: str, axis: int | None, level: str) -> None:
    x = numbers((2, 5, 19))
    count = 1 if axis is None else x.shape[axis]
    scales = tuple(float(np.float32(s)) for s in np.linspace(0.01, 0.3, count))
    zeros = tuple(range(3, 3 + count))

    def make(builder: Builder) -> str:
        bytes_ = builder.emit(ops.Quantize(scales, zeros, dtype, axis), ["x"])
        real = builder.emit(ops.Dequantize(scales, zeros, axis), [bytes_])
        total = builder.emit(ops.Binary("Add"), [real, "x"])
        return builder.emit(ops.Quantize((0.25,), (0,), dtype), [total])

    graph = built({"x": x}, make)
    (kernel,) = selected(graph)
    assert kernel.exact
    assert len(kernel.nodes) == 4
    assert_same_bits(graph, {"x": x}, level)


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("kinds", ["Add", "Sub", "Neg Add", "Neg Sub", "Abs Add", "Neg Abs Sub"])
@pytest.mark.parametrize("first", [False, True])
def test_a_product_and_a_sum_are_rounded_apart(kinds: str, first: bool, level: str) -> None:
    """In one, they would keep what the definition rounds away."""
    x, y, z = normal(8, 333), normal(8, 333), normal(8, 333)
    *functions, last = kinds.split()

    def make(builder: Builder) -> str:
        product = builder.emit(ops.Binary("Mul"), ["x", "y"])
        for kind in functions:
            product = builder.emit(ops.Unary(kind), [product])
        return builder.emit(ops.Binary(last), [product, "z"] if first else ["z", product])

    graph = built({"x": x, "y": y, "z": z}, make)
    (kernel,) = selected(graph)
    assert kernel.exact
    assert_same_bits(graph, {"x": x, "y": y, "z": z}, level)


def test_what_nobody_reads_needs_no_operand() -> None:
    x, z = normal(4, 30), normal(4, 30)

    def make(builder: Builder) -> str:
        first = builder.emit(ops.Unary("Relu"), ["x"])
        builder.emit(ops.Binary("Add"), [first, "z"])
        return builder.emit(ops.Unary("Neg"), [builder.emit(ops.Unary("Abs"), [first])])

    assert_same_bits(built({"x": x, "z": z}, make), {"x": x, "z": z})


def test_a_shift_is_part_of_a_chain() -> None:
    x = whole("uint8", (3, 33))

    def make(builder: Builder) -> str:
        moved = builder.emit(ops.Shift(), ["x"])
        real = builder.emit(ops.Dequantize((0.5,), (-3,)), [moved])
        back = builder.emit(ops.Quantize((0.25,), (1,), "int8"), [real])
        return builder.emit(ops.Shift(), [back])

    graph = built({"x": x}, make)
    assert [len(kernel.nodes) for kernel in selected(graph)] == [4]
    assert_same_bits(graph, {"x": x})


@pytest.mark.parametrize(
    "shapes",
    [
        ((2, 3, 4, 5), (5,)),
        ((2, 3, 4, 5), (3, 1, 1)),
        ((2, 3, 4, 5), (2, 1, 4, 1)),
        ((2, 3, 4, 5), (1, 3, 1, 5)),
        ((4, 7), (4, 1)),
        ((4, 1), (1, 7)),
        ((1, 1, 9), (6, 1, 1)),
        ((3, 50, 70), (50, 1)),
        ((600, 33), (33,)),
    ],
)
@pytest.mark.parametrize("constant", [False, True])
def test_operands_are_broadcast(shapes: tuple[tuple[int, ...], ...], constant: bool) -> None:
    a, b = (normal(*shape) for shape in shapes)

    def make(builder: Builder) -> str:
        other = builder.constant(b) if constant else "b"
        total = builder.emit(ops.Binary("Sub"), ["a", other])
        return builder.emit(ops.Unary("Relu"), [builder.emit(ops.Binary("Mul"), [other, total])])

    inputs = {"a": a} if constant else {"a": a, "b": b}
    graph = built(inputs, make)
    (kernel,) = selected(graph)
    assert len(kernel.nodes) == 3
    assert_same_bits(graph, inputs)


# Which nodes make a chain ------------------------------------------------------------------------


def test_branches_that_meet_again_are_one_kernel() -> None:
    x = normal(4, 30)

    def make(builder: Builder) -> str:
        first = builder.emit(ops.Binary("Add"), ["x", "x"])
        left = builder.emit(ops.Unary("Sigmoid"), [first])
        right = builder.emit(ops.Unary("Abs"), [builder.emit(ops.Unary("Neg"), [first])])
        return builder.emit(ops.Binary("Mul"), [left, right])

    graph = built({"x": x}, make)
    (kernel,) = assert_agrees(graph, {"x": x}, 1e-6, 1e-7)
    assert kernel.nodes == graph.nodes


def test_what_feeds_a_chain_alone_is_part_of_it() -> None:
    x, z = normal(4, 30), normal(4, 30)

    def make(builder: Builder) -> str:
        left = builder.emit(ops.Unary("Relu"), ["x"])
        right = builder.emit(ops.Unary("Neg"), [builder.emit(ops.Unary("Abs"), ["z"])])
        return builder.emit(ops.Binary("Sub"), [left, right])

    graph = built({"x": x, "z": z}, make)
    (kernel,) = selected(graph)
    assert kernel.nodes == graph.nodes
    assert_same_bits(graph, {"x": x, "z": z})


def test_a_value_that_is_shown_ends_a_chain() -> None:
    x = normal(4, 30)

    def make(builder: Builder) -> list[str]:
        first = builder.emit(ops.Unary("Relu"), ["x"])
        return [first, builder.emit(ops.Unary("Neg"), [first])]

    graph = built({"x": x}, make)
    assert [len(kernel.nodes) for kernel in selected(graph)] == [1, 1]
    assert_same_bits(graph, {"x": x})


def test_a_value_that_is_shown_ends_a_branch() -> None:
    x = normal(4, 30)

    def make(builder: Builder) -> list[str]:
        first = builder.emit(ops.Unary("Relu"), ["x"])
        left = builder.emit(ops.Unary("Neg"), [first])
        return [left, builder.emit(ops.Binary("Mul"), [left, first])]

    graph = built({"x": x}, make)
    assert [len(kernel.nodes) for kernel in selected(graph)] == [1, 1, 1]
    assert_same_bits(graph, {"x": x})


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("kind", ["Add", "Sub", "Mul"])
def test_bytes_wrap_inside_of_a_chain(kind: str, dtype: str) -> None:
    a, b = whole(dtype, (4, 50)), np.roll(whole(dtype, (4, 50)), 3)

    def make(builder: Builder) -> str:
        wrapped = builder.emit(ops.Binary(kind), ["a", "b"])
        return builder.emit(ops.Dequantize((0.5,), (1,)), [wrapped])

    graph = built({"a": a, "b": b}, make)
    assert [len(kernel.nodes) for kernel in selected(graph)] == [2]
    assert_same_bits(graph, {"a": a, "b": b})


def to_16_bits(builder: Builder, x: str, dtype: str) -> tuple[str, tuple[str, str]]:
    """Emit a quantisation, and return the scale and zero point as well."""
    scale = builder.constant(np.array(0.25, np.float32))
    zero = builder.constant(np.array(7, dtype))
    integers = builder.emit(ops.GeneralQuantize(0, 0, dtype), [x, scale, zero])
    return integers, (scale, zero)


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("dtype", ["int16", "uint16"])
def test_values_of_16_bits_pass_through_a_chain(dtype: str, level: str) -> None:
    x = np.append(numbers((5, 67)), normal(5, 67) * np.float32(9000), 0)

    def make(builder: Builder) -> str:
        real = builder.emit(ops.Unary("Abs"), ["x"])
        integers, parameters = to_16_bits(builder, real, dtype)
        real = builder.emit(ops.GeneralDequantize(0, 0, "float32"), [integers, *parameters])
        return builder.emit(ops.Unary("Neg"), [real])

    graph = built({"x": x}, make)
    (kernel,) = selected(graph)
    assert kernel.exact
    assert len(kernel.nodes) == 4
    assert_same_bits(graph, {"x": x}, level)


@pytest.mark.parametrize("shown", [False, True])
def test_values_of_16_bits_are_not_stored(shown: bool) -> None:
    """NumPy computes what writes or reads them, or computes with them."""
    x = numbers((5, 67))

    def make(builder: Builder) -> list[str]:
        integers, parameters = to_16_bits(builder, "x", "int16")
        if not shown:
            integers = builder.emit(ops.Binary("Add"), [integers, integers])
        real = builder.emit(ops.GeneralDequantize(0, 0, "float32"), [integers, *parameters])
        return [integers, real] if shown else [real]

    graph = built({"x": x}, make)
    assert not selected(graph)
    assert_same_bits(graph, {"x": x})


def test_a_value_that_something_else_reads_ends_a_chain() -> None:
    x = normal(4, 30)

    def make(builder: Builder) -> list[str]:
        first = builder.emit(ops.Unary("Relu"), ["x"])
        turned = builder.emit(ops.Transpose((1, 0)), [first])
        return [turned, builder.emit(ops.Unary("Neg"), [builder.emit(ops.Unary("Abs"), [first])])]

    graph = built({"x": x}, make)
    assert [len(kernel.nodes) for kernel in selected(graph)] == [1, 2]
    assert_same_bits(graph, {"x": x})


def test_quotients_of_integers_stay_with_the_definition() -> None:
    x = whole("int32", (4, 30))
    for kind in ("Div", "Mod"):
        graph = built({"x": x}, lambda b, k=kind: b.emit(ops.Binary(k), ["x", "x"]))
        assert not selected(graph)


def test_a_large_constant_of_64_bits_stays_with_the_definition() -> None:
    x = whole("int64", (4, 30))
    graph = built(
        {"x": x}, lambda b: b.emit(ops.Binary("Add"), ["x", b.constant(np.array(1 << 40))])
    )
    assert not selected(graph)


def test_a_chain_does_not_outgrow_a_kernel() -> None:
    """What is read twice is computed twice, again and again."""
    x = normal(2, 20)

    def make(builder: Builder) -> str:
        value = "x"
        for _ in range(20):
            value = builder.emit(ops.Unary("Softsign"), [value])
        return value

    graph = built({"x": x}, make)
    found = selected(graph)
    assert 1 < len(found) < 20
    assert_same_bits(graph, {"x": x})


def test_an_exporters_hard_swish_is_one_kernel() -> None:
    x = normal(2, 8, 6, 6)
    graph = imported([node("HardSigmoid", "x", "t"), node("Mul", "t x")], {"x": x}, {})
    (kernel,) = selected(graph)
    assert isinstance(kernel.description, Elementwise)
    assert_same_bits(graph, {"x": x})


# Random ones -------------------------------------------------------------------------------------

RANDOM = {
    "float32": ("Relu", "Abs", "Neg", "Floor", "Round", "Sign", "Sqrt", "HardSwish", "Reciprocal"),
    "int8": ("Relu", "Abs", "Neg", "BitwiseNot"),
    "uint8": ("Relu", "BitwiseNot", "Neg"),
    "int32": ("Relu", "Abs", "Neg", "BitwiseNot"),
    "bool": ("Not",),
}

NUMBERS = {
    "float32": (0.0, -0.0, 2.5, -1.0, np.inf, -np.inf, 1e-45),
    "int8": (0, -128, 127, 3),
    "uint8": (0, 255, 3),
    "int32": (0, -(1 << 31), 5),
}


@st.composite
def random_graphs(draw: st.DrawFn) -> tuple[Graph, dict[str, np.ndarray]]:
    """Any directed graph of exact operators over a few inputs, some of them broadcast."""
    shape = tuple(draw(st.lists(st.integers(1, 7), min_size=1, max_size=4)))
    inputs: dict[str, np.ndarray] = {}
    for position in range(draw(st.integers(1, 3))):
        dtype = draw(st.sampled_from(tuple(RANDOM)))
        sizes = tuple(size if draw(st.booleans()) else 1 for size in shape) if position else shape
        inputs[f"x{position}"] = numbers(sizes) if dtype == "float32" else whole(dtype, sizes)

    def make(builder: Builder) -> list[str]:
        values = list(inputs)
        for _ in range(draw(st.integers(1, 9))):
            values.append(draw(steps(builder, values)))
        read = {name for one in builder.nodes for name in one.inputs}
        return [name for name in values if name not in inputs and name not in read]

    return built(inputs, make), inputs


@st.composite
def steps(draw: st.DrawFn, builder: Builder, values: list[str]) -> str:
    """One more node."""
    x = draw(st.sampled_from(values))
    dtype = builder.types[x].dtype
    same = [name for name in values if builder.types[name].dtype == dtype]
    other = draw(st.sampled_from(same))
    what = draw(st.sampled_from(("unary", "binary", "where", "cast")))
    if what == "unary":
        return builder.emit(ops.Unary(draw(st.sampled_from(RANDOM[dtype]))), [x])
    if what == "binary":
        kinds = {"float32": FLOATS, "bool": ("And", "Or", "Xor", "Equal")}.get(dtype, WHOLE)
        if dtype in NUMBERS and draw(st.booleans()):
            value = draw(st.sampled_from(NUMBERS[dtype]))
            other = builder.constant(np.array(value, dtype))
        pair = [x, other] if draw(st.booleans()) else [other, x]
        return builder.emit(ops.Binary(draw(st.sampled_from(kinds))), pair)
    truths = [name for name in values if builder.types[name].dtype == "bool"]
    if what == "where" and truths:
        return builder.emit(Where(), [draw(st.sampled_from(truths)), x, other])
    if dtype == "float32":
        scale, zero = draw(st.sampled_from([0.1, 0.25, 3.0])), draw(st.integers(0, 9))
        operator = ops.Quantize((float(np.float32(scale)),), (zero,), "uint8")
        return builder.emit(operator, [x])
    if dtype in ("int8", "uint8"):
        return builder.emit(ops.Dequantize((float(np.float32(0.3)),), (3,)), [x])
    return builder.emit(
        ops.Cast(draw(st.sampled_from(("float32", "int32", "int8", "uint8", "bool")))), [x]
    )


@settings(max_examples=60, deadline=None)
@given(random_graphs())
def test_random_chains_have_the_bits_of_the_definition(found) -> None:
    graph, inputs = found
    assert all(kernel.exact for kernel in selected(graph))
    covered = [name.outputs[0].name for kernel in selected(graph) for name in kernel.nodes]
    assert len(covered) == len(set(covered))
    assert_same_bits(graph, inputs)


@settings(max_examples=60, deadline=None)
@given(random_graphs())
def test_no_kernel_is_missed_where_longer_chains_failed(found) -> None:
    assert_all_tried(found[0])


def test_a_chain_beyond_a_limit_is_cut_at_once(monkeypatch) -> None:
    def make(builder: Builder) -> str:
        value = "x"
        for _ in range(40):
            value = builder.emit(ops.Binary("Add"), [value, builder.constant(normal(8))])
        return value

    graph = built({"x": normal(4, 8)}, make)
    assert [len(kernel.nodes) for kernel in selected(graph)] == [11, 11, 11, 7]
    assert_all_tried(graph)
    tried = []
    monkeypatch.setattr(
        chains, "_kernel", lambda *words: tried.append(words[1]) or MAKE_KERNEL(*words)
    )
    selected(graph)
    assert len(tried) <= 12, "three for each kernel"


def assert_all_tried(graph: Graph) -> None:
    """The kernels are those found when a chain that fails says nothing about others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chains, "_kernel", lambda scope, nodes, _: MAKE_KERNEL(scope, nodes, []))
        every = [kernel.nodes for kernel in selected(graph)]
    assert [kernel.nodes for kernel in selected(graph)] == every
