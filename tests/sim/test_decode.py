"""Decoding in C++ gives every field of every instruction, and refuses what the decoder refuses."""

import numpy as np
import pytest

from tilewright.errors import IsaError
from tilewright.flows.verify.programs.random_programs import random_program
from tilewright.isa.configuration import PRESETS
from tilewright.isa.encoding import decode_program, encode_program, word_bytes
from tilewright.isa.instructions import FAMILIES, Gemm, Halt, Loop, Sync, Unit, Vector
from tilewright.sim.decode import COLUMNS, LEVELS, columns, decode_words

SMALL = PRESETS["4x4"]
WIDEST = PRESETS["16x16"].replace(
    tile_loops=6, row_loops=4, map_loops=6, reduce_loops=4, dma_loops=6, extent_bits=16
)
NARROWEST = PRESETS["tiny"].replace(
    tile_loops=1, row_loops=1, map_loops=1, reduce_loops=1, dma_loops=1, extent_bits=4
)


def values_with_strides(instruction, configuration) -> dict[str, int]:
    values = instruction.values(configuration)
    for nest, levels in instruction.loop_fields(configuration).nests.items():
        loops = getattr(instruction, nest)
        for level, loop in zip(levels[len(levels) - len(loops) :], loops, strict=True):
            names = (jump.field.name for jump in level.jumps)
            values.update(zip(names, loop.strides, strict=True))
    return values


@pytest.mark.parametrize("configuration", [*PRESETS.values(), WIDEST, NARROWEST])
def test_every_field_has_its_value(configuration):
    for seed in range(4):
        program, _ = random_program(configuration, seed)
        rows = decode_words(encode_program(program, configuration), configuration)
        assert rows.shape == (len(program), COLUMNS)
        for row, instruction in zip(rows, program, strict=True):
            places = columns(type(instruction))
            for name, value in values_with_strides(instruction, configuration).items():
                assert row[places[name]] == value, (instruction, name)


def test_levels_that_a_configuration_does_not_have_run_once():
    program, _ = random_program(NARROWEST, 1)
    rows = decode_words(encode_program(program, NARROWEST), NARROWEST)
    for row, instruction in zip(rows, program, strict=True):
        places = columns(type(instruction))
        for nest in instruction.nests:
            extents = [row[places[f"{nest}.{level}.extent"]] for level in range(LEVELS)]
            assert np.prod(extents) == np.prod(
                [loop.extent for loop in getattr(instruction, nest)], dtype=int
            )


def test_every_nest_has_room_for_the_most_levels():
    for family in FAMILIES:
        for nest in family.nests:
            assert family.levels(nest, WIDEST) <= LEVELS


TILES = Gemm(act=0, wgt=0, acc=0, tile_loops=(Loop(2, (0, 0, 7)), Loop(3, (0, 0, 1))))


def _code(*patches: tuple[int, int]) -> bytes:
    """SYNC, VECTOR, HALT and GEMM with bits set: `(bit of the program, value)`."""
    program = [Sync(target=Unit.LOAD), Vector(dst=0, a=0), Halt(), TILES]
    code = int.from_bytes(encode_program(program, SMALL), "little")
    for bit, value in patches:
        code |= value << bit
    return code.to_bytes(len(program) * word_bytes(SMALL), "little")


def _bit(index: int, name: str) -> int:
    """Where a field of an instruction of `_code` begins."""
    position = 8 * index * word_bytes(SMALL)
    for field in (Sync, Vector, Halt, Gemm)[index].layout(SMALL):
        if field.name == name:
            return position
        position += field.bits
    raise AssertionError(name)


@pytest.mark.parametrize(
    "code",
    [
        _code((_bit(0, "opcode"), 15)),
        _code((_bit(1, "combine"), 5)),
        _code((_bit(2, "wait"), 2)),
        _code((_bit(2, "signal"), 1), (_bit(1, "combine"), 7)),
        _code((_bit(3, "tile_loops.2.reduces"), 1)),
        _code()[:-1],
    ],
)
def test_what_the_decoder_refuses_is_refused_with_its_words(code):
    with pytest.raises(IsaError) as expected:
        decode_program(code, SMALL)
    with pytest.raises(IsaError) as refused:
        decode_words(code, SMALL)
    assert str(refused.value) == str(expected.value)


def test_an_empty_program_is_an_empty_table():
    assert decode_words(b"", SMALL).shape == (0, COLUMNS)
