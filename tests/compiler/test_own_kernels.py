"""Kernels of the user's own inside a network: as text, in floats, in integers, on both targets."""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tilewright import PRESETS, Comparison, Session, import_model, open_device, te
from tilewright.compiler.exporters import export_onnx
from tilewright.compiler.graph import Graph, evaluate, parse_graph, print_graph, verify
from tilewright.compiler.graph import operators as ops
from tilewright.compiler.importers import import_onnx
from tilewright.compiler.kernel_text import read_kernel, write_kernel
from tilewright.compiler.pipeline import compile_module
from tilewright.compiler.placement import Placement
from tilewright.compiler.quantiser import QuantiserOptions, make_batches, quantise
from tilewright.compiler.register_operator import register_operator
from tilewright.compiler.registered import REGISTERED, registered_key
from tilewright.errors import CompileError, ImportModelError, UnfitError

from .host.agreement import assert_agrees, selected
from .onnx_models import model, node, value

DOMAIN = "com.example"
SHAPE = (1, 6, 7, 5)
"""Images [N, C, H, W]; six channels fill no block of lanes."""


@pytest.fixture(autouse=True)
def _only_own() -> Iterator[None]:
    before = dict(REGISTERED)
    REGISTERED.clear()
    yield
    REGISTERED.clear()
    REGISTERED.update(before)


def axes(x: te.DeclaredTensor) -> tuple[te.Index, ...]:
    return te.axes(**dict(zip("nyxc", x.shape, strict=True)))


def weighted(x, w, shift: int):
    """A pixel to the right, times a weight for each channel: `w` is a constant of the model."""
    n, y, column, c = index = axes(x)
    product = x[n, y, column + shift, c] * w[c]
    return te.kernel("weighted", te.compute("out", "float32", index, product))


def weighted_int8(x, w, shift: int, quantisation):
    n, y, column, c = index = axes(x)
    scale = te.tensor("scale", "float32", w.shape)
    (first, second), result = quantisation.inputs, quantisation.output
    factor = np.full(w.shape, first.scale * second.scale / result.scale, np.float32)
    total = te.requantise(x[n, y, column + shift, c] * w[c], scale[c]) + result.zero_point
    out = te.clamp(total, quantisation.low, quantisation.high)
    made = te.compute("out", "int8", index, out)
    return te.kernel("weighted", made, constants={"scale": factor})


def network(**more: Any) -> bytes:
    """Two convolutions around a node, with Relu behind it."""
    random = np.random.default_rng(3)
    weights = {
        name: (random.normal(size=shape) * 0.4).astype(np.float32)
        for name, shape in {"k": (6, 6, 1, 1), "w": (6,)}.items()
    }
    nodes = [
        node("Conv", ["x", "k"], ["a"], name="before"),
        node("Weighted", ["a", "w"], ["b"], name="own", domain=DOMAIN, **more),
        node("Relu", ["b"], ["c"], name="relu"),
        node("Conv", ["c", "k"], ["y"], name="after"),
    ]
    return model(nodes, [value("x", np.float32, SHAPE)], ["y"], weights).SerializeToString()


def register(quantised: Any = weighted_int8, kernel: Any = weighted) -> None:
    register_operator(
        "Weighted", domain=DOMAIN, kernel=kernel, quantised=quantised, parameters={"shift": 1}
    )


def samples(count: int = 8) -> dict[str, np.ndarray]:
    random = np.random.default_rng(1)
    return {"x": random.normal(size=(count, *SHAPE)).astype(np.float32)}


def integers() -> Graph:
    graph = import_onnx(network())
    return quantise(graph, make_batches(graph, samples()), QuantiserOptions()).integer_graph()


def own_node(graph: Graph):
    (found,) = (n for n in graph.nodes if isinstance(n.attributes, ops.QKernel | ops.OwnKernel))
    return found


TEXTS = (
    "x: int8[1, 4] pad 3; s: float32[4]; y: int8[n<1, c<4] = "
    "clamp((requantise(x[n, c + 1], s[c]) + -7), -128, 127)",
    "x: float32[8]; y: float32[i<8] = select(less(x[i], 0.5), (exp(x[i]) * -1e-05), x[i])",
    "x: int8[9, 2]; t: int8[256]; y: int32[i<4, j<2] = max(x[2*i + k - 1, j]) over k<3; "
    "z: int8[i<4, j<2] = lookup(t[()], clamp(y[i, j], -128, 127))",
)


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_the_text_of_a_kernel_is_read_back(text: str) -> None:
    assert write_kernel(read_kernel(text)).replace("t[]", "t[()]") == text


@pytest.mark.parametrize(
    "text",
    [
        "x: int8[4",
        "x: int8[4]; y: int8[i<4] = x[j]",
        "x: int8[4]; y: int8[i<4] = x[i, i]",
        "x: int8[4]; y: int8[i<4] = z[i]",
        "x: int8[4]; y: int8[i<4] = open(x[i])",
        "x: int8[4]; x: int8[4]",
        "x: object[4]",
        "x: int8[99999999999]",
        "x: int8[4]; y: int8[i<4] = x[i]" + " " * 20_000,
    ],
)
def test_a_malformed_text_is_refused(text: str) -> None:
    with pytest.raises(CompileError, match="expected statements such as"):
        read_kernel(text)


def test_in_floats_the_kernel_sees_channels_last_and_is_machine_code() -> None:
    register()
    graph = import_onnx(network(shift=2))
    own = own_node(graph)
    assert own.op == "Weighted"
    assert own.attributes == ops.OwnKernel(
        "com.example.Weighted",
        "x0: float32[1, 7, 5, 6]; x1: float32[6]; out: float32[n<1, y<7, x<5, c<6] = "
        "(x0[n, y, x + 2, c] * x1[c])",
        (("shift", 2),),
    )
    x = samples(1)["x"][0]
    (got,) = evaluate(graph, {"x": x}).values()
    k, w = (graph.data(name) for name in ("k", "w"))
    inner = np.einsum("oi,nihw->nohw", k[:, :, 0, 0], x) * w[:, None, None]
    inner = np.maximum(np.pad(inner, [(0, 0)] * 3 + [(0, 2)])[..., 2:], 0)
    np.testing.assert_allclose(
        got, np.einsum("oi,nihw->nohw", k[:, :, 0, 0], inner), rtol=1e-4, atol=1e-5
    )
    kernels = selected(import_model(network(shift=2)))
    (kernel,) = (one for one in kernels if own.name in [n.name for n in one.nodes])
    assert not kernel.exact
    assert_agrees(import_model(network(shift=2)), {"x": x})


def test_quantised_it_runs_on_the_accelerator_and_in_machine_code_bit_by_bit() -> None:
    register()
    graph = integers()
    own = own_node(graph)
    assert isinstance(own.attributes, ops.QKernel)
    for policy in ("accelerator", "host"):
        module = compile_module(
            graph, PRESETS["4x4"], keep_all=True, placement=Placement(policy, strict=True)
        )
        placed = [layer.op for segment in module.segments for layer in segment.layers]
        assert ("Weighted" in placed) is (policy == "accelerator")
        comparison = Comparison(module)
        with open_device("sim" if placed else "host", module.configuration) as device:
            session = Session(module, device, keep_all=True)
            for x in samples(3)["x"]:
                comparison.add({"x": x}, session.run(x))
        assert comparison.first_difference() is None
        assert comparison.equal


def summed(x, w, shift: int):
    index = axes(x)
    return te.kernel("summed", te.compute("out", "float32", index, x[index] + w[index]))


def summed_int8(x, w, shift: int, quantisation):
    index = axes(x)
    value = te.clamp(x[index] + w[index], quantisation.low, quantisation.high)
    return te.kernel("summed", te.compute("out", "int8", index, value))


def test_a_kernel_of_two_activations_runs_on_the_accelerator() -> None:
    register(summed_int8, summed)
    random = np.random.default_rng(3)
    weights = {"k": (random.normal(size=(6, 6, 1, 1)) * 0.4).astype(np.float32)}
    nodes = [
        node("Conv", ["x", "k"], ["a"], name="before"),
        node("Conv", ["a", "k"], ["b"], name="between"),
        node("Weighted", ["a", "b"], ["y"], name="own", domain=DOMAIN),
    ]
    made = model(nodes, [value("x", np.float32, SHAPE)], ["y"], weights).SerializeToString()
    graph = import_onnx(made)
    graph = quantise(graph, make_batches(graph, samples()), QuantiserOptions()).integer_graph()
    module = compile_module(graph, PRESETS["4x4"], keep_all=True, placement=Placement(strict=True))
    assert "Weighted" in [layer.op for segment in module.segments for layer in segment.layers]
    comparison = Comparison(module)
    with open_device("sim", module.configuration) as device:
        session = Session(module, device, keep_all=True)
        for x in samples(3)["x"]:
            comparison.add({"x": x}, session.run(x))
    assert comparison.first_difference() is None
    assert comparison.equal


def test_the_form_in_integers_gets_scales_zero_points_and_limits() -> None:
    asked = []

    def note(*operands, quantisation, **more):
        asked.append((operands, quantisation))
        return weighted_int8(*operands, quantisation=quantisation, **more)

    register(note)
    graph = integers()
    ((x, w), quantisation) = asked[-1]
    assert (x.shape, x.tensor.pad, w.shape) == ((1, 7, 5, 6), 0, (6,))
    assert [one.zero_point for one in quantisation.inputs] == [0, 0]
    assert quantisation.low == quantisation.output.zero_point  # of the Relu behind it
    found = own_node(graph)
    assert found.output.type.quantisation == quantisation.output
    weights = graph.data(found.inputs[1])
    assert weights.dtype == np.int8
    assert np.abs(weights).max() == 127


def test_a_graph_carries_its_kernels() -> None:
    register()
    graph = integers()
    REGISTERED.clear()
    again = parse_graph(print_graph(graph), {one.name: one.data for one in graph.constants})
    assert verify(again, "text") == graph


def test_an_exported_kernel_is_read_back() -> None:
    register()
    graph = import_onnx(network())
    again = import_onnx(export_onnx(graph).SerializeToString())
    assert own_node(again).attributes == own_node(graph).attributes
    x = {"x": samples(1)["x"][0]}
    (got,), (wanted,) = (evaluate(one, x).values() for one in (again, graph))
    np.testing.assert_array_equal(got, wanted)


def test_without_a_form_in_integers_it_stays_in_float() -> None:
    register(None)
    assert isinstance(own_node(integers()).attributes, ops.OwnKernel)


def reversed_int8(x, w, shift: int, quantisation):
    """Channels in another order, which the accelerator cannot read."""
    n, y, column, c = index = axes(x)
    total = te.clamp(x[n, y, column, c * -1 + (x.shape[3] - 1)] + w[c], -128, 127)
    return te.kernel("reversed", te.compute("out", "int8", index, total))


def shifted_int8(x, w, shift: int, quantisation):
    """A function that no instruction computes."""
    index = axes(x)
    value = te.select(te.less(x[index], w[index[3]]), x[index], w[index[3]])
    return te.kernel("least", te.compute("out", "int8", index, value))


@pytest.mark.parametrize(
    ("form", "why"),
    [(reversed_int8, "does not read channels one by one"), (shifted_int8, "no instruction")],
)
def test_a_kernel_that_does_not_fit_the_accelerator_runs_on_the_cpu(form, why) -> None:
    register(form)
    graph = integers()
    strict = Placement(strict=True)
    with pytest.raises(UnfitError, match=rf"layer `own`: .*{why}.*; the host runs it"):
        compile_module(graph, PRESETS["4x4"], placement=strict)
    module = compile_module(graph, PRESETS["4x4"], keep_all=True)
    assert own_node(module.graph).output.name in module.steps
    comparison = Comparison(module)
    with open_device("sim", module.configuration) as device:
        x = samples(1)["x"][0]
        comparison.add({"x": x}, Session(module, device, keep_all=True).run(x))
    assert comparison.equal


def raises(*operands, shift):
    raise KeyError("here")


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (raises, "expected `raises` to return a kernel, got `KeyError: 'here'`; correct it"),
        (lambda x, w, shift: 7, "expected `<lambda>` to return a `te.kernel`, got int; correct it"),
        (lambda x, w, shift: only(x), "expected it to read x0, x1, got x0; read every operand"),
        (lambda x, w, shift: x[0], "kernel of `com.example.Weighted`: tensor `x0` has 4 dim"),
    ],
)
def test_a_function_that_makes_no_kernel_is_refused(kernel, message) -> None:
    register(kernel=kernel)
    with pytest.raises(ImportModelError, match=re.escape(message)):
        import_onnx(network())


def only(x: te.DeclaredTensor):
    return te.kernel("only", te.compute("out", "float32", axes(x), x[axes(x)]))


def test_attributes_are_those_that_were_registered() -> None:
    register()
    with pytest.raises(ImportModelError, match=r"a number for attribute `shift`, got `far`"):
        import_onnx(network(shift="far"))


def test_either_a_law_or_a_kernel_is_given() -> None:
    for more in ({}, {"law": "x", "kernel": weighted}, {"law": "x", "quantised": weighted_int8}):
        with pytest.raises(CompileError, match="expected a `law`, or a `kernel` and perhaps"):
            register_operator("New", domain=DOMAIN, **more)


def test_the_names_of_attributes_are_free_but_for_one() -> None:
    def named(x, w, order, name):
        return weighted(x, w, int(order))

    register_operator(
        "Weighted", domain=DOMAIN, kernel=named, parameters={"order": 1, "name": "none"}
    )
    made = own_node(import_onnx(network(order=2))).attributes
    assert isinstance(made, ops.OwnKernel)
    assert made.settings == (("order", 2), ("name", "none"))
    with pytest.raises(CompileError, match="expected other parameters than `quantisation`, which"):
        register_operator("New", domain=DOMAIN, kernel=named, parameters={"quantisation": 1})


def test_code_of_the_users_own_has_no_key_before_it_has_run() -> None:
    assert registered_key() == ()
    register()
    assert registered_key() is None


def test_a_kernel_without_elements_has_no_text():
    (i,) = te.axes(i=0)
    x = te.tensor("x", "float32", (0,))
    kernel = te.kernel("none", te.compute("y", "float32", (i,), x[i] * 2.0))
    with pytest.raises(CompileError, match=r"tensor `x`: expected extents of 1 or more, got \[0\]"):
        write_kernel(kernel)
