"""An operator of one's own: the scores of attention, from declaration to hardware.

Attention multiplies two activations, queries and keys, once per head. The compiler has a kernel and
chooses schedules for such products; here one is written in a few lines of tensor expressions,
scheduled step by step for the accelerator, and run. Every byte is compared with NumPy.

    python examples/custom_operator.py                  # functional simulation, exact cycles
    python examples/custom_operator.py --device rtl     # the hardware itself, under Verilator
"""

import argparse
import sys

import numpy as np

from tilewright import PRESETS, Accelerator, lower, open_device, te

HEADS, QUERIES, KEYS, DEPTH = 8, 32, 32, 16
MACHINE = PRESETS["4x4"]


def declare():
    """Declare the computation `clamp(round(queries x keys x scale))` of every head as a kernel.

    An index selects an element, and `te.sum` sums a product over an axis. The order of the loops,
    the places of the data and the instructions are left to the schedule.
    """
    h, q, k = te.axes(h=HEADS, q=QUERIES, k=KEYS)
    (d,) = te.reduce_axes(d=DEPTH)
    queries = te.tensor("queries", "int8", (HEADS, QUERIES, DEPTH))
    keys = te.tensor("keys", "int8", (HEADS, DEPTH, KEYS))
    scale = te.tensor("scale", "float32", (KEYS,))

    product = te.sum(queries[h, q, d] * keys[h, d, k], over=d)
    products = te.compute("products", "int32", (h, q, k), product)
    value = te.clamp(te.requantise(products[h, q, k], scale[k]), -128, 127)
    scores = te.compute("scores", "int8", (h, q, k), value)

    # The factor brings sums of 16 products into the range of int8. It is known now: a constant.
    factor = np.full(KEYS, 1 / 2048, dtype=np.float32)
    return te.kernel("attention_scores", scores, constants={"scale": factor})


def schedule_for(kernel, depth: int) -> te.Schedule:
    """Schedule the kernel one head at a time, with `depth` heads on the chip."""
    s = te.Schedule(kernel, Accelerator(MACHINE))

    # The places of data. GEMM multiplies rows of ACT by tiles of WGT into ACC. VECTOR requantises
    # from ACC to ACT, with scales from PARAM. Each copy will be a LOAD, or the STORE of the scores.
    s.cache_read("queries", "ACT", "products")
    s.cache_read("keys", "WGT", "products")
    s.set_scope("products", "ACC")
    result = s.cache_write("scores", "ACT")
    s.cache_read("scale", "PARAM", result)

    # The order. The scales stay for all heads. All else is done inside the loop over heads, the
    # outermost stage first, since a stage moves into a loop of a stage that reads it.
    s.compute_at(result, "scores", "h")
    s.compute_at("products", "scores", "h")
    s.compute_at("queries.ACT", "scores", "h")
    s.compute_at("keys.WGT", "scores", "h")

    # The slots of each buffer in the loop. With two, the next head is loaded while this one is
    # multiplied and the previous one is stored, so the memory's latency is hidden.
    s.pipeline("scores", "h", depth)

    # The instructions. Each one follows from the expression and from the places of its operands.
    s.tensorise("products", "h")
    s.tensorise(result, "h")
    return s


def expected(queries: np.ndarray, keys: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Compute the same in NumPy: multiply in float32, round to even, saturate."""
    products = queries.astype(np.int32) @ keys.astype(np.int32)
    return np.clip(np.rint(products.astype(np.float32) * scale), -128, 127).astype(np.int8)


def main(arguments: list[str] | None = None) -> int:
    """Run it on the definition and on a device, without and with double buffering."""
    parser = argparse.ArgumentParser(description="attention scores as an operator of one's own")
    parser.add_argument("--device", choices=("sim", "rtl"), default="sim")
    name = parser.parse_args(arguments).device

    kernel = declare()
    print(f"The kernel:\n\n{kernel}\n")
    print(f"Its loops before any step:\n\n{te.Schedule(kernel).program()}\n")
    schedule = schedule_for(kernel, depth=2)
    print(f"The schedule:\n\n{schedule}\n\nIts loops after it:\n\n{schedule.program()}\n")

    generator = np.random.default_rng(0)
    inputs = {
        tensor: generator.integers(-128, 128, kernel.tensors[tensor].shape).astype(np.int8)
        for tensor in kernel.inputs
    }
    wanted = expected(inputs["queries"], inputs["keys"], kernel.constants["scale"])
    cycles = {}
    with open_device("reference", MACHINE) as reference, open_device(name, MACHINE) as device:
        for depth in (1, 2):
            executable = lower(schedule_for(kernel, depth))
            for target in (reference, device):
                outcome = executable.run(target, inputs)
                if not np.array_equal(outcome.output, wanted):
                    print(f"{target.name}: the scores differ from NumPy's", file=sys.stderr)
                    return 1
            cycles[depth] = outcome.cycles
            print(
                f"depth {depth}: {len(executable.program)} instructions, {outcome.cycles} cycles "
                f"on {name}, all {wanted.size} scores equal on {name}, the definition and NumPy"
            )
    # A GEMM of every lane in every cycle would take this long.
    least = kernel.macs // (MACHINE.lanes_in * MACHINE.lanes_out)
    for depth, count in cycles.items():
        print(f"depth {depth}: multipliers busy {least / count:.0%} of the time")
    return 0


if __name__ == "__main__":
    sys.exit(main())
