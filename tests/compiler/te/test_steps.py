"""Every step does what its text says, and is refused where it may not be taken."""

import numpy as np
import pytest

from tilewright.compiler import te
from tilewright.compiler.tensor import Kernel, evaluate
from tilewright.errors import CompileError
from tilewright.isa.configuration import PRESETS

MACHINE = PRESETS["4x4"]


def network() -> Kernel:
    """A convolution of 6 x 6 pixels, then bias, requantisation and clamp."""
    n, y, x, o = te.axes(n=1, y=6, x=6, o=8)
    ky, kx, i = te.reduce_axes(ky=3, kx=3, i=4)
    image = te.tensor("image", "int8", (1, 6, 6, 4), pad=3)
    w = te.tensor("w", "int8", (3, 3, 4, 8))
    bias, scale = te.tensor("bias", "int32", (8,)), te.tensor("scale", "float32", (8,))
    taps = image[n, y + ky - 1, x + kx - 1, i] * w[ky, kx, i, o]
    acc = te.compute("acc", "int32", (n, y, x, o), te.sum(taps, over=(ky, kx, i)))
    value = te.requantise(acc[n, y, x, o] + bias[o], scale[o]) + 5
    return te.kernel("conv", te.compute("out", "int8", (n, y, x, o), te.clamp(value, -128, 127)))


def pool() -> Kernel:
    """An average of two rows, finished in the same stage."""
    y, c = te.axes(y=4, c=4)
    (ky,) = te.reduce_axes(ky=2)
    image, scale = te.tensor("image", "int8", (5, 4)), te.tensor("scale", "float32", (4,))
    total = te.sum(image[y + ky, c], over=ky)
    value = te.clamp(te.requantise(total, scale[c]) + 0, -128, 127)
    return te.kernel("pool", te.compute("out", "int8", (y, c), value))


def loops(schedule: te.Schedule, stage: str) -> tuple[str, ...]:
    return next(s.loops for s in schedule.stages if s.name == stage)


def accelerated() -> te.Schedule:
    """All of the convolution in scratchpads, the whole of it one tile."""
    schedule = te.Schedule(network(), MACHINE)
    schedule.set_scope("acc", "ACC")
    schedule.cache_write("out", "ACT")
    schedule.cache_read("image", "ACT", "acc")
    schedule.cache_read("w", "WGT", "acc")
    schedule.cache_read("bias", "PARAM", "out.ACT")
    schedule.cache_read("scale", "PARAM", "out.ACT")
    return schedule


def test_split_fuse_and_reorder_rename_loops():
    schedule = te.Schedule(network())
    assert schedule.split("out", "y", 4) == ("y.o", "y.i")
    schedule.reorder("out", "x", "y.i")
    assert loops(schedule, "out") == ("n", "y.o", "x", "y.i", "o")
    assert schedule.fuse("out", "n", "y.o") == "n_y.o"
    assert loops(schedule, "out") == ("n_y.o", "x", "y.i", "o")


def test_copies_are_named_after_tensor_and_scope():
    schedule = te.Schedule(network())
    assert schedule.cache_write("out", "ACT") == "out.ACT"
    assert schedule.cache_read("image", "ACT", "acc") == "image.ACT"
    assert schedule.cache_read("image.ACT", "ACT", "acc") == "image.ACT.ACT"
    assert schedule.cache_read("acc", "ACC", "out.ACT") == "acc.ACC"
    names = [stage.name for stage in schedule.stages]
    assert names == ["image.ACT", "image.ACT.ACT", "acc", "acc.ACC", "out.ACT", "out"]


def test_a_copy_holds_the_padding_that_its_reader_needs():
    schedule = te.Schedule(network())
    schedule.cache_read("image", "ACT", "acc")
    assert schedule.stages[0].domain == ((0, 1), (-1, 7), (-1, 7), (0, 4))
    assert schedule.stages[0].axes == ("n", "y", "x", "i")


def test_compute_root_takes_compute_at_back():
    schedule = te.Schedule(network())
    plain = schedule.program()
    schedule.compute_at("acc", "out", "y")
    assert schedule.program() != plain
    schedule.compute_root("acc")
    assert schedule.program() == plain


def test_a_tensor_of_any_name_survives_its_text():
    (y,) = te.axes(y=4)
    odd = te.tensor('again "x", really', "int8", (4,))
    kernel = te.kernel("k", te.compute("/out put", "int8", (y,), odd[y]))
    schedule = te.Schedule(kernel)
    schedule.cache_read('again "x", really', "ACT", "/out put")
    schedule.split("/out put", "y", 2)
    assert str(schedule) == (
        'cache_read("again \\"x\\", really", ACT, "/out put")\nsplit("/out put", y, 2)'
    )
    again = te.Schedule.parse(kernel, f"# a comment\n\n{schedule}\n")
    assert again.steps == schedule.steps
    assert again.program() == schedule.program()


def test_several_steps_are_taken_together_or_not_at_all():
    schedule = te.Schedule(network())
    with pytest.raises(te.ScheduleError, match="has no loop `z`"):
        schedule.apply(te.Split("acc", "y", 2), te.Unroll("acc", "z"))
    assert schedule.steps == ()
    schedule.apply(te.Split("acc", "y", 2), te.Unroll("acc", "y.i"))
    assert len(schedule.steps) == 2


def test_later_depths_replace_earlier_ones():
    schedule = te.Schedule(network())
    schedule.compute_at("acc", "out", "y")
    schedule.pipeline("out", "n", 2)
    assert "in DRAM, 2 slots" in str(schedule.program())
    schedule.pipeline("out", "n", 3)
    assert "in DRAM, 3 slots" in str(schedule.program())


def test_a_depth_further_in_counts_for_what_is_inside_it():
    schedule = accelerated()
    schedule.pipeline("out", "n", 2)
    schedule.pipeline("out", "y", 3)
    schedule.compute_at("out.ACT", "out", "y")
    schedule.compute_at("acc", "out", "n")
    text = str(schedule.program())
    assert "allocate acc: int32[1, 6, 6, 8] in ACC, 2 slots" in text
    assert "from [0, y, 0, 0] in ACT, 3 slots" in text


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


REFUSALS = {
    "a stage that does not exist": (
        ["split(ack, y, 2)"],
        "split(ack, y, 2): there is no stage `ack`; the stages are `acc`, `out`",
    ),
    "a loop that does not exist": (
        ["split(out, y, 2)", "split(out, y, 2)"],
        "split(out, y, 2): stage `out` has no loop `y`; its loops are n, y.o, y.i, x, o",
    ),
    "a factor of zero": (
        ["split(acc, y, 0)"],
        "split(acc, y, 0): the factor must be at least 1, not 0",
    ),
    "a split of a marked loop": (
        ["unroll(acc, y)", "split(acc, y, 2)"],
        "split(acc, y, 2): `y` is unrolled already; do this before",
    ),
    "a split of a pipelined loop": (
        ["pipeline(acc, y, 2)", "split(acc, y, 2)"],
        "split(acc, y, 2): `y` is pipelined already; do this before",
    ),
    "a split of a loop that stages are computed in": (
        ["compute_at(acc, out, y)", "split(out, y, 2)"],
        "split(out, y, 2): `acc` is computed at `y`; do this before, or `compute_root(acc)` first",
    ),
    "a fusion of loops that are no neighbours": (
        ["fuse(acc, y, o)"],
        "fuse(acc, y, o): `o` must stand right inside `y`; the loops of `acc` are n, y, x, o, ky, "
        "kx, i; reorder them first",
    ),
    "a fusion of a data loop with a reduction loop": (
        ["fuse(acc, o, ky)"],
        "fuse(acc, o, ky): a data loop and a reduction loop of `acc` cannot be one; fuse loops of "
        "one sort",
    ),
    "a reordering that names a loop twice": (
        ["reorder(acc, y, y)"],
        "reorder(acc, y, y): a loop of `acc` is named twice; name each once",
    ),
    "a parallel reduction": (
        ["parallelise(acc, i)"],
        "parallelise(acc, i): `i` is a reduction loop of `acc`, whose iterations depend on each "
        "other; choose a data loop",
    ),
    "a vectorised part of a reduction": (
        ["split(acc, i, 2)", "vectorise(acc, i.i)"],
        "vectorise(acc, i.i): `i.i` is a reduction loop of `acc`, whose iterations depend on each "
        "other; choose a data loop",
    ),
    "a vectorised loop that is not innermost": (
        ["vectorise(out, x)"],
        "vectorise(out, x): the vectorised loop `x` of `out` must be its innermost; the loops are "
        "n, y, x, o",
    ),
    "a reordering that moves a vectorised loop out": (
        ["vectorise(out, o)", "reorder(out, o, x)"],
        "reorder(out, o, x): the vectorised loop `o` of `out` must be its innermost; the loops are "
        "n, y, o, x",
    ),
    "two marks on a loop": (
        ["unroll(out, o)", "parallelise(out, o)"],
        "parallelise(out, o): `o` is unrolled already; choose another loop",
    ),
    "a mark on a pipelined loop": (
        ["pipeline(out, y, 2)", "parallelise(out, y)"],
        "parallelise(out, y): `y` is pipelined, so it is run in order; choose another loop",
    ),
    "a pipeline of depth zero": (
        ["pipeline(out, y, 0)"],
        "pipeline(out, y, 0): the depth must be at least 1, not 0",
    ),
    "a pipeline over a parallel loop": (
        ["parallelise(out, y)", "pipeline(out, y, 2)"],
        "pipeline(out, y, 2): `y` is parallel, and iterations overlap only where they come one "
        "after the other; pipeline a serial loop",
    ),
    "a copy of what is not read": (
        ["cache_read(bias, PARAM, acc)"],
        "cache_read(bias, PARAM, acc): stage `acc` does not read `bias`; it reads `image`, `w`",
    ),
    "a scope that does not exist": (
        ["cache_read(image, SHARED, acc)"],
        "cache_read(image, SHARED, acc): there is no scope `SHARED`; scopes are ACT, WGT, PARAM, "
        "LUT, ACC, DRAM",
    ),
    "a scope of other elements": (
        ["set_scope(acc, ACT)"],
        "set_scope(acc, ACT): `acc` is int32, and ACT holds int8; choose PARAM or ACC or DRAM",
    ),
    "a copy of what is computed inside a loop": (
        ["compute_at(acc, out, y)", "cache_read(acc, ACC, out)"],
        "cache_read(acc, ACC, out): `acc` is computed inside another stage; `compute_root` it "
        "first",
    ),
    "a written copy of changed loops": (
        ["split(out, y, 2)", "cache_write(out, ACT)"],
        "cache_write(out, ACT): the loops of `out` have been changed already; make `cache_write` "
        "the first step on a stage",
    ),
    "a written copy of a stage inside another": (
        ["compute_at(acc, out, y)", "cache_write(acc, ACC)"],
        "cache_write(acc, ACC): `acc` is computed inside a stage, or one is computed inside it; "
        "make `cache_write` the first step on a stage",
    ),
    "a written copy of a stage that others are computed in": (
        ["compute_at(acc, out, y)", "cache_write(out, ACT)"],
        "cache_write(out, ACT): `out` is computed inside a stage, or one is computed inside it; "
        "make `cache_write` the first step on a stage",
    ),
    "a written copy of a copy": (
        ["cache_write(out, ACT)", "cache_write(out, ACT)"],
        "cache_write(out, ACT): `out` is a copy; cache what computes",
    ),
    "the output inside a loop": (
        ["compute_at(out, acc, y)"],
        "compute_at(out, acc, y): `out` is the kernel's output and has no consumer; move the "
        "others to it",
    ),
    "a stage inside one that does not consume it": (
        ["cache_read(w, WGT, acc)", "compute_at(acc, w.WGT, o)"],
        "compute_at(acc, w.WGT, o): `w.WGT` does not consume `acc`; its readers are `out`",
    ),
    "a stage inside itself": (
        ["compute_at(acc, acc, y)"],
        "compute_at(acc, acc, y): `acc` does not consume `acc`; its readers are `out`",
    ),
    "a stage that a reader cannot see": (
        ["cache_read(image, ACT, acc)", "compute_at(image.ACT, out, y)"],
        "compute_at(image.ACT, out, y): `acc` reads `image.ACT` outside the loop `y` of `out`; "
        "compute `image.ACT` further out, or `acc` inside that loop",
    ),
    "a reader that moves out of the loop": (
        [
            "compute_at(acc, out, y)",
            "cache_read(image, ACT, acc)",
            "compute_at(image.ACT, out, y)",
            "compute_at(acc, out, n)",
        ],
        "compute_at(acc, out, n): `acc` reads `image.ACT` outside the loop `y` of `out`; "
        "compute `image.ACT` further out, or `acc` inside that loop",
    ),
    "another scope for a copy": (
        ["cache_read(image, ACT, acc)", "set_scope(image.ACT, WGT)"],
        "set_scope(image.ACT, WGT): `image.ACT` was made for ACT; cache it for WGT instead",
    ),
    "an output in a scratchpad": (
        ["set_scope(out, ACT)"],
        "set_scope(out, ACT): `out` is the kernel's output and lies in DRAM; use "
        "`cache_write(out, ACT)`",
    ),
    "an instruction that copies": (
        ["cache_read(image, ACT, acc)", "tensorise(image.ACT, n)"],
        "tensorise(image.ACT, n): `image.ACT` is a copy, which becomes a transfer; tensorise a "
        "stage that computes",
    ),
    "an operand in main memory": (
        ["tensorise(acc, n)"],
        "tensorise(acc, n): compute `acc`: tensor `acc` lies in DRAM; gemm takes `acc` from ACC; "
        "see `set_scope` and `cache_read`",
    ),
    "text that is no step": (
        ["divide(acc, y, 2)"],
        "`divide(acc, y, 2)` is no step; a step is `name(arguments)`, with a name of cache_read, "
        "cache_write, compute_at, compute_root, fuse, parallelise, pipeline, reorder, set_scope, "
        "split, tensorise, unroll, vectorise",
    ),
    "too few arguments": (
        ["split(acc, y)"],
        "`split(acc, y)`: split takes stage, loop, factor",
    ),
    "too few loops": (
        ["reorder(acc)"],
        "`reorder(acc)`: reorder takes stage, loops, ...",
    ),
    "a factor that is no number": (
        ["split(acc, y, two)"],
        "`split(acc, y, two)`: `factor` must be a whole number, not `two`",
    ),
    "text that cannot be read": (
        ["split(acc, y z, 2)"],
        "`split(acc, y z, 2)`: cannot read ` y z, 2`; arguments are names and whole numbers "
        "between commas, other names in double quotes",
    ),
}


def refused(schedule: te.Schedule, text: str) -> str:
    """The message of the last step of a text; the schedule is as before it."""
    *good, bad = text.splitlines()
    for line in good:
        schedule.apply(te.parse_step(line))
    before = (schedule.steps, schedule.stages, schedule.program())
    with pytest.raises(te.ScheduleError) as caught:
        schedule.apply(te.parse_step(bad))
    assert (schedule.steps, schedule.stages, schedule.program()) == before
    assert isinstance(caught.value, CompileError)
    return str(caught.value)


@pytest.mark.parametrize("refusal", REFUSALS)
def test_an_illegal_step_is_refused(refusal):
    steps, message = REFUSALS[refusal]
    assert refused(te.Schedule(network(), MACHINE), "\n".join(steps)) == message


NO_INSTRUCTION = {
    "part of a lane block": (
        ["split(acc, o, 2)", "reorder(acc, o.o, n, y, x, o.i)"],
        "tensorise(acc, n): gemm takes `o` in lanes of 4 (`lanes_out`), and the tile has 2; split "
        "`o` by a multiple of 4 and keep the inner loop inside",
    ),
    "tiles across lane blocks": (
        ["split(acc, o, 6)", "split(acc, o.i, 4)", "reorder(acc, o.o, o.i.o, n, y, x, o.i.i)"],
        "tensorise(acc, n): gemm takes `o` in lanes of 4 (`lanes_out`), and some tiles start or "
        "end inside a lane block; split `o` by multiples of 4",
    ),
    "the outer part of a loop alone": (
        ["split(acc, y, 2)", "reorder(acc, y.i, n, y.o)"],
        "tensorise(acc, n): the loops n, y.o, x, o, ky, kx, i cover no box; the inner part of a "
        "split or fused loop must be inside where its outer part is",
    ),
    "a part of a fused loop": (
        ["fuse(acc, y, x)", "split(acc, y_x, 3)", "reorder(acc, y_x.o, n)"],
        "tensorise(acc, n): the loops n, y_x.i, o, ky, kx, i cover no box; the inner part of a "
        "split or fused loop must be inside where its outer part is",
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
    schedule = te.Schedule(kernel, MACHINE)
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
        "vector saturates to int8, and `out.ACT` keeps the low bits of its value; clamp it",
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
        "vector multiplies by constants only what lies in ACT, and `acc.ACC` lies in ACC; make "
        "`(acc.ACC[r, c] * 3)` a stage that no instruction does",
    ),
    "an accumulator that is requantised": (
        lambda x, y, acc, scale, table, below: ("int32", te.requantise(acc, scale)),
        "out.ACC",
        "ACC takes a result before constants are added, requantisation and clamp, and `out.ACC` "
        "lies there; make it an int8 stage in ACT",
    ),
    "an accumulator with a constant": (
        lambda x, y, acc, scale, table, below: ("int32", x + 5),
        "out.ACC",
        "ACC takes a result before constants are added, requantisation and clamp, and `out.ACC` "
        "lies there; make it an int8 stage in ACT",
    ),
    "a tensor as both operands": (
        lambda x, y, acc, scale, table, below: ("int8", te.maximum(x, below)),
        "out.ACT",
        "vector takes each operand from a tensor of its own, and `out.ACT` reads `x.ACT` twice; "
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


def test_padding_inside_an_instruction_is_refused():
    """A stage in a scratchpad has no border; only a copy for the reader has."""
    y, c = te.axes(y=4, c=4)
    (ky,) = te.reduce_axes(ky=3)
    image = te.tensor("image", "int8", (4, 4))
    rows = te.compute("rows", "int8", (y, c), image[y, c])
    out = te.compute("out", "int8", (y, c), te.max(rows[y + ky - 1, c], over=ky))
    schedule = te.Schedule(te.kernel("k", out), MACHINE)
    schedule.set_scope("rows", "ACT")
    schedule.cache_write("out", "ACT")
    assert refused(schedule, "tensorise(out.ACT, y)") == (
        "tensorise(out.ACT, y): `rows[ky + y - 1, c]` reaches -1..4 where `rows` has 0..3, and "
        "vector knows no padding; `cache_read` makes a copy with its border"
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
    schedule = te.Schedule(te.kernel("k", out), MACHINE)
    schedule.set_scope("acc", "ACC")
    schedule.cache_read("a", "ACT", "acc")
    schedule.cache_read("b", "WGT", "acc")
    schedule.split("out", "p", 4)
    schedule.reorder("out", "p.o", "m")
    schedule.compute_at("acc", "out", "p.o")
    schedule.split("acc", "o", 4)
    schedule.reorder("acc", "o.o", "m")
    assert refused(schedule, "tensorise(acc, m)") == (
        "tensorise(acc, m): gemm takes `o` in lanes of 4 (`lanes_out`), and some tiles start or "
        "end inside a lane block; split `o` by multiples of 4"
    )


def test_a_fused_loop_has_a_name_of_its_own():
    a, b, both = te.axes(a=2, b=2, a_b=2)
    given = te.tensor("given", "int8", (2, 2, 2))
    kernel = te.kernel("k", te.compute("out", "int8", (a, b, both), given[a, b, both]))
    assert refused(te.Schedule(kernel), "fuse(out, a, b)") == (
        "fuse(out, a, b): `out` has, or had, a loop `a_b` already; rename an axis"
    )


def test_a_schedule_without_a_machine_has_no_instructions():
    assert refused(te.Schedule(network()), "tensorise(acc, n)") == (
        "tensorise(acc, n): lanes are unknown; give the Schedule a Configuration"
    )


def test_channels_that_fill_no_lanes_are_refused():
    schedule = te.Schedule(pool(), PRESETS["8x8"])
    steps = "cache_write(out, ACT)\ncache_read(image, ACT, out.ACT)\n"
    steps += "cache_read(scale, PARAM, out.ACT)\ntensorise(out.ACT, y)"
    lanes = PRESETS["8x8"].vector_lanes
    assert refused(schedule, steps) == (
        f"tensorise(out.ACT, y): vector takes `c` in lanes of {lanes} (`vector_lanes`), and its "
        "extent is 4; declare it padded"
    )


def test_a_reduction_that_an_instruction_cannot_go_on_with_is_refused():
    schedule = te.Schedule(pool(), MACHINE)
    steps = "cache_write(out, ACT)\ncache_read(image, ACT, out.ACT)\n"
    steps += "cache_read(scale, PARAM, out.ACT)\nreorder(out.ACT, ky, y, c)\ntensorise(out.ACT, y)"
    assert refused(schedule, steps) == (
        "tensorise(out.ACT, y): vector cannot add to an earlier sum; move the reduction loop `ky` "
        "inside `y`"
    )


def test_what_is_read_after_a_reduction_is_computed_outside_of_it():
    schedule = te.Schedule(pool())
    steps = "cache_read(scale, PARAM, out)\nreorder(out, ky, y, c)\ncompute_at(scale.PARAM, out, y)"
    assert refused(schedule, steps) == (
        "compute_at(scale.PARAM, out, y): `out` reads `scale.PARAM` after its reduction, outside "
        "the reduction loop `ky`; compute it further out"
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
            "`tensorise(acc, n)` would not hold any more: `image.ACT` is computed at `x`, inside "
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
        "compute_at(acc, out.ACT, o.o): `tensorise(acc, n)` would not hold any more: gemm takes "
        "`o` in lanes of 4 (`lanes_out`), and the tile has 2; split `o` by a multiple of 4 and "
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
