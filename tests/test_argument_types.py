"""Public functions reject arguments of the wrong type, and say what they expect."""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.argument_types import checked
from tilewright.errors import InputError

WRONG: Any = object()
TYPED = (type, type(lambda: None))
PUBLIC = {name: getattr(tw, name) for name in tw.__all__}
PUBLIC |= {f"te.{name}": getattr(te, name) for name in ("apply", "clamp", "compute", "kernel")}
PUBLIC |= {"te.Schedule": te.Schedule, "te.tensor": te.tensor}
PUBLIC |= {
    "Comparison.add": tw.Comparison.add,
    "LayerBench.evaluate": tw.LayerBench.evaluate,
    "LayerBench.program": tw.LayerBench.program,
}
OTHERS = ("Benchmark", "Configuration", "Profile", "TilewrightError")
"""Public names of what functions return, and of what checks itself."""
CASES = [
    (name, parameter.name)
    for name, one in PUBLIC.items()
    if isinstance(one, TYPED) and name not in OTHERS
    for parameter in inspect.signature(one).parameters.values()
    if parameter.annotation not in (Any, inspect.Parameter.empty)
    and parameter.kind is not inspect.Parameter.VAR_KEYWORD
]


@pytest.mark.parametrize(("name", "parameter"), CASES)
def test_every_public_function_checks_every_argument(name, parameter):
    with pytest.raises(tw.TilewrightError, match=re.escape(parameter)):
        PUBLIC[name](**{parameter: WRONG})


GRAPH = tw.import_model("examples/digits/digits_int8_qdq.onnx")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda wrong: tw.LayerBench(wrong, "conv2"),
            "`LayerBench`: expected `Module` as `module`, got <Graph `digits_int8_qdq`: 10 nodes, "
            "12 constants, 1 input, 1 output>; `tilewright.compile_graph` makes one",
        ),
        (
            lambda wrong: tw.Placement(forced=wrong),
            "`Placement`: expected `tuple[tuple[str, str], ...]` as `forced`, got <Graph "
            "`digits_int8_qdq`: 10 nodes, 12 constants, 1 input, 1 output>; give one",
        ),
    ],
)
def test_messages_name_the_argument_and_what_makes_one(call, message):
    with pytest.raises(tw.TilewrightError) as refusal:
        call(GRAPH)
    assert str(refusal.value) == message


@pytest.mark.parametrize("wrong", ["head", ("head", 3), 3])
def test_a_text_is_no_list_of_names(wrong):
    with pytest.raises(tw.TilewrightError, match="`keep_float`"):
        tw.QuantiserOptions(keep_float=wrong)


@checked("run", InputError)
def run(
    path: Path | None = None,
    number: float = 0.0,
    names: Sequence[str] = (),
    call: Callable[[], None] | None = None,
    arrays: Mapping[str, np.ndarray] | None = None,
    pair: tuple[int, str] = (0, ""),
    anything: Any = None,
    *rest: int,
) -> int:
    return 1 + len(rest)


@pytest.mark.parametrize(
    "right",
    [
        {"path": "net.onnx"},
        {"path": Path("net.onnx")},
        {"number": np.float32(3)},
        {"number": 3},
        {"names": ["a", "b"]},
        {"call": print},
        {"arrays": {"a": [1]}},
        {"pair": (np.int64(1), "a")},
        {"anything": WRONG},
    ],
)
def test_what_does_as_well_is_accepted(right):
    assert run(**right) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"path": 3},
        {"number": "3"},
        {"names": [3]},
        {"names": "names"},
        {"call": 3},
        {"arrays": [1]},
        {"pair": (1, "a", "b")},
        {"pair": ("a", 1)},
    ],
)
def test_other_values_are_refused(wrong):
    with pytest.raises(InputError, match="`run`: expected"):
        run(**wrong)
