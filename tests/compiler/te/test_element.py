"""Elements at computed distances: definition, loop program and machine code agree."""

import numpy as np
import pytest

from tilewright.compiler import te
from tilewright.compiler.cpu import LEVELS, compile_kernel
from tilewright.compiler.cpu.kernels.declared import Declared
from tilewright.compiler.tensor import Kernel, evaluate
from tilewright.errors import CompileError

from ...processor import target_at

ROWS, COLUMNS, COUNT = 3, 7, 21


def gathering(dtype: str) -> Kernel:
    """`out[r, i] = table[r, places[i]]`."""
    table = te.tensor("table", dtype, (ROWS, COLUMNS))
    places = te.tensor("places", "int32", (COUNT,))
    r, i = te.axes(r=ROWS, i=COUNT)
    value = te.element(table[r, 0], places[i])
    return te.kernel("gather", te.compute("out", dtype, (r, i), value))


def given(dtype: str) -> dict[str, np.ndarray]:
    random = np.random.default_rng(6)
    return {
        "table": random.integers(-100, 100, (ROWS, COLUMNS)).astype(dtype),
        "places": random.integers(0, COLUMNS, COUNT).astype(np.int32),
    }


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "int8"])
@pytest.mark.parametrize(
    "steps", ["", "vectorise(out, i)", "split(out, i, 8)\nvectorise(out, i.i)"]
)
def test_elements_are_gathered(steps: str, dtype: str, level: str) -> None:
    if dtype == "float16" and not LEVELS[level].halves:
        return
    kernel, arrays = gathering(dtype), given(dtype)
    expected = arrays["table"][:, arrays["places"]]
    np.testing.assert_array_equal(evaluate(kernel, arrays), expected)
    target = target_at(level)
    schedule = te.Schedule.parse(kernel, steps, target.processor)
    np.testing.assert_array_equal(te.interpret(schedule.program(), arrays), expected)
    compiled = compile_kernel(Declared(kernel, steps), target)
    order = [arrays[name] for name in compiled.description.operands]
    np.testing.assert_array_equal(compiled(*order), expected)


def test_an_element_is_counted_from_another_one() -> None:
    table = te.tensor("table", "float32", (ROWS, COLUMNS))
    (i,) = te.axes(i=ROWS)
    with pytest.raises(CompileError, match="takes a tensor's element and an integer"):
        te.element(table[i, 0] * 2.0, te.constant(1))
