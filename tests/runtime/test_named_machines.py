"""The Python interface takes a configuration, and says so to those who give its name."""

import re
from typing import Any, cast

import pytest

import tilewright as tw
from tilewright import te
from tilewright.compiler.graph import Graph

NAME = cast(Any, "8x8")
GRAPH = Graph("net", (), (), (), ())


@pytest.mark.parametrize(
    "call",
    [
        lambda: tw.open_device("sim", NAME),
        lambda: tw.compile_graph(GRAPH, NAME),
        lambda: tw.Accelerator(NAME),
    ],
)
def test_a_name_is_no_configuration(call):
    with pytest.raises(tw.TilewrightError) as refusal:
        call()
    assert str(refusal.value).endswith(
        " as `configuration`, got '8x8'; `tilewright.load_configuration('8x8')` makes one"
    )


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        (
            {"placement": "host"},
            "`Placement` as `placement`, got 'host'; `tilewright.Placement` makes one",
        ),
        (
            {"options": {"fuse": 0}},
            "`Options` as `options`, got {'fuse': 0}; `tilewright.Options` makes one",
        ),
        ({"memory": 64}, "`MemoryModel` as `memory`, got 64; `tilewright.MemoryModel` makes one"),
        ({}, "`Graph` as `graph`, got 'net.onnx'; `tilewright.import_model` makes one"),
    ],
)
def test_other_wishes_are_refused_likewise(wish, message):
    graph = GRAPH if wish else "net.onnx"
    with pytest.raises(tw.TilewrightError, match=re.escape(message)):
        tw.compile_graph(cast(Any, graph), **wish)


(_M,) = te.axes(m=4)
KERNEL = te.kernel("k", te.compute("y", "int8", (_M,), te.tensor("a", "int8", (4,))[_M]))
PRESET = cast(Any, tw.PRESETS["4x4"])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: tw.schedule_kernel(KERNEL, PRESET),
            "`schedule_kernel`: expected `Target` as `target`, got Configuration(name='4x4', ",
        ),
        (
            lambda: tw.schedule_kernel(KERNEL, PRESET),
            "`tilewright.Accelerator(configuration)` makes one",
        ),
        (
            lambda: tw.schedule_kernel(PRESET, tw.Accelerator(PRESET)),
            "`schedule_kernel`: expected `Kernel` as `kernel`, got ",
        ),
        (lambda: te.Schedule(KERNEL, PRESET), "`te.Schedule`: expected `Target` as `target`, got "),
        (
            lambda: tw.lower(cast(Any, 3)),
            "`lower`: expected `Schedule` as `schedule`, got 3; "
            "`tilewright.schedule_kernel` makes one",
        ),
        (
            lambda: te.kernel("k", cast(Any, "y")),
            "`te.kernel`: expected `DeclaredTensor` as `output`, got 'y'; "
            "`tilewright.te.compute` makes one",
        ),
    ],
)
def test_kernels_schedules_and_targets_are_not_mixed_up(call, message):
    with pytest.raises(tw.TilewrightError, match=re.escape(message)):
        call()
