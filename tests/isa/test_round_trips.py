"""Layouts are consistent; words and assembly lines come back as they were, for every family."""

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.errors import IsaError
from tilewright.flows.verify.programs.random_configurations import EXTRA_OPERATIONS
from tilewright.isa.assembly import (
    format_instruction,
    format_program,
    parse_instruction,
    parse_program,
)
from tilewright.isa.configuration import DEFAULT, PRESETS, Memory
from tilewright.isa.encoding import (
    BY_OPCODE,
    decode,
    decode_program,
    encode,
    encode_program,
    word_bytes,
)
from tilewright.isa.fields import Field, pack, unpack, width
from tilewright.isa.instructions import (
    FAMILIES,
    Gemm,
    Halt,
    Load,
    Loop,
    Store,
    Sync,
    Unit,
    Vector,
)
from tilewright.isa.vector_operations import Operation

CONFIGURATIONS = [
    *PRESETS.values(),
    DEFAULT.replace(name="most loops", tile_loops=6, row_loops=4, map_loops=6, reduce_loops=4),
    DEFAULT.replace(name="least loops", tile_loops=1, row_loops=1, map_loops=1, dma_loops=1),
    DEFAULT.replace(name="no taps", depthwise_taps=0),
    DEFAULT.replace(name="packed weights", packed_weights="int4"),
    DEFAULT.replace(name="transposed weights", transposed_weights="int8"),
    DEFAULT.replace(name="row statistics", row_statistics="all"),
    DEFAULT.replace(name="more operations", extra_operations=EXTRA_OPERATIONS),
]
MEANINGFUL = {("halt", "wait"): 0, ("halt", "signal"): 0, ("vector", "statistic"): 4}
"""Greatest code that means something, where that is not the field's greatest value."""


def anything(low, high):
    return st.sampled_from((low, high)) | st.integers(low, high)


@st.composite
def encodable(draw, family, configuration):
    """Any instruction that the configuration can encode, legal or not."""
    values = {}
    for field in family.layout(configuration):
        high = MEANINGFUL.get((family.mnemonic, field.name), field.high)
        if field.name == "combine":
            high = len(configuration.operations) - 1
        # Flags of loops follow from the strides.
        alone = field.name.endswith(".extent")
        values[field.name] = 1 if alone else draw(anything(field.low, high))
    values["opcode"] = family.opcode
    nests = {
        nest: tuple(
            Loop(
                draw(anything(level.extent.low, level.extent.high)),
                tuple(draw(anything(-half, half - 1) | st.just(0)) for _, _, half in level.jumps),
            )
            for level in levels
        )
        for nest, levels in family.loop_fields(configuration).nests.items()
    }
    return replace(family.from_values(values, configuration), **nests)


def test_opcodes_and_mnemonics_are_unique():
    assert sorted(BY_OPCODE) == sorted(family.opcode for family in FAMILIES)
    assert len(BY_OPCODE) == len(FAMILIES) == len({family.mnemonic for family in FAMILIES})
    assert all(0 < opcode < 16 for opcode in BY_OPCODE)


def needless(configuration) -> Iterator[str]:
    """Fields without bits, since there is nothing to choose."""
    if configuration.lut_tables == 1:
        yield "table"
    if not configuration.depthwise_taps:
        yield "depthwise"
    if not configuration.depthwise_taps or configuration.lanes_in <= configuration.lanes_out:
        yield "part"


@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=lambda c: c.name)
def test_layouts_are_consistent(configuration):
    size = word_bytes(configuration)
    assert size % 32 == 0
    assert size * 8 >= max(width(family.layout(configuration)) for family in FAMILIES)
    for family in FAMILIES:
        layout = family.layout(configuration)
        names = [field.name for field in layout]
        assert len(set(names)) == len(names)
        assert [(f.name, f.bits) for f in layout[:3]] == [
            ("opcode", 4),
            ("wait", 3),
            ("signal", 3),
        ]
        assert {field.name for field in layout if not field.bits} <= set(needless(configuration))
        for nest, moved in family.nests.items():
            for level in range(family.levels(nest, configuration)):
                assert f"{nest}.{level}.extent" in names
                for operand in moved:
                    jump = next(f for f in layout if f.name == f"{nest}.{level}.{operand}")
                    base = next(f for f in layout if f.name == operand)
                    assert jump.signed
                    assert jump.bits == base.bits + 1


@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=lambda c: c.name)
def test_every_address_of_every_memory_can_be_encoded(configuration):
    for family, operand, memory, granules in (
        (Gemm, "act", Memory.ACT, 1),
        (Gemm, "wgt", Memory.WGT, configuration.lanes_in),
        (Gemm, "acc", Memory.ACC, 1),
        (Vector, "param", Memory.PARAM, 1),
    ):
        bits = family.base_bits(operand, configuration)
        assert 1 << bits >= configuration.rows(memory) // granules
    for family in (Load, Store):
        for memory in (Memory.ACT, Memory.WGT, Memory.PARAM, Memory.LUT, Memory.ACC):
            bits = family.base_bits("local", configuration)
            assert 1 << bits >= configuration.size_bytes(memory)


@given(data=st.data())
def test_words_come_back_as_the_instruction(data):
    configuration = data.draw(st.sampled_from(CONFIGURATIONS))
    instruction = data.draw(encodable(data.draw(st.sampled_from(FAMILIES)), configuration))
    word = encode(instruction, configuration)
    assert len(word) == word_bytes(configuration)
    assert decode(word, configuration) == instruction
    assert encode(decode(word, configuration), configuration) == word


@given(data=st.data())
def test_lines_come_back_as_the_instruction(data):
    configuration = data.draw(st.sampled_from(CONFIGURATIONS))
    instruction = data.draw(encodable(data.draw(st.sampled_from(FAMILIES)), configuration))
    assert parse_instruction(format_instruction(instruction), configuration) == instruction


@given(data=st.data())
def test_padding_is_ignored(data):
    configuration = data.draw(st.sampled_from(CONFIGURATIONS))
    family = data.draw(st.sampled_from(FAMILIES))
    instruction = data.draw(encodable(family, configuration))
    word = int.from_bytes(encode(instruction, configuration), "little")
    used, size = width(family.layout(configuration)), word_bytes(configuration)
    assert word >> used == 0
    padding = data.draw(st.integers(0, (1 << (8 * size - used)) - 1))
    padded = (word | padding << used).to_bytes(size, "little")
    assert decode(padded, configuration) == instruction


@given(bits=st.integers(1, 20), signed=st.booleans(), offset=st.integers(0, 1), value=st.integers())
def test_a_field_takes_its_range_and_nothing_else(bits, signed, offset, value):
    field = Field("f", bits, signed, offset)
    if field.low <= value <= field.high:
        assert unpack([field], pack([field], {"f": value})) == {"f": value}
    else:
        with pytest.raises(IsaError) as refusal:
            pack([field], {"f": value})
        assert str(refusal.value) == (
            f"field `f`: {value} does not fit {bits} bits; expected {field.low} to {field.high}"
        )


OUT_OF_RANGE = [
    (
        Gemm(act=8192, wgt=0, acc=0),
        "gemm: field `act`: 8192 does not fit 13 bits; expected 0 to 8191",
    ),
    (
        Gemm(act=0, wgt=0, acc=0, row_loops=(Loop(4097, (0, 0)),)),
        "gemm: field `row_loops.1.extent`: 4097 does not fit 12 bits; expected 1 to 4096",
    ),
    (
        Gemm(act=0, wgt=0, acc=0, tile_loops=(Loop(2, (0, 256, 0)),)),
        "gemm: field `tile_loops.3.wgt`: 256 does not fit 9 bits; expected -256 to 255",
    ),
    (
        Load(destination=Memory.ACT, length=131073, local=0),
        "load: field `length`: 131073 does not fit 17 bits; expected 1 to 131072",
    ),
    (
        Load(destination=Memory.ACT, length=0, local=0),
        "load: field `length`: 0 does not fit 17 bits; expected 1 to 131072",
    ),
    (
        Load(destination=Memory.ACT, fill=True, value=256, length=1, local=0),
        "load: field `value`: 256 does not fit 8 bits; expected 0 to 255",
    ),
    (
        Store(source=Memory.ACT, length=1, local=0, memory=1 << 32),
        "store: field `memory`: 4294967296 does not fit 32 bits; expected 0 to 4294967295",
    ),
    (
        Vector(dst=0, a=0, zero_point=128),
        "vector: field `zero_point`: 128 does not fit 8 bits; expected -128 to 127",
    ),
    (
        Vector(dst=0, a=0, a_multiplier=-32769),
        "vector: field `a_multiplier`: -32769 does not fit 16 bits; expected -32768 to 32767",
    ),
    (
        Vector(dst=0, a=0, lookup=True, table=2),
        "vector: field `table`: 2 does not fit 1 bits; expected 0 to 1",
    ),
    (
        Gemm(act=0, wgt=0, acc=0, row_loops=(Loop(2, (1, 1)),) * 3),
        "gemm: 3 loops in `row_loops`; configuration `16x16` has 2 levels",
    ),
    (
        Gemm(depthwise=True, part=1, act=0, wgt=0, acc=0),
        "gemm: field `part`: 1 does not fit 0 bits; expected 0 to 0",
    ),
]


@pytest.mark.parametrize(("instruction", "message"), OUT_OF_RANGE)
def test_a_field_out_of_range_is_named_with_its_range(instruction, message):
    with pytest.raises(IsaError) as refusal:
        encode_program([Halt(), instruction], DEFAULT)
    assert str(refusal.value) == f"instruction 1: {message}"


WRONG_WORDS = [
    (
        b"\1",
        "program of 1 bytes is not a whole number of 64-byte words; it is truncated or "
        "was built for another configuration",
    ),
    (bytes(64), "instruction 0: instruction word: opcode 0 is not one of [1, 2, 3, 4, 5, 6]"),
    (
        b"\x0f" + bytes(63),
        "instruction 0: instruction word: opcode 15 is not one of [1, 2, 3, 4, 5, 6]",
    ),
    (b"\x03\x70" + bytes(62), "instruction 0: vector: unknown `combine` code 7"),
    (b"\x16" + bytes(63), "instruction 0: halt cannot wait or signal"),
]


@pytest.mark.parametrize(("code", "message"), WRONG_WORDS)
def test_a_word_that_means_nothing_is_refused(code, message):
    with pytest.raises(IsaError) as refusal:
        decode_program(code, DEFAULT)
    assert str(refusal.value) == message


def test_a_word_of_the_wrong_length_is_refused():
    with pytest.raises(IsaError) as refusal:
        decode(bytes(32), DEFAULT)
    assert str(refusal.value) == "instruction word: expected 64 bytes, got 32"


def test_loops_that_do_nothing_are_dropped_so_that_equal_meanings_are_equal():
    idle = Gemm(act=1, wgt=2, acc=3, row_loops=(Loop(1, (5, 6)),), tile_loops=(Loop(1, (1, 1, 1)),))
    assert idle == Gemm(act=1, wgt=2, acc=3)
    assert Gemm(act=1, wgt=2, acc=3, part=1) == Gemm(act=1, wgt=2, acc=3)
    fill = Load(destination=Memory.ACT, fill=True, value=3, length=4, memory=77, local=0)
    assert fill == Load(destination=Memory.ACT, fill=True, value=3, length=4, local=0)


IMPOSSIBLE = [
    (lambda: Loop(0, (1,)), "loop extent must be at least 1, got 0"),
    (lambda: Load(destination=Memory.ACC, length=1, local=0), "load: `destination` cannot be ACC"),
    (
        lambda: Store(source=Memory.WGT, length=1, local=0, memory=0),
        "store: `source` cannot be WGT",
    ),
    (
        lambda: Gemm(act=0, wgt=0, acc=0, wait=frozenset({Unit.GEMM})),
        "gemm: `wait` names the instruction's own unit",
    ),
    (
        lambda: Sync(target=Unit.LOAD, signal=frozenset({Unit.LOAD})),
        "sync: `signal` names the instruction's own unit",
    ),
    (lambda: Halt(wait=frozenset({Unit.GEMM})), "halt cannot wait or signal"),
    (
        lambda: Gemm(act=0, wgt=0, acc=0, row_loops=(Loop(2, (1,)),)),
        "gemm: a loop of `row_loops` needs 2 strides (act, acc), got 1",
    ),
    (
        lambda: Vector(dst=0, a=0, combine=cast(Operation, 5)),
        "vector: `combine` must be an operation, such as `Combine.ADD` or one of "
        "`Configuration.operations`, not 5",
    ),
]


@pytest.mark.parametrize(("build", "message"), IMPOSSIBLE)
def test_an_instruction_that_cannot_exist_is_refused(build, message):
    with pytest.raises(IsaError) as refusal:
        build()
    assert str(refusal.value) == message


def test_text_reads_as_the_manual_shows_it():
    text = """
    # a comment
    LOAD destination=act fill value=0x80 length=16 local=0 loop[9: local 160]  # padding
    gemm act=0 wgt=0 acc=0 accumulate tile[3: act 1, wgt 1] row[7: act 2, acc -1] wait=load,vector
    halt
    """
    assert parse_program(text) == (
        Load(
            destination=Memory.ACT,
            fill=True,
            value=128,
            length=16,
            local=0,
            loops=(Loop(9, (0, 160)),),
        ),
        Gemm(
            act=0,
            wgt=0,
            acc=0,
            accumulate=True,
            tile_loops=(Loop(3, (1, 1, 0)),),
            row_loops=(Loop(7, (2, -1)),),
            wait=frozenset({Unit.LOAD, Unit.VECTOR}),
        ),
        Halt(),
    )


def test_comments_stand_above_their_instruction():
    program = (Sync(target=Unit.GEMM, signal=frozenset({Unit.LOAD})), Halt())
    text = format_program(program, {1: "layer `conv1`\nlast tile"})
    assert text == "sync target=gemm signal=load\n# layer `conv1`\n# last tile\nhalt\n"
    assert parse_program(text) == program


ENDS = {each.name for each in fields(Sync)} - {"target"}
"""`wait` and `signal`, which stand behind the fields of an instruction."""

GEMM_FIELDS = ", ".join(
    [each.name for each in fields(Gemm) if each.name not in ENDS and "loops" not in each.name]
)

WRONG_LINES = [
    ("mul a=1", "unknown mnemonic `mul`; expected one of load, gemm, vector, store, sync, halt"),
    ("gemm act=0 wgt=1", "gemm: field `acc` is missing; add `acc=...`"),
    ("gemm act=0 act=1", "gemm: `act` is given twice"),
    ("gemm act=1.5", "field `act`: expected a whole number, got `1.5`"),
    ("gemm act", "field `act`: expected a whole number, got ``"),
    (
        "halt bct=1",
        "halt: unknown field `bct`; expected one of wait, signal",
    ),
    (
        "gem act=0",
        "unknown mnemonic `gem`; expected one of load, gemm, vector, store, sync, halt; "
        "did you mean `gemm`?",
    ),
    (
        "gemm act=0 signal=vectors",
        "field `signal`: unknown value `vectors`; expected one of load, "
        "gemm, vector, store; did you mean `vector`?",
    ),
    (
        "gemm bct=1",
        f"gemm: unknown field `bct`; expected one of {GEMM_FIELDS}, wait, signal; did you mean "
        "`act`?",
    ),
    ("gemm rows[3]", "gemm: unknown loop `rows`; expected one of tile, row; did you mean `row`?"),
    ("gemm map[3]", "gemm: unknown loop `map`; expected one of tile, row"),
    ("gemm row[3: dst 1]", "loop `row`: unknown operand `dst`; expected one of act, acc"),
    ("gemm row[x]", "field `row.extent`: expected a whole number, got `x`"),
    ("gemm row[0]", "loop extent must be at least 1, got 0"),
    (
        "gemm row[3",
        "gemm: cannot read `row[3`; expected `name`, `name=value` or "
        "`name[extent: operand stride, ...]`",
    ),
    ("vector dst=0 a=0 bias=1", "flag `bias` takes no value; write the name alone or omit it"),
    (
        "vector combine=div",
        "field `combine`: unknown value `div`; expected one of a, add, mul, max, min",
    ),
    (
        "halt wait=cpu",
        "field `wait`: unknown value `cpu`; expected one of load, gemm, vector, store",
    ),
    ("halt row[2]", "halt: unknown loop `row`; expected one of none"),
]


@pytest.mark.parametrize(("line", "message"), WRONG_LINES)
def test_a_wrong_line_is_refused_with_its_number(line, message):
    with pytest.raises(IsaError) as refusal:
        parse_program(f"# first\nhalt\n{line}\n", "prog.s")
    assert str(refusal.value) == f"prog.s, line 3: {message}"


def test_a_value_without_its_field_is_answered_with_both():
    machine = PRESETS["tiny"].replace(name="mine", extra_operations=("distance = abs(a - b)",))
    for word, written in (
        ("distance", "`combine=distance`"), ("max", "`combine=max` or `reduce=max`"),
    ):  # fmt: skip
        with pytest.raises(IsaError, match=f"`{word}` is no field; write {written}$"):
            parse_program(f"vector {word} dst=8 a=0 b=2", "x.asm", machine)
