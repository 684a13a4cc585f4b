"""Attention is one kernel on a GPU: in PTX and in OpenCL C, in every form and of any size."""

import warnings
from collections.abc import Mapping

import numpy as np
import pytest
from onnx import helper

import tilewright
from tilewright import te
from tilewright.compiler.cpu import Attention, Epilogue, HeadProduct, generic
from tilewright.compiler.cpu import compile_kernel as compile_for_cpu
from tilewright.compiler.cpu.target import host_levels
from tilewright.compiler.gpu import blocks
from tilewright.compiler.gpu.kernel import compile_kernel, planned_for
from tilewright.compiler.gpu.lower import compile_program
from tilewright.compiler.gpu.schedules import default_schedule
from tilewright.compiler.gpu.target import GpuTarget
from tilewright.compiler.graph import Graph, evaluate
from tilewright.compiler.host import HostKernel, fused_attention, plan_host
from tilewright.compiler.te.nodes import For, nodes
from tilewright.compiler.te.target import Kind
from tilewright.compiler.tensor import Kernel
from tilewright.runtime.gpu.opencl import OpenClDriver

from ..onnx_models import model, value
from ..test_import_attention import FORMS
from .running import drawn, run_kernel, run_module, run_opencl
from .test_networks import transformer

SCALED = Epilogue(("mul", "sum", 0.4), "float32")


def heads(
    images: int, heads: int, rows: int, size: int, keys: int, values: int, **forms
) -> tuple[HeadProduct, HeadProduct]:
    """Both products; keys lie as they do, and values beside those of other heads."""
    turned, joined = forms.pop("turned", True), forms.pop("joined", False)
    once = forms.pop("once", ((False, False), (False, False)))
    first = HeadProduct(
        *(images, heads, rows, size, keys, turned, (joined, joined, False)),
        epilogue=SCALED,
        once=once,
    )
    second = HeadProduct(
        *(images, heads, rows, keys, values, False, (False, joined, joined)), once=once
    )
    return first, second


CASES = {
    "joined heads": Attention(*heads(1, 2, 20, 16, 37, 16, joined=True)),
    "tails": Attention(*heads(2, 1, 13, 5, 21, 17, turned=False)),
    "a mask of keys": Attention(*heads(2, 2, 9, 8, 18, 8), mask=(True, False, False, False)),
    "shared keys": Attention(
        *heads(2, 2, 14, 8, 18, 8), mask=(True, False, False, True), groups=2, guarded=True
    ),
    "one key for all": Attention(
        *heads(2, 2, 14, 8, 18, 8, once=((False, False), (True, True))),
        mask=(False, True, True, False),
        groups=2,
    ),
    "rows without a key": Attention(*heads(1, 1, 9, 8, 18, 8), mask=(False, False, False, True)),
}


def given(case: Attention) -> dict[str, np.ndarray]:
    random = np.random.default_rng(1)
    arrays = {
        name: random.standard_normal(one.shape).astype(np.float32)
        for name, one in case.operands.items()
    }
    if case.mask:
        mask = arrays["mask"]
        mask[mask > 0.5] = -np.inf
        mask[..., :9] = -np.inf  # the first keys of a walk, so that a maximum has no score yet
        if not any(case.mask[:2]):
            mask[..., 0, :] = -np.inf
    return arrays


def expected(case: Attention, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """The definition, in float64."""
    first, second = case.scores, case.context

    def matrices(name: str, product: HeadProduct, operand: int) -> np.ndarray:
        x = arrays[name].astype(np.float64)
        x = x.swapaxes(1, 2) if product.joined[operand] else x
        return x.swapaxes(-1, -2) if operand and product.transposed else x

    scores = 0.4 * matrices("q", first, 0) @ matrices("k", first, 1)
    shape = first.images, first.heads, case.groups, first.rows // case.groups, first.columns
    scores = scores.reshape(shape)
    if case.mask:
        scores = scores + arrays["mask"]
    with np.errstate(invalid="ignore"):
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        weights = powers / powers.sum(-1, keepdims=True)
    if case.guarded:
        weights = np.where(np.isnan(weights), 0, weights)
    weights = weights.reshape(first.images, first.heads, first.rows, first.columns)
    found = weights @ matrices("v", second, 1)
    return found.swapaxes(1, 2) if second.joined[2] else found


def close(found: np.ndarray, reference: np.ndarray, tolerance: float = 1e-5) -> None:
    found = found.reshape(reference.shape).astype(np.float64)
    np.testing.assert_allclose(found, reference, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("order", ["together", "descending"])
def test_attention_is_one_kernel(name: str, order: str):
    case = CASES[name]
    kernel, arrays = compile_kernel(case, GpuTarget()), given(case)
    assert len(kernel.module.kernels) == 1
    assert not kernel.module.buffers
    close(run_kernel(kernel, arrays, {}, order), expected(case, arrays))


ON_OPENCL = [
    name if name == "shared keys" else pytest.param(name, marks=pytest.mark.slow) for name in CASES
]
"""The device compiles a kernel for seconds."""


@pytest.mark.opencl
@pytest.mark.parametrize("name", ON_OPENCL)
def test_attention_runs_as_opencl(driver: OpenClDriver, name: str):
    case = CASES[name]
    kernel, arrays = compile_kernel(case, GpuTarget("opencl")), given(case)
    shaped = {name: array.reshape(kernel.tensors[name][1]) for name, array in arrays.items()}
    assert len(kernel.module.kernels) == 1
    found = run_opencl(driver, kernel.module, kernel.tensors, shaped)
    close(found.reshape(case.output.shape), expected(case, arrays))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("level", host_levels())
def test_a_processor_computes_the_same(name: str, level: str):
    case = CASES[name]
    arrays = given(case)
    kernel = compile_for_cpu(case, generic(level))
    close(kernel.bind()(*arrays.values()), expected(case, arrays))


def typed(
    dtype: str,
    queries: int = 12,
    keys: int = 19,
    size: int = 8,
    *,
    images: int = 1,
    taps_last: bool = False,
) -> Kernel:
    """Attention of tensors of a type; scores and sums are float32.

    Parameters
    ----------
    taps_last
        Whether both products read copies with their taps side by side, as tensor cores do.
    """
    n, m, k, c = te.axes(n=images, m=queries, k=keys, c=size)
    (a,), (t,) = te.axes(t=size), te.reduce_axes(t=size)
    q, rows, v = (
        te.tensor(name, dtype, (images, count, size))
        for name, count in (("q", queries), ("k", keys), ("v", keys))
    )
    (r,) = te.reduce_axes(r=keys)
    moved = te.compute("moved", dtype, (n, m, a) if taps_last else (n, a, m), q[n, m, a])
    query = moved[n, m, t] if taps_last else moved[n, t, m]
    score = te.sum(query * rows[n, k, t], over=t) * size**-0.5
    scores = te.compute("scores", "float32", (n, k, m), score)
    most = te.compute("most", "float32", (n, m), te.max(scores[n, r, m], over=r))
    power = te.decay(scores[n, k, m] - most[n, m])
    weights = te.compute("weights", "float32", (n, k, m), power)
    mass = te.compute("mass", "float32", (n, m), te.sum(weights[n, r, m], over=r))
    share, column = weights[n, r, m], v[n, r, c]
    if taps_last:
        share = te.compute("shares", dtype, (n, m, k), weights[n, k, m])[n, m, r]
        column = te.compute("values", dtype, (n, c, k), v[n, k, c])[n, c, r]
    value = te.sum(share * column, over=r) / mass[n, m]
    return te.kernel("attention", te.compute("out", dtype, (n, m, c), value))


FORMS_OF_TYPES = {
    "float16 of any size": (("float16",), {}, False, 2**-9),
    "bfloat16 of any size": (("bfloat16",), {}, False, 2**-7),
    "float16": (("float16", 40, 48, 16), {"taps_last": True}, True, 2**-9),
    "bfloat16": (("bfloat16", 16, 32, 32), {"taps_last": True}, True, 2**-6),
    "tf32": (("float32", 33, 64, 16), {"taps_last": True}, True, 2**-9),
    "copies of any size": (("float32", 12, 19, 8), {"taps_last": True}, False, 1e-5),
}


@pytest.mark.parametrize("name", FORMS_OF_TYPES)
@pytest.mark.parametrize("order", ["together", "descending"])
def test_products_run_on_tensor_cores_where_types_and_sizes_fit(name: str, order: str):
    sizes, forms, fits, tolerance = FORMS_OF_TYPES[name]
    kernel, target = typed(*sizes, **forms), GpuTarget(tf32=True)
    arrays, size = drawn(kernel), kernel.output.shape[-1]
    module = compile_program(default_schedule(kernel, target).program(), target)
    assert len(module.kernels) == 1
    assert ("mma.sync" in module.code) is fits
    tensors = {name: (tensor.dtype, tensor.shape) for name, tensor in kernel.tensors.items()}
    q, k, v = (arrays[name].astype(np.float64) for name in "qkv")
    scores = q @ k.swapaxes(-1, -2) * size**-0.5
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    reference = weights / weights.sum(-1, keepdims=True) @ v
    close(run_module(module, tensors, arrays, order), reference, tolerance)


IN_TF32 = {
    "joined heads": heads(1, 2, 40, 16, 48, 16, joined=True),
    "not transposed": heads(1, 2, 40, 16, 48, 16, turned=False),
    "keys that are filled up": heads(2, 1, 33, 8, 21, 32),
}


@pytest.mark.parametrize("name", IN_TF32)
def test_networks_in_tf32_run_on_tensor_cores(name: str):
    case = Attention(*IN_TF32[name], mask=(False, False, False, True))
    kernel, arrays = compile_kernel(case, GpuTarget(tf32=True)), given(case)
    assert len(kernel.module.kernels) == 1
    assert "mma.sync" in kernel.module.code
    close(run_kernel(kernel, arrays, {}), expected(case, arrays), 2**-8)


def test_the_program_is_right_without_a_gpu():
    kernel = typed("float32")
    schedule = default_schedule(kernel, GpuTarget())
    assert "carry(most, out, r.o)" in str(schedule)
    arrays = drawn(kernel)
    literal = te.interpret(schedule.program(), arrays)
    plain = te.interpret(te.Schedule(kernel).program(), arrays)
    np.testing.assert_allclose(literal, plain, rtol=1e-5, atol=1e-6)


def test_keys_that_are_masked_first_leave_numbers():
    """A maximum of minus infinity would make powers of later keys NaN."""
    case = CASES["rows without a key"]
    arrays = given(case)
    kernel = case.declared()
    program = default_schedule(kernel, GpuTarget()).program()
    shapes = {name: kernel.tensors[name].shape for name in kernel.inputs}
    found = te.interpret(program, {name: arrays[name].reshape(s) for name, s in shapes.items()})
    close(found, expected(case, arrays))


@pytest.mark.parametrize("level", ["sm80", "opencl"])
@pytest.mark.parametrize(("size", "images"), [(64, 1), (64, 64), (256, 8)])
def test_blocks_hold_what_fits(level: str, size: int, images: int):
    target = GpuTarget(level)
    kernel = typed("float32", 512, 512, size, images=images)
    (nest,) = blocks.kernels(default_schedule(kernel, target).program())
    assert blocks.shared_of(nest) <= target.properties.shared_bytes
    loops = (one for one in nodes((nest,)) if isinstance(one, For))
    tiles = next(loop.extent for loop in loops if loop.kind is Kind.BLOCK_X)
    assert tiles * images >= 64


# Networks ----------------------------------------------------------------------------------------


def kernels(graph: Graph, *, fused: bool) -> list[HostKernel]:
    names = [node.outputs[0].name for node in graph.nodes]
    target = planned_for() if fused else generic("sse2")
    plan = plan_host(graph, names, [], target, least_work=0)
    return [step for step in plan.kernels if isinstance(step, HostKernel)]


def attentions(graph: Graph) -> list[Attention]:
    found = (step.description for step in kernels(graph, fused=True))
    return [one for one in found if isinstance(one, Attention)]


def test_a_transformer_block_has_fewer_kernels():
    graph, _ = transformer()
    assert len(kernels(graph, fused=False)) == 11
    assert len(kernels(graph, fused=True)) == 9
    (found,) = attentions(graph)
    assert found.scores.joined == (True, True, False)
    assert found.context.joined == (False, True, True)


def chain(second: str = "v", mask: str = "", **shapes: tuple[int, ...]) -> Graph:
    """Products and a softmax without anything else, or with a mask."""
    nodes = [helper.make_node("MatMul", ["q", "k"], ["scores"])]
    if mask:
        nodes.append(helper.make_node("Add", ["scores", mask], ["masked"]))
    nodes += [
        helper.make_node("Softmax", ["masked" if mask else "scores"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", second], ["y"]),
    ]
    inputs = {"q": (2, 16, 8), "k": (2, 8, 16), "v": (2, 16, 8)} | shapes
    given = [value(name, np.float32, list(shape)) for name, shape in inputs.items()]
    return tilewright.import_model(model(nodes, given, ["y"], {}).SerializeToString())


def test_only_what_the_kernel_computes_is_fused():
    (found,) = attentions(chain())
    assert (found.mask, found.guarded) == ((), False)
    (found,) = attentions(chain(mask="m", m=(16, 16)))
    assert found.mask == (False, False, False, True)
    (found,) = attentions(chain(mask="m", m=(2, 1, 16)))
    assert (found.mask, found.groups) == ((False, True, False, False), 1)
    assert not attentions(chain("p"))
    assert not attentions(chain(mask="scores"))
    assert not attentions(chain(mask="m", m=(2, 16, 1)))  # of rows alone
    assert not attentions(chain(q=(2, 4, 8)))  # few queries
    assert not attentions(chain(v=(2, 16, 300)))  # large heads


def test_queries_may_come_from_a_product_that_follows_the_keys():
    nodes = [
        helper.make_node("Transpose", ["k"], ["keys"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["x", "w"], ["rows"]),
        helper.make_node("Reshape", ["rows", "heads"], ["q"]),
        helper.make_node("MatMul", ["q", "keys"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "v"], ["y"]),
    ]
    shapes = {"k": [2, 16, 8], "x": [32, 24], "w": [24, 8], "v": [2, 16, 8]}
    given = [value(name, np.float32, shape) for name, shape in shapes.items()]
    proto = model(nodes, given, ["y"], {"heads": [2, 16, 8]})
    (found,) = attentions(tilewright.import_model(proto.SerializeToString()))
    assert found.scores.transposed


CAPPED = {"GroupQueryAttention, cap", "ONNX Attention, rows"}
"""Scores pass a tanh on their way, which the kernel does not have."""

NAMED = [name for name, form in FORMS.items() if form.kind.endswith("Attention")]


@pytest.mark.skipif(not host_levels(), reason="no kernels for this processor")
@pytest.mark.parametrize("name", NAMED)
def test_every_named_form_is_one_kernel(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fused_attention, "MIN_ROWS", 1)
    form = FORMS[name]
    graph = tilewright.import_model(form.model().SerializeToString())
    assert len(attentions(graph)) == (name not in CAPPED)
    steps = [s for s in kernels(graph, fused=True) if isinstance(s.description, Attention)]
    inputs = {one.name: form.given[one.name] for one in graph.inputs}
    for step in steps:
        values = _values(graph, inputs, (*step.reads, step.output))
        operands = zip(step.description.operands.values(), step.reads, strict=True)
        arrays = [np.ascontiguousarray(values[name]).reshape(a.shape) for a, name in operands]
        found = compile_for_cpu(step.description, generic(host_levels()[-1])).bind()(*arrays)
        reference = values[step.output]
        np.testing.assert_allclose(found.reshape(reference.shape), reference, 1e-4, 1e-5)


def _values(
    graph: Graph, inputs: Mapping[str, np.ndarray], names: tuple[str, ...]
) -> dict[str, np.ndarray]:
    with warnings.catch_warnings(), np.errstate(invalid="ignore"):
        return dict(evaluate(graph, inputs, names))


def test_a_product_of_a_node_with_two_outputs_is_planned_without_fusion():
    nodes = [
        helper.make_node("TopK", ["x", "count"], ["most", "places"], axis=3),
        helper.make_node("Reshape", ["most", "shape"], ["rows"]),
        helper.make_node("MatMul", ["rows", "v"], ["y"]),
    ]
    shapes = {"x": [1, 2, 24, 32], "v": [2, 16, 8]}
    given = [value(name, np.float32, shape) for name, shape in shapes.items()]
    proto = model(nodes, given, ["y", "places"], {"count": [16], "shape": [2, 24, 16]})
    assert not attentions(tilewright.import_model(proto.SerializeToString()))
