"""A nest is one instruction only where the instruction computes it to the bit."""

import numpy as np
import pytest

from tilewright import Accelerator
from tilewright.compiler import te
from tilewright.compiler.tensor import evaluate
from tilewright.isa.configuration import PRESETS

from .scheduled import TARGET, accelerated, network, pool, refused


def test_a_tile_of_several_lane_blocks_is_an_instruction():
    schedule = accelerated()
    schedule.tensorise("acc", "n")
    schedule.tensorise("out.ACT", "x")
    text = str(schedule.program())
    assert "instruction gemm:" in text
    assert "instruction vector:" in text


def test_a_gemm_may_go_on_with_an_earlier_sum():
    schedule = accelerated()
    schedule.reorder("acc", "ky", "kx", "n", "y", "x", "o")
    schedule.tensorise("acc", "n")
    schedule.tensorise("out.ACT", "n")
    found = [i for i in te.instances(schedule.program()) if i.nest.stage == "acc"]
    assert [i.accumulate for i in found] == [False] + [True] * 8


# Refusals --------------------------------------------------------------------------------------


NO_INSTRUCTION = {
    "part of a lane block": (
        ["split(acc, o, 2)", "reorder(acc, o.o, n, y, x, o.i)"],
        "tensorise(acc, n): gemm takes `o` in lanes of 4 (`lanes_out`), but the tile has 2; split "
        "`o` by a multiple of 4 and keep the inner loop inside",
    ),
    "tiles across lane blocks": (
        ["split(acc, o, 6)", "split(acc, o.i, 4)", "reorder(acc, o.o, o.i.o, n, y, x, o.i.i)"],
        "tensorise(acc, n): gemm takes `o` in lanes of 4 (`lanes_out`), but some tiles start or "
        "end inside a lane block; split `o` by multiples of 4",
    ),
    "the outer part of a loop alone": (
        ["split(acc, y, 2)", "reorder(acc, y.i, n, y.o)"],
        "tensorise(acc, n): the loops n, y.o, x, o, ky, kx, i do not cover a box; if the outer "
        "part of a split or fused loop is inside, its inner part must be inside too",
    ),
    "a part of a fused loop": (
        ["fuse(acc, y, x)", "split(acc, y_x, 3)", "reorder(acc, y_x.o, n)"],
        "tensorise(acc, n): the loops n, y_x.i, o, ky, kx, i do not cover a box; if the outer "
        "part of a split or fused loop is inside, its inner part must be inside too",
    ),
    "a stage computed inside": (
        ["compute_at(image.ACT, acc, y)"],
        "tensorise(acc, n): `image.ACT` is computed at `y`, inside the instruction; compute it "
        "further out",
    ),
}


@pytest.mark.parametrize("refusal", NO_INSTRUCTION)
def test_a_nest_that_is_no_instruction_is_refused(refusal):
    steps, message = NO_INSTRUCTION[refusal]
    assert refused(accelerated(), "\n".join([*steps, "tensorise(acc, n)"])) == message


def elementwise(make) -> te.Schedule:
    """A stage of `x` and `y` in ACT, `acc` in ACC, `scale` in PARAM, all of one row."""
    r, c = te.axes(r=2, c=4)
    x, y = te.tensor("x", "int8", (2, 4)), te.tensor("y", "int8", (2, 4))
    acc, scale = te.tensor("acc", "int32", (2, 4)), te.tensor("scale", "float32", (4,))
    table = te.tensor("table", "int8", (256,))
    dtype, value = make(x[r, c], y[r, c], acc[r, c], scale[c], table, x[r + 1, c])
    kernel = te.kernel("k", te.compute("out", dtype, (r, c), value))
    schedule = te.Schedule(kernel, TARGET)
    stage = schedule.cache_write("out", "ACT" if dtype == "int8" else "ACC")
    scopes = {"int8": "ACT", "int32": "ACC", "float32": "PARAM"}
    for name in kernel.inputs:
        scope = "LUT" if name == "table" else scopes[kernel.tensors[name].dtype]
        schedule.cache_read(name, scope, stage)
    return schedule


def clamped(value):
    return te.clamp(value, -128, 127)


INEXACT = {
    "a value that wraps": (
        lambda x, y, acc, scale, table, below: ("int8", x + y),
        "out.ACT",
        "vector saturates to int8, but `out.ACT` keeps the low bits of its value; clamp it",
    ),
    "an index that saturates": (
        lambda x, y, acc, scale, table, below: ("int8", te.lookup(table, x + y)),
        "out.ACT",
        "vector saturates to int8 before it looks up; clamp the index of `lookup(table.LUT[], "
        "(x.ACT[r, c] + y.ACT[r, c]))`",
    ),
    "a multiple of an accumulator": (
        lambda x, y, acc, scale, table, below: ("int8", clamped(acc * 3 + y * 2)),
        "out.ACT",
        "vector multiplies only operands in ACT by constants, but `acc.ACC` lies in ACC; make "
        "`(acc.ACC[r, c] * 3)` a separate stage without `tensorise`",
    ),
    "an accumulator that is requantised": (
        lambda x, y, acc, scale, table, below: ("int32", te.requantise(acc, scale)),
        "out.ACC",
        "ACC receives a result before added constants, requantisation and clamp, but `out.ACC` "
        "lies in ACC; make it an int8 stage in ACT",
    ),
    "an accumulator with a constant": (
        lambda x, y, acc, scale, table, below: ("int32", x + 5),
        "out.ACC",
        "ACC receives a result before added constants, requantisation and clamp, but `out.ACC` "
        "lies in ACC; make it an int8 stage in ACT",
    ),
    "a maximum with an accumulator": (
        lambda x, y, acc, scale, table, below: ("int8", te.maximum(acc, y)),
        "out.ACT",
        "vector saturates to int8, but `out.ACT` keeps the low bits of its value; clamp it",
    ),
    "a tensor as both operands": (
        lambda x, y, acc, scale, table, below: ("int8", te.maximum(x, below)),
        "out.ACT",
        "vector takes each operand from a separate tensor, but `out.ACT` reads `x.ACT` twice; "
        "declare a second tensor for it",
    ),
}


@pytest.mark.parametrize("case", INEXACT)
def test_what_an_instruction_would_compute_otherwise_is_refused(case):
    make, stage, message = INEXACT[case]
    step = f"tensorise({stage}, r)"
    assert refused(elementwise(make), step) == f"{step}: {message}"


def test_what_an_instruction_computes_exactly_is_taken():
    for make in (
        lambda x, y, acc, scale, table, below: ("int8", te.maximum(x, y)),
        lambda x, y, acc, scale, table, below: ("int8", clamped(x * 3 + y * -2)),
        lambda x, y, acc, scale, table, below: ("int8", te.lookup(table, te.minimum(x, y))),
        lambda x, y, acc, scale, table, below: ("int8", clamped(te.requantise(acc, scale) + 5)),
        lambda x, y, acc, scale, table, below: ("int32", x * 3 + y * -2),
        lambda x, y, acc, scale, table, below: ("int32", acc + y * 2),
    ):
        schedule = elementwise(make)
        stage = next(stage.name for stage in schedule.stages if not stage.source)
        schedule.tensorise(stage, "r")
        assert "instruction vector:" in str(schedule.program())


def test_sums_are_held_to_the_same_rules():
    (c,) = te.axes(c=4)
    (r,) = te.reduce_axes(r=2)
    acc, x = te.tensor("acc", "int32", (2, 4)), te.tensor("x", "int8", (2, 4))
    for value, said in (
        (te.sum(x[r, c], over=r), "clamp it"),
        (te.clamp(te.sum(acc[r, c] * 3 + x[r, c] * 2, over=r), -9, 9), "without `tensorise`"),
    ):
        schedule = te.Schedule(te.kernel("k", te.compute("out", "int8", (c,), value)), TARGET)
        schedule.cache_write("out", "ACT")
        for name in schedule.kernel.inputs:
            schedule.cache_read(name, "ACC" if name == "acc" else "ACT", "out.ACT")
        assert refused(schedule, "tensorise(out.ACT, c)").endswith(said)


@pytest.mark.parametrize(
    ("window", "reach"), [((3, -1), "-1..4"), ((2, -1), "-1..3"), ((2, 0), "0..4")]
)
def test_padding_inside_an_instruction_is_refused(window, reach):
    """A stage in a scratchpad has no border; only a copy for the reader has."""
    y, c = te.axes(y=4, c=4)
    size, offset = window
    (ky,) = te.reduce_axes(ky=size)
    image = te.tensor("image", "int8", (4, 4))
    rows = te.compute("rows", "int8", (y, c), image[y, c])
    out = te.compute("out", "int8", (y, c), te.max(rows[y + ky + offset, c], over=ky))
    schedule = te.Schedule(te.kernel("k", out), TARGET)
    schedule.set_scope("rows", "ACT")
    schedule.cache_write("out", "ACT")
    assert refused(schedule, "tensorise(out.ACT, y)") == (
        f"tensorise(out.ACT, y): `{rows[y + ky + offset, c]}` reaches {reach} where `rows` has "
        "0..3, but vector has no padding; use `cache_read` for a copy with a border"
    )
    schedule.cache_read("rows", "ACT", "out.ACT")
    schedule.tensorise("out.ACT", "y")


def test_a_split_inside_an_instruction_may_leave_a_tail():
    schedule = accelerated()
    schedule.split("acc", "o", 3)
    schedule.tensorise("acc", "n")
    assert "instruction gemm:" in str(schedule.program())


def test_a_tile_that_is_cut_inside_a_lane_block_is_refused():
    """A window over channels asks for six of them at a time."""
    m, o, p = te.axes(m=4, o=12, p=8)
    k, ko = te.reduce_axes(k=4, ko=3)
    a, b = te.tensor("a", "int8", (4, 4)), te.tensor("b", "int8", (4, 12))
    acc = te.compute("acc", "int32", (m, o), te.sum(a[m, k] * b[k, o], over=k))
    out = te.compute("out", "int32", (m, p), te.max(acc[m, p + ko], over=ko))
    schedule = te.Schedule(te.kernel("k", out), TARGET)
    schedule.set_scope("acc", "ACC")
    schedule.cache_read("a", "ACT", "acc")
    schedule.cache_read("b", "WGT", "acc")
    schedule.split("out", "p", 4)
    schedule.reorder("out", "p.o", "m")
    schedule.compute_at("acc", "out", "p.o")
    schedule.split("acc", "o", 4)
    schedule.reorder("acc", "o.o", "m")
    assert refused(schedule, "tensorise(acc, m)") == (
        "tensorise(acc, m): gemm takes `o` in lanes of 4 (`lanes_out`), but some tiles start or "
        "end inside a lane block; split `o` by multiples of 4"
    )


def test_a_schedule_without_a_machine_has_no_instructions():
    assert refused(te.Schedule(network()), "tensorise(acc, n)") == (
        "tensorise(acc, n): a machine of plain loops has no instructions for `acc`; give the "
        "Schedule a target that has"
    )


def test_channels_that_fill_no_lanes_are_refused():
    schedule = te.Schedule(pool(), Accelerator(PRESETS["8x8"]))
    steps = "cache_write(out, ACT)\ncache_read(image, ACT, out.ACT)\n"
    steps += "cache_read(scale, PARAM, out.ACT)\ntensorise(out.ACT, y)"
    lanes = PRESETS["8x8"].vector_lanes
    assert refused(schedule, steps) == (
        f"tensorise(out.ACT, y): vector takes `c` in lanes of {lanes} (`vector_lanes`), but its "
        "extent is 4; declare it padded"
    )


def test_a_reduction_that_an_instruction_cannot_go_on_with_is_refused():
    schedule = te.Schedule(pool(), TARGET)
    steps = "cache_write(out, ACT)\ncache_read(image, ACT, out.ACT)\n"
    steps += "cache_read(scale, PARAM, out.ACT)\nreorder(out.ACT, ky, y, c)\ntensorise(out.ACT, y)"
    assert refused(schedule, steps) == (
        "tensorise(out.ACT, y): vector cannot add to an earlier sum; move the reduction loop `ky` "
        "inside `y`"
    )


@pytest.mark.parametrize(
    "step",
    [
        "split(acc, y, 2)",
        "fuse(acc, y, x)",
        "reorder(acc, x, y)",
        "unroll(acc, i)",
        "vectorise(acc, o)",
        "parallelise(acc, y)",
        "pipeline(acc, y, 2)",
    ],
)
def test_loops_inside_an_instruction_stay(step):
    message = refused(accelerated(), f"tensorise(acc, y)\n{step}")
    loop = step.removesuffix(")").split(", ")[1]
    assert message == (
        f"{step}: `{loop}` lies inside the instruction of `acc` that starts at `y`; do this before "
        "`tensorise`"
    )


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("tensorise(acc, y)", "`acc` is tensorised at `n` already"),
        (
            "cache_read(image.ACT, ACT, acc)",
            "`acc` is tensorised already; do this before `tensorise`",
        ),
        (
            "compute_at(image.ACT, acc, x)",
            "`tensorise(acc, n)` would no longer hold: `image.ACT` is computed at `x`, inside "
            "the instruction; compute it further out",
        ),
    ],
)
def test_a_tensorised_stage_stays(step, message):
    assert refused(accelerated(), f"tensorise(acc, n)\n{step}") == f"{step}: {message}"


def test_a_move_that_breaks_the_lanes_of_an_instruction_is_refused():
    """The tile of a stage that moves into another is what that one needs of it."""
    schedule = accelerated()
    schedule.tensorise("acc", "n")
    assert refused(schedule, "split(out.ACT, o, 2)\ncompute_at(acc, out.ACT, o.o)") == (
        "compute_at(acc, out.ACT, o.o): `tensorise(acc, n)` would no longer hold: gemm takes "
        "`o` in lanes of 4 (`lanes_out`), but the tile has 2; split `o` by a multiple of 4 and "
        "keep the inner loop inside"
    )


def test_the_interpreter_agrees_on_the_accelerated_kernel():
    schedule = accelerated()
    schedule.split("out", "y", 4)
    for stage in ("out.ACT", "acc", "image.ACT"):
        schedule.compute_at(stage, "out", "y.o")
    schedule.tensorise("acc", "n")
    schedule.tensorise("out.ACT", "n")
    generator = np.random.default_rng(1)
    inputs = {
        "image": generator.integers(-128, 128, (1, 6, 6, 4)).astype(np.int8),
        "w": generator.integers(-128, 128, (3, 3, 4, 8)).astype(np.int8),
        "bias": generator.integers(-1000, 1000, 8).astype(np.int32),
        "scale": generator.uniform(0.0005, 0.002, 8).astype(np.float32),
    }
    expected = evaluate(schedule.kernel, inputs)
    assert len(np.unique(expected)) > 50
    np.testing.assert_array_equal(te.interpret(schedule.program(), inputs), expected)
