"""Instances describe each transfer and instruction exactly as the loops do it."""

import itertools
import random
from collections import Counter

import pytest

from tilewright.compiler import te
from tilewright.compiler.te.affine import value_of
from tilewright.compiler.te.nodes import (
    Assign,
    For,
    Guard,
    InstructionNest,
    Let,
    Nest,
    TransferNest,
    Update,
    holds,
    let_value,
)
from tilewright.compiler.te.stages import qualified

from .random_schedules import random_kernel, random_schedule
from .scheduled import PLACES, SCHEDULES, TARGET, convolution


def elements(block, nest, values, found):
    """Add the points at which statements of a nest run to `found`, data axes and reductions."""
    for node in block:
        if isinstance(node, For):
            start = value_of(node.start, values)
            for number in range(start, start + node.extent):
                elements(node.body, nest, {**values, node.variable: number}, found)
        elif isinstance(node, Let):
            values = {**values, node.variable: let_value(node, values)}
        elif isinstance(node, Guard):
            if all(holds(condition, values) for condition in node.conditions):
                elements(node.body, nest, values, found)
        elif isinstance(node, Update) or (isinstance(node, Assign) and not nest.reductions):
            axes = (*nest.axes, *(axis.name for axis in nest.reductions))
            found.append(tuple(values[qualified(nest.stage, axis)] for axis in axes))


def compare_regions(block, nest, values, counts):
    """Every transfer and instruction of a program: the region told against the points walked."""
    for node in block:
        if isinstance(node, (TransferNest, InstructionNest)):
            points: list[tuple[int, ...]] = []
            elements(node.body, nest, values, points)
            ranges = te.region(nest, node, values)
            told = set(itertools.product(*(range(*pair) for pair in ranges.values())))
            assert len(points) == len(set(points)), "a point is computed twice"
            assert set(points) == told
            counts[type(node).__name__] += 1
        elif isinstance(node, For):
            start = value_of(node.start, values)
            for number in range(start, start + node.extent):
                compare_regions(node.body, nest, {**values, node.variable: number}, counts)
        elif isinstance(node, Let):
            values = {**values, node.variable: let_value(node, values)}
        elif isinstance(node, Guard):
            if all(holds(condition, values) for condition in node.conditions):
                compare_regions(node.body, nest, values, counts)
        elif isinstance(node, Nest):
            compare_regions(node.body, node, values, counts)


def test_regions_are_the_points_that_the_loops_visit():
    counts: Counter[str] = Counter()
    for seed in range(1000, 1200):
        pick = random.Random(seed)
        kernel, _ = random_kernel(pick)
        schedule, _, _ = random_schedule(pick, kernel, pick.randint(5, 20))
        compare_regions(schedule.program().body, None, {}, counts)
    assert counts["TransferNest"] > 500
    assert counts["InstructionNest"] > 50


def test_a_transfer_starts_where_its_loops_cover_a_box():
    """The outer part of a split loop alone does not: rows 0, 2, 4 of every other one."""
    schedule = te.Schedule.parse(
        convolution(),
        """
        cache_write(out, ACT)
        split(out, y, 2)
        reorder(out, y.i, n, y.o)
        compute_at(out.ACT, out, y.i)
        """,
        TARGET,
    )
    counts: Counter[str] = Counter()
    compare_regions(schedule.program().body, None, {}, counts)
    assert counts["TransferNest"] == 7


def test_regions_of_boxes_that_move_are_cut():
    """Blocks of four rows in a box of five, and a box that starts above the first row."""
    counts: Counter[str] = Counter()
    schedule = te.Schedule.parse(
        convolution(),
        """
        cache_read(image, ACT, acc)
        split(out, y, 3)
        compute_at(acc, out, y.o)
        compute_at(image.ACT, out, y.o)
        split(image.ACT, y, 4)
        """,
        TARGET,
    )
    compare_regions(schedule.program().body, None, {}, counts)
    assert counts == {"TransferNest": 3}
    y, c = te.axes(y=6, c=4)
    (ky,) = te.reduce_axes(ky=3)
    image = te.tensor("image", "int8", (6, 4))
    rows = te.compute("rows", "int8", (y, c), image[y, c])
    out = te.compute("out", "int8", (y, c), te.max(rows[y + ky - 1, c], over=ky))
    schedule = te.Schedule.parse(
        te.kernel("rows", out),
        """
        set_scope(rows, ACT)
        cache_read(image, ACT, rows)
        compute_at(rows, out, y)
        tensorise(rows, y)
        """,
        TARGET,
    )
    compare_regions(schedule.program().body, None, {}, counts)
    assert counts == {"TransferNest": 4, "InstructionNest": 6}


@pytest.mark.parametrize("name", SCHEDULES)
def test_an_instance_answers_what_a_lowering_asks(name):
    schedule = te.Schedule.parse(convolution(), PLACES + SCHEDULES[name], TARGET)
    covered: Counter[tuple] = Counter()
    for instance in te.instances(schedule.program()):
        buffer = instance.buffers[instance.nest.stage]
        inside = zip(instance.box, buffer.box, strict=True)
        assert all(b[0] <= a[0] < a[1] <= b[1] for a, b in inside)
        assert 0 <= buffer.slot < buffer.allocate.slots
        assert (instance.nest.compute is None) == isinstance(instance.node, TransferNest)
        if instance.nest.stage == "out":
            covered.update(itertools.product(*(range(*pair) for pair in instance.box)))
    assert len(covered) == 7 * 5 * 8
    assert set(covered.values()) == {1}


def test_slots_take_turns():
    text = PLACES + SCHEDULES["rows, the last tile cut"]
    schedule = te.Schedule.parse(convolution(), text, TARGET)
    stages = [i for i in te.instances(schedule.program()) if i.nest.stage == "image.ACT"]
    assert [i.buffers["image.ACT"].slot for i in stages] == [0, 1, 0]
    assert [i.box[1] for i in stages] == [(-1, 4), (2, 7), (5, 8)]
    assert [i.buffers["image.ACT"].box[1] for i in stages] == [(-1, 4), (2, 7), (5, 10)]
    place = stages[0].nest.place
    assert place is not None
    assert (place.consumer, place.loop) == ("out", "y.o")


def test_slots_of_all_depths_take_turns():
    text = PLACES + SCHEDULES["channels inside rows, a reduction in chunks"]
    program = te.Schedule.parse(convolution(), text, TARGET).program()
    slots = [i.buffers["w.WGT"].slot for i in te.instances(program) if i.nest.stage == "w.WGT"]
    assert slots[:6] == [0, 1, 2, 0, 1, 2]


def test_a_stage_that_no_instruction_computes_is_named():
    schedule = te.Schedule(convolution(), TARGET)
    with pytest.raises(te.ScheduleError) as caught:
        list(te.instances(schedule.program()))
    assert str(caught.value) == (
        "stage `acc` is computed element by element; tensorise it, or leave it to a target that "
        "runs loops"
    )


def test_a_footprint_counts_slots_and_what_lives_at_a_time():
    text = PLACES + SCHEDULES["rows, the last tile cut"]
    footprint = te.footprint(te.Schedule.parse(convolution(), text, TARGET).program())
    assert footprint["ACC"] == 2 * 4 * (3 * 5 * 8)
    assert footprint["ACT"] == 2 * (5 * 11 * 8 + 3 * 5 * 8)
    assert footprint["WGT"] == 9 * 64
    assert footprint["PARAM"] == 64


def test_a_footprint_adds_what_is_further_out():
    steps = "split(out, y, 4)\ncompute_at(out.ACT, out, y.o)"
    program = te.Schedule.parse(convolution(), PLACES + steps, TARGET).program()
    assert te.footprint(program)["ACT"] == 9 * 11 * 8 + 4 * 5 * 8
