"""Bounds follow from indices, and the interpreter sees where they are wrong."""

import dataclasses

import numpy as np
import pytest

from tilewright.compiler import te
from tilewright.compiler.te.nodes import Allocate, Condition, For, Guard, Nest, nodes
from tilewright.compiler.te.rolling import Rolling
from tilewright.compiler.tensor import Kernel, evaluate
from tilewright.errors import CompileError, InputError
from tilewright.isa.expressions import Affine

from .scheduled import TARGET


def smooth(stride: int = 1) -> Kernel:
    """Three rows summed, then shifted."""
    y, c = te.axes(y=6, c=4)
    (ky,) = te.reduce_axes(ky=3)
    image = te.tensor("image", "int8", (6 * stride, 4), pad=7)
    rows = te.compute("rows", "int32", (y, c), te.sum(image[y * stride + ky - 1, c], over=ky))
    return te.kernel("smooth", te.compute("out", "int32", (y, c), rows[y, c] + 1))


def text(*steps: str, kernel: Kernel | None = None) -> str:
    return str(te.Schedule.parse(kernel or smooth(), "\n".join(steps), TARGET).program())


def test_neighbouring_boxes_overlap_by_the_window():
    program = text("split(out, y, 2)", "compute_at(rows, out, y.o)", "cache_read(image, ACT, rows)")
    assert "allocate image.ACT: int8[8, 4] from [-1, 0] in ACT" in program
    attached = text(
        "cache_read(image, ACT, rows)",
        "split(out, y, 2)",
        "compute_at(rows, out, y.o)",
        "compute_at(image.ACT, out, y.o)",
    )
    assert "allocate image.ACT: int8[4, 4] from [2*y.o - 1, 0] in ACT" in attached


def test_strides_widen_the_box():
    steps = [
        "cache_read(image, ACT, rows)",
        "split(rows, y, 2)",
        "compute_at(image.ACT, rows, y.o)",
    ]
    program = text(*steps, kernel=smooth(stride=3))
    assert "allocate image.ACT: int8[6, 4] from [6*y.o - 1, 0] in ACT" in program


def test_a_box_inside_a_reduction_loop_is_one_row():
    program = text(
        "cache_read(image, ACT, rows)", "reorder(rows, ky, y, c)", "compute_at(image.ACT, rows, ky)"
    )
    assert "allocate image.ACT: int8[6, 4] from [ky - 1, 0] in ACT" in program


def test_a_mirrored_read_starts_at_its_low_end():
    y, c = te.axes(y=6, c=2)
    image = te.tensor("image", "int8", (6, 2))
    kernel = te.kernel("mirror", te.compute("out", "int8", (y, c), image[5 - y, c]))
    program = text(
        "cache_read(image, ACT, out)",
        "split(out, y, 2)",
        "compute_at(image.ACT, out, y.o)",
        kernel=kernel,
    )
    assert "allocate image.ACT: int8[2, 2] from [-2*y.o + 4, 0] in ACT" in program


def test_splits_of_splits_are_guarded_where_they_must_be():
    program = text("split(out, y, 4)", "split(out, y.i, 3)")
    assert "      y.i = y.i.i + 3*y.i.o\n      if y.i < 4:\n        y = y.i + 4*y.o\n" in (
        program.replace("\n    ", "\n  ")
    )
    assert "if y < 6:" in program
    assert "if" not in text("split(out, y, 3)", "split(out, c, 2)")


def test_a_first_block_is_smaller():
    program = text("split_first(out, y, 4, 1)", "compute_at(rows, out, y.o)")
    assert "for y.o in range(3):" in program
    assert "y = y.i + 4*y.o - 3\n" in program
    assert "if 0 <= y < 6:" in program
    assert "allocate rows: int32[4, 4] from [4*y.o - 3, 0] in DRAM" in program
    # The loops of a part count from its start.
    inner = text("split(out, y, 4)", "split_first(out, y.i, 3, 2)", "compute_at(rows, out, y.o)")
    assert "if 0 <= y.i < 4:" in inner
    assert "allocate rows: int32[4, 4] from [4*y.o, 0] in DRAM" in inner


def test_a_split_longer_than_its_loop_is_one_block():
    program = text("split(out, y, 100)")
    assert "for y.o in range(1):" in program
    assert "for y.i in range(6):" in program
    assert "if" not in program


def test_a_fused_loop_is_known_where_it_is_fixed():
    program = text("fuse(out, y, c)", "compute_at(rows, out, y_c)")
    assert "allocate rows: int32[1, 1] from [y, c] in DRAM" in program
    parted = text("fuse(out, y, c)", "split(out, y_c, 3)", "compute_at(rows, out, y_c.o)")
    assert "allocate rows: int32[6, 4] in DRAM" in parted


def chained(window: int, offset: int) -> str:
    """Rows computed where a window over them is maximised."""
    (y,) = te.axes(y=6)
    (ky,) = te.reduce_axes(ky=window)
    given = te.tensor("image", "int8", (6,))
    rows = te.compute("rows", "int8", (y,), given[y])
    out = te.compute("out", "int8", (y,), te.max(rows[y + ky + offset], over=ky))
    return text("compute_at(rows, out, y)", kernel=te.kernel("chained", out))


def test_only_elements_that_exist_are_computed():
    assert "if 0 <= y < 6:" in chained(3, -1)
    assert "if y < 6:" in chained(2, 0)
    assert "if 0 <= y:" in chained(2, -1)
    assert "if" not in chained(1, 0)


def test_a_box_ends_where_its_reader_does():
    """The last tile of `second` is cut, so no row of `first` beyond it is computed."""
    (v,) = te.axes(y=20)
    n, y = te.axes(n=2, y=6)
    given = te.tensor("image", "int8", (20,))
    first = te.compute("first", "int8", (v,), given[v])
    second = te.compute("second", "int8", (n, y), first[y])
    out = te.compute("out", "int8", (n, y), second[n, y])
    program = text(
        "split(out, y, 4)",
        "compute_at(second, out, y.o)",
        "compute_at(first, out, n)",
        kernel=te.kernel("cut", out),
    )
    assert "allocate first: int8[6] in DRAM" in program


def test_a_copy_of_a_copy_keeps_its_border():
    schedule = te.Schedule(smooth(), TARGET)
    schedule.cache_read("image", "ACT", "rows")
    schedule.cache_read("image", "DRAM", "image.ACT")
    program = schedule.program()
    assert "allocate image.DRAM: int8[8, 4] from [-1, 0] in DRAM" in str(program)
    assert "copy image.DRAM:" in str(program)
    given = {"image": image()}
    np.testing.assert_array_equal(te.interpret(program, given), evaluate(smooth(), given))


def test_axes_of_a_copy_differ():
    (d1,) = te.axes(d1=3)
    given = te.tensor("given", "int8", (3, 3))
    schedule = te.Schedule(te.kernel("k", te.compute("out", "int8", (d1,), given[d1, d1])), TARGET)
    schedule.cache_read("given", "ACT", "out")
    assert schedule.stages[0].axes == ("d1", "d1_")


def test_a_reader_may_stand_two_nests_further_in():
    schedule = te.Schedule(smooth(), TARGET)
    schedule.cache_write("out", "ACC")
    schedule.cache_read("image", "ACT", "rows")
    schedule.compute_at("out.ACC", "out", "y")
    schedule.compute_at("rows", "out.ACC", "c")
    schedule.compute_at("image.ACT", "out", "y")
    given = {"image": image()}
    got = te.interpret(schedule.program(), given)
    np.testing.assert_array_equal(got, evaluate(smooth(), given))


def test_history_pairs_every_step_with_the_program_after_it():
    schedule = te.Schedule(smooth(), TARGET)
    plain = str(schedule.program())
    schedule.split("out", "y", 4)
    schedule.unroll("out", "y.i")
    history = schedule.history()
    assert [step for step, _ in history] == ["", "split(out, y, 4)", "unroll(out, y.i)"]
    assert history[0][1] == plain
    assert history[2][1] == str(schedule.program())


# The interpreter ----------------------------------------------------------------------------------


def image(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-128, 128, (6, 4)).astype(np.int8)


def changed(block, change):
    """A block with a change of its nodes, innermost first."""
    result = []
    for node in block:
        if hasattr(node, "body"):
            node = dataclasses.replace(node, body=changed(node.body, change))
        result += change(node)
    return tuple(result)


def spoilt(change, *steps: str) -> te.Program:
    program = te.Schedule.parse(smooth(), "\n".join(steps), TARGET).program()
    result = dataclasses.replace(program, body=changed(program.body, change))
    assert result != program
    return result


def test_a_loop_that_ends_early_leaves_elements_unwritten():
    def shorten(node):
        if isinstance(node, For) and node.variable == "rows:y":
            node = dataclasses.replace(node, extent=5)
        return (node,)

    with pytest.raises(te.InterpretError) as caught:
        te.interpret(spoilt(shorten), {"image": image()})
    assert str(caught.value) == "`rows`[5, 0] is read but was never written"


def test_an_output_that_is_not_complete_is_refused():
    def shorten(node):
        if isinstance(node, For) and node.variable == "out:y":
            node = dataclasses.replace(node, extent=5)
        return (node,)

    with pytest.raises(te.InterpretError) as caught:
        te.interpret(spoilt(shorten), {"image": image()})
    assert str(caught.value) == "`out`[5, 0] was never written"


def test_a_buffer_that_is_too_small_is_seen():
    def shrink(node):
        if isinstance(node, Allocate) and node.tensor.name == "rows":
            node = dataclasses.replace(node, shape=(1, 4))
        return (node,)

    program = spoilt(shrink, "split(out, y, 2)", "compute_at(rows, out, y.o)")
    with pytest.raises(te.InterpretError) as caught:
        te.interpret(program, {"image": image()})
    assert str(caught.value) == "`rows`[1, 0] lies outside its buffer, [1, 4] from [0, 0]"


def test_a_guard_that_is_missing_is_seen():
    def open_up(node):
        return node.body if isinstance(node, Guard) else (node,)

    with pytest.raises(te.InterpretError, match=r"`rows`\[6, 0\] lies outside its buffer"):
        te.interpret(spoilt(open_up, "split(rows, y, 4)"), {"image": image()})


def test_a_buffer_is_gone_after_its_block():
    def part(node):
        if isinstance(node, For) and node.variable == "out:y.o":
            first = dataclasses.replace(node, body=node.body[:2])
            return (first, dataclasses.replace(node, body=node.body[2:]))
        return (node,)

    program = spoilt(part, "split(out, y, 2)", "compute_at(rows, out, y.o)")
    with pytest.raises(te.InterpretError) as caught:
        te.interpret(program, {"image": image()})
    assert str(caught.value) == "`rows` has no buffer where it is used"


def test_a_buffer_is_new_in_every_iteration():
    def only_first(node):
        if isinstance(node, Nest) and node.stage == "rows":
            first = Condition(Affine((("out:y.o", 1),)), None, 1)
            return (Guard((first,), (node,)),)
        return (node,)

    program = spoilt(only_first, "split(out, y, 2)", "compute_at(rows, out, y.o)")
    with pytest.raises(te.InterpretError) as caught:
        te.interpret(program, {"image": image()})
    assert str(caught.value) == "`rows`[2, 0] is read but was never written"


def test_parallel_loops_run_in_any_order():
    """A loop that is no parallel one, run as if it were, gives another result."""
    (y,) = te.axes(y=6)
    (ky,) = te.reduce_axes(ky=6)
    given = te.tensor("image", "int8", (6, 4))
    kernel = te.kernel("k", te.compute("out", "int32", (y,), te.sum(given[ky, 0], over=ky)))
    program = te.Schedule(kernel, TARGET).program()
    outcomes = set()
    for kind in (te.Kind.SERIAL, te.Kind.PARALLEL):

        def mark(node, kind=kind):
            if isinstance(node, For) and node.variable == "out:ky":
                node = dataclasses.replace(node, kind=kind)
            return (node,)

        run = dataclasses.replace(program, body=changed(program.body, mark))
        try:
            outcomes.add(tuple(te.interpret(run, {"image": image()}).tolist()))
        except te.InterpretError:
            outcomes.add(())
    assert len(outcomes) == 2


def test_inputs_must_fit():
    program = te.Schedule(smooth(), TARGET).program()
    with pytest.raises(InputError) as caught:
        te.interpret(program, {})
    assert str(caught.value) == "kernel `smooth`: input `image` is missing"
    with pytest.raises(InputError) as caught:
        te.interpret(program, {"image": image()[:5]})
    assert str(caught.value) == (
        "kernel `smooth`: input `image` is int8[5, 4], expected int8[6, 4]"
    )


def test_nodes_are_listed_in_the_order_of_the_text():
    program = te.Schedule(smooth(), TARGET).program()
    names = [type(node).__name__ for node in nodes(program.body)]
    assert " ".join(names) == ("Allocate Nest For For For Update Allocate Nest For For Assign")


def raised() -> Kernel:
    """Sums of two neighbouring rows of an image whose low values are raised."""
    y, c = te.axes(y=6, c=4)
    (ky,) = te.reduce_axes(ky=2)
    image = te.tensor("image", "int8", (7, 4))
    i, d = te.axes(i=7, d=4)
    rows = te.compute("rows", "int8", (i, d), te.maximum(image[i, d], 5))
    return te.kernel("raised", te.compute("out", "int32", (y, c), te.sum(rows[y + ky, c], over=ky)))


def ring(order: str, split: str = "split(out, y, 2)") -> tuple[te.Program, Rolling]:
    """A ring of `raised` rows below loops in this order."""
    steps = [
        split, "split(out, c, 2)", f"reorder(out, {order}, y.i, c.i, ky)",
        f"compute_at(rows, out, {order.split(', ')[1]})", "set_scope(rows, ACT)", "roll(rows, 0)",
    ]  # fmt: skip
    program = te.Schedule.parse(raised(), "\n".join(steps), TARGET).program()
    (loop,) = (node for node in nodes(program.body) if isinstance(node, For) and node.rolling)
    assert loop.rolling is not None
    return program, loop.rolling


@pytest.mark.parametrize("split", ["split(out, y, 2)", "split_first(out, y, 2, 1)"])
def test_a_ring_holds_the_columns_of_the_outer_loop(split):
    program, rolling = ring("c.o, y.o", split)
    assert (rolling.narrow, rolling.extents) == ((1,), (7, 2))
    given = {"image": np.arange(28, dtype=np.int8).reshape(7, 4)}
    np.testing.assert_array_equal(te.interpret(program, given), evaluate(raised(), given))


def test_a_ring_is_not_filled_by_unequal_blocks():
    schedule = te.Schedule(raised(), TARGET)
    schedule.compute_at("rows", "out", "y")
    schedule.set_scope("rows", "ACT")
    schedule.split_first("rows", "i", 2, 1)
    with pytest.raises(te.ScheduleError, match=r"split once, into equal blocks"):
        schedule.roll("rows", 0)


def test_a_ring_that_does_not_begin_anew_lacks_the_next_columns():
    program, _ = ring("c.o, y.o")

    def go_on(node):
        if isinstance(node, For) and node.rolling:
            node = dataclasses.replace(node, rolling=dataclasses.replace(node.rolling, others=()))
        return (node,)

    going_on = dataclasses.replace(program, body=changed(program.body, go_on))
    with pytest.raises(CompileError, match="row 0 is needed again"):
        te.interpret(going_on, {"image": np.zeros((7, 4), np.int8)})
