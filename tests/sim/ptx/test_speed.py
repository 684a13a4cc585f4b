"""The benchmark of the PTX interpreter runs, and one step serves many threads."""

import pytest

from tilewright.flows.bench.ptx_interpreter import BODIES, REPEATS, kernel
from tilewright.sim.ptx import run


@pytest.mark.parametrize("name", BODIES)
def test_warps_that_do_not_part_share_their_steps(name):
    body = BODIES[name][0]
    few = run(kernel(body), 1, 32, [])
    many = run(kernel(body), 16, 256, [])
    assert few == many >= 8 * REPEATS * body.count(";")
    alone = run(kernel(body), 16, 256, [], order="ascending")
    assert 7 * many < alone <= 8 * many
