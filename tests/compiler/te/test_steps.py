"""Every step does what its text says, and is refused where it may not be taken."""

import pytest

from tilewright.compiler import te

from .scheduled import TARGET, accelerated, loops, network, pool, refused


def test_split_fuse_and_reorder_rename_loops():
    schedule = te.Schedule(network(), TARGET)
    assert schedule.split("out", "y", 4) == ("y.o", "y.i")
    schedule.reorder("out", "x", "y.i")
    assert loops(schedule, "out") == ("n", "y.o", "x", "y.i", "o")
    assert schedule.fuse("out", "n", "y.o") == "n_y.o"
    assert loops(schedule, "out") == ("n_y.o", "x", "y.i", "o")


def test_the_first_reduction_follows_the_loops():
    schedule = te.Schedule(network(), TARGET)

    def first() -> str:
        stage = next(stage for stage in schedule.stages if stage.name == "acc")
        return stage.loops[stage.first_reduction]

    assert first() == "ky"
    schedule.split("acc", "y", 4)
    assert first() == "ky"
    schedule.reorder("acc", "kx", "ky")
    assert first() == "kx"


def test_fuse_takes_several_loops_two_at_a_time():
    schedule, again = accelerated(), accelerated()
    assert schedule.fuse("out", "n", "y", "x") == "n_y_x"
    again.fuse("out", again.fuse("out", "n", "y"), "x")
    assert str(schedule) == str(again)


def test_a_nest_is_the_steps_that_its_text_declares():
    schedule, again = te.Schedule(network(), TARGET), te.Schedule(network(), TARGET)
    assert schedule.nest("out", "(n y.o) x/2* y.i.o* o y.i.i~", y=(4, 2)) == "n_y.o"
    for loop, factor in (("y", 4), ("y.i", 2), ("x", 2)):
        again.split("out", loop, factor)
    again.reorder("out", "n", "y.o", "x.o", "x.i", "y.i.o", "o", "y.i.i")
    again.unroll("out", "x.i", "y.i.o")
    again.vectorise("out", "y.i.i")
    again.parallelise("out", again.fuse("out", "n", "y.o"))
    assert str(schedule) == str(again)
    assert again.nest("acc", "y x/1*") == "", "the steps are whole, and no loop is shared"
    assert loops(again, "acc")[1:3] == ("y", "x")


def test_copies_are_named_after_tensor_and_scope():
    schedule = te.Schedule(network(), TARGET)
    assert schedule.cache_write("out", "ACT") == "out.ACT"
    assert schedule.cache_read("image", "ACT", "acc") == "image.ACT"
    assert schedule.cache_read("image.ACT", "ACT", "acc") == "image.ACT.ACT"
    assert schedule.cache_read("acc", "ACC", "out.ACT") == "acc.ACC"
    names = [stage.name for stage in schedule.stages]
    assert names == ["image.ACT", "image.ACT.ACT", "acc", "acc.ACC", "out.ACT", "out"]


def test_a_copy_holds_the_padding_that_its_reader_needs():
    schedule = te.Schedule(network(), TARGET)
    schedule.cache_read("image", "ACT", "acc")
    assert schedule.stages[0].domain == ((0, 1), (-1, 7), (-1, 7), (0, 4))
    assert schedule.stages[0].axes == ("n", "y", "x", "i")


def test_compute_root_takes_compute_at_back():
    schedule = te.Schedule(network(), TARGET)
    plain = schedule.program()
    schedule.compute_at("acc", "out", "y")
    assert schedule.program() != plain
    schedule.compute_root("acc")
    assert schedule.program() == plain


def test_a_tensor_of_any_name_survives_its_text():
    (y,) = te.axes(y=4)
    odd = te.tensor('again "x", really', "int8", (4,))
    kernel = te.kernel("k", te.compute("/out put", "int8", (y,), odd[y]))
    schedule = te.Schedule(kernel, TARGET)
    schedule.cache_read('again "x", really', "ACT", "/out put")
    schedule.split("/out put", "y", 2)
    assert str(schedule) == (
        'cache_read("again \\"x\\", really", ACT, "/out put")\nsplit("/out put", y, 2)'
    )
    again = te.Schedule.parse(kernel, f"# a comment\n\n{schedule}\n", TARGET)
    assert again.steps == schedule.steps
    assert again.program() == schedule.program()


def test_several_steps_are_taken_together_or_not_at_all():
    schedule = te.Schedule(network(), TARGET)
    with pytest.raises(te.ScheduleError, match="has no loop `z`"):
        schedule.apply(te.Split("acc", "y", 2), te.Unroll("acc", "z"))
    assert schedule.steps == ()
    schedule.apply(te.Split("acc", "y", 2), te.Unroll("acc", "y.i"))
    assert len(schedule.steps) == 2


def test_later_depths_replace_earlier_ones():
    schedule = te.Schedule(network(), TARGET)
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


REFUSALS = {
    "a stage that does not exist": (
        ["split(ack, y, 2)"],
        "split(ack, y, 2): there is no stage `ack`; the stages are `acc`, `out`",
    ),
    "a loop that does not exist": (
        ["split(out, y, 2)", "split(out, y, 2)"],
        "split(out, y, 2): stage `out` has no loop `y`; its loops are n, y.o, y.i, x, o",
    ),
    "a first block without iterations": (
        ["split_first(out, y, 4, 0)"],
        "split_first(out, y, 4, 0): the first block must have 1 to 4 iterations, not 0",
    ),
    "a first block that is larger": (
        ["split_first(out, y, 2, 3)"],
        "split_first(out, y, 2, 3): the first block must have 1 to 2 iterations, not 3",
    ),
    "a smaller first block of a reduction": (
        ["split_first(acc, i, 2, 1)"],
        "split_first(acc, i, 2, 1): `i` is a reduction loop of `acc`, whose blocks are equal; "
        "choose a data loop, or `split`",
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
        "fuse(acc, y, o): `o` must be directly inside `y`; the loops of `acc` are n, y, x, o, ky, "
        "kx, i; reorder them first",
    ),
    "a fusion of a data loop with a reduction loop": (
        ["fuse(acc, o, ky)"],
        "fuse(acc, o, ky): a data loop and a reduction loop of `acc` cannot be one; fuse loops of "
        "one kind",
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
        "parallelise(out, y): `y` is pipelined, so it runs in order; choose another loop",
    ),
    "a pipeline of depth zero": (
        ["pipeline(out, y, 0)"],
        "pipeline(out, y, 0): the depth must be at least 1, not 0",
    ),
    "a pipeline over a parallel loop": (
        ["parallelise(out, y)", "pipeline(out, y, 2)"],
        "pipeline(out, y, 2): `y` is parallel, but iterations overlap only if they run one "
        "after the other; pipeline a serial loop",
    ),
    "a copy of what is not read": (
        ["cache_read(bias, PARAM, acc)"],
        "cache_read(bias, PARAM, acc): stage `acc` does not read `bias`; it reads `image`, `w`",
    ),
    "a scope that does not exist": (
        ["cache_read(image, SHARED, acc)"],
        "cache_read(image, SHARED, acc): `4x4` has no scope `SHARED`; its scopes are DRAM, ACT, "
        "WGT, PARAM, LUT, ACC",
    ),
    "a scope of other elements": (
        ["set_scope(acc, ACT)"],
        "set_scope(acc, ACT): `acc` is int32, but ACT holds int8; choose DRAM or PARAM or ACC",
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
        "cache_write(out, ACT): `out` is a copy; cache a computing stage",
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
    "a carried sum on an accelerator": (
        ["carry(acc, out, y)"],
        "carry(acc, out, y): `4x4` does not carry reductions; compute `acc` before the loop",
    ),
    "no such reduction": (
        ["split_reduction(acc, y, 2)"],
        "split_reduction(acc, y, 2): `acc` has no reduction `y`; its reductions are ky, kx, i",
    ),
    "parts that differ": (
        ["split_reduction(acc, ky, 2)"],
        "split_reduction(acc, ky, 2): expected 2 parts or more that divide the 3 iterations of "
        "`ky`, got 2",
    ),
    "a sum that is cut too late": (
        ["split(acc, y, 2)", "split_reduction(acc, ky, 3)"],
        "split_reduction(acc, ky, 3): the loops of `acc` have been changed already; make "
        "`split_reduction` the first step on a stage",
    ),
    "text that is no step": (
        ["divide(acc, y, 2)"],
        "`divide(acc, y, 2)` is not a schedule step; expected `name(arguments)` with one of arena, "
        "bind, cache_read, cache_write, carry, compute_at, compute_root, fuse, parallelise, "
        "pipeline, precede, reorder, roll, set_scope, split, split_first, split_reduction, "
        "tensorise, unroll, vectorise",
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
    "a factor of 5,000 digits": (
        [f"split(acc, y, {'9' * 5000})"],
        f"`split(acc, y, {'9' * 5000})`: `factor` must be a whole number, not `{'9' * 5000}`",
    ),
    "quotes around a control character": (
        ['split("a\x01", y, 2)'],
        '`split("a\x01", y, 2)`: cannot read `"a\x01", y, 2`; arguments are names and whole '
        "numbers between commas, other names in double quotes",
    ),
    "text that cannot be read": (
        ["split(acc, y z, 2)"],
        "`split(acc, y z, 2)`: cannot read ` y z, 2`; arguments are names and whole numbers "
        "between commas, other names in double quotes",
    ),
}


@pytest.mark.parametrize("refusal", REFUSALS)
def test_an_illegal_step_is_refused(refusal):
    steps, message = REFUSALS[refusal]
    assert refused(te.Schedule(network(), TARGET), "\n".join(steps)) == message


def test_a_fused_loop_has_a_name_of_its_own():
    a, b, both = te.axes(a=2, b=2, a_b=2)
    given = te.tensor("given", "int8", (2, 2, 2))
    kernel = te.kernel("k", te.compute("out", "int8", (a, b, both), given[a, b, both]))
    assert refused(te.Schedule(kernel, TARGET), "fuse(out, a, b)") == (
        "fuse(out, a, b): `out` has, or had, a loop `a_b` already; rename an axis"
    )


def test_what_is_read_after_a_reduction_is_computed_outside_of_it():
    schedule = te.Schedule(pool(), TARGET)
    steps = "cache_read(scale, PARAM, out)\nreorder(out, ky, y, c)\ncompute_at(scale.PARAM, out, y)"
    assert refused(schedule, steps) == (
        "compute_at(scale.PARAM, out, y): `out` reads `scale.PARAM` after its reduction, outside "
        "the reduction loop `ky`; compute it further out"
    )
