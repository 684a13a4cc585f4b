"""A VECTOR operation of one's own: declared in one line, and there in every part of the machine.

Block matching, the heart of motion search and stereo vision, asks how far each window of an image
is from a pattern: the sum of `|image - pattern|`. No instruction of the accelerator computes that.
Here a machine gets the operation. Its hardware, simulators, assembler, manual and tensorisation
follow from the declaration, and all of them agree to the last byte.

    python examples/vector_operation.py                  # the definition and the simulator
    python examples/vector_operation.py --device rtl     # the hardware too, under Verilator
"""

import argparse
import sys

import numpy as np

from tilewright import PRESETS, Accelerator, TilewrightError, lower, open_device, te
from tilewright.isa import check, format_program, parse_program
from tilewright.isa.manual import manual

PLAIN = PRESETS["4x4"]

# The declaration. A law may also hold `*`, `min`, `max`, shifts, bits, comparisons and `x if ...`.
MACHINE = PLAIN.replace(name="matcher", extra_operations=("absolute_difference = abs(a - b)",))

ROWS, COLUMNS, CHANNELS, WINDOW = 16, 16, 8, 4


def declare():
    """Declare the distance of the window from the pattern, for each position and channel."""
    y, x, c = te.axes(y=ROWS, x=COLUMNS, c=CHANNELS)
    ky, kx = te.reduce_axes(ky=WINDOW, kx=WINDOW)
    image = te.tensor("image", "int8", (ROWS + WINDOW - 1, COLUMNS + WINDOW - 1, CHANNELS))
    pattern = te.tensor("pattern", "int8", (WINDOW, WINDOW, CHANNELS))
    scale = te.tensor("scale", "float32", (CHANNELS,))

    difference = MACHINE.operation("absolute_difference")
    each = te.apply(difference, image[y + ky, x + kx, c], pattern[ky, kx, c])
    mean = te.requantise(te.sum(each, over=(ky, kx)), scale[c])
    distance = te.compute("distance", "int8", (y, x, c), te.clamp(mean - 128, -128, 127))
    factor = np.full(CHANNELS, 1 / WINDOW**2, dtype=np.float32)
    return te.kernel("matching", distance, constants={"scale": factor})


def schedule_for(kernel, machine) -> te.Schedule:
    """How: four rows at a time on the chip, all their windows in one VECTOR instruction."""
    s = te.Schedule(kernel, Accelerator(machine))
    result = s.cache_write("distance", "ACT")
    s.cache_read("image", "ACT", result)
    s.cache_read("pattern", "ACT", result)
    s.cache_read("scale", "PARAM", result)
    s.split("distance", "y", 4)
    s.compute_at(result, "distance", "y.o")
    s.compute_at("image.ACT", "distance", "y.o")
    s.pipeline("distance", "y.o", 2)
    s.tensorise(result, "y")
    return s


def expected(image: np.ndarray, pattern: np.ndarray) -> np.ndarray:
    """The same in NumPy."""
    windows = np.lib.stride_tricks.sliding_window_view(image, (WINDOW, WINDOW), axis=(0, 1))
    differences = np.abs(windows.astype(np.int32) - pattern.transpose(2, 0, 1))
    mean = np.rint(differences.sum(axis=(3, 4)).astype(np.float32) / np.float32(WINDOW**2))
    return np.clip(mean - 128, -128, 127).astype(np.int8)


def main(arguments: list[str] | None = None) -> int:
    """Show the operation in the manual, a schedule and a program; run it everywhere."""
    parser = argparse.ArgumentParser(description="a VECTOR operation of one's own")
    parser.add_argument("--device", choices=("sim", "rtl"), default="sim")
    devices = dict.fromkeys(("reference", "sim", parser.parse_args(arguments).device))

    text = manual(MACHINE)
    print(
        "In the manual:", *(line for line in text.splitlines() if "difference`" in line), sep="\n"
    )

    kernel = declare()
    schedule = schedule_for(kernel, MACHINE)
    executable = lower(schedule)
    print(f"\nThe schedule:\n\n{schedule}\n\nIts loops:\n\n{schedule.program()}")
    assembly = format_program(executable.program)
    print(f"\nThe program:\n\n{assembly}")
    assert parse_program(assembly, configuration=MACHINE) == executable.program

    # A machine without the operation refuses the schedule, and the program.
    for attempt in (
        lambda: schedule_for(kernel, PLAIN),
        lambda: check(executable.program, PLAIN, executable.data_bytes),
    ):
        try:
            attempt()
        except TilewrightError as refusal:
            print(f"refused: {refusal}\n")
        else:
            return 1

    generator = np.random.default_rng(0)
    inputs = {
        name: generator.integers(-128, 128, kernel.tensors[name].shape).astype(np.int8)
        for name in kernel.inputs
    }
    wanted = expected(inputs["image"], inputs["pattern"])
    for name in devices:
        with open_device(name, MACHINE) as device:
            outcome = executable.run(device, inputs)
        if not np.array_equal(outcome.output, wanted):
            print(f"{name}: the distances differ from NumPy's", file=sys.stderr)
            return 1
        cycles = f"{outcome.cycles} cycles" if outcome.cycles else "no clock"
        print(f"{name}: all {wanted.size} distances equal NumPy's; {cycles}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
