"""Programs that are too long to be meant are refused before they are made."""

from pathlib import Path

import pytest

from tilewright.compiler.accelerator.constant_pool import ConstantPool
from tilewright.compiler.accelerator.dma import DramTensor
from tilewright.compiler.accelerator.estimate import estimate_instructions
from tilewright.compiler.accelerator.kernels import build_kernel
from tilewright.compiler.accelerator.lower_schedules import Lowering
from tilewright.compiler.accelerator.search import choose_candidate
from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import QAdd, TensorType, Value
from tilewright.compiler.graph.ir import Graph, Node, Output
from tilewright.compiler.options import Options
from tilewright.compiler.pipeline import compile_module
from tilewright.errors import CompileError
from tilewright.isa.configuration import PRESETS

MACHINE = PRESETS["4x4"]
DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits_int8_qdq.onnx"


def addition(*shape: int) -> Graph:
    """A graph that adds two int8 activations."""
    values = [Value(name, TensorType("int8", shape)) for name in ("a", "b", "sum")]
    node = Node("add", QAdd((1, 1), 0, 0.5, 0), ("a", "b"), (values[2],))
    return Graph("one", tuple(values[:2]), (Output("sum", "sum"),), (node,))


def lowered(graph: Graph, most_instructions: int) -> int:
    """Instructions of a graph's only node."""
    kernel = build_kernel(graph.nodes[0], graph, MACHINE, {})
    residents = {name: DramTensor(0, kind.shape) for name, kind in graph.types.items()}
    lowering = Lowering(MACHINE, residents, ConstantPool(0), most_instructions)
    lowering.lower(choose_candidate(kernel, MACHINE).schedule(kernel, MACHINE))
    return len(lowering.stream)


@pytest.mark.parametrize("shape", [(1, 4, 4, 8), (64, 2, 2, 8), (3, 40, 40, 32)])
def test_the_estimate_is_about_what_is_emitted(shape):
    graph = addition(*shape)
    kernel = build_kernel(graph.nodes[0], graph, MACHINE, {})
    plan = choose_candidate(kernel, MACHINE).plan(kernel, MACHINE)
    made = lowered(graph, 1 << 20)
    assert 0.5 * made <= estimate_instructions(plan, MACHINE) <= made


def test_an_absurd_batch_is_refused_at_once(monkeypatch):
    monkeypatch.setattr(Lowering, "lower", None)
    with pytest.raises(CompileError) as refusal:
        compile_module(addition(1 << 20, 4, 3, 10), MACHINE)
    assert str(refusal.value) == (
        "the program needs about 4,194,304 instructions, of which `add` takes 4,194,304 for an "
        "output of [1048576, 4, 3, 12], but `most_instructions` is 1,048,576; make the input "
        "shapes smaller (a batch in parts), choose a larger configuration, or raise "
        "`most_instructions`"
    )


def test_a_program_that_turns_out_longer_is_refused_on_the_way():
    made = lowered(addition(64, 2, 2, 8), 1 << 20)
    assert lowered(addition(64, 2, 2, 8), made) == made
    with pytest.raises(CompileError) as refusal:
        lowered(addition(64, 2, 2, 8), made - 1)
    assert str(refusal.value) == (
        f"the program needs more with `add`, but `most_instructions` is {made - 1}; make the input "
        "shapes smaller (a batch in parts), choose a larger configuration, or raise "
        "`most_instructions`"
    )


def test_the_limit_of_a_whole_network_counts_all_layers():
    graph = import_model(DIGITS.read_bytes())
    made = sum(len(s.program) for s in compile_module(graph, MACHINE).segments)
    assert compile_module(graph, MACHINE, options=Options(most_instructions=made)).segments
    with pytest.raises(CompileError, match=r"needs about \d+ instructions, of which `conv"):
        compile_module(graph, MACHINE, options=Options(most_instructions=made // 3))


def test_a_limit_of_nothing_makes_no_sense():
    with pytest.raises(CompileError) as refusal:
        Options(most_instructions=0)
    assert str(refusal.value) == "most instructions: expected at least 1, got 0"
