"""Overlaps and banks are exact: compared with sets of bytes, written out."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.flows.verify.programs.random_programs import random_program
from tilewright.isa.configuration import DEFAULT, PRESETS, Memory
from tilewright.isa.encoding import encode
from tilewright.isa.footprints import (
    EXACT_RUNS,
    bank_bit,
    bank_mask,
    conflicts,
    explain_conflict,
    footprint,
    intervals,
    last_conflict,
    normalise,
    region,
    regions_meet,
    regions_share_a_row,
)
from tilewright.isa.instructions import (
    Access,
    Combine,
    Gemm,
    Halt,
    Load,
    Loop,
    Store,
    Sync,
    Unit,
    Vector,
)

TINY = PRESETS["tiny"]

loops = st.lists(st.tuples(st.integers(2, 5), st.integers(-40, 40)), max_size=4).map(tuple)
accesses = st.builds(
    Access,
    st.just("x"),
    st.just(Memory.ACT),
    st.booleans(),
    st.integers(0, 200),
    st.integers(1, 20),
    loops,
)


def overlap(one: Access, other: Access) -> bool:
    return regions_meet(region(one, TINY), region(other, TINY))


def touched(access: Access) -> set[int]:
    """All bytes, the slow way."""
    return {s + i for s in access.starts().tolist() for i in range(access.length)}


@given(one=accesses, other=accesses)
def test_overlap_equals_the_meeting_of_byte_sets(one, other):
    assert overlap(one, other) == bool(touched(one) & touched(other))
    assert overlap(one, other) == overlap(other, one)


@given(one=accesses, other=accesses, row=st.sampled_from([1, 4, 16]))
def test_rows_are_shared_where_the_touched_bytes_have_a_row_in_common(one, other, row):
    regions = [region(access, TINY)._replace(row=row) for access in (one, other)]
    rows = [{byte // row for byte in touched(access)} for access in (one, other)]
    assert regions_share_a_row(*regions) == bool(rows[0] & rows[1])
    assert regions_share_a_row(*regions[::-1]) == bool(rows[0] & rows[1])


@given(access=accesses)
def test_intervals_cover_the_bytes_and_no_others(access):
    place = region(access, TINY)
    spread = intervals(place.shape)
    assert spread is not None
    covered = {
        place.low + byte
        for start, end in zip(*(edge.tolist() for edge in spread), strict=True)
        for byte in range(start, end)
    }
    assert covered == touched(access)
    assert np.all(spread[0][1:] > spread[1][:-1])
    assert (place.low, place.high) == (min(covered), max(covered))


@given(length=st.integers(1, 20), nest=loops)
def test_a_shape_is_its_own_normal_form(length, nest):
    shape = normalise(length, nest)
    assert normalise(*shape) == shape


def test_tiles_that_fill_a_block_are_one_run():
    assert normalise(16, ((8, 160), (10, 16))) == (1280, ())
    assert normalise(16, ((3, -16), (2, 48))) == (96, ())
    assert normalise(4, ((6, 100), (10, 10))) == (4, ((60, 10),))


def test_different_memories_never_overlap():
    one = Access("a", Memory.ACT, True, 0, 100, ())
    assert not overlap(one, Access("b", Memory.ACC, True, 0, 100, ()))


def test_interleaved_columns_of_a_large_memory_do_not_overlap():
    one = Access("a", Memory.DRAM, True, 1 << 31, 64, ((3000, 128), (200, 1 << 20)))
    other = Access("b", Memory.DRAM, False, (1 << 31) + 64, 64, ((3000, 128), (200, 1 << 20)))
    assert not overlap(one, other)
    assert overlap(one, Access("b", Memory.DRAM, False, (1 << 31) + 63, 64, ((3000, 128),)))


def test_more_runs_than_are_examined_count_as_everything_between():
    holes = ((4096, 4), (4096, 1 << 16))
    many = Access("a", Memory.DRAM, True, 0, 1, holes)
    assert intervals(region(many, TINY).shape) is None
    assert EXACT_RUNS < 4096 * 4096
    assert overlap(many, Access("b", Memory.DRAM, False, 2, 1, ()))
    behind = region(many, TINY).high + 1
    assert not overlap(many, Access("b", Memory.DRAM, False, behind, 1, ()))


@given(base=st.integers(0, 60), length=st.integers(1, 20), nest=loops)
def test_banks_are_those_of_the_touched_bytes(base, length, nest):
    access = Access("x", Memory.ACT, True, base, length, nest)
    if access.low < 0:
        return
    bank_bytes = TINY.bank_bytes(Memory.ACT)
    banks = {byte // bank_bytes for byte in touched(access)}
    assert bank_mask(region(access, TINY), TINY) == sum(1 << bank for bank in banks)


@pytest.mark.parametrize("configuration", PRESETS.values(), ids=PRESETS)
def test_bits_of_banks_do_not_collide(configuration):
    bits = [0]
    for memory in Memory:
        if memory is not Memory.DRAM:
            first = bank_bit(memory, configuration)
            bits += range(first, first + configuration.banks(memory))
    assert bank_bit(Memory.DRAM, configuration) == 0
    assert len(set(bits)) == len(bits)


ACT_BANK = DEFAULT.bank_bytes(Memory.ACT)
ACT_ROWS = DEFAULT.act_depth
FILL = Load(destination=Memory.ACT, fill=True, length=64, local=0)
SAVE = Store(source=Memory.ACT, length=64, local=0, memory=0)

CASES = [
    (
        "a write before a read of the same bytes",
        FILL,
        Gemm(act=3, wgt=0, acc=0),
        "the first writes (`local`) what the second reads (`act`) among bytes 48 to 63 of ACT",
    ),
    (
        "a read before a write of the same bytes",
        Gemm(act=3, wgt=0, acc=0),
        FILL,
        "the first reads (`act`) what the second writes (`local`) among bytes 48 to 63 of ACT",
    ),
    (
        "two writes of the same bytes",
        FILL,
        Vector(dst=3, a=0, a_from_acc=True),
        "the first writes (`local`) what the second writes (`dst`) among bytes 48 to 63 of ACT",
    ),
    ("another row of the same bank", FILL, Gemm(act=4, wgt=0, acc=0), None),
    (
        "other bytes of the same row",
        Load(destination=Memory.ACT, fill=True, length=15, local=33),
        Store(source=Memory.ACT, length=1, local=32, memory=0),
        "the first writes (`local`) and the second reads (`local`) bytes of one row, among rows 2 "
        "to 2 of ACT",
    ),
    (
        "two writers of one bank",
        FILL,
        Vector(dst=4, a=0, a_from_acc=True),
        "both need the write port of ACT bank 0",
    ),
    ("writers of two banks", FILL, Vector(dst=ACT_ROWS, a=0, a_from_acc=True), None),
    (
        "two readers of one bank",
        SAVE,
        Gemm(act=4, wgt=0, acc=0),
        "both need the read port of ACT bank 0",
    ),
    ("readers of two banks", SAVE, Gemm(act=ACT_ROWS, wgt=0, acc=0), None),
    (
        "GEMM reads the accumulators that it overwrites",
        Gemm(act=0, wgt=0, acc=0),
        Vector(dst=ACT_ROWS, a=1, a_from_acc=True),
        "both need the read port of ACC bank 0",
    ),
    (
        "VECTOR's second operand",
        SAVE,
        Vector(dst=ACT_ROWS, a=0, a_from_acc=True, b=9, combine=Combine.ADD),
        "both need the read port of ACT bank 0",
    ),
    (
        "an operand that is not combined is not read",
        SAVE,
        Vector(dst=ACT_ROWS, a=0, a_from_acc=True, b=9),
        None,
    ),
    (
        "a table that is looked up",
        Load(destination=Memory.LUT, fill=True, length=1, local=511),
        Vector(dst=0, a=0, lookup=True, table=1),
        "the first writes (`local`) what the second reads (`table`) among bytes 511 to 511 of LUT",
    ),
    (
        "another table",
        Load(destination=Memory.LUT, fill=True, length=1, local=255),
        Vector(dst=0, a=0, lookup=True, table=1),
        None,
    ),
    (
        "a table that a result for ACC does not pass",
        Load(destination=Memory.LUT, fill=True, length=1, local=511),
        Vector(dst=0, a=0, lookup=True, table=1, to_acc=True),
        None,
    ),
    (
        "parameters",
        Load(destination=Memory.PARAM, fill=True, length=1, local=128),
        Vector(dst=0, a=0, bias=True, param=1),
        "the first writes (`local`) what the second reads (`param`) among bytes 128 to 128 of "
        "PARAM",
    ),
    (
        "memory written and read back",
        SAVE,
        Load(destination=Memory.WGT, length=16, memory=63, local=0),
        "the first writes (`memory`) what the second reads (`memory`) among bytes 63 to 63 of DRAM",
    ),
    ("memory beside", SAVE, Load(destination=Memory.WGT, length=16, memory=64, local=0), None),
    (
        "a fill reads no memory",
        SAVE,
        Load(destination=Memory.WGT, fill=True, length=16, local=0),
        None,
    ),
    ("instructions of one unit", FILL, Load(destination=Memory.ACT, length=9, local=0), None),
    ("SYNC", Sync(target=Unit.STORE), FILL, None),
    ("HALT", FILL, Halt(), None),
]


@pytest.mark.parametrize(
    ("earlier", "later", "reason"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_conflicts_are_found_and_explained(earlier, later, reason):
    assert conflicts(earlier, later, DEFAULT) == (reason is not None)
    assert explain_conflict(earlier, later, DEFAULT) == reason
    assert conflicts(later, earlier, DEFAULT) == (reason is not None)


def test_a_footprint_has_a_bit_for_each_bank():
    both = Load(
        destination=Memory.ACT, length=2, memory=5, local=ACT_BANK - 1, loops=(Loop(2, (0, 0)),)
    )
    here = footprint(both, DEFAULT)
    first = bank_bit(Memory.ACT, DEFAULT)
    assert (here.unit, here.reads, here.writes) == (Unit.LOAD, 1, 0b11 << first)


@pytest.mark.parametrize("seed", range(20))
def test_a_moved_copy_is_encoded_and_touches_bytes_as_if_it_were_made_anew(seed):
    program, _ = random_program(TINY, seed)
    for instruction in program:
        encode(instruction, TINY)  # finds what its copies share
        footprint(instruction, TINY)
        bases = {operand.name: 1 for operand in instruction.operands}
        if isinstance(instruction, Load) and instruction.fill:
            del bases["memory"]
        copy = instruction.moved(bases).with_tokens(frozenset(), frozenset())
        anew = replace(instruction, **bases, wait=frozenset(), signal=frozenset())
        assert copy == anew
        for machine in (TINY, TINY.replace(act_depth=2 * TINY.act_depth)):
            assert encode(copy, machine) == encode(anew, machine)
            assert footprint(copy, machine) == footprint(anew, machine)


@pytest.mark.parametrize("seed", range(20))
def test_the_last_conflict_is_that_of_all_pairs(seed):
    program, _ = random_program(TINY, seed)
    for index, later in enumerate(program):
        earlier = [one for one in program[:index] if one.home is not later.home]
        found = last_conflict([footprint(one, TINY) for one in earlier], 0, footprint(later, TINY))
        at = [at for at, one in enumerate(earlier) if explain_conflict(one, later, TINY)]
        assert found == (at[-1] if at else None)
