"""The array in every description against its definition, and the arithmetic of packed products."""

import numpy as np
import pytest

from tilewright.hardware.mac_array import MacArray
from tilewright.hardware.technology import Technology

from .conftest import Batch


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
    lanes_in, lanes_out, taps = shape
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
        history: list = []
        first = True
        for _ in range(lanes_in + int(rng.integers(0, 20))):
            vector = numbers(lanes_in)
            write = bool(writes) and bool(index == 0 or rng.random() < 0.9 or len(writes) > 20)
            valid = index > 0 and bool(rng.integers(4) or first)
            row = int(writes[-1]) if write else int(rng.integers(lanes_in))
            swap = valid and first
            begins = valid and (first or not rng.integers(5))
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
            cycles.append(cycle)
            sums = None
            if valid and depthwise:
                own = vector[part * channels : (part + 1) * channels]
                history = [own] + ([] if begins else history[: taps - 1])
                wide = np.tile(np.array(history), (1, lanes_out // channels))
                sums = (wide * weights[: len(history)]).sum(axis=0)
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


TECHNOLOGIES = [each for each in (None, *Technology) if each is not Technology.SIMULATION]
QUICK = (4, 4, 3)
SLOW = [(8, 4, 1), (2, 2, 2), (4, 4, 0), (4, 8, 2), (8, 8, 7), (16, 2, 9)]
CASES = [(QUICK, each) for each in TECHNOLOGIES]
CASES += [(shape, each) for shape in SLOW for each in TECHNOLOGIES]
# Packed products are shared by more lanes. The other arrays repeat what they have for few.
CASES += [(shape, Technology.ECP5) for shape in ((8, 16, 3), (16, 8, 3), (16, 16, 3))]
CASES += [(shape, Technology.XILINX7) for shape in ((8, 16, 3), (16, 8, 3))]


@pytest.mark.parametrize(
    ("shape", "technology"),
    [pytest.param(*c, marks=() if c[0] == QUICK else pytest.mark.slow) for c in CASES],
    ids=str,
)
def test_sums_equal_the_definition(shape, technology, tmp_path):
    array = MacArray(*shape)
    stimuli, expected = random_run(shape, np.random.default_rng(shape), 400)
    end = {name: np.zeros(array.latency, np.int64) for name in stimuli}
    stimuli = {name: np.concatenate([stimuli[name], end[name]]) for name in stimuli}
    cycles = len(expected) + array.latency
    batch = Batch(array, tmp_path, technology)
    got = batch.run(cycles, **stimuli)
    sums = np.stack([got[f"sums__{lane}"] for lane in range(shape[1])], axis=1)
    known = [cycle for cycle, value in enumerate(expected) if value is not None]
    assert len(known) > 2000
    np.testing.assert_array_equal(
        sums[np.array(known) + array.latency], np.array([expected[cycle] for cycle in known])
    )
