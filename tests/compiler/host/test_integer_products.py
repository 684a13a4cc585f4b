"""Dynamically quantised networks run in machine code, with the bits of their definition."""

import numpy as np
import pytest
from onnx import helper

from tilewright.compiler.cpu import LEVELS, Convolution, Extent, MatrixProduct, dequantised
from tilewright.compiler.graph import Graph, evaluate
from tilewright.compiler.graph import operators as ops

from ...processor import target_at
from .agreement import run_kernels, selected
from .networks import imported, node, normal

GENERATOR = np.random.default_rng(3)

QUANTISE = helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"])


def network(weights: np.ndarray, zero: object, by_column: bool = False, add: bool = True) -> Graph:
    """Import a product in the form that onnxruntime's dynamic quantiser writes."""
    columns = weights.shape[-1]
    scale = np.float32(0.01) * (np.arange(1, columns + 1) if by_column else 1)
    nodes = [
        QUANTISE,
        node("MatMulInteger", "q w z u", "i"),
        node("Cast", "i", "f", to=1),
        node("Mul", "s t", "st"),
        node("Mul", "f st", "y" if not add else "m"),
        *([node("Add", "b m", "y")] if add else []),
    ]
    constants = {"w": weights, "u": zero, "t": scale.astype(np.float32)}
    constants |= {"b": normal(columns)} if add else {}
    return imported(nodes, {"x": normal(2, 24, 48)}, constants)


def result(graph: Graph, x: np.ndarray, level: str = "sse2") -> np.ndarray:
    return run_kernels(graph, {"x": x}, target_at(level))[graph.outputs[0].value]


def drawn(dtype: str) -> np.ndarray:
    limits = np.iinfo(dtype)
    return GENERATOR.integers(limits.min, limits.max, (48, 40), dtype, endpoint=True)


def described(graph: Graph) -> MatrixProduct:
    """The only product's description; its kernel is exact."""
    ((found, exact),) = (
        (kernel.description, kernel.exact)
        for kernel in selected(graph)
        if isinstance(kernel.description, MatrixProduct)
    )
    assert exact
    assert isinstance(found, MatrixProduct)
    return found


def assert_in_machine_code(graph: Graph, level: str) -> None:
    kernels = selected(graph)
    covered = {one.output.name for kernel in kernels for one in kernel.nodes}
    views = {one.output.name for one in graph.nodes if isinstance(one.attributes, ops.Reshape)}
    assert covered | views == {one.output.name for one in graph.nodes}
    x = normal(2, 24, 48)
    got = result(graph, x, level)
    np.testing.assert_array_equal(got, evaluate(graph, {"x": x})["y"])


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize("add", [False, True])
def test_a_product_takes_its_scale_and_bias(add: bool, by_column: bool, level: str) -> None:
    graph = network(drawn("int8"), np.int8(0), by_column, add)
    assert_in_machine_code(graph, level)
    description = described(graph)
    factor = Extent.COLUMNS if by_column else Extent.ONE
    assert description.epilogue == dequantised(True, factor, has_addend=add)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("zero", [128, 100, 0])
def test_weights_beyond_int8_are_shifted_into_it(zero: int, level: str) -> None:
    weights = drawn("uint8")
    weights[0, :2] = 0, 255
    assert_in_machine_code(network(weights, np.uint8(zero)), level)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("zero", [None, 0, 90])
def test_a_product_takes_a_zero_point_that_is_known(
    zero: int | None, dtype: str, level: str
) -> None:
    nodes = [node("MatMulInteger", "x w" if zero is None else "x w z", "y")]
    x = drawn(dtype).T.reshape(2, 20, 48)
    constants = {"w": drawn("int8")} | ({} if zero is None else {"z": np.array(zero, dtype)})
    graph = imported(nodes, {"x": x}, constants)
    assert described(graph).epilogue == dequantised(has_row=False)
    got = result(graph, x, level)
    expected = (x.astype(int) - (zero or 0)) @ constants["w"].astype(int)
    np.testing.assert_array_equal(got, expected)


def test_a_product_of_no_terms_stays_with_the_definition() -> None:
    inputs = {"x": np.zeros((3, 0), np.uint8), "z": np.uint8(7)}
    product = node("MatMulInteger", "x w z")
    graph = imported([product], inputs, {"w": np.zeros((0, 4), np.int8)})
    assert not any(isinstance(each.description, MatrixProduct) for each in selected(graph))
    np.testing.assert_array_equal(evaluate(graph, inputs)["y"], np.zeros((3, 4)))


def test_a_product_that_others_read_as_well_is_not_scaled_in_it() -> None:
    nodes = [
        QUANTISE,
        node("MatMulInteger", "q w z", "i"),
        node("Cast", "i", "f", to=1),
        node("Mul", "f s", "m"),
        node("Add", "m f", "y"),
    ]
    graph = imported(nodes, {"x": normal(2, 24, 48)}, {"w": drawn("int8")})
    assert_in_machine_code(graph, "sse2")


def test_the_square_of_a_row_is_not_scaled_in_the_product() -> None:
    nodes = [
        QUANTISE,
        node("MatMulInteger", "q w z", "i"),
        node("Cast", "i", "f", to=1),
        node("Mul", "f f", "y"),
    ]
    x = normal(1, 48)
    graph = imported(nodes, {"x": x}, {"w": drawn("int8")})
    assert described(graph).epilogue == dequantised(has_row=True)
    got = result(graph, x)
    np.testing.assert_array_equal(got, evaluate(graph, {"x": x})["y"])


@pytest.mark.parametrize("weights", ["exact in float32", "in int32 alone"])
def test_a_convolution_of_bytes_is_exact(weights: str) -> None:
    channels, largest = (6, 127) if weights.startswith("exact") else (300, 255)
    w = np.full((8, channels, 3, 3), largest, np.uint8)
    w[:, ::2] = 0
    nodes = [
        QUANTISE,
        node("ConvInteger", "q w z", "i", pads=[1, 1, 1, 1]),
        node("Cast", "i", "y", to=1),
    ]
    graph = imported(nodes, {"x": normal(1, channels, 5, 7)}, {"w": w})
    kinds = {type(one.attributes) for one in graph.nodes}
    assert (ops.QSums if weights.startswith("exact") else ops.Conv) in kinds
    x = normal(1, channels, 5, 7)
    got, expected = result(graph, x), evaluate(graph, {"x": x})["y"]
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("level", LEVELS)
def test_a_convolution_of_bytes_whose_sums_nearly_fill_float32_is_exact(level: str) -> None:
    """Winograd's method, which floats may take, would need more bits than the sums."""
    w = GENERATOR.integers(90, 128, (64, 64, 3, 3), np.int8)
    nodes = [node("ConvInteger", "x w", "i", pads=[1, 1, 1, 1]), node("Cast", "i", "y", to=1)]
    x = GENERATOR.integers(150, 256, (1, 64, 14, 14), np.uint8)
    graph = imported(nodes, {"x": x}, {"w": w})
    assert any(isinstance(kernel.description, Convolution) for kernel in selected(graph))
    got = result(graph, x, level)
    np.testing.assert_array_equal(got, evaluate(graph, {"x": x})["y"])
