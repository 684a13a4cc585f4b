"""NVIDIA's assembler takes every kernel, and needs no memory for registers."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tilewright.compiler.cpu import Description
from tilewright.compiler.gpu import (
    GpuTarget,
    compile_kernel,
    compile_program,
    default_schedule,
    planned_for,
)
from tilewright.compiler.graph import Graph
from tilewright.compiler.host import plan_host
from tilewright.compiler.tensor import Kernel

from .assembler import assemble
from .test_attention import typed as attention
from .test_networks import digits, spotter, transformer
from .test_schedules import depthwise, product, softmax, transpose

LATER = "sm_86", "sm_89", "sm_100", "sm_120"
"""Chips that run the code of `sm80` too."""

STEPS = {
    ("int8", 4096): 64, ("int8", 1024): 64, ("int8", 65): 8,
    ("bfloat16", 1024): 64, ("float16", 4096): 64, ("float16", 1024): 64, ("float16", 65): 8,
}  # fmt: skip
"""Instructions of tensor cores in one iteration of a product, by type and rows."""

TENSOR_CORES = {"int8": "IMMA.16832", "float16": "HMMA.16816", "bfloat16": "HMMA.16816"}


def families(network: Callable[[], tuple[Graph, object]]) -> dict[str, Description]:
    """A kernel of each family that a network has."""
    graph, _ = network()
    names = [node.outputs[0].name for node in graph.nodes]
    plan = plan_host(graph, names, [], planned_for(), least_work=0)
    return {type(description).__name__: description for description in plan.descriptions()}


@cache
def kernels() -> dict[str, Kernel | Description]:
    found: dict[str, Kernel | Description] = {
        f"float32 product of {rows}": product(rows, rows, 512, "float32") for rows in (4096, 65)
    }
    found |= {"softmax": softmax(64, 1000), "depthwise": depthwise(56, 32)}
    found["transpose"] = transpose(300, 200)
    found |= {
        f"attention of {dtype}": attention(dtype, 512, 512, 64, images=32)
        for dtype in ("float32", "float16")
    }
    found["attention of large heads"] = attention("float32", 512, 512, 128, images=32)
    for network in (digits, spotter, transformer):
        found |= families(network)
    return found


def ptx(kernel: Kernel | Description, level: str, tf32: bool = False) -> str:
    target = GpuTarget(level, tf32)
    if isinstance(kernel, Description):
        return compile_kernel(kernel, target).module.code
    return compile_program(default_schedule(kernel, target).program(), target).code


@cache
def square(rows: int, dtype: str, level: str, tf32: bool = False) -> str:
    return ptx(product(rows, rows, 512, dtype), level, tf32)


@pytest.mark.parametrize("level", ["sm80", "sm90"])
def test_no_kernel_spills(level: str, tmp_path: Path):
    assert len(kernels()) >= 12
    for name, kernel in kernels().items():
        found = assemble(ptx(kernel, level), level.replace("sm", "sm_"), tmp_path)
        assert found.stack_bytes == found.spilled_bytes == 0, name
        assert max(found.registers) <= 80, name


@pytest.mark.parametrize("level", ["sm80", "sm90"])
@pytest.mark.parametrize(("dtype", "rows"), STEPS)
def test_products_run_on_tensor_cores(dtype: str, rows: int, level: str, tmp_path: Path):
    text = square(rows, dtype, level)
    found = assemble(text, level.replace("sm", "sm_"), tmp_path)
    assert found.stack_bytes == found.spilled_bytes == 0
    assert max(found.registers) <= 192  # of 255, with 256 threads of a block
    counts = found.opcodes()
    steps = counts[TENSOR_CORES[dtype]]
    assert steps
    assert steps % STEPS[dtype, rows] == 0
    assert counts["LDGSTS.E"]  # cp.async
    assert counts["LDSM.16"]  # ldmatrix


@pytest.mark.parametrize("rows", [1024, 65])
def test_products_in_tf32_run_on_tensor_cores(rows: int, tmp_path: Path):
    text = square(rows, "float32", "sm80", tf32=True)
    found = assemble(text, "sm_80", tmp_path)
    assert found.stack_bytes == found.spilled_bytes == 0
    assert found.opcodes()["HMMA.1688.F32.TF32"] or found.opcodes()["HMMA.1688"]


@pytest.mark.parametrize("level", ["sm80", "sm90"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_attention_runs_on_tensor_cores(dtype: str, level: str, tmp_path: Path):
    kernel = attention(dtype, 512, 512, 64, images=32, taps_last=True)
    found = assemble(ptx(kernel, level, tf32=True), level.replace("sm", "sm_"), tmp_path)
    assert found.stack_bytes == found.spilled_bytes == 0
    assert max(found.registers) <= 128  # 512 threads at once
    counts = found.opcodes()
    cores = ("HMMA.16816", "HMMA.1688.F32.TF32", "HMMA.1688")
    # Of 64 queries, 32 keys and 64 columns: those of a warp, 16 by 16 and 16 by 32.
    assert sum(counts[name] for name in cores) == (16 if dtype == "float16" else 32)
    assert counts["LDSM.16"]


@pytest.mark.parametrize("chip", LATER)
def test_later_chips_take_the_portable_code(chip: str, tmp_path: Path):
    found = assemble(square(1024, "int8", "sm80"), chip, tmp_path)
    assert found.spilled_bytes == 0
    assert found.opcodes()["IMMA.16832"]


def test_spills_are_seen(tmp_path: Path):
    """A kernel that may use few registers; the checks above would find it."""
    text = square(1024, "int8", "sm80").replace("\n{\n", "\n.maxnreg 64\n{\n", 1)
    assert assemble(text.replace(".reqntid", ".maxntid"), "sm_80", tmp_path).spilled_bytes
