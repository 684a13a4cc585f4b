"""Jumps lead an address through a loop nest, and words hold them; flags tell which loops reduce."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.errors import IsaError
from tilewright.isa.configuration import DEFAULT, Memory
from tilewright.isa.encoding import decode, encode, word_bytes
from tilewright.isa.fields import pack
from tilewright.isa.instructions import FAMILIES, Gemm, Loop, Store
from tilewright.isa.instructions.loops import nest_addresses, nest_jumps

NESTS = st.lists(st.tuples(st.integers(1, 4), st.integers(-20, 20)), max_size=5)


@given(st.integers(-100, 100), NESTS)
def test_an_address_moves_by_the_jump_of_the_level_that_steps(base, loops):
    jumps = nest_jumps(loops)
    indices = list(itertools.product(*(range(extent) for extent, _ in loops)))
    addresses = [base]
    for before, after in itertools.pairwise(indices):
        steps = next(level for level in range(len(loops)) if before[level] != after[level])
        addresses.append(addresses[-1] + jumps[steps])
    assert addresses == nest_addresses(base, tuple(loops)).tolist()


@st.composite
def stores(draw):
    """Any STOREs, legal or not."""
    bits = {name: Store.base_bits(name, DEFAULT) for name in ("local", "memory")}
    strides = st.tuples(*(st.integers(-(1 << n), (1 << n) - 1) for n in bits.values()))
    loops = draw(st.lists(st.builds(Loop, st.integers(2, 4096), strides), max_size=4))
    return Store(source=Memory.ACT, length=1, local=0, memory=0, loops=tuple(loops))


@given(stores())
def test_words_hold_the_jumps_of_the_definition(store):
    values = store.values(DEFAULT)
    for name in ("local", "memory"):
        bits = Store.base_bits(name, DEFAULT) + 1
        jumps = nest_jumps(store.nest_of(name))
        levels = range(4 - len(jumps), 4)
        held = [values[f"loops.{level}.{name}"] for level in levels]
        assert [jump % (1 << bits) for jump in jumps] == [jump % (1 << bits) for jump in held]


@given(st.data())
def test_words_with_any_jumps_have_strides(data):
    layout = Store.layout(DEFAULT)
    values = Store(source=Memory.ACT, length=1, local=0, memory=0).values(DEFAULT)
    for field in layout:
        if field.name.startswith("loops."):
            low = field.low + field.name.endswith(".extent")
            values[field.name] = data.draw(st.integers(low, field.high))
    code = pack(layout, values).to_bytes(word_bytes(DEFAULT), "little")
    assert encode(decode(code, DEFAULT), DEFAULT) == code


@pytest.mark.parametrize("family", FAMILIES)
def test_the_nests_that_move_an_operand_are_the_outermost_ones(family):
    """Otherwise an address generator would need jumps for loops that do not move the operand."""
    for operand in family.operands:
        moves = [operand.name in moved for moved in family.nests.values()]
        assert moves == sorted(moves, reverse=True)


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
