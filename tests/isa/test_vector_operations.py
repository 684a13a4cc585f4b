"""One declaration of an operation reaches everything that the contract says of VECTOR."""

import numpy as np
import pytest

from tilewright.errors import ConfigurationError, IsaError
from tilewright.flows.verify.programs.cases import ProgramCase, format_case, parse_case
from tilewright.flows.verify.programs.corners import program_corners
from tilewright.flows.verify.programs.possible_corners import possible_corners
from tilewright.flows.verify.programs.random_configurations import (
    EXTRA_OPERATIONS,
    verification_configurations,
)
from tilewright.flows.verify.programs.random_programs import random_program
from tilewright.flows.verify.programs.shrink_programs import shrink
from tilewright.isa import (
    OPERATIONS,
    PRESETS,
    Machine,
    Memory,
    Operation,
    Vector,
    check,
    decode_program,
    encode_program,
    format_program,
    parse_program,
)
from tilewright.isa.configuration import Configuration
from tilewright.isa.expressions import Affine, Call, Immediate, Literal, Op, Read, Slot, matches
from tilewright.isa.instructions import Combine, Halt, Loop, ReduceMode
from tilewright.isa.laws import ARRAYS, evaluate
from tilewright.isa.manual import manual
from tilewright.isa.patterns import PATTERNS, patterns_of
from tilewright.isa.vector_operations import NAMES, operations_with

PLAIN = PRESETS["4x4"]
MACHINE = PLAIN.replace(extra_operations=("absolute_difference = abs(a - b)",))
DIFFERENCE = MACHINE.operation("absolute_difference")
ALL = operations_with(EXTRA_OPERATIONS)


def test_the_operations_of_every_machine_keep_their_codes():
    assert [str(operation) for operation in OPERATIONS] == [
        "a = a",
        "add = a * a_multiplier + b * b_multiplier",
        "mul = wrap(a, 18) * b",
        "max = max(a, b)",
        "min = min(a, b)",
    ]
    assert PLAIN.operations == OPERATIONS
    assert MACHINE.operations == (*OPERATIONS, DIFFERENCE)


@pytest.mark.parametrize("operation", ALL, ids=lambda operation: operation.name)
def test_the_two_products_sum_to_the_law(operation):
    chance = np.random.default_rng(0)
    wide = chance.integers(-(1 << 31), 1 << 31, 3000) >> chance.integers(0, 32, 3000)
    values = {
        "a": wide.astype(np.int32),
        "b": chance.integers(-128, 128, 3000).astype(np.int32),
        "a_multiplier": chance.integers(-(1 << 15), 1 << 15, 3000).astype(np.int32),
        "b_multiplier": chance.integers(-(1 << 15), 1 << 15, 3000).astype(np.int32),
    }
    from_acc = {**values, "a_multiplier": np.ones(3000, np.int32)}
    from_act = {**values, "a": values["b"][::-1]}
    for case in (from_acc, from_act):
        total = np.zeros(3000, np.int32)
        for (left, right), bits in zip(operation.products, (18, 8), strict=True):
            factors = [evaluate(tree, case, ARRAYS) for tree in (left, right)]
            passes = np.all(factors[1] == 1)
            for factor, width in zip(factors, (32 if passes else bits, 16), strict=True):
                assert np.all(np.abs(factor.astype(np.int64) * 2 + 1) < 1 << width)
            total = total + factors[0] * factors[1]
        np.testing.assert_array_equal(total, evaluate(operation.tree, case, ARRAYS))


REFUSED = [
    ("difference", "operation `difference`: expected `name = law`"),
    (
        "Difference = a - b",
        "operation `Difference`: a name is a lower-case letter, then lower-case letters, digits "
        "and `_`",
    ),
    ("max = a - b", "operation `max`: name already taken; choose another"),
    ("other = b", "operation `other`: `b`: the law must reference `a`"),
    (
        "cube = a * b * b",
        "operation `cube`: `a * b * b` is not a sum of two products that fit a lane, one of 18 by "
        "16 bits, one of 8 by 16; limit the factors with `min` and `max` or take their low bits "
        "with `wrap(x, 18)`, and multiply only by numbers inside them",
    ),
    (
        "unknown = a + c",
        "operation `unknown`: law `a + c`: unknown name `c`; known are a, b, a_multiplier, "
        "b_multiplier",
    ),
]


@pytest.mark.parametrize(("text", "sentence"), REFUSED)
def test_a_machine_with_an_impossible_operation_is_refused(text, sentence):
    with pytest.raises(ConfigurationError) as refusal:
        PLAIN.replace(extra_operations=(text,))
    assert str(refusal.value) == f"configuration `4x4`: `extra_operations`: {sentence}"


def test_a_factor_must_fit_its_multiplier():
    with pytest.raises(IsaError, match="is not a sum of two products"):
        Operation("square", "a * a")
    square = Operation("square", "wrap(a, 18) * min(max(a, 0), 255)")
    assert square.products[0][1] != Literal(1)


def test_other_kinds_of_lists_are_refused():
    for value in ("absolute_difference = abs(a - b)", (3,), None):
        with pytest.raises(ConfigurationError, match="must be a list of strings `name = law`"):
            PLAIN.replace(extra_operations=value)


def test_as_many_operations_as_there_are_codes():
    many = tuple(f"op{n} = a + {n}" for n in range(11))
    crowded = PLAIN.replace(extra_operations=many)
    (last,) = decode_program(
        encode_program([Vector(dst=0, a=0, combine=crowded.operations[15])], crowded), crowded
    )
    assert isinstance(last, Vector)
    assert last.combine.name == "op10"
    with pytest.raises(ConfigurationError, match="12 extra operations; expected at most 11"):
        PLAIN.replace(extra_operations=(*many, "more = a + 99"))


def test_the_hash_covers_the_laws_and_their_order():
    texts = ("one = a - b", "two = a & b")
    machines = [
        PLAIN,
        PLAIN.replace(extra_operations=texts[:1]),
        PLAIN.replace(extra_operations=texts),
        PLAIN.replace(extra_operations=texts[::-1]),
        PLAIN.replace(extra_operations=("one = b - a",)),
        PLAIN.replace(extra_operations=("first = a - b",)),
    ]
    assert len({machine.hash for machine in machines}) == len(machines)
    spaced = PLAIN.replace(extra_operations=["one=a  -  (b)"])
    assert spaced == machines[1]
    assert spaced.hash == machines[1].hash
    assert machines[1].differences(PLAIN) == "`extra_operations` one = a - b against none"


def test_a_configuration_with_operations_is_read_back_as_written(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(MACHINE.to_json())
    values = {"name": MACHINE.name, **MACHINE.parameters()}
    assert Configuration.from_dict(values) == MACHINE


def test_an_unknown_operation_is_refused_with_the_known_ones():
    with pytest.raises(ConfigurationError) as refusal:
        PLAIN.operation("absolute_difference")
    assert str(refusal.value) == (
        "configuration `4x4` has no operation `absolute_difference`; it has a, add, mul, max, min; "
        "declare it in `extra_operations`"
    )


def test_a_machine_without_the_operation_refuses_the_program():
    program = [Vector(dst=0, a=0, b=2000, combine=DIFFERENCE), Halt()]
    sentence = (
        "configuration `4x4` has no operation `absolute_difference = abs(a - b)`; it has a = a; "
        "add = a * a_multiplier + b * b_multiplier; mul = wrap(a, 18) * b; max = max(a, b); "
        "min = min(a, b); declare it in `extra_operations`"
    )
    for attempt in (
        lambda: encode_program(program, PLAIN),
        lambda: check(program, PLAIN, 64),
    ):
        with pytest.raises(Exception, match="has no operation `absolute_difference") as refusal:
            attempt()
        assert sentence in str(refusal.value)
    code = encode_program(program, MACHINE)
    assert decode_program(code, MACHINE) == tuple(program)
    with pytest.raises(IsaError, match="instruction 0: vector: unknown `combine` code 5"):
        decode_program(code, PLAIN)
    twin = PLAIN.replace(extra_operations=("absolute_difference = max(a, b)",))
    with pytest.raises(IsaError, match="has no operation"):
        encode_program(program, twin)


def test_assembly_names_the_operation():
    program = (Vector(dst=0, a=0, b=2000, combine=DIFFERENCE),)
    text = format_program(program)
    assert text == "vector combine=absolute_difference dst=0 a=0 b=2000\n"
    assert parse_program(text, configuration=MACHINE) == program
    with pytest.raises(IsaError, match="unknown value `absolute_difference`; expected one of a,"):
        parse_program(text)
    case = ProgramCase(why="x", configuration=MACHINE, image_seed=0, data_bytes=64, program=program)
    assert parse_case(format_case(case)) == case


def test_the_manual_lists_it():
    assert "| 5 | `absolute_difference` | `abs(a - b)` |" in manual(MACHINE)
    assert "4 min, 5 absolute_difference |" in manual(MACHINE)


def test_the_definition_executes_it():
    machine = Machine(MACHINE, np.zeros(1, np.uint8))
    act = machine.memories[Memory.ACT].view(np.int8)
    act[:8], act[2048:2056] = [-128, 127, 5, 5, 1, 2, 3, 4], [127, -128, 5, 9, 4, 3, 2, 1]
    loops = (Loop(2, (1, 1)),)
    machine.execute(Vector(dst=3, a=0, b=512, combine=DIFFERENCE, to_acc=True, reduce_loops=loops))
    assert machine.memories[Memory.ACC].view(np.int32)[12:16].tolist() == [258, 256, 1, 7]


@pytest.mark.parametrize("operation", ALL, ids=lambda operation: operation.name)
def test_schedules_match_the_law_as_it_stands(operation):
    machine = PLAIN.replace(extra_operations=EXTRA_OPERATIONS)
    index = (Affine.of(c=1),)
    tree = _filled(operation.tree, {"a": Read("x", index), "b": Read("y", index)})
    vector = patterns_of(machine)[-1]
    found = [dict(match.fields) for match in matches(vector.body, tree)]
    assert operation in [fields["combine"] for fields in found]
    if operation not in OPERATIONS:
        known = [dict(match.fields) for match in matches(PATTERNS[-1].body, tree)]
        assert operation not in [fields["combine"] for fields in known]


def test_an_operand_that_stands_twice_in_a_law_is_one_tensor():
    index = (Affine.of(c=1),)
    x, y, z = (Read(name, index) for name in "xyz")
    vector = patterns_of(MACHINE)[-1]

    def difference(left: Read, right: Read) -> Call:
        return Call(Op.ADD, (left, Call(Op.MULTIPLY, (right, Literal(-1)))))

    def absolute(one: Call, other: Call) -> Call:
        return Call(Op.MAXIMUM, (one, Call(Op.MULTIPLY, (other, Literal(-1)))))

    (match,) = matches(vector.body, absolute(difference(x, y), difference(x, y)))
    assert {slot.operand: read for slot, read in match.reads} == {"a": x, "b": y}
    assert not list(matches(vector.body, absolute(difference(x, y), difference(x, z))))


def _filled(tree, reads):
    if isinstance(tree, Slot):
        return reads[tree.operand]
    if isinstance(tree, Immediate):
        return Literal(9)
    if isinstance(tree, Call):
        return Call(tree.op, tuple(_filled(part, reads) for part in tree.arguments))
    return tree


def test_random_programs_use_every_operation_and_corners_ask_for_it():
    machine = verification_configurations()["many-operations"]
    seen, met = set(), set()
    for seed in range(80):
        program, image = random_program(machine, seed)
        seen |= {one.combine for one in program if isinstance(one, Vector)}
        met |= program_corners(program, machine, image.size)
    assert seen == set(machine.operations)
    wanted = {f"vector.combine={operation.name}" for operation in machine.operations}
    assert wanted <= possible_corners(machine, 1 << 14)
    assert wanted <= met


def test_some_law_takes_a_field_for_what_it_is_and_multiplies_nothing_with_it():
    fields = ("a_multiplier", "b_multiplier")
    plain = [
        operation.name
        for operation in ALL
        if any(operation.reads(name) for name in fields)
        and not any(NAMES[name] in product for product in operation.products for name in fields)
    ]
    assert plain == ["ceiling"]


def test_shrinking_takes_the_plainest_operation():
    program = (Vector(dst=0, a=0, b=2000, combine=DIFFERENCE, reduce=ReduceMode.MAX), Halt())
    least, _ = shrink(program, MACHINE, 64, lambda other: isinstance(other[0], Vector))
    assert isinstance(least, Vector)
    assert least.combine == Combine.A
    kept, _ = shrink(program, MACHINE, 64, lambda other: DIFFERENCE in _combined(other))
    assert _combined([kept]) == [DIFFERENCE]


def _combined(program) -> list[Operation]:
    return [one.combine for one in program if isinstance(one, Vector)]
