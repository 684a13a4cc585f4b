"""The steps that are printed are the program: replayed they give it again, edited another one."""

import random
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import Graph, QMatMul
from tilewright.compiler.module import Module
from tilewright.compiler.options import Options
from tilewright.compiler.pipeline import compile_module
from tilewright.compiler.scheduling.given_schedules import read_schedules, schedules_text
from tilewright.compiler.te.steps import STEPS
from tilewright.compiler.te.target import ScheduleError
from tilewright.errors import CompileError
from tilewright.flows.verify.fuzz.graph_specs import realise
from tilewright.isa.configuration import PRESETS
from tilewright.runtime import Session, open_device

from .branching_networks import NETWORKS
from .test_chains import Drawing
from .test_chains import bottleneck as chains_bottleneck
from .test_matmuls import product

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits_int8_qdq.onnx"
MACHINE = PRESETS["8x8"]
LIKELIEST = Options(candidates=1)
"""No search, so that schedules do not depend on times."""


def length(program, _) -> tuple[int, None]:
    """A stand-in for the timing model: what is compared are programs, not times."""
    return len(program), None


PATHS = "model/act/Relu;model/{0}/BiasAdd/ReadVariableOp/resource;model/{0}/Conv2D"


def bottleneck() -> Graph:
    """Expand, depthwise and project, and the input added: rings of rows and sliding windows."""
    for seed in range(100):
        draw = Drawing(random.Random(seed))
        draw.inputs = [(1, 17, 5, 8)]
        chains_bottleneck(draw)
        if draw.steps[1].numbers["kernel"] == (3, 3):
            return realise(draw.sketch())
    raise AssertionError("no seed draws a window of 3x3")


GRAPHS: dict[str, Callable[[], Graph]] = {
    "digits": lambda: import_model(DIGITS),
    "long names": lambda: with_long_names(),
    "bottleneck": bottleneck,
    "attention": lambda: product(
        QMatMul(2, 0.002, 4, -3, 3, True, (True, True, False)), 1, 70, 12, 20
    ),
    **{
        name: lambda make=make: import_model(make(even=True).SerializeToString())
        for name, make in NETWORKS.items()
    },
}


def with_long_names() -> Graph:
    """The digits, with names of nodes as TensorFlow's exporter makes them."""
    model = onnx.load(DIGITS)
    for node in model.graph.node:
        if node.op_type == "Conv":
            node.name = PATHS.format(node.name)
    return import_model(model.SerializeToString())


def compiled(graph: Graph, text: str = "", measure=length) -> Module:
    schedules = read_schedules(text)
    return compile_module(graph, MACHINE, measure=measure, schedules=schedules, options=LIKELIEST)


@pytest.mark.parametrize("name", GRAPHS)
def test_printed_schedules_give_the_same_programs(name):
    """Every kernel of a network, printed, parsed and lowered again."""
    graph = GRAPHS[name]()
    module = compiled(graph)
    again = compiled(graph, schedules_text(module))
    assert [s.program for s in again.segments] == [s.program for s in module.segments]
    assert [s.notes for s in again.segments] == [s.notes for s in module.segments]
    assert [s.constants for s in again.segments] == [s.constants for s in module.segments]
    assert schedules_text(again) == schedules_text(module)


def test_printed_schedules_have_short_names_of_stages_and_whole_ones_are_read_too():
    graph = with_long_names()
    module = compiled(graph)
    text = schedules_text(module)
    steps = [line for line in text.splitlines() if not line.startswith("#")]
    assert "cache_write(conv2/Conv2D.qconv, ACT)" in steps
    assert "model/" not in "\n".join(steps)
    whole = text.replace("(conv2/Conv2D.", f"({PATHS.format('conv2')}.")
    assert "cache_write(model/" in whole
    assert [s.program for s in compiled(graph, whole).segments] == [
        s.program for s in module.segments
    ]


@pytest.mark.parametrize("long", [False, True])
def test_refusals_have_short_names_of_stages(long):
    """The steps of a user may have either; `evaluate` and `compile` print the message."""
    graph = with_long_names()
    text = schedules_text(compiled(graph))
    at = "cache_write(conv2/Conv2D.qconv, ACT)"
    (layer,) = (part for part in re.split("(?=# layer)", text) if at in part)
    wrong = f"split({PATHS.format('conv2') if long else 'conv2/Conv2D'}.qconv, z, 2)"
    with pytest.raises(CompileError) as caught:
        compiled(graph, layer.replace(at, f"{at}\n{wrong}"))
    assert str(caught.value) == (
        "schedule of layer `conv2/Conv2D`: split(conv2/Conv2D.qconv, z, 2): stage "
        "`conv2/Conv2D.qconv` has no loop `z`; its loops are n, y, x, o"
    )
    assert isinstance(caught.value.__cause__, ScheduleError)
    assert str(caught.value.__cause__.step) == "split(conv2/Conv2D.qconv, z, 2)"


def run(module: Module, scans: np.ndarray) -> np.ndarray:
    """Outputs on the simulator."""
    with open_device("sim", MACHINE) as device:
        outputs = Session(module, device).run({module.graph.inputs[0].name: scans}).outputs
    (output,) = outputs.values()
    return output


EDITS = {
    "rows of a tile": (r"split\(conv2.qconv, y, \d+\)", "split(conv2.qconv, y, 1)"),
    "columns of a tile, the last one cut": (
        r"split\(conv2.qconv, x, \d+\)", "split(conv2.qconv, x, 3)",
    ),
    "channels of a tile": (r"split\(conv2.qconv, o, \d+\)", "split(conv2.qconv, o, 8)"),
    "a chunk of the sums": (r"split\(acc, i, \d+\)", "split(acc, i, 16)"),
    "one slot each": (
        r"(arena\(\)\ncache_write\(conv2.qconv, ACT\))", r"\1\npipeline(conv2.qconv, n, 1)",
    ),
    "fixed places": (r"arena\(\)\n(cache_write\(conv2.qconv)", r"\1"),
}  # fmt: skip


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_schedule_changes_the_program_and_not_the_outputs(edit):
    graph = import_model(DIGITS)
    module = compiled(graph)
    text = schedules_text(module)
    layer = text[text.index("# layer conv2") : text.index("# layer conv3")]
    edited = re.sub(*EDITS[edit], layer)
    assert edited != layer
    other = compiled(graph, edited)
    assert other.segments[0].program != module.segments[0].program
    scans = np.random.default_rng(3).uniform(0, 16, (1, 1, 8, 8)).astype(np.float32)
    shape = graph.inputs[0].type.shape
    scans = scans.reshape(shape)
    np.testing.assert_array_equal(run(other, scans), run(module, scans))


REFUSALS = {
    "half a block of lanes": (
        ("split(conv2.qconv, o, 16)", "split(conv2.qconv, o, 4)"),
        "schedule of layer `conv2`: tensorise(acc, n): gemm takes `o` in lanes of 8 (`lanes_out`), "
        "but the tile has 4; split `o` by a multiple of 8 and keep the inner loop inside",
    ),
    "a loop that there is not": (
        ("compute_at(w.WGT, acc, i.o)", "compute_at(w.WGT, acc, z)"),
        "schedule of layer `conv2`: compute_at(w.WGT, acc, z): stage `acc` has no loop `z`; its "
        "loops are i.o, n, y, x, o, i.i, ky, kx",
    ),
    "a step left out": (
        ("tensorise(acc, n)\n", ""),
        "stage `acc` is computed element by element; tensorise it, or leave it to a target that "
        "runs loops",
    ),
    "text that is no step": (
        ("arena()", "arena"),
        "schedule of layer `conv2`: `arena` is not a schedule step; expected `name(arguments)` "
        "with one of " + ", ".join(sorted(STEPS)),
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_an_illegal_edit_is_refused_in_a_sentence(name):
    (old, new), message = REFUSALS[name]
    graph = import_model(DIGITS)
    text = schedules_text(compiled(graph))
    layer = text[text.index("# layer conv2") : text.index("# layer conv3")]
    assert old in layer
    with pytest.raises(CompileError) as caught:
        compiled(graph, layer.replace(old, new))
    assert str(caught.value) == message


def test_a_tile_that_does_not_fit_is_refused_with_what_there_is():
    small = MACHINE.replace(name="small", acc_depth=16)
    graph = import_model(DIGITS)
    text = schedules_text(compile_module(graph, small, measure=length, options=LIKELIEST))
    layer = text[text.index("# layer conv2") : text.index("# layer conv3")]
    layer = re.sub(r"split\(conv2.qconv, o, \d+\)", "split(conv2.qconv, o, 16)", layer)
    with pytest.raises(CompileError) as caught:
        compile_module(graph, small, measure=length, schedules=read_schedules(layer))
    assert str(caught.value) == (
        "kernel `conv2`: `acc` [1, 4, 4, 16] takes 32 rows of ACC and a bank has 16; split more or "
        "raise `acc_depth`"
    )


def test_schedules_belong_to_layers_of_the_network():
    graph = import_model(DIGITS)
    with pytest.raises(CompileError) as caught:
        compiled(graph, "# layer conv9\narena()\n")
    assert str(caught.value) == (
        "there is no layer `conv9` on the accelerator; did you mean `conv3`, `conv2`, `conv1`?"
    )


def test_progress_names_each_layer_before_it_is_searched():
    told: list[str] = []
    compile_module(import_model(DIGITS), MACHINE, told.append)
    searched = [line for line in told if line.startswith("schedules of ")]
    names = ["conv1", "conv2", "conv3", "residual", "pool", "dense"]
    assert searched[:6] == [f"schedules of {name}, {at} of 6" for at, name in enumerate(names, 1)]
    assert told.index("checking the program") > told.index(searched[-1])


def test_a_given_schedule_is_timed_and_never_estimated():
    graph = import_model(DIGITS)
    text = schedules_text(compiled(graph))
    with pytest.raises(CompileError) as caught:
        compiled(graph, text, measure=None)
    assert str(caught.value) == (
        "schedule of layer `conv1`: no estimate knows its cycles; give `compile_graph` a `measure`"
    )


def test_a_schedule_with_too_many_parts_is_refused():
    graph = import_model(DIGITS)
    text = schedules_text(compiled(graph))
    layer = text[text.index("# layer conv2") : text.index("# layer conv3")]
    with pytest.raises(CompileError) as caught:
        compiled(graph, f"{layer}# part 2\narena()\n")
    assert str(caught.value) == (
        "schedule of layer `conv2`: expected 1 part, got 2; each but the first begins with `# part "
        "NUMBER`"
    )
