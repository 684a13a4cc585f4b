"""A lowered schedule computes, bit for bit, what its kernel means."""

import json
import random
from collections import Counter
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from tilewright import lower
from tilewright.compiler import te
from tilewright.compiler.accelerator.lower_copies import dense_pieces
from tilewright.compiler.tensor import evaluate
from tilewright.errors import CompileError
from tilewright.flows.execution.timed import TimedSegment
from tilewright.flows.reports.trace import write_trace
from tilewright.isa.configuration import Memory
from tilewright.isa.instructions import Gemm, Load, Store, Vector
from tilewright.runtime import open_device
from tilewright.sim.timing import time_program

from .random_schedules import TARGET as SMALL
from .random_schedules import place_operands, random_kernel, random_step
from .scheduled import (
    MACHINE,
    PLACES,
    ROWS,
    SCHEDULES,
    TARGET,
    convolution,
    lowered,
    network,
    values_for,
)

CONSTANTS = ("w", "right", "bias", "scale", "table")
"""Names of the random kernels' tensors that are constants in networks."""


def random_lowering(seed: int) -> tuple[te.Schedule, dict[str, np.ndarray]] | None:
    """A random schedule that an accelerator can run, with some inputs made constants."""
    pick = random.Random(seed)
    kernel, inputs = random_kernel(pick)
    kernel = replace(
        kernel, constants={n: inputs[n] for n in CONSTANTS if n in inputs and pick.random() < 0.5}
    )
    schedule = te.Schedule(kernel, SMALL)
    place_operands(pick, schedule)
    for _ in range(pick.choice([0, 4, 12])):
        with suppress(te.ScheduleError):
            schedule.apply(random_step(pick, schedule))
    try:
        list(te.instances(schedule.program()))
    except te.ScheduleError:
        return None
    return schedule, inputs


@pytest.mark.parametrize("constants", [(), ("w",), ("bias", "scale"), ("w", "scale")])
@pytest.mark.parametrize("name", SCHEDULES)
def test_a_convolution_is_equal_under_every_schedule(name, constants):
    kernel = convolution()
    values = values_for(kernel)
    kernel = replace(kernel, constants={one: values.pop(one) for one in constants})
    schedule = te.Schedule.parse(kernel, PLACES + SCHEDULES[name], TARGET)
    executable = lower(schedule)
    with open_device("reference", MACHINE) as reference, open_device("sim", MACHINE) as sim:
        for device in (reference, sim):
            outcome = executable.run(device, values)
            np.testing.assert_array_equal(outcome.output, evaluate(kernel, values))
    assert outcome.cycles is not None
    assert outcome.cycles > len(executable.program)


def test_random_schedules_are_equal():
    """Whatever can be lowered; what cannot is refused with a sentence."""
    taken, seen, refusals = 0, Counter(), []
    with open_device("reference", SMALL.configuration) as device:
        for seed in range(350):
            found = random_lowering(seed)
            if found is None:
                continue
            schedule, values = found
            try:
                executable = lower(schedule)
            except CompileError as error:
                refusals.append(str(error))
                continue
            inputs = {name: values[name] for name in schedule.kernel.inputs}
            got = executable.run(device, inputs).output
            expected = evaluate(schedule.kernel, inputs)
            assert got.dtype == expected.dtype
            np.testing.assert_array_equal(got, expected, f"seed {seed}:\n{schedule}")
            taken += 1
            seen.update(one.mnemonic for one in executable.program)
    assert taken > 50
    assert min(seen["gemm"], seen["vector"]) > 20, seen
    assert len(refusals) > 2
    assert all(";" in refusal for refusal in refusals), refusals


def check(schedule: te.Schedule, values: dict[str, np.ndarray]) -> None:
    """The lowered schedule against the kernel's meaning, on the definition."""
    executable = lower(schedule)
    with open_device("reference", MACHINE) as device:
        got = executable.run(device, values).output
    np.testing.assert_array_equal(got, evaluate(schedule.kernel, values))


def test_pairs_that_are_brought_again_are_those_of_the_block():
    """Two blocks of channels in one slot, again for every row."""
    y, c = te.axes(y=2, c=12)
    x = te.tensor("x", "int8", (2, 12))
    bias, scale = te.tensor("bias", "int32", (12,)), te.tensor("scale", "float32", (12,))
    value = te.clamp(te.requantise(x[y, c] + bias[c], scale[c]), -128, 127)
    constants = {
        "bias": np.arange(-60, 60, 10, dtype=np.int32),
        "scale": np.linspace(0.1, 1, 12, dtype=np.float32),
    }
    kernel = te.kernel("rows", te.compute("out", "int8", (y, c), value), constants)
    schedule = te.Schedule(kernel, TARGET)
    schedule.cache_write("out", "ACT")
    schedule.cache_read("x", "ACT", "out.ACT")
    schedule.split("out.ACT", "c", 8)
    for name in ("bias", "scale"):
        copy = schedule.cache_read(name, "PARAM", "out.ACT")
        schedule.compute_at(copy, "out.ACT", "c.o")
    schedule.tensorise("out.ACT", "c.i")
    check(schedule, {"x": np.arange(-12, 12, dtype=np.int8).reshape(2, 12)})


@pytest.mark.parametrize("constant", [False, True])
def test_weights_may_have_a_border(constant):
    """And an activation may be a diagonal."""
    m, o = te.axes(m=3, o=8)
    (k,) = te.reduce_axes(k=8)
    a, b = te.tensor("a", "int8", (3, 3, 8)), te.tensor("b", "int8", (8, 8), pad=3)
    total = te.compute("out", "int32", (m, o), te.sum(a[m, m, k] * b[k - 4, o], over=k))
    generator = np.random.default_rng(5)
    values = {
        name: generator.integers(-128, 128, shape).astype(np.int8)
        for name, shape in (("a", (3, 3, 8)), ("b", (8, 8)))
    }
    constants = {"b": values.pop("b")} if constant else {}
    schedule = te.Schedule(te.kernel("product", total, constants), TARGET)
    schedule.cache_write("out", "ACC")
    schedule.cache_read("a", "ACT", "out.ACC")
    schedule.cache_read("b", "WGT", "out.ACC")
    schedule.tensorise("out.ACC", "m")
    check(schedule, values)


@pytest.mark.slow
def test_a_convolution_is_equal_on_the_hardware():
    kernel = convolution()
    values = values_for(kernel)
    with open_device("sim", MACHINE) as sim, open_device("rtl", MACHINE) as rtl:
        for text in SCHEDULES.values():
            executable = lower(te.Schedule.parse(kernel, PLACES + text, TARGET))
            on_rtl, on_sim = executable.run(rtl, values), executable.run(sim, values)
            np.testing.assert_array_equal(on_rtl.output, evaluate(kernel, values))
            assert on_rtl.cycles == on_sim.cycles


# What the instructions are ----------------------------------------------------------------------


def test_slots_of_accumulators_lie_in_banks_of_their_own():
    depth = MACHINE.acc_depth
    for slots in (1, 2):
        program = lowered(ROWS.format(depth=slots)).program
        banks = [one.acc // depth for one in program if isinstance(one, Gemm)]
        assert banks == [0, slots - 1, 0]
        assert [one.a // depth for one in program if isinstance(one, Vector)] == banks


def test_buffers_in_use_at_a_time_lie_in_banks_of_their_own():
    program = lowered(ROWS.format(depth=2)).program
    bank = MACHINE.bank_bytes(Memory.ACT)
    loads = {
        one.local // bank
        for one in program
        if isinstance(one, Load) and one.destination is Memory.ACT
    }
    stores = {one.local // bank for one in program if isinstance(one, Store)}
    assert len(loads) == len(stores) == 2
    assert not loads & stores


def test_two_slots_hide_latency():
    values = values_for(network())
    with open_device("sim", MACHINE) as device:
        one, two = (lowered(ROWS.format(depth=d)).run(device, values).cycles for d in (1, 2))
    assert one is not None
    assert two is not None
    assert two < 0.9 * one


def test_constant_weights_and_pairs_are_one_load_each():
    values = values_for(network())
    kernel = replace(network(), constants={name: values[name] for name in ("w", "bias", "scale")})
    loads = [one for one in lowered(ROWS.format(depth=1), kernel).program if isinstance(one, Load)]
    assert [one.length for one in loads if one.destination is Memory.WGT] == [3 * 3 * 4 * 8]
    assert [one.length for one in loads if one.destination is Memory.PARAM] == [8 * 8]


def test_every_instruction_has_a_note():
    executable = lowered(ROWS.format(depth=1))
    assert len(executable.notes) == len(executable.program)
    assert "y2: gemm `acc`" in executable.notes
    assert executable.notes[-1] == "end"
    lines = str(executable).splitlines()
    assert lines[-1] == "halt  # end"
    assert len(lines) == len(executable.program)


def test_tensors_in_main_memory_begin_with_a_burst():
    bases = [one.base for one in lowered(ROWS.format(depth=1)).dram.values()]
    assert sorted(bases) == bases
    assert all(base % 64 == 0 for base in bases)


def test_a_trace_shows_what_each_instruction_is_for(tmp_path):
    executable = lowered(ROWS.format(depth=1))
    timing = time_program(executable.program, MACHINE)
    timed = TimedSegment(executable.segment, timing, {"out": "conv"})
    write_trace(tmp_path / "trace.json", [timed], "conv", "sim")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    notes = {event.get("args", {}).get("for") for event in events}
    assert {"y2: gemm `acc`", "y2: store `out`"} <= notes


def test_a_box_inside_a_larger_buffer_is_cut_into_dense_pieces():
    whole = ((0, 2), (3, 6), (0, 4))
    assert list(dense_pieces(whole, whole)) == [(whole, 0)]
    rows = ((0, 2), (4, 6), (0, 4))
    assert list(dense_pieces(rows, whole)) == [
        (((0, 1), (4, 6), (0, 4)), 4),
        (((1, 2), (4, 6), (0, 4)), 16),
    ]
    corner = ((1, 2), (3, 5), (1, 3))
    assert list(dense_pieces(corner, whole)) == [
        (((1, 2), (3, 4), (1, 3)), 13),
        (((1, 2), (4, 5), (1, 3)), 17),
    ]
