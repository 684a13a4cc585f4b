"""ONNX's own tests of quantised operators on the accelerator: what runs there, and why not all do.

The tests hand over weights, scales and zero points as inputs. Here those are fixed, as in the files
that quantisers write; the activations stay inputs.
"""

import numpy as np
import pytest

from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import Graph, evaluate, is_accelerated
from tilewright.compiler.importers import import_onnx
from tilewright.compiler.pipeline import compile_module
from tilewright.flows.conformance.cases import arrays_of, compare, load_cases
from tilewright.isa.configuration import PRESETS
from tilewright.runtime import Session, open_device

from .quantised_cases import quantised_case

QUANTISED = {
    *("QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger"),
    *("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"),
}

DENSE = ("qconv",)
"""A layer whose weights take nine bits without their zero point."""

ACCELERATED = {
    ("test_qlinearconv", "x"): DENSE,
    **{
        (f"test_qlinearmatmul_{rank}_{kind}_float{bits}", left): found
        for left, ranks, found in (("a", ("2D",), DENSE), ("ab", ("2D", "3D"), ("qmatmul",)))
        for rank in ranks
        for kind in ("uint8", "int8")
        for bits in (16, 32)
    },
    ("test_maxpool_2d_uint8", "x"): ("qmaxpool",),
    ("test_convinteger_without_padding", "x"): ("qsums",),
    ("test_convinteger_with_padding", "x"): ("qsums",),
    ("test_matmulinteger", "A"): ("qsums",),
}
"""Case and the inputs that are left -> what runs on the accelerator."""

HOST = {
    "scales are computed at run time": tuple(
        f"test_dynamicquantizelinear{variant}{form}"
        for variant in ("", "_max_adjusted", "_min_adjusted")
        for form in ("", "_expanded")
    ),
    "real numbers on one side": (
        *("test_quantizelinear", "test_quantizelinear_axis"),
        *("test_dequantizelinear", "test_dequantizelinear_axis"),
    ),
    "neither int8 nor uint8, or a scale for each block": (
        *(
            f"test_{operator}_{kind}"
            for operator in ("quantizelinear", "dequantizelinear")
            for kind in ("e4m3fn", "e5m2", "uint16", "int16", "uint4", "int4", "uint2", "int2")
        ),
        *("test_quantizelinear_float4e2m1", "test_dequantizelinear_float4e2m1"),
        *("test_dequantizelinear_e4m3fn_float16", "test_dequantizelinear_e4m3fn_zero_point"),
        *("test_quantizelinear_blocked_asymmetric", "test_quantizelinear_blocked_symmetric"),
        "test_dequantizelinear_blocked",
    ),
}
"""Why a case stays on the host -> the cases."""


@pytest.fixture(scope="module")
def cases():
    return {case.name: case for case in load_cases()}


def imported(case, left: str) -> tuple[Graph, dict[str, np.ndarray], list[np.ndarray]]:
    """The graph with the inputs of one letter in `left` open, their values, and the outputs."""
    inputs, expected = arrays_of(case)
    fixed = {name: array for name, array in inputs.items() if name not in left}
    graph = import_model(case.model.SerializeToString(), fixed=fixed)
    return graph, {value.name: inputs[value.name] for value in graph.inputs}, expected


def accelerated(graph: Graph) -> tuple[str, ...]:
    return tuple(node.op for node in graph.nodes if is_accelerated(node))


def outputs_of(device: str, name: str, graph: Graph, inputs) -> list[np.ndarray]:
    with open_device(device, PRESETS[name]) as opened:
        run = Session(compile_module(graph, PRESETS[name]), opened).run(inputs)
    return list(run.outputs.values())


every_accelerated = pytest.mark.parametrize(("name", "left"), ACCELERATED)


@every_accelerated
@pytest.mark.parametrize("preset", ["4x4", "8x16", "16x16"])
def test_a_case_on_the_accelerator_is_right_to_the_last_bit(cases, name, left, preset):
    graph, inputs, expected = imported(cases[name], left)
    assert accelerated(graph) == ACCELERATED[name, left]
    results = outputs_of("sim", preset, graph, inputs)
    assert all(array.dtype.kind in "iu" for array in results), "compared without tolerance"
    assert not compare(results, expected, 0, 0)


@pytest.mark.slow
@every_accelerated
def test_a_case_on_the_hardware_is_right_to_the_last_bit(cases, name, left):
    graph, inputs, expected = imported(cases[name], left)
    assert not compare(outputs_of("rtl", "4x4", graph, inputs), expected, 0, 0)


@pytest.mark.parametrize("cause", HOST)
def test_a_case_on_the_host_is_there_for_a_reason(cases, cause):
    for name in HOST[cause]:
        case = cases[name]
        graph, inputs, expected = imported(case, "xaA")
        assert not accelerated(graph), f"`{name}` runs on the accelerator now: list it there"
        results = outputs_of("sim", "4x4", graph, inputs)
        assert not compare(results, expected, case.rtol, case.atol), name


def test_every_case_of_a_quantised_operator_is_listed(cases):
    known = {name for name, _ in ACCELERATED} | {name for names in HOST.values() for name in names}
    found = {
        name
        for name, case in cases.items()
        if QUANTISED & {node.op_type for node in case.model.graph.node}
    }
    assert found == known - {"test_maxpool_2d_uint8"}


IN_INT8 = {
    "Conv": (6, 0),
    "Gemm": (11, 0),
    "MatMul": (7, 0),
    "Add": (2, 0),
    "Sub": (3, 0),
    "Mul": (3, 0),
    "Relu": (1, 0),
    "LeakyRelu": (3, 0),
    "Sigmoid": (2, 0),
    "Tanh": (2, 0),
    "Gelu": (4, 0),
    "HardSwish": (1, 0),
    "Elu": (3, 0),
    "Clip": (9, 0),
    "Erf": (1, 0),
    "Exp": (2, 0),
    "Sqrt": (2, 0),
    "MaxPool": (16, 0),
    "AveragePool": (7, 13),
    "GlobalAveragePool": (2, 0),
    "GlobalMaxPool": (2, 0),
    "Concat": (12, 0),
    "Split": (14, 2),
    "Slice": (7, 1),
    "Resize": (15, 24),
    "Transpose": (7, 0),
    "Reshape": (9, 1),
    "Flatten": (9, 0),
    "DepthToSpace": (2, 0),
    "SpaceToDepth": (4, 0),
    "Gather": (4, 0),
    "Squeeze": (2, 0),
    "Unsqueeze": (7, 0),
    "Softmax": (0, 7),
}
"""Operator -> how many of its float cases run on the accelerator in int8, and how many do not."""


@pytest.mark.parametrize("operator", IN_INT8)
def test_a_float_operator_in_int8_has_its_meaning(cases, operator):
    """Every bit is the integer definition's, which is within a step of the rounded float one."""
    counts = [0, 0]
    for case in cases.values():
        if [node.op_type for node in case.model.graph.node] != [operator]:
            continue
        if any(np.asarray(array).dtype != np.float32 for array in arrays_of(case)[1]):
            continue
        made = quantised_case(case)
        meaning = import_onnx(made.model, fixed=made.fixed)
        graph = import_model(made.model, fixed=made.fixed)
        counts[not accelerated(graph)] += 1
        inputs = {value.name: made.inputs[value.name] for value in graph.inputs}
        results = outputs_of("sim", "4x4", graph, inputs)
        assert not compare(results, list(evaluate(graph, inputs).values()), 0, 0), case.name
        wanted = evaluate(meaning, inputs).values()
        for one, other, step in zip(results, wanted, made.steps, strict=True):
            assert np.abs(one - other).max(initial=0) < 1.01 * step, case.name
    assert tuple(counts) == IN_INT8[operator]
