"""Products of warpgroups: equal to their definitions, and every planted fault is found."""

import re
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tilewright import te
from tilewright.compiler.cpu import Convolution, Description, HeadProduct, MatrixProduct
from tilewright.compiler.gpu import GpuTarget, compile_program, default_schedule
from tilewright.compiler.te.target import ScheduleError
from tilewright.compiler.tensor import evaluate
from tilewright.sim.ptx import FaultKind, PtxFault

from .assembler import assemble
from .kernels import product
from .running import ORDERS, drawn, run_module, run_schedule
from .test_products import ADDED, BYTES, HEADS, PADDED, check, convolution
from .test_schedules import rounded_to_tf32

TARGET, TF32 = GpuTarget("sm90a"), GpuTarget("sm90a", tf32=True)


def cut_to_tf32(array: np.ndarray) -> np.ndarray:
    """11 significant bits: the low ones are dropped."""
    return (array.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)


SIZES = {
    "int8": (130, 100, 96), "float16": (70, 72, 256), "bfloat16": (129, 40, 96),
    "float32": (70, 72, 96),
}  # fmt: skip
"""Rows, columns and taps: tails of both, and rows of a copy of 32, 64 and 128 bytes."""


@pytest.mark.parametrize("order", ORDERS[:2])
@pytest.mark.parametrize("dtype", SIZES)
def test_a_product_is_its_definition(dtype: str, order: str | int):
    kernel = product(*SIZES[dtype], dtype)
    schedule = default_schedule(kernel, TF32)
    code = compile_program(schedule.program(), TF32).code
    assert "wgmma.mma_async" in code
    assert "mma.sync" not in code
    given = drawn(kernel)
    found = run_schedule(schedule, given, partial(run_module, order=order))
    expected = np.asarray(evaluate(kernel, given))
    if dtype == "float32":
        expected = cut_to_tf32(given["a"]) @ cut_to_tf32(given["b"]).T
    tolerance = 0 if dtype == "int8" else 1e-5
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=10 * tolerance)


def test_operands_in_tf32_are_cut_and_not_rounded():
    """So the results are those of no rounding instruction, but as close as TF32 can be."""
    kernel = product(64, 16, 32, "float32")
    given = drawn(kernel)
    found = run_schedule(default_schedule(kernel, TF32), given)
    rounded = rounded_to_tf32(given["a"]) @ rounded_to_tf32(given["b"]).T
    assert 1e-4 < np.abs(found - rounded).max() < 2**-8 * np.abs(rounded).max()


def test_a_program_is_interpreted_alike():
    kernel = product(64, 16, 48, "float16")
    schedule = default_schedule(kernel, TARGET)
    given = drawn(kernel)
    np.testing.assert_allclose(
        run_schedule(schedule, given), te.interpret(schedule.program(), given), 1e-5, 1e-5
    )


COPIES: dict[str, tuple[Description, GpuTarget, int]] = {
    "both by maps": (MatrixProduct(130, 96, 72, "int8", BYTES), TARGET, 2),
    "rows of 150 bytes by threads": (MatrixProduct(130, 150, 72, "int8", BYTES), TARGET, 1),
    "one iteration": (MatrixProduct(70, 50, 100, "uint8", BYTES), TARGET, 0),
    "float32": (MatrixProduct(70, 100, 50, epilogue=ADDED), TF32, 2),
    "windows with pads": (
        Convolution(1, 17, 10, 32, 72, (3, 3), (1, 1), PADDED, dtype="int8", zero_point=-7,
                    epilogue=BYTES), TARGET, 1),
    "heads": (HeadProduct(2, 2, 70, 64, 40, dtype="int8", zero_points=(3, -5), epilogue=HEADS),
              TARGET, 0),
}  # fmt: skip
"""Products of networks, with the copies that tensor maps carry out."""


def maps_of(code: str) -> int:
    return len(set(re.findall(r"\.align 64 \.b8 (\w+)\[128\]", code)))


@pytest.mark.parametrize("name", COPIES)
def test_a_product_of_a_network_is_that_of_the_processor(name: str):
    description, target, maps = COPIES[name]
    order = ORDERS[list(COPIES).index(name) % len(ORDERS)]
    code = check(description, target, order)
    assert "wgmma.mma_async" in code
    assert maps_of(code) == maps


SMALL: dict[str, Description] = {
    "few rows": MatrixProduct(63, 96, 72, "int8", BYTES),
    "few pixels": Convolution(1, 5, 5, 32, 24, (3, 3), (1, 1), PADDED, dtype="int8",
                              epilogue=BYTES),
}  # fmt: skip


@pytest.mark.parametrize("name", SMALL)
def test_small_products_are_those_of_warps(name: str):
    code = check(SMALL[name], TARGET, "descending")
    assert "mma.sync" in code
    assert "wgmma" not in code


@pytest.mark.parametrize("order", ORDERS[:2])
def test_pixels_are_rows_of_a_warpgroup(order: str | int):
    kernel = convolution(10, 8, 16, 24, "bfloat16")
    schedule = default_schedule(kernel, TARGET)
    assert "wgmma" in compile_program(schedule.program(), TARGET).code
    given = drawn(kernel)
    expected = np.asarray(evaluate(kernel, given))
    found = run_schedule(schedule, given, partial(run_module, order=order))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)


# Planted faults ----------------------------------------------------------------------------------


def run_changed(change: tuple[str, str], schedule: te.Schedule, order: str | int) -> np.ndarray:
    """The result of a kernel in whose text a pattern is replaced everywhere."""
    pattern, other = change
    module = compile_program(schedule.program(), TARGET)
    code, count = re.subn(pattern, other, module.code)
    assert count
    tensors = {n: (t.dtype, t.shape) for n, t in schedule.kernel.tensors.items()}
    return run_module(replace(module, code=code), tensors, drawn(schedule.kernel), order)


WAIT = r"mbarrier\.try_wait\S+ (%p\d+), [^;]*;"
ABSENT, NEXT = r"setp.eq.u32 \1, 0, 0;", r"(?=(?:(?!try_wait)(?s:.))*{})"

FAULTS = {
    "no wait for copies": (
        "maps", WAIT + NEXT.format("wgmma"), ABSENT,
        (FaultKind.PENDING_COPY, FaultKind.UNINITIALISED_SHARED)),
    "no wait for readers": (
        "maps", WAIT + NEXT.format("expect_tx"), ABSENT,
        (FaultKind.PENDING_COPY, FaultKind.MBARRIER_COUNT)),
    "readers that say nothing": (
        "maps", r"mbarrier\.arrive\.shared[^;]*;", "", (FaultKind.DEADLOCK,)),
    "no wait for products": (
        "maps", r"wgmma\.wait_group\S* 0;", "", (FaultKind.PENDING_PRODUCT,)),
    "fewer bytes": (
        "maps", r"(expect_tx\S+ _, \S+ )\S+;", r"\g<1>4096;", (FaultKind.MBARRIER_BYTES,)),
    "mbarriers that nobody announces": (
        "maps", r"fence\.mbarrier_init\S*;((?s:.*?))fence\.proxy\S*;((?s:.*?))bar\.sync\s+0;",
        r"\1\2", (FaultKind.MBARRIER_STATE,)),
    "no barrier before the next copy": (
        "both", r"(try_wait(?s:.*?))bar\.sync\s+0;", r"\1", (FaultKind.SHARED_RACE,)),
    "no fence behind copies by threads": (
        "both", r"fence\.proxy\.async\S*;", "", (FaultKind.MISSING_FENCE,)),
}  # fmt: skip
"""Changes of a kernel whose copies are those of maps, or also of threads.

The order of warps may decide which fault shows first.
"""


@pytest.mark.parametrize("order", ORDERS[:2])
@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_reported(name: str, order: str | int):
    copies, pattern, other, faults = FAULTS[name]
    by_maps = product(70, 40, 384, "float16")
    kernel = by_maps if copies == "maps" else convolution(10, 8, 16, 24, "float16")
    with pytest.raises(PtxFault) as caught:
        run_changed((pattern, other), default_schedule(kernel, TARGET), order)
    assert caught.value.fault in faults


def test_a_wrong_stride_in_a_descriptor_gives_wrong_sums():
    kernel = product(70, 40, 128, "float16")
    schedule = default_schedule(kernel, TARGET)
    expected = np.asarray(evaluate(kernel, drawn(kernel)))
    right = 8 * 128 >> 4 << 32
    pattern = 1 << 62 | 1 << 16
    stride = (str(pattern | right), str(pattern | right >> 1))
    assert np.abs(run_changed(stride, schedule, "together") - expected).max() > 1


# Machine code and limits -------------------------------------------------------------------------

MACHINE = {
    **dict.fromkeys(("float16", "bfloat16", "float32"), "HGMMA.64"), "int8": "IGMMA.64"
}  # fmt: skip


@pytest.mark.parametrize(("dtype", "rows"), [("int8", 4096), ("float16", 200), ("float32", 200)])
def test_the_assembler_takes_every_product(dtype: str, rows: int, tmp_path: Path):
    kernel = product(rows, rows, 512, dtype)
    module = compile_program(default_schedule(kernel, TF32).program(), TF32)
    found = assemble(module.code, "sm_90a", tmp_path)
    assert found.stack_bytes == found.spilled_bytes == 0
    assert max(found.registers) <= (168 if rows == 4096 else 72)
    counts: Counter[str] = found.opcodes()
    assert counts[MACHINE[dtype]] == 4  # 128 bytes of taps
    assert counts["UTMALDG.2D"] == 2
    assert not counts["LDGSTS.E"]
    launch = module.kernels[0]  # the other adds up parts of sums, where blocks are few
    assert (launch.threads, launch.shared_bytes >> 10) == (
        (288, 192) if rows == 4096 else (160, 64)
    )


def test_loops_that_are_not_those_of_a_warpgroup_are_refused():
    kernel = product(128, 64, 64, "float16")
    wrong = te.Schedule(kernel, TARGET)
    rows, row = wrong.split("c", "y", 64)
    columns, column = wrong.split("c", "x", 64)
    wrong.reorder("c", rows, columns, row, column, "r")
    with pytest.raises(ScheduleError, match=r"for a warpgroup, split 64 rows by 16 first"):
        wrong.tensorise("c", row)
