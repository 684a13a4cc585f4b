"""Refinement: schedules and fusion are chosen by the time among neighbours."""

from pathlib import Path

import pytest

from tilewright.compiler.frontend import import_model
from tilewright.compiler.module import Module
from tilewright.compiler.pipeline import compile_module, refine_program
from tilewright.compiler.scheduling import refine as refinement
from tilewright.isa.configuration import PRESETS
from tilewright.isa.memory_model import MemoryModel
from tilewright.sim.timing import ExactMeasure

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits_int8_qdq.onnx"


def compiled(preset: str) -> Module:
    return compile_module(import_model(DIGITS), PRESETS[preset], measure=ExactMeasure())


@pytest.fixture
def compile_alone(monkeypatch):
    """Compile with the choices that are fastest for each kernel alone."""

    def compile_without(preset: str) -> Module:
        with monkeypatch.context() as patch:
            patch.setattr("tilewright.compiler.pipeline.schedule.refine", lambda groups, *_: groups)
            return compiled(preset)

    return compile_without


def layer_names(module: Module) -> list[str]:
    return [layer.name for segment in module.segments for layer in segment.layers]


@pytest.mark.parametrize("preset", ["4x4", "16x16"])
def test_choices_in_the_program_are_faster_where_results_stay(preset, monkeypatch):
    after = compiled(preset)
    monkeypatch.setattr(refine_program, "MAX_LOWERED", 0)
    assert after.report["cycles"] < compiled(preset).report["cycles"]


def test_fused_layers_are_divided_where_results_stay(monkeypatch):
    """Fused, the sum saves transfers, which nothing needs if its operands stay on chip."""
    memory = MemoryModel(latency_cycles=14, cycles=4)

    def compile_for_memory() -> Module:
        return compile_module(
            import_model(DIGITS), PRESETS["8x8"], measure=ExactMeasure(memory), memory=memory
        )

    monkeypatch.setattr(refine_program, "other_schedules", lambda *_: ())
    after = compile_for_memory()
    monkeypatch.setattr(refine_program, "MAX_LOWERED", 0)
    before = compile_for_memory()
    assert after.report["cycles"] < 0.95 * before.report["cycles"]
    assert len(layer_names(after)) > len(layer_names(before))


def test_choices_in_the_program_leave_given_schedules(monkeypatch):
    module = compiled("16x16")
    given = {one.name: one.schedule for part in module.segments for one in part.layers}
    monkeypatch.setattr(refine_program, "other_schedules", None)
    again = compile_module(
        import_model(DIGITS), PRESETS["16x16"], measure=ExactMeasure(), schedules=given
    )
    assert [part.program for part in again.segments] == [part.program for part in module.segments]


@pytest.fixture
def leave_programs(monkeypatch):
    """Leave programs as their kernels were chosen; a search in the whole program finds as much."""
    monkeypatch.setattr(refine_program, "MAX_LOWERED", 0)


@pytest.mark.usefixtures("leave_programs")
@pytest.mark.parametrize("preset", ["16x8", "16x16"])
def test_choices_among_neighbours_are_faster(compile_alone, preset):
    before, after = compile_alone(preset), compiled(preset)
    assert after.report["cycles"] < before.report["cycles"]
    assert " + ".join(layer_names(after)) == " + ".join(layer_names(before))


@pytest.mark.parametrize("preset", ["8x8", "8x16"])
def test_choices_for_each_kernel_alone_are_tried_too(compile_alone, preset):
    """Loads that pass others in the whole program may favour them."""
    assert compiled(preset).report["cycles"] <= compile_alone(preset).report["cycles"]


@pytest.mark.usefixtures("leave_programs")
def test_fused_layers_are_separated_if_that_is_faster(compile_alone):
    before, after = compile_alone("16x16"), compiled("16x16")
    assert len(layer_names(after)) == len(layer_names(before)) + 1


@pytest.mark.parametrize("limits", [("MAX_WORK",), ("WINDOW_INSTRUCTIONS", "SPLIT_INSTRUCTIONS")])
def test_its_work_is_limited(compile_alone, monkeypatch, limits):
    for name in limits:
        monkeypatch.setattr(refinement, name, -1)
    assert compiled("8x8").segments == compile_alone("8x8").segments
