"""The array in every description against its definition, and the arithmetic of packed products."""

from functools import cache

import numpy as np
import pytest
from amaranth.back import rtlil

from tilewright.hardware.mac_array import MAPPED, MacArray
from tilewright.hardware.technology import Technology

from .conftest import Batch, Several


def test_two_products_follow_from_one():
    """All 2**24 combinations: the formulas of `packed_array`."""
    numbers = np.arange(-128, 128, dtype=np.int32)
    upper, lower = numbers[:, None], numbers[None, :]
    packed = (upper << 10) + (lower + 128)
    assert -(2**17) <= packed.min() <= packed.max() < 2**17
    for operand in range(-128, 128):
        product = packed * operand
        low, high = product & 1023, product >> 10
        carry = ((high - (((upper & 63) * (operand & 63)) & 63)) & 63 ^ 32) - 32
        assert np.array_equal(high - carry, np.broadcast_to(upper * operand, high.shape))
        alone = low + (carry << 10) - 128 * operand
        assert np.array_equal(alone, np.broadcast_to(lower * operand, high.shape))


def random_run(shape, rng, tiles: int):
    """Stimuli by port, and the expected sums by cycle, of tiles that follow each other."""
    lanes_in, lanes_out, taps, kept = (*shape, 1)[:4]
    channels = min(lanes_in, lanes_out)
    parts = max(1, lanes_in // lanes_out)
    extremes = rng.random() < 0.5

    def numbers(*size):
        if extremes:
            return rng.choice([-128, -127, -1, 0, 1, 127], size)
        return rng.integers(-128, 128, size)

    cycles, expected = [], []
    weights, depthwise = np.zeros((lanes_in, lanes_out), int), False
    for index in range(tiles + 1):
        following = numbers(lanes_in, lanes_out)
        depthwise_next = bool(taps) and bool(rng.integers(2))
        writes = list(rng.permutation(lanes_in))
        part = int(rng.integers(parts))
        lines: list[list] = []
        first = True
        length, joins = int(rng.integers(1, 9)), bool(rng.integers(4))
        for _ in range(lanes_in + int(rng.integers(0, 20))):
            vector = numbers(lanes_in)
            write = bool(writes) and bool(index == 0 or rng.random() < 0.9 or len(writes) > 20)
            valid = index > 0 and bool(rng.integers(4) or first)
            row = int(writes[-1]) if write else int(rng.integers(lanes_in))
            swap = valid and first
            ends = len(lines[-1]) == length if kept > 1 and lines else not rng.integers(5)
            begins = valid and (first or ends)
            opens = begins and (first or not rng.integers(5))
            cycle = {"row": row, "write": write and not swap, "swap": swap, "valid": valid}
            if swap:
                write = False
            if write:
                writes.pop()
            cycle |= {f"weights__{lane}": following[row, lane] for lane in range(lanes_out)}
            cycle |= {f"vector__{lane}": vector[lane] for lane in range(lanes_in)}
            if taps:
                cycle |= {
                    "depthwise": depthwise,
                    "begins": begins,
                    "part": part,
                    "for_depthwise": depthwise_next,
                }
            if kept > 1:
                cycle |= {"opens": opens, "joins": joins}
            cycles.append(cycle)
            sums = None
            if valid:
                lines = [] if opens else lines
                lines += [[]] * begins
                lines[-1] = [*lines[-1], vector[part * channels : (part + 1) * channels]]
            if valid and depthwise:
                sums = np.zeros(lanes_out, int)
                for back, tap in np.ndindex(kept if joins else 1, taps):
                    if back < len(lines) and tap < len(lines[-1]):
                        own = lines[-1 - back][len(lines[-1]) - 1 - tap]
                        sums += np.tile(own, lanes_out // channels) * weights[back * taps + tap]
            elif valid:
                sums = vector @ weights
            expected.append(sums)
            first = first and not valid
        for row in writes:
            cycle = dict.fromkeys(cycles[0], 0) | {"row": row, "write": 1}
            cycle |= {f"weights__{lane}": following[row, lane] for lane in range(lanes_out)}
            cycles.append(cycle | ({"for_depthwise": depthwise_next} if taps else {}))
            expected.append(None)
        weights, depthwise = following, depthwise_next
    stimuli = {name: np.array([cycle[name] for cycle in cycles], np.int64) for name in cycles[0]}
    return stimuli, expected


QUICK = [(4, 4, 3), (8, 4, 2, 3)]
SLOW = [(8, 4, 1), (2, 2, 2), (4, 4, 0), (4, 8, 2), (8, 8, 7), (16, 2, 9), (16, 4, 3, 3)]
# Packed products are shared by more lanes. The other arrays repeat what they have for few.
SHARED = {
    Technology.ECP5: [(8, 16, 3), (16, 8, 3), (16, 16, 3), (16, 16, 3, 3)],
    Technology.XILINX7: [(8, 16, 3), (16, 8, 3)],
}
stimuli_of = cache(lambda shape: random_run(shape, np.random.default_rng(shape), 400))
"""The same for every technology."""


@pytest.mark.parametrize(
    "shapes", [QUICK, pytest.param(SLOW, marks=pytest.mark.slow)], ids=["small", "others"]
)
@pytest.mark.parametrize("technology", [None, *MAPPED], ids=str)
def test_sums_equal_the_definition(technology, shapes, tmp_path):
    check_arrays(technology, shapes, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("technology", SHARED, ids=str)
def test_sums_that_share_packed_products_equal_the_definition(technology, tmp_path):
    check_arrays(technology, SHARED[technology], tmp_path)


def check_arrays(technology, shapes, tmp_path):
    """Compare arrays, compiled side by side."""
    arrays = {f"array{place}": MacArray(*shape) for place, shape in enumerate(shapes)}
    runs = {name: stimuli_of(shape) for name, shape in zip(arrays, shapes, strict=True)}
    cycles = max(len(sums) + arrays[name].latency for name, (_, sums) in runs.items())
    inputs = {
        f"{name}__{port}": np.pad(values, (0, cycles - len(values)))
        for name, (stimuli, _) in runs.items()
        for port, values in stimuli.items()
    }
    got = Batch(Several(arrays), tmp_path, technology).run(cycles, **inputs)
    for (name, array), shape in zip(arrays.items(), shapes, strict=True):
        expected = runs[name][1]
        sums = np.stack([got[f"{name}__sums__{lane}"] for lane in range(shape[1])], axis=1)
        known = [cycle for cycle, value in enumerate(expected) if value is not None]
        assert len(known) > 2000
        np.testing.assert_array_equal(
            sums[np.array(known) + array.latency],
            np.array([expected[cycle] for cycle in known]),
            str(shape),
        )


@pytest.mark.parametrize("shape", [(4, 4, 3), (4, 4, 0)], ids=str)
def test_technologies_without_an_array_of_their_own_have_the_portable_one(shape):
    """So the comparison above is theirs too."""
    texts = {
        rtlil.convert(MacArray(*shape), name="array", platform=technology)
        for technology in {None, *Technology} - MAPPED.keys()
    }
    assert len(texts) == 1
