"""The programs that step each level alone do so at every level, and something moves with it."""

from itertools import combinations

from tilewright.flows.verify.mutation.loops import lonely_loops
from tilewright.flows.verify.mutation.runs import encode_loosely
from tilewright.isa.configuration import PRESETS
from tilewright.isa.encoding import word_bytes
from tilewright.isa.fields import unpack
from tilewright.isa.instructions import Gemm, Loop

TINY = PRESETS["tiny"]
TILES = TINY.wgt_depth // TINY.lanes_in


def tile_levels(program, seed=3) -> list[tuple[int, ...]]:
    """Levels at which the tile loops of each GEMM stand, in order."""
    code, size = encode_loosely(program, TINY, seed), word_bytes(TINY)
    found = []
    for number, instruction in enumerate(program):
        if isinstance(instruction, Gemm):
            word = int.from_bytes(code[number * size :][:size], "little")
            values = unpack(Gemm.layout(TINY), word)
            levels = range(TINY.tile_loops)
            found.append(tuple(n for n in levels if values[f"tile_loops.{n}.extent"] > 1))
    return found


def test_a_repeated_nest_stands_at_every_choice_of_levels():
    for count in (1, 2):
        choices = list(combinations(range(TINY.tile_loops), count))
        gemm = Gemm(act=0, wgt=0, acc=0, tile_loops=(Loop(2, (0, 1, 0)),) * count)
        assert sorted(tile_levels([gemm] * len(choices))) == choices


def test_every_level_of_tiles_is_stepped_alone_while_tiles_differ():
    named = lonely_loops(TINY, 4)
    program, _ = next(found for name, found in named if name == "lonely loops of gemm")
    gemms = [instruction for instruction in program if isinstance(instruction, Gemm)]
    met = set()
    for gemm, levels in zip(gemms, tile_levels(program), strict=True):
        if len(levels) == 1 and gemm.tile_loops[0].strides[1]:
            met.add((gemm.tile_loops[0].extent, *levels))
    extents = [(1 << bit) + more for bit in range(TINY.extent_bits) for more in (1, 2)]
    legal = {extent for extent in extents if extent <= TILES}
    assert met >= {(extent, level) for extent in legal for level in range(TINY.tile_loops)}
