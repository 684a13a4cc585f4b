"""Products and convolutions of networks: on tensor cores, and equal to those of the CPU target."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tilewright import te
from tilewright.compiler.cpu import (
    Array,
    Convolution,
    Description,
    Epilogue,
    HeadProduct,
    LayerNormalisation,
    MatrixProduct,
    Requantisation,
    RowReduction,
    RowSoftmax,
    dequantised,
    real_epilogue,
)
from tilewright.compiler.cpu import compile_kernel as compile_for_cpu
from tilewright.compiler.cpu.kernels.choices import Choices
from tilewright.compiler.cpu.target import host_levels
from tilewright.compiler.gpu import (
    GpuTarget,
    compile_kernel,
    compile_program,
    planned_for,
    product_plans,
)
from tilewright.compiler.gpu.kernel import space_plan
from tilewright.compiler.gpu.schedules import default_schedule
from tilewright.compiler.graph import Graph
from tilewright.compiler.host import plan_host
from tilewright.compiler.tensor import Kernel, evaluate
from tilewright.flows.bench.resnet18_layers import RESNET18

from .assembler import assemble
from .running import ORDERS, drawn, run_kernel, run_module, run_schedule
from .test_networks import MODELS, digits, spotter, transformer

ZOO = "kws_dscnn/kws_int8_qdq", "ic_resnet8/ic_int8_qdq", "kwt1/kwt1"

PLAIN, TF32 = GpuTarget(), GpuTarget(tf32=True)
MIN_WORK = 16, 16, 32
"""Minimum rows, columns and taps of a product that must run on tensor cores."""

BYTES, SUMS = Requantisation("int8", 3).epilogue(), dequantised(has_row=True)
ADDED = real_epilogue("relu", residual=True)
HEADS = Epilogue(Requantisation("int8", 2).requantised("sum", 3e-4), "int8")
PADDED = (1, 1, 1, 1)

CASES: dict[str, tuple[Description, GpuTarget]] = {
    "bytes": (MatrixProduct(37, 50, 20, "int8", BYTES), PLAIN),
    "unsigned bytes": (MatrixProduct(37, 50, 20, "uint8", BYTES), PLAIN),
    "sums less a row": (MatrixProduct(18, 40, 16, "int8", SUMS), PLAIN),
    "float32": (MatrixProduct(37, 50, 20, epilogue=ADDED), TF32),
    "3x3": (Convolution(1, 9, 11, 16, 24, (3, 3), (1, 1), PADDED, dtype="int8",
                                 zero_point=-7, epilogue=BYTES), PLAIN),
    "3x3 in TF32": (Convolution(1, 9, 11, 16, 24, (3, 3), (1, 1), PADDED, epilogue=ADDED), TF32),
    "strided": (Convolution(2, 13, 11, 12, 20, (3, 3), (2, 2), PADDED, dtype="uint8",
                            zero_point=7, epilogue=BYTES), PLAIN),
    "strided, one tap": (Convolution(1, 16, 7, 36, 16, (1, 1), (2, 1), dtype="int8",
                                     epilogue=BYTES), PLAIN),
    "few channels": (Convolution(1, 25, 10, 1, 16, (10, 4), (1, 2), (4, 1, 5, 1), dtype="int8",
                                 zero_point=5, epilogue=BYTES), PLAIN),
    "one column of pixels": (Convolution(1, 24, 1, 12, 20, (5, 1), (1, 1), (2, 0, 2, 0),
                                         epilogue=ADDED), TF32),
    "dilated": (Convolution(1, 12, 12, 20, 16, (3, 3), (1, 1), (2, 2, 2, 2), (2, 2),
                            epilogue=ADDED), TF32),
    "groups": (Convolution(1, 6, 7, 36, 54, (3, 3), (1, 1), PADDED, dtype="int8", zero_point=4,
                           epilogue=BYTES, groups=3), PLAIN),
    "planes": (Convolution(1, 10, 10, 3, 20, (3, 3), (1, 1), PADDED, planes=True), TF32),
    "computed weights": (Convolution(1, 8, 10, 5, 20, (3, 3), (1, 1), PADDED, computed=True), TF32),
    "heads": (HeadProduct(1, 2, 20, 20, 33, dtype="int8", zero_points=(3, -5), epilogue=HEADS),
              PLAIN),
    "heads inside rows": (HeadProduct(1, 2, 20, 24, 33, True, (True, True, True), dtype="int8",
                                      zero_points=(0, 7), epilogue=HEADS), PLAIN),
    "heads in TF32": (HeadProduct(1, 2, 20, 20, 33), TF32),
}  # fmt: skip
"""Products with tails in all extents, each for its instruction."""

WITHOUT: dict[str, Description] = {
    "few rows": MatrixProduct(5, 50, 20),
    "full float32": Convolution(1, 24, 1, 12, 20, (5, 1), (1, 1), (2, 0, 2, 0), epilogue=ADDED),
    "few pixels": Convolution(1, 3, 4, 24, 20, (3, 3), (1, 1), PADDED, dtype="int8",
                              zero_point=3, epilogue=BYTES),
    "narrow groups": Convolution(1, 6, 6, 32, 32, (3, 3), (1, 1), PADDED, groups=4,
                                 epilogue=ADDED),
}  # fmt: skip
"""Products that no instruction computes."""


def numbers(array: Array, random: np.random.Generator, name: str) -> np.ndarray:
    if name == "scale":
        return random.uniform(1e-5, 3e-4, array.shape).astype(np.float32)
    if array.dtype == "int16":  # sums of two bytes
        return random.integers(-256, 255, array.shape, np.int16)
    if array.dtype == "float32":
        return random.standard_normal(array.shape).astype(np.float32)
    most = 1000 if array.dtype == "int32" else np.iinfo(array.dtype).max
    return random.integers(max(-most, np.iinfo(array.dtype).min), most, array.shape, array.dtype)


def check(description: Description, target: GpuTarget, order: str | int) -> str:
    """Compare with the CPU target; return the code."""
    random = np.random.default_rng(0)
    arrays = {n: numbers(each, random, n) for n, each in description.operands.items()}
    constants = {name: arrays.pop(name) for name in description.constants}
    kernel = compile_kernel(description, target)
    found = run_kernel(kernel, arrays, constants, order)
    if planned_for().level in host_levels():
        expected = compile_for_cpu(description, planned_for()).bind(**constants)(*arrays.values())
        if expected.dtype.kind == "f":
            tolerance = 2e-3 if target.tf32 else 1e-5
            largest = float(np.abs(expected).max())
            np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * largest)
        else:
            np.testing.assert_array_equal(found, expected)
    return kernel.module.code


@pytest.mark.parametrize("name", CASES)
def test_a_product_on_tensor_cores_is_that_of_the_processor(name: str):
    order = ORDERS[list(CASES).index(name) % len(ORDERS)]
    assert "mma.sync" in check(*CASES[name], order)


ROWS: dict[str, Description] = {
    "softmax": RowSoftmax(5, 300),
    "its logarithm": RowSoftmax(3, 7, True),
    "norm": LayerNormalisation(4, 77),
    "norm of channels": LayerNormalisation(4, 64, by_row=True),
    "largest": RowReduction(3, 129, "max"),
    "one element": RowReduction(3, 1, "sum"),
    "long sums": MatrixProduct(3, 200, 20, "int8", BYTES),
    "long sums less a row": MatrixProduct(1, 70, 9, "int8", SUMS),
    "long sums of float32": MatrixProduct(2, 1000, 5, epilogue=ADDED),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_a_block_computes_a_row(name: str):
    code = check(ROWS[name], PLAIN, ORDERS[list(ROWS).index(name) % len(ORDERS)])
    assert code.count(".visible .entry") == 1


def test_rows_that_do_not_fit_shared_memory_pass_through_main_memory():
    short, long = (
        compile_kernel(LayerNormalisation(2, columns), GpuTarget("opencl")).module.kernels
        for columns in (1000, 9000)
    )
    assert len(short) == 1 < len(long)


@pytest.mark.parametrize(
    "description",
    [
        Convolution(1, 17, 10, 32, 130, (3, 3), (1, 1), PADDED, dtype="int8", zero_point=-7,
                    epilogue=BYTES),
        MatrixProduct(130, 96, 140, "int8", BYTES),
    ],
    ids=lambda product: product.title,
)  # fmt: skip
def test_large_tiles_are_shared_by_several_warps(
    description: Description, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(product_plans, "MIN_BLOCKS", 1)
    assert check(description, PLAIN, "descending").count("mma.sync") == 16


@pytest.mark.parametrize("name", WITHOUT)
def test_other_products_are_those_of_the_processor(name: str):
    assert "mma.sync" not in check(WITHOUT[name], PLAIN, "descending")


def test_padding_other_than_zeros_is_copied_asynchronously():
    """The image and, in two pieces of a thread, the weights: before the loop twice, and inside."""
    code = compile_kernel(CASES["3x3"][0], PLAIN).module.code
    assert code.count("cp.async.c") == 9


def convolution(high: int, wide: int, channels: int, columns: int, dtype: str) -> Kernel:
    """A convolution of 3x3 with strides of 2, whose rows are pixels."""
    n, y, x, ky, kx, c = te.axes(n=1, y=high, x=wide, ky=3, kx=3, c=channels)
    image = te.tensor("image", dtype, (1, 2 * high, 2 * wide, channels))
    moved = image[n, y * 2 + ky - 1, x * 2 + kx - 1, c]
    patches = te.compute("patches", dtype, (n, y, x, ky, kx, c), moved)
    (o,) = te.axes(o=columns)
    ky, kx, c = over = te.reduce_axes(ky=3, kx=3, c=channels)
    w = te.tensor("w", dtype, (columns, 3, 3, channels))
    total = te.sum(patches[n, y, x, ky, kx, c] * w[o, ky, kx, c], over=over)
    return te.kernel("convolution", te.compute("out", "float32", (n, y, x, o), total))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_pixels_are_rows_in_rectangles(dtype: str):
    kernel = convolution(10, 8, 16, 20, dtype)
    schedule = default_schedule(kernel, PLAIN)
    assert "mma.sync" in compile_program(schedule.program(), PLAIN).code
    given = drawn(kernel)
    expected = np.asarray(evaluate(kernel, given))
    for order in ORDERS:
        found = run_schedule(schedule, given, partial(run_module, order=order))
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)


# Networks ----------------------------------------------------------------------------------------


def work(description: Description) -> tuple[int, int, int] | None:
    """Rows, columns and taps of a product in one group."""
    match description:
        case MatrixProduct() | HeadProduct():
            return description.rows, description.columns, description.inner
        case Convolution(groups=1):
            pixels = description.batch * math.prod(description.size_out)
            return pixels, description.channels_out, description.taps * description.channels_in
    return None


def descriptions(graph: Graph) -> Iterator[Description]:
    names = [node.outputs[0].name for node in graph.nodes]
    plan = plan_host(graph, names, [], planned_for(), least_work=0)
    yield from dict.fromkeys(plan.descriptions())


def model(name: str) -> Iterator[Description]:
    yield from descriptions(tilewright.import_model(MODELS / f"{name}.onnx"))


def resnet18(dtype: str) -> Iterator[Description]:
    """Its convolutions, the first of 3 channels included."""
    shapes = [(224, 3, 64, 7, 2)]
    shapes += [(s.size, s.channels_in, s.channels_out, s.kernel, s.stride) for s in RESNET18]
    epilogue, zero = (BYTES, -5) if dtype == "int8" else (ADDED, 0)
    for size, channels, columns, kernel, stride in shapes:
        pad = kernel // 2
        window = (kernel, kernel), (stride, stride), (pad, pad, pad, pad), (1, 1)
        yield Convolution(1, size, size, channels, columns, *window, dtype, zero, epilogue)


NETWORKS: dict[str, Callable[[], Iterator[Description]]] = {
    **{name: partial(model, name) for name in ZOO},
    **{make.__name__: lambda make=make: descriptions(make()[0])
       for make in (digits, spotter, transformer)},
    **{f"resnet18, {dtype}": partial(resnet18, dtype) for dtype in ("int8", "float32")},
}  # fmt: skip


WITH_MODELS = pytest.mark.skipif(not MODELS.is_dir(), reason=f"no shared models at `{MODELS}`")


def marks(network: str) -> list[pytest.MarkDecorator]:
    slow = [pytest.mark.slow] if network.startswith("resnet18") else []
    return [*slow, WITH_MODELS] if network in ZOO else slow


@pytest.mark.parametrize("network", [pytest.param(name, marks=marks(name)) for name in NETWORKS])
def test_every_product_of_a_network_runs_on_tensor_cores(network: str):
    found = set()
    for description in NETWORKS[network]():
        extents = work(description)
        if extents and all(a >= b for a, b in zip(extents, MIN_WORK, strict=True)):
            plan = space_plan(description, TF32, Choices())
            assert plan is not None, description
            assert plan.law is not None, description
            kind = type(description), plan.law, plan.tile, plan.taps, plan.depth, plan.parts
            if kind not in found:  # code of equal plans differs in extents alone
                assert "mma.sync" in compile_kernel(description, TF32).module.code, description
            found.add(kind)
    assert found


@pytest.mark.parametrize(
    ("dtype", "opcode", "level"),
    [("int8", "IMMA.16832", "sm90"), ("float32", "HMMA.1688", "sm80")],
)
def test_convolutions_keep_their_sums_in_registers(
    dtype: str, opcode: str, level: str, tmp_path: Path
):
    first, *_, strided, last = resnet18(dtype)
    for description in (first, strided, last):
        code = compile_kernel(description, GpuTarget(level, tf32=True)).module.code
        found = assemble(code, level.replace("sm", "sm_"), tmp_path)
        assert found.stack_bytes == found.spilled_bytes == 0, description
        assert max(found.registers) <= 192, description
        assert any(name.startswith(opcode) for name in found.opcodes()), description
