"""Loops bound to blocks and threads: legality, and PTX that computes what `interpret` does."""

import random
import re
from dataclasses import replace
from functools import partial

import ml_dtypes
import numpy as np
import pytest

from tilewright import te
from tilewright.compiler.gpu.lower import compile_program
from tilewright.compiler.gpu.schedules import default_schedule
from tilewright.compiler.gpu.target import GpuTarget
from tilewright.compiler.te.target import ScheduleError
from tilewright.compiler.tensor import evaluate
from tilewright.errors import CompileError
from tilewright.sim.ptx import PtxFault
from tilewright.sim.ptx.memory import PrivateMemory

from .kernels import SM80, depthwise, product, shared_product, softmax, transpose
from .running import ORDERS, drawn, run_module, run_schedule


def check(schedule: te.Schedule, orders: tuple[str | int, ...] = ORDERS) -> None:
    given = drawn(schedule.kernel)
    expected = np.asarray(evaluate(schedule.kernel, given))
    for order in orders:
        found = run_schedule(schedule, given, partial(run_module, order=order))
        if expected.dtype.kind == "f":
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
        else:
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", ["int8", "float32"])
def test_a_product_passes_through_shared_memory(dtype):
    schedule = shared_product(product(37, 20, 21, dtype))
    check(schedule)
    given = drawn(schedule.kernel)
    interpreted = te.interpret(schedule.program(), given)
    found = run_schedule(schedule, given)
    np.testing.assert_allclose(found, interpreted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("sizes", "dtype", "instruction"),
    [
        ((80, 44, 128), "int8", "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"),
        ((33, 70, 48), "float16", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"),
        ((33, 70, 48), "bfloat16", "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"),
        ((50, 44, 40), "float32", "fma.rn.f32"),
        ((50, 44, 40), "int8", "mad"),
    ],
)
def test_a_default_product_takes_the_best_instruction(
    sizes: tuple[int, int, int], dtype: str, instruction: str
):
    schedule = default_schedule(product(*sizes, dtype), GpuTarget())
    assert instruction in compile_program(schedule.program(), GpuTarget()).code
    check(schedule)


def rounded_to_tf32(array: np.ndarray) -> np.ndarray:
    """11 significant bits, ties away from zero, as PTX defines `cvt.rna.tf32.f32`."""
    mantissa, exponent = np.frexp(array.astype(np.float64))
    scaled = np.abs(mantissa) * 2.0**11
    return np.ldexp(np.copysign(np.floor(scaled + 0.5), mantissa) / 2.0**11, exponent)


@pytest.mark.parametrize("sizes", [(33, 70, 48), (80, 44, 136)])
def test_products_of_float32_run_in_tf32_on_request(sizes: tuple[int, int, int]):
    kernel = product(*sizes, "float32")
    schedule = default_schedule(kernel, GpuTarget("sm80", tf32=True))
    code = compile_program(schedule.program(), GpuTarget("sm80", tf32=True)).code
    assert "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32" in code
    given = drawn(kernel)
    a, b = (rounded_to_tf32(given[name]) for name in "ab")
    for order in ORDERS:
        found = run_schedule(schedule, given, partial(run_module, order=order))
        np.testing.assert_allclose(found, a @ b.T, rtol=1e-5, atol=1e-5)
    assert np.abs(found - given["a"].astype(np.float64) @ given["b"].T).max() > 1e-4


@pytest.mark.parametrize("level", ["sm80", "opencl"])
def test_only_a_target_with_tf32_and_tensor_cores_rounds_float32(level: str):
    target = GpuTarget(level, tf32=level == "opencl")
    code = compile_program(
        default_schedule(product(33, 70, 48, "float32"), target).program(), target
    )
    assert "tf32" not in code.code


def test_results_in_bfloat16_are_rounded_to_even_and_keep_their_nans():
    (i,) = te.axes(i=9)
    x = te.tensor("x", "float32", (9,))
    kernel = te.kernel("narrow", te.compute("y", "bfloat16", (i,), x[i] * 1.0))
    bits = [0x3F808000, 0x3F818000, 0x3F808001, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 1, 0x80000000]
    given = {"x": np.array([*bits, 0x7F800001], np.uint32).view(np.float32)}
    with np.errstate(invalid="ignore"):
        expected = given["x"].astype(ml_dtypes.bfloat16)
    found = [
        run_schedule(default_schedule(kernel, GpuTarget()), given),
        te.interpret(te.Schedule(kernel).program(), given),
        np.asarray(evaluate(kernel, given)),
    ]
    for each in found:
        assert each.dtype == expected.dtype
        np.testing.assert_array_equal(each.astype(np.float32), expected.astype(np.float32))


@pytest.mark.parametrize(
    ("given", "kept"),
    [("float32", "float16"), ("float16", "float32"), ("float32", "bfloat16"), ("int8", "int32")],
)
@pytest.mark.parametrize("lanes", [1, 4])
def test_a_copy_into_shared_memory_converts(given: str, kept: str, lanes: int):
    y, x = te.axes(y=8, x=32)
    source = te.tensor("source", given, (8, 32))
    copy = te.compute("copy", kept, (y, x), source[y, x])
    value = copy[y, x] * (2 if kept == "int32" else 2.0)
    schedule = te.Schedule(te.kernel("k", te.compute("out", kept, (y, x), value)), SM80)
    schedule.bind("out", "y", "block.x")
    schedule.bind("out", "x", "thread")
    schedule.compute_at("copy", "out", "y")
    schedule.set_scope("copy", "SHARED")
    outer, inner = schedule.split("copy", "x", lanes)
    schedule.bind("copy", outer, "thread")
    schedule.vectorise("copy", inner)
    arrays = drawn(schedule.kernel)
    expected = evaluate(schedule.kernel, arrays)
    np.testing.assert_array_equal(run_schedule(schedule, arrays), expected)


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_copies_of_a_pipelined_loop_run_ahead(depth):
    schedule = shared_product(product(37, 20, 21, "int8"))
    schedule.pipeline("c", "r.o", depth)
    check(schedule)


@pytest.mark.parametrize("dtype", ["int8", "float16"])
@pytest.mark.parametrize("taken", ["cp.async.wait_group", "bar.sync"])
def test_a_pipelined_loop_needs_its_wait_and_its_barrier(dtype, taken):
    """The copies are asynchronous, and without what the loop waits for, they are read too early."""
    schedule = default_schedule(product(70, 40, 192, dtype), GpuTarget())
    check(schedule)
    module = compile_program(schedule.program(), GpuTarget())
    assert module.code.count("cp.async.cg.shared.global") == 6  # two before the loop, one inside
    loop = module.code.index("$L__BB")
    first = re.compile(rf"{re.escape(taken)}[^;]*;").search(module.code, loop)
    assert first
    wrong = replace(module, code=module.code[: first.start()] + module.code[first.end() :])
    shapes = {name: (t.dtype, t.shape) for name, t in schedule.kernel.tensors.items()}
    with pytest.raises(PtxFault, match=r"not waited for|uninitialised shared memory"):
        run_module(wrong, shapes, drawn(schedule.kernel), "ascending")


@pytest.mark.parametrize(
    ("taps", "dtype"),
    [(32, "int8"), (64, "int8"), (192, "int8"), (80, "float16"), (80, "bfloat16")],
)
def test_eight_rows_of_a_matrix_lie_in_different_banks(monkeypatch, taps, dtype):
    found = []
    locate = PrivateMemory.locate

    def recorded(self, batch, lanes, addresses, size, store):
        if not store:
            found.append(addresses // 16 % 8)
        return locate(self, batch, lanes, addresses, size, store)

    monkeypatch.setattr(PrivateMemory, "locate", recorded)
    check(default_schedule(product(70, 40, taps, dtype), GpuTarget()), ("together",))
    assert found
    for pieces in found:
        assert (np.sort(pieces.reshape(-1, 8), axis=1) == np.arange(8)).all()


@pytest.mark.parametrize("seed", range(12))
def test_products_of_any_size_are_right(seed):
    draw = random.Random(seed)
    dtype, taps = draw.choice([("int8", 32), ("bfloat16", 16), ("float16", 16), ("float32", 5)])
    rows, columns = draw.randint(1, 90), draw.randint(1, 90)
    kernel = product(rows, columns, taps * draw.randint(1, 6), dtype)
    check(default_schedule(kernel, GpuTarget()), ("together",))


@pytest.mark.parametrize(
    "kernel", [softmax(5, 33), depthwise(7, 12), transpose(9, 21)], ids=lambda k: k.name
)
def test_every_other_kernel_runs_element_by_element(kernel):
    check(default_schedule(kernel, GpuTarget()), ("together", "descending"))


def around_barriers(schedule: te.Schedule) -> list[tuple[str, str]]:
    """The lines before and after each barrier."""
    lines = list(map(str.strip, str(schedule.program()).splitlines()))
    return [(lines[n - 1], lines[n + 1]) for n, line in enumerate(lines) if line == "barrier"]


FILL_A, FILL_B = "a.SHARED[y, r] = a[y, r]", "b.SHARED[x, r] = b[x, r]"


def test_barriers_stand_where_threads_would_race():
    """Before the copy that overwrites what the iteration before reads, and before the readers."""
    schedule = shared_product(product(37, 20, 21, "int8"))
    assert around_barriers(schedule) == [
        ("allocate a.SHARED: int8[16, 8] from [16*y.o, 8*r.o] in SHARED", "compute a.SHARED:"),
        (FILL_B, "thread for y.i.o in range(8):"),
    ]


def test_slots_save_the_barrier_before_the_copies():
    schedule = shared_product(product(37, 20, 21, "int8"))
    schedule.pipeline("c", "r.o", 2)
    assert around_barriers(schedule) == [(FILL_B, "thread for y.i.o in range(8):")]


def test_a_pipelined_loop_waits_for_the_readers_of_its_last_run():
    """A reader of another iteration of the loop around it may still be at work."""
    kernel = product(32, 20, 32, "int8")
    text = str(shared_product(kernel)).replace(
        "reorder(c, y.o, x.o, r.o,", "split(c, r.o, 2)\nreorder(c, y.o, x.o, r.o.o, r.o.i,"
    )
    text = text.replace("SHARED, c, r.o)", "SHARED, c, r.o.i)")
    schedule = te.Schedule.parse(kernel, text, GpuTarget())
    schedule.pipeline("c", "r.o.i", 2)
    assert around_barriers(schedule) == [
        ("for r.o.o in range(2):", "for r.o.i in range(2):  # pipelined, depth 2"),
        (FILL_B, "thread for y.i.o in range(8):"),
    ]
    check(schedule)


def test_barriers_are_put_once():
    program = shared_product(product(37, 20, 21, "int8")).program()
    assert str(GpuTarget().complete(program)) == str(program)


def test_schedules_for_gpus_are_text():
    schedule = default_schedule(product(80, 44, 128, "int8"), GpuTarget())
    again = te.Schedule.parse(schedule.kernel, str(schedule), GpuTarget())
    assert str(again.program()) == str(schedule.program())


# What is refused ---------------------------------------------------------------------------------


def refused(schedule: te.Schedule) -> str:
    with pytest.raises(ScheduleError) as caught:
        schedule.program()
    return str(caught.value)


def test_units_are_named():
    schedule = te.Schedule(transpose(8, 8), GpuTarget())
    with pytest.raises(ScheduleError, match=r"unknown unit `warp`; choose block\.x or"):
        schedule.bind("out", "y", "warp")


def test_other_machines_have_no_blocks():
    schedule = te.Schedule(transpose(8, 8))
    with pytest.raises(ScheduleError, match=r"a machine of plain loops has no block\.x loops"):
        schedule.bind("out", "y", "block.x")


def test_a_unit_is_bound_once():
    schedule = te.Schedule(transpose(8, 8), GpuTarget())
    schedule.bind("out", "y", "block.x")
    with pytest.raises(ScheduleError, match=r"bound to block\.x already"):
        schedule.bind("out", "x", "block.x")


def test_blocks_are_outside_of_threads():
    schedule = te.Schedule(transpose(8, 8), GpuTarget())
    schedule.bind("out", "y", "thread")
    schedule.bind("out", "x", "block.x")
    assert "reorder it outward" in refused(schedule)


def test_a_block_has_at_most_1024_threads():
    schedule = te.Schedule(transpose(64, 64), GpuTarget())
    schedule.bind("out", "y", "thread")
    schedule.bind("out", "x", "thread")
    assert "4096 threads in a block, more than the 1024" in refused(schedule)


def test_what_threads_share_is_not_main_memory():
    schedule = te.Schedule(softmax(4, 8), GpuTarget())
    schedule.bind("out", "i", "block.x")
    schedule.compute_at("total", "out", "i")
    assert "`total` is computed inside `out`, so it must lie in SHARED or REGISTER" in refused(
        schedule
    )
    schedule.set_scope("total", "SHARED")
    check(schedule, ("together",))


def test_shared_memory_is_outside_of_threads():
    schedule = te.Schedule(softmax(4, 8), GpuTarget())
    schedule.bind("out", "i", "thread")
    schedule.compute_at("total", "out", "i")
    schedule.set_scope("total", "SHARED")
    assert "computed inside a loop over threads" in refused(schedule)
    schedule.set_scope("total", "REGISTER")
    check(schedule, ("together",))


def test_shared_memory_ends():
    schedule = te.Schedule(transpose(512, 512), GpuTarget())
    copy = schedule.cache_read("a", "SHARED", "out")
    schedule.split("out", "y", 512)
    schedule.compute_at(copy, "out", "y.o")
    assert "take 1048576 bytes, more than the 166912 of a block" in refused(schedule)


def test_instructions_stay_inside_their_operands():
    kernel = product(40, 20, 64, "int8")
    text = str(default_schedule(kernel, GpuTarget())).replace("split(c, x, 16)", "split(c, x, 32)")
    schedule = te.Schedule.parse(kernel, text, GpuTarget())
    with pytest.raises(CompileError, match=r"reaches beyond `b\.SHARED`"):
        compile_program(schedule.program(), GpuTarget())


def test_a_thread_reads_only_what_it_wrote():
    x = te.tensor("x", "float32", (8, 16))
    (i,), (j,) = te.axes(i=8), te.axes(j=16)
    twice = te.compute("twice", "float32", (i, j), x[i, j] + x[i, j])
    schedule = te.Schedule(
        te.kernel("pair", te.compute("out", "float32", (i, j), twice[i, j] * x[i, j])), GpuTarget()
    )
    schedule.bind("out", "i", "block.x")
    schedule.compute_at("twice", "out", "i")
    schedule.set_scope("twice", "REGISTER")
    schedule.bind("out", "j", "thread")
    _, inner = schedule.split("twice", "j", 4)
    schedule.bind("twice", inner, "thread")
    assert "not dealt to the threads alike" in refused(schedule)
    schedule.set_scope("twice", "SHARED")
    check(schedule, ("together", "descending"))
