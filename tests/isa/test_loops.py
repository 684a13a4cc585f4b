"""Jumps lead an address through a loop nest, and give its strides back; flags tell reductions."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.errors import IsaError
from tilewright.isa.configuration import DEFAULT
from tilewright.isa.encoding import decode, encode, word_bytes
from tilewright.isa.fields import pack
from tilewright.isa.instructions import FAMILIES, Gemm, Loop
from tilewright.isa.instructions.loops import nest_addresses, nest_jumps, nest_strides

BITS = 7


def nests(most: int, low: int, high: int):
    return st.lists(st.tuples(st.integers(1, most), st.integers(low, high)), max_size=5)


@given(st.integers(-100, 100), nests(4, -20, 20))
def test_an_address_moves_by_the_jump_of_the_level_that_steps(base, loops):
    jumps = nest_jumps(loops)
    indices = list(itertools.product(*(range(extent) for extent, _ in loops)))
    addresses = [base]
    for before, after in itertools.pairwise(indices):
        steps = next(level for level in range(len(loops)) if before[level] != after[level])
        addresses.append(addresses[-1] + jumps[steps])
    assert addresses == nest_addresses(base, tuple(loops)).tolist()


@given(nests(1 << 12, -(1 << (BITS - 1)), (1 << (BITS - 1)) - 1))
def test_strides_come_back_from_jumps_and_jumps_from_strides(loops):
    extents, numbers = [extent for extent, _ in loops], [number for _, number in loops]
    jumps = [jump % (1 << BITS) for jump in nest_jumps(loops)]
    assert nest_strides(list(zip(extents, jumps, strict=True)), BITS) == numbers
    strides = nest_strides(loops, BITS)
    again = nest_jumps(list(zip(extents, strides, strict=True)))
    assert [(jump - number) % (1 << BITS) for jump, number in zip(again, numbers, strict=True)] == [
        0
    ] * len(loops)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_nests_that_move_an_operand_are_the_outermost_ones(family):
    """Otherwise an address generator would need jumps for loops that do not move the operand."""
    for moving in family.loop_fields(DEFAULT).moving.values():
        names = [nest for nest, _ in moving]
        assert names == list(family.nests)[: len(names)]


REDUCES = Gemm(
    act=0, wgt=0, acc=0, tile_loops=(Loop(2, (1, 1, 5)), Loop(3, (9, 2, 0))),
    row_loops=(Loop(5, (1, 1)),),
)  # fmt: skip


def word(**changes: int) -> bytes:
    values = REDUCES.values(DEFAULT)
    assert set(changes) <= set(values)
    return pack(Gemm.layout(DEFAULT), values | changes).to_bytes(word_bytes(DEFAULT), "little")


def test_loops_that_reduce_have_a_flag():
    values = REDUCES.values(DEFAULT)
    assert [values[f"tile_loops.{level}.reduces"] for level in range(4)] == [0, 0, 0, 1]
    assert word() == encode(REDUCES, DEFAULT)


@pytest.mark.parametrize(("level", "flag", "stride"), [(2, 1, 5), (3, 0, 0)])
def test_a_flag_that_contradicts_the_stride_is_refused(level, flag, stride):
    with pytest.raises(IsaError) as refusal:
        decode(word(**{f"tile_loops.{level}.reduces": flag}), DEFAULT)
    assert str(refusal.value) == (
        f"gemm: `tile_loops.{level}.reduces` is {flag}, but the loop's stride of `acc` is "
        f"{stride}; expected 1 for stride 0, and 0 for any other stride"
    )


def test_the_flag_of_a_loop_of_extent_1_has_no_meaning():
    assert decode(word(**{"tile_loops.1.reduces": 1}), DEFAULT) == REDUCES
