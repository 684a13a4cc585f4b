"""The comparison of overlap and area: what a step changes, and the factors of its table."""

from tilewright.compiler.frontend import import_model
from tilewright.flows.bench.area_shape import ADDED, SIZES, ShapeRow, measure, steps, table
from tilewright.flows.bench.searches import DIGITS


def test_each_step_adds_a_way_to_overlap_and_then_lanes():
    first, *more = steps()
    assert first.options.pipeline_depth == 1
    assert not first.options.fuse
    same, larger = more[: len(ADDED)], more[len(ADDED) :]
    assert {step.lanes for step in (first, *same)} == {"8x8"}
    assert [step.lanes for step in larger] == list(SIZES)
    assert all(step.options.pipeline_depth == 0 for step in more)


def test_overlap_saves_cycles_at_nearly_the_same_area():
    graph = import_model(DIGITS)
    rows = [measure(graph, step) for step, _ in zip(steps(), range(len(ADDED) + 1), strict=False)]
    cycles = [row.cycles for row in rows]
    assert cycles == sorted(cycles, reverse=True)
    assert len({row.multipliers for row in rows}) == 1
    assert max(row.lut for row in rows) < 1.35 * min(row.lut for row in rows)


def test_factors_are_relative_to_the_first_row_of_each_part():
    made = [
        ShapeRow(step, 8000 // (place + 1), 1000 * (place + 1), 10 * (place + 1))
        for place, step in enumerate(steps())
    ]
    lines = table(made).splitlines()[2:]
    assert lines[0].endswith("| 8,000 | 1.00 times | 1,000 (1.00 times) | 10 (1.00 times) |")
    assert "| 4,000 | 2.00 times | 2,000 (2.00 times) | 20 (2.00 times) |" in lines[1]
    part = lines[len(ADDED) + 1 :]
    assert "| 1.00 times | 5,000 (1.00 times)" in part[0]
    assert part[-1].startswith("| 32x32 | all of these | 1,000 | 1.60 times | 8,000 (1.60 times)")
