"""Operations of VECTOR in declarations: their value, their instruction, what is refused."""

import numpy as np
import pytest

from tilewright import PRESETS, Accelerator, lower, open_device, te
from tilewright.compiler.tensor import evaluate
from tilewright.errors import CompileError
from tilewright.flows.verify.programs.random_configurations import EXTRA_OPERATIONS
from tilewright.isa.configuration import Memory
from tilewright.isa.instructions import Vector
from tilewright.isa.vector_operations import Combine, operations_with

MACHINE = PRESETS["4x4"].replace(name="more", extra_operations=EXTRA_OPERATIONS)
TARGET = Accelerator(MACHINE)
OPERATIONS = operations_with(EXTRA_OPERATIONS)


def declared(operation, scope="ACT"):
    """`operation` of two tensors element by element, scheduled as one instruction."""
    y, c = te.axes(y=5, c=8)
    left, right = (te.tensor(name, "int8", (5, 8)) for name in ("left", "right"))
    value = te.apply(operation, left[y, c], right[y, c], a_multiplier=7, b_multiplier=-3)
    dtype = "int8" if scope == "ACT" else "int32"
    value = te.clamp(value, -100, 90) if scope == "ACT" else value
    kernel = te.kernel("each", te.compute("out", dtype, (y, c), value))
    s = te.Schedule(kernel, TARGET)
    result = s.cache_write("out", scope)
    for name in kernel.inputs:
        s.cache_read(name, "ACT", result)
    s.tensorise(result, "y")
    return kernel, s


@pytest.mark.parametrize("scope", ["ACT", "ACC"])
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_every_operation_becomes_one_instruction(operation, scope):
    kernel, s = declared(operation, scope)
    executable = lower(s)
    (vector,) = (one for one in executable.program if isinstance(one, Vector))
    if operation.name == "minus":  # the first operation that does is taken
        operation = Combine.ADD
        assert vector.b_multiplier == -1
    assert vector.combine == operation
    assert vector.memory_of("dst") is Memory[scope]
    chance = np.random.default_rng(3)
    inputs = {name: chance.integers(-128, 128, (5, 8)).astype(np.int8) for name in kernel.inputs}
    wanted = evaluate(kernel, inputs)
    np.testing.assert_array_equal(te.interpret(s.program(), inputs), wanted)
    for name in ("reference", "sim"):
        with open_device(name, MACHINE) as device:
            np.testing.assert_array_equal(executable.run(device, inputs).output, wanted)


@pytest.mark.parametrize("multiplier", [1, 7])
def test_a_multiplier_takes_only_what_lies_in_act(multiplier):
    y, c = te.axes(y=5, c=8)
    left, right, third = (te.tensor(name, "int8", (5, 8)) for name in ("left", "right", "third"))
    wide = te.compute("wide", "int32", (y, c), left[y, c] * right[y, c])
    operation = MACHINE.operation("larger_sum")
    value = te.apply(operation, wide[y, c], third[y, c], a_multiplier=multiplier)
    kernel = te.kernel("scaled", te.compute("out", "int8", (y, c), te.clamp(value, -128, 127)))
    s = te.Schedule(kernel, TARGET)
    s.cache_read("left", "ACT", "wide")
    s.cache_read("right", "ACT", "wide")
    s.set_scope("wide", "ACC")
    result = s.cache_write("out", "ACT")
    s.cache_read("third", "ACT", result)
    s.tensorise("wide", "y")
    if multiplier != 1:
        with pytest.raises(te.ScheduleError, match="multiplies only operands in ACT by constants"):
            s.tensorise(result, "y")
        return
    s.tensorise(result, "y")
    chance = np.random.default_rng(4)
    inputs = {name: chance.integers(-128, 128, (5, 8)).astype(np.int8) for name in kernel.inputs}
    with open_device("sim", MACHINE) as device:
        outcome = lower(s).run(device, inputs)
    np.testing.assert_array_equal(outcome.output, evaluate(kernel, inputs))


@pytest.mark.parametrize("wraps", [False, True])
def test_a_product_with_an_operand_in_acc_wraps_it(wraps):
    y, c = te.axes(y=5, c=8)
    left, right, third = (te.tensor(name, "int8", (5, 8)) for name in ("left", "right", "third"))
    wide = te.compute("wide", "int32", (y, c), left[y, c] * right[y, c])
    value = wide[y, c] * third[y, c]
    if wraps:
        value = te.apply(Combine.MUL, wide[y, c], third[y, c])
    kernel = te.kernel("product", te.compute("out", "int8", (y, c), te.clamp(value, -128, 127)))
    s = te.Schedule(kernel, TARGET)
    s.cache_read("left", "ACT", "wide")
    s.cache_read("right", "ACT", "wide")
    s.set_scope("wide", "ACC")
    result = s.cache_write("out", "ACT")
    s.cache_read("third", "ACT", result)
    s.tensorise("wide", "y")
    if not wraps:
        with pytest.raises(CompileError, match="`wide` lies in ACC; vector takes `a` from ACT"):
            s.tensorise(result, "y")
        return
    s.tensorise(result, "y")
    chance = np.random.default_rng(5)
    inputs = {name: chance.integers(-128, 128, (5, 8)).astype(np.int8) for name in kernel.inputs}
    with open_device("sim", MACHINE) as device:
        outcome = lower(s).run(device, inputs)
    np.testing.assert_array_equal(outcome.output, evaluate(kernel, inputs))


def test_a_field_that_counts_as_1_in_acc_is_refused_there():
    machine = PRESETS["4x4"].replace(extra_operations=("ceiling = min(a, a_multiplier)",))
    y, c = te.axes(y=5, c=8)
    left, right = (te.tensor(name, "int8", (5, 8)) for name in ("left", "right"))
    wide = te.compute("wide", "int32", (y, c), left[y, c] * right[y, c])
    value = te.apply(machine.operation("ceiling"), wide[y, c], a_multiplier=90)
    kernel = te.kernel("cut", te.compute("out", "int8", (y, c), te.clamp(value, -128, 127)))
    s = te.Schedule(kernel, Accelerator(machine))
    s.set_scope("wide", "ACC")
    result = s.cache_write("out", "ACT")
    with pytest.raises(te.ScheduleError, match="but `wide` lies in ACC; make"):
        s.tensorise(result, "y")


def test_operands_must_be_integers():
    y, c = te.axes(y=5, c=8)
    left, scale = te.tensor("left", "int8", (5, 8)), te.tensor("scale", "float32", (5, 8))
    with pytest.raises(CompileError, match="float32"):
        te.apply(MACHINE.operation("absolute_difference"), left[y, c], scale[y, c])


@pytest.mark.parametrize("below", [0, 1])
def test_both_operands_from_one_tensor_are_refused(below):
    y, c = te.axes(y=5, c=8)
    left = te.tensor("left", "int8", (6, 8))
    value = te.apply(MACHINE.operation("absolute_difference"), left[y, c], left[y + below, c])
    kernel = te.kernel("each", te.compute("out", "int32", (y, c), value))
    s = te.Schedule(kernel, TARGET)
    result = s.cache_write("out", "ACC")
    s.cache_read("left", "ACT", result)
    with pytest.raises(te.ScheduleError, match="takes each operand from a separate tensor"):
        s.tensorise(result, "y")
