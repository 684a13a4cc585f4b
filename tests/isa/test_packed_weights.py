"""Weights of 4 bits with factors, as LOAD unpacks them."""

import numpy as np
import pytest

from tilewright.errors import IsaError
from tilewright.isa.configuration import DEFAULT, PRESETS
from tilewright.isa.packed_weights import factors_of, pack_tiles, unpack_tiles

MACHINES = [PRESETS[name] for name in ("tiny", "4x4", "8x16", "16x8", "32x32")]


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_tiles_that_fit_come_back(machine):
    rng = np.random.default_rng(1)
    shape = 3, machine.lanes_in, machine.lanes_out
    weights = rng.integers(-8, 8, shape) * rng.integers(1, 16, (3, 1, machine.lanes_out))
    packed = pack_tiles(weights.astype(np.int8))
    assert packed.shape == (3, machine.packed_tile_bytes)
    unpacked = unpack_tiles(packed.reshape(-1), machine).view(np.int8)
    assert np.array_equal(unpacked.reshape(shape), weights)


def test_the_form_is_two_weights_a_byte_behind_their_factors():
    tiny = PRESETS["tiny"]
    packed = np.array([0x3F, 0x8F, 0x71], dtype=np.uint8)  # factors 15 and 3; -1, -8; 1, 7
    assert unpack_tiles(packed, tiny).view(np.int8).tolist() == [-15, -24, 15, 21]


def test_the_least_factor_is_taken():
    column = np.array([[0, 8, -8, 120, 7, 14, 105, 127, 1]], dtype=np.int8)
    assert factors_of(column).tolist() == [1, 2, 1, 0, 1, 2, 15, 0, 1]
    assert factors_of(np.array([[-120], [105]], dtype=np.int8)).tolist() == [15]


def test_weights_that_do_not_fit_are_named():
    weights = np.zeros((2, DEFAULT.lanes_in, DEFAULT.lanes_out), dtype=np.int8)
    weights[1, :2, 5] = 8, 7
    with pytest.raises(IsaError, match="tile 1, column 5: no common factor up to 15"):
        pack_tiles(weights)
