"""Places in scratchpads: arenas never overlap what is in use, regions of ACT are disjoint."""

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.compiler.accelerator.arena import ScratchpadArena
from tilewright.compiler.accelerator.regions import RegionRequest, divide_act
from tilewright.compiler.accelerator.scratchpads import Scratchpads, unit_of
from tilewright.isa.configuration import PRESETS, SCRATCHPADS, Configuration, Memory

CONFIGURATION = PRESETS["8x8"].replace(name="small-banks", act_banks=8, act_depth=16)
BANK = CONFIGURATION.bank_bytes(Memory.ACT)


@pytest.mark.parametrize("machine", PRESETS.values(), ids=list(PRESETS))
def test_every_scratchpad_but_that_of_sums_has_an_arena_over_all_of_it(machine: Configuration):
    arenas = Scratchpads.of(machine).arenas
    assert {*arenas, Memory.ACC} == {*SCRATCHPADS}
    for memory, arena in arenas.items():
        unit_bytes = unit_of(memory, machine) * memory.scratchpad.element_bytes
        assert arena.size * unit_bytes == machine.size_bytes(memory)


@st.composite
def requests(draw):
    """The size of an arena, and pieces to be placed: key, size and where."""
    size = draw(st.integers(1, 40))
    pieces = []
    for _ in range(draw(st.integers(1, 30))):
        low = draw(st.integers(0, size - 1))
        high = draw(st.integers(low + 1, size))
        within = draw(st.sampled_from([None, (low, high)]))
        most = size if within is None else high - low
        key = draw(st.sampled_from([None, "a", "b", "c"]))
        # A key tells how large its piece is, as boxes and weights do.
        wanted = draw(st.integers(1, most)) if key is None else min(most, ord(key) - ord("`"))
        pieces.append((key, wanted, within))
    return size, pieces


def take(arena: ScratchpadArena, *asked) -> tuple[int, bool]:
    """First unit of a piece, and whether it is missing; a piece that is given lives."""
    piece, missing = arena.take(*asked)
    assert piece.alive
    return piece.base, missing


@given(case=requests())
def test_a_piece_is_found_again_unless_something_was_put_over_it(case):
    """Each unit of the arena is compared with what was last written there."""
    size, pieces = case
    arena, held = ScratchpadArena(size), [object()] * size
    for key, wanted, within in pieces:
        low, high = within or (0, size)
        base, missing = take(arena, (key, wanted) if key else None, wanted, within)
        assert low <= base
        assert base + wanted <= high
        place = slice(base, base + wanted)
        if missing:
            written = (key, wanted) if key else object()
            held[place] = [written] * wanted
        else:
            assert key is not None
            assert held[place] == [(key, wanted)] * wanted


@given(case=requests())
def test_pieces_of_an_arena_never_overlap(case):
    size, pieces = case
    arena = ScratchpadArena(size)
    for key, wanted, within in pieces:
        take(arena, (key, wanted) if key else None, wanted, within)
        spans = sorted((piece.base, piece.end) for piece in arena.pieces)
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))


@given(case=requests(), row=st.sampled_from([1, 2, 3]))
def test_no_place_was_not_used_for_longer_nor_comes_before_one_as_old(case, row):
    """Every place of a region is compared, by the latest use of its units."""
    size, pieces = case
    arena, used = ScratchpadArena(size, row=row), [0] * size
    for clock, (key, wanted, within) in enumerate(pieces, 1):
        low, high = within or (0, size)
        starts = [s for s in range(low, high - wanted + 1) if s % row == 0]
        if not starts:
            continue
        base, missing = take(arena, (key, wanted) if key else None, wanted, within)
        if missing:
            assert base == min(starts, key=lambda start: max(used[start : start + wanted]))
            # What is left of a piece that something was put over is not used any more.
            covered = {piece.base: piece.end for piece in arena.pieces}
            kept = {unit for low, high in covered.items() for unit in range(low, high)}
            used = [time if unit in kept else 0 for unit, time in enumerate(used)]
        used[base : base + wanted] = [clock] * wanted


def test_the_place_that_was_not_used_for_longest_is_taken():
    arena = ScratchpadArena(9)
    assert [take(arena, key, 3)[0] for key in "abc"] == [0, 3, 6]
    assert take(arena, "a", 3) == (0, False)
    assert take(arena, "d", 3) == (3, True)
    assert take(arena, "c", 3) == (6, False)
    assert take(arena, "b", 3) == (0, True)


def test_a_piece_outside_the_region_that_is_asked_for_is_not_found():
    arena = ScratchpadArena(8)
    take(arena, "a", 2, (0, 4))
    assert take(arena, "a", 2, (4, 8)) == (4, True)
    assert take(arena, "a", 2, (0, 4)) == (0, False)


def test_pieces_begin_where_rows_do():
    """What one kernel leaves in parts of a row does not shift what the next one brings."""
    arena = ScratchpadArena(32, row=8)
    assert [take(arena, key, 6)[0] for key in "abcd"] == [0, 8, 16, 24]
    assert take(arena, "e", 12, (8, 32)) == (8, True)


def test_a_piece_without_a_key_is_always_new():
    arena = ScratchpadArena(4)
    assert take(arena, None, 2) == (0, True)
    assert take(arena, None, 2) == (2, True)
    assert take(arena, None, 2) == (0, True)


def test_a_place_among_thousands_of_pieces_is_found_in_no_time():
    """Each piece that is put into a full arena takes the place of the one put there first."""
    arena, started = ScratchpadArena(1000), time.process_time()
    assert [take(arena, key, 1)[0] for key in range(3000)] == [*range(1000)] * 3
    assert time.process_time() - started < 20


REQUESTS = st.lists(
    st.builds(
        lambda least, more: RegionRequest(least, least + more),
        st.integers(1, 3 * BANK),
        st.integers(0, 3 * BANK),
    ),
    min_size=2,
    max_size=6,
)


@given(requests=REQUESTS, may_share=st.integers(1, 2))
def test_regions_are_disjoint_large_enough_and_in_banks_of_their_own(requests, may_share):
    regions = divide_act(tuple(requests), may_share, CONFIGURATION)
    row = CONFIGURATION.row_bytes(Memory.ACT)
    if not regions:
        alone = [max(1, -(-request.least // BANK)) for request in requests]
        assert sum(alone) > CONFIGURATION.act_banks
        return
    assert len(regions) == len(requests)
    for (low, high), request in zip(regions, requests, strict=True):
        assert high - low >= request.least
        assert low % row == high % row == 0
    assert regions[0][0] == 0
    assert regions[-1][1] <= CONFIGURATION.size_bytes(Memory.ACT)
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(regions))
    banks = [set(range(low // BANK, -(-high // BANK))) for low, high in regions]
    for index, (low, _) in enumerate(regions[: len(regions) - may_share]):
        assert low % BANK == 0
        others = set().union(*banks[:index], *banks[index + 1 :])
        assert not banks[index] & others


@pytest.mark.parametrize("may_share", [1, 2])
def test_buffers_that_all_fit_alone_get_all_they_want(may_share):
    requests = (RegionRequest(BANK, 2 * BANK), RegionRequest(1, BANK), RegionRequest(5, 2 * BANK))
    regions = divide_act(requests, may_share, CONFIGURATION)
    sizes = [high - low for low, high in regions]
    assert sizes == [5 * BANK, BANK, 2 * BANK]


def test_the_last_two_share_banks_where_there_are_too_few():
    few: Configuration = CONFIGURATION.replace(act_banks=2)
    requests = (
        RegionRequest(BANK, BANK),
        RegionRequest(BANK // 4, BANK // 2),
        RegionRequest(BANK // 4, BANK // 2),
    )
    assert divide_act(requests, 1, few) == ()
    assert divide_act(requests, 2, few) == (
        (0, BANK),
        (BANK, BANK + BANK // 2),
        (BANK + BANK // 2, 2 * BANK),
    )


def test_what_something_is_put_over_is_not_alive():
    arena = ScratchpadArena(4)
    first, second = arena.take("a", 2)[0], arena.take("b", 2)[0]
    arena.clear(1, 2)
    assert (first.alive, second.alive) == (False, True)
    assert take(arena, "b", 2) == (2, False)
    assert take(arena, "a", 2) == (0, True)
