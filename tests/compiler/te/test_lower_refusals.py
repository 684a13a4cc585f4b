"""Kernels that cannot be lowered or run are refused with a sentence that says what to do."""

import numpy as np
import pytest

from tilewright import Accelerator, lower
from tilewright.compiler import te
from tilewright.errors import CompileError, DeviceError, InputError
from tilewright.isa.configuration import PRESETS
from tilewright.isa.instructions import Vector
from tilewright.runtime import open_device

from .scheduled import MACHINE, ROWS, accelerated, lowered, network, values_for


def refusal(schedule: te.Schedule) -> str:
    with pytest.raises(CompileError) as caught:
        lower(schedule)
    return str(caught.value)


def test_a_schedule_without_a_machine_is_refused():
    assert refusal(te.Schedule(network())) == (
        "kernel `conv`: scheduled for a machine of plain loops; give the Schedule an Accelerator"
    )


def test_a_scratchpad_that_is_too_small_is_refused():
    schedule = te.Schedule(network(), Accelerator(MACHINE.replace(name="low", acc_depth=16)))
    for step in accelerated().steps:
        schedule.apply(step)
    schedule.tensorise("acc", "n")
    schedule.tensorise("out.ACT", "n")
    assert refusal(schedule) == (
        "kernel `conv`: the buffers in ACC (`acc` 1152 bytes) do not fit the 512 bytes of "
        "configuration `low` in 2 banks; split more, compute copies further inside, or raise "
        "`acc_depth`"
    )


def maximum(rows: int, slots: int) -> te.Schedule:
    """Of two tensors of `rows` x 4 elements, one half after the other."""
    r, c = te.axes(r=rows, c=4)
    a, b = te.tensor("a", "int8", (rows, 4)), te.tensor("b", "int8", (rows, 4))
    schedule = te.Schedule(
        te.kernel("maximum", te.compute("out", "int8", (r, c), te.maximum(a[r, c], b[r, c]))),
        Accelerator(PRESETS["4x4"].replace(name="two", act_banks=2)),
    )
    schedule.cache_write("out", "ACT")
    schedule.split("out", "r", rows // 2)
    schedule.compute_at("out.ACT", "out", "r.o")
    for name in "ab":
        schedule.cache_read(name, "ACT", "out.ACT")
        schedule.compute_at(f"{name}.ACT", "out", "r.o")
    schedule.pipeline("out", "r.o", slots)
    schedule.tensorise("out.ACT", "r")
    return schedule


def test_operands_of_one_instruction_lie_in_banks_of_their_own():
    """Two slots of one would take both banks, if it were alone."""
    for rows in (4, 256, 512):
        for slots in (1, 2):
            program = lower(maximum(rows, slots)).program
            found = [(one.a // 1024, one.b // 1024) for one in program if isinstance(one, Vector)]
            assert len(found) == 2
            assert set(found) in ({(0, 1)}, {(1, 0)})
    assert refusal(maximum(1364, 1)) == (
        "kernel `maximum`: the buffers in ACT (`a.ACT` 2728 bytes, `b.ACT` 2728 bytes, `out.ACT` "
        "2728 bytes) do not fit the 8192 bytes of configuration `two` in 2 banks, where `a.ACT` "
        "and `b.ACT` must not share a bank; split more, compute copies further inside, or raise "
        "`act_depth`"
    )


def test_a_copy_that_no_unit_can_make_is_refused():
    schedule = accelerated()
    schedule.cache_read("image.ACT", "ACT", "acc")
    schedule.tensorise("acc", "n")
    schedule.tensorise("out.ACT", "n")
    assert refusal(schedule) == (
        "copy of `image.ACT` to `image.ACT.ACT`: no unit moves data from ACT to ACT; LOAD fills "
        "ACT, WGT, PARAM and LUT from main memory, and STORE reads ACT and ACC"
    )


def test_a_bias_beside_a_scale_of_another_box_is_refused():
    schedule = accelerated()
    schedule.split("out.ACT", "o", 4)
    schedule.reorder("out.ACT", "o.o", "n")
    schedule.compute_at("bias.PARAM", "out.ACT", "o.o")
    schedule.tensorise("acc", "n")
    schedule.tensorise("out.ACT", "n")
    assert refusal(schedule) == (
        "stage `out.ACT`: `bias.PARAM` [4] and `scale.PARAM` [8] share the pairs of PARAM; copy "
        "both in the same loop with the same box"
    )


def test_a_bias_beside_a_scale_of_another_slot_is_refused():
    """The bias stays for a row of blocks of outputs, the scale is copied again for each."""
    schedule = accelerated()
    schedule.reorder("out.ACT", "y", "n")
    schedule.reorder("out.ACT", "x", "n")
    schedule.compute_at("bias.PARAM", "out.ACT", "y")
    schedule.compute_at("scale.PARAM", "out.ACT", "x")
    schedule.pipeline("out.ACT", "y", 2)
    schedule.pipeline("out.ACT", "x", 2)
    schedule.tensorise("acc", "n")
    schedule.tensorise("out.ACT", "n")
    assert refusal(schedule) == (
        "stage `out.ACT`: `bias.PARAM` [0..7] in slot 0 and `scale.PARAM` [0..7] in slot 1 share "
        "the pairs of PARAM; copy both in the same loop with the same box"
    )


def test_inputs_of_another_shape_or_name_are_refused():
    executable, values = lowered(ROWS.format(depth=1)), values_for(network())
    with pytest.raises(InputError) as caught:
        executable.image({**values, "extra": values["w"]})
    assert str(caught.value) == (
        "kernel `conv`: expected inputs `image`, `w`, `bias`, `scale`, got `bias`, `extra`, "
        "`image`, `scale`, `w`; give each by its name"
    )
    with pytest.raises(InputError) as caught:
        executable.image({**values, "bias": values["bias"].astype(np.int64)})
    assert str(caught.value) == "input `bias`: expected int32[8], got int64[8]; convert it"


def test_a_device_of_another_machine_is_refused():
    executable = lowered(ROWS.format(depth=1))
    with (
        open_device("reference", PRESETS["8x8"]) as device,
        pytest.raises(DeviceError, match="expected configuration `4x4`, got `8x8`"),
    ):
        executable.run(device, values_for(network()))
