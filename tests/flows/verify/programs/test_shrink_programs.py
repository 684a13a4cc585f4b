"""Failing programs become small ones that still fail, are legal, and can be kept as text."""

import numpy as np
import pytest

from tilewright.errors import IsaError, ProgramError
from tilewright.flows.verify.programs.adversary import execute_adversarially, first_difference
from tilewright.flows.verify.programs.cases import ProgramCase, format_case, parse_case
from tilewright.flows.verify.programs.corners import program_corners
from tilewright.flows.verify.programs.random_configurations import random_memory_parameters
from tilewright.flows.verify.programs.random_programs import random_program
from tilewright.flows.verify.programs.shrink_programs import shrink
from tilewright.isa.assembly import parse_program
from tilewright.isa.checker import check
from tilewright.isa.configuration import PRESETS, Memory
from tilewright.isa.instructions import Gemm, Halt, Load, Store, Sync, Unit, Vector
from tilewright.isa.memory_model import MemoryModel
from tilewright.isa.semantics import Machine

TINY = PRESETS["tiny"]


class ForgetsAccumulators(Machine):
    """A machine with a mistake: `accumulate` on the last ACC row overwrites."""

    def _gemm(self, gemm: Gemm) -> None:
        rows = self.view(Memory.ACC)
        if gemm.accumulate and np.any(gemm.addresses("acc") == len(rows) - 1):
            rows[-1] = 0
        super()._gemm(gemm)


def differs(program, image) -> bool:
    machines = [kind(TINY, image.copy()) for kind in (Machine, ForgetsAccumulators)]
    for machine in machines:
        machine.run(program)
    return first_difference(*machines) is not None


def first_that_fails(fails, seed: int = 0):
    """The first random program that a predicate holds for, and its image."""
    while True:
        program, image = random_program(TINY, seed)
        if fails(program):
            return program, image
        seed += 1


@pytest.mark.parametrize("seed", [0, 100, 200])
def test_a_mistake_of_a_machine_is_left_with_the_instructions_that_show_it(seed):
    program, image = random_program(TINY, seed)
    while not differs(program, image):
        seed += 1
        program, image = random_program(TINY, seed)

    def fails(candidate) -> bool:
        return differs(candidate, image)

    smallest = shrink(program, TINY, image.size, fails)
    check(smallest, TINY, image.size)
    assert differs(smallest, image)
    gemms = [instruction for instruction in smallest if isinstance(instruction, Gemm)]
    assert any(gemm.accumulate for gemm in gemms)
    assert len(smallest) <= 8 < len(program)
    assert smallest == shrink(program, TINY, image.size, fails)


def test_what_does_not_matter_becomes_plain():
    def looks_up(program) -> bool:
        return any(isinstance(i, Vector) and i.lookup for i in program)

    def copies(program) -> bool:
        return any(isinstance(i, Load) and i.length > 2 and i.loops for i in program)

    program, image = first_that_fails(looks_up)
    smallest = shrink(program, TINY, image.size, looks_up)
    assert smallest == (Vector(lookup=True, dst=0, a=0), Halt())
    program, image = first_that_fails(copies)
    (load, _) = shrink(program, TINY, image.size, copies)
    assert isinstance(load, Load)
    assert (load.length, load.memory, load.local, load.destination) == (3, 0, 0, Memory.ACT)
    assert [(loop.extent, loop.strides) for loop in load.loops] == [(2, (0, 0))]


def test_a_failure_of_tokens_keeps_the_tokens_and_nothing_else():
    def meets(program) -> bool:
        return "counter full STORE>GEMM" in program_corners(program, TINY, 1 << 14)

    program, image = first_that_fails(meets)
    smallest = shrink(program, TINY, image.size, meets)
    gives = (Unit.STORE, frozenset(), frozenset({Unit.GEMM}))
    takes = (Unit.GEMM, frozenset({Unit.STORE}), frozenset())
    assert isinstance(smallest[-1], Halt)
    units = [each.target if isinstance(each, Sync) else each.unit for each in smallest[:-1]]
    tokens = [(unit, each.wait, each.signal) for unit, each in zip(units, smallest, strict=False)]
    assert tokens == [gives] * 3 + [takes] * 3


def test_a_hazard_keeps_the_token_that_it_needs():
    def meets(program) -> bool:
        return "hazard GEMM>STORE read after write" in program_corners(program, TINY, 1 << 14)

    program, image = first_that_fails(meets)
    smallest = shrink(program, TINY, image.size, meets)
    assert [type(instruction) for instruction in smallest] == [Gemm, Store, Halt]
    assert smallest[0].signal == {Unit.STORE}
    assert smallest[1].wait == {Unit.GEMM}


def test_only_legal_programs_are_offered_and_all_orders_give_one_result():
    program, image = random_program(PRESETS["8x8"], 12)
    offered = []

    def fails(candidate) -> bool:
        check(candidate, PRESETS["8x8"], image.size)
        offered.append(candidate)
        return len(candidate) > 12

    smallest = shrink(program, PRESETS["8x8"], image.size, fails)
    assert len(smallest) == 13
    assert len(offered) > 20
    for candidate in (*offered[::40], smallest):
        expected = Machine(PRESETS["8x8"], image.copy())
        expected.run(candidate)
        got = execute_adversarially(candidate, PRESETS["8x8"], image.copy(), 1)
        assert first_difference(expected, got) is None


def test_no_more_tries_are_made_than_asked():
    program, image = random_program(TINY, 1)
    asked = []

    def fails(candidate) -> bool:
        asked.append(candidate)
        return len(candidate) > 30

    shrink(program, TINY, image.size, fails, most_tries=5)
    assert len(asked) == 6


def test_a_program_that_does_not_fail_is_refused():
    program, image = random_program(TINY, 0)
    with pytest.raises(ProgramError) as problem:
        shrink(program, TINY, image.size, lambda candidate: False)
    assert str(problem.value) == (
        f"shrink: expected a program that fails, got one of {len(program)} instructions that does "
        "not; pass the predicate that it fails"
    )


def test_a_case_survives_its_text():
    program, image = random_program(TINY, 3)
    case = ProgramCase(
        why="a run to keep",
        configuration=TINY,
        memory=random_memory_parameters(5),
        image_seed=3,
        data_bytes=image.size,
        program=program,
    )
    again = parse_case(format_case(case))
    assert again == case
    assert np.array_equal(again.image(), image)
    assert parse_program(format_case(case)) == program
    MemoryModel.of_parameters(again.memory)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("# why:", "# what:", "expected a line `# why: ...` in the head, got none"),
        ("seed 3", "3", "expected `# image: seed NUMBER, NUMBER bytes`, got `3, 4096 bytes`"),
        ("# memory: {", "# memory: ", "the head is not readable as JSON: "),
        ("halt", "hold", "line 5: unknown mnemonic `hold`"),
    ],
)
def test_a_case_that_is_damaged_is_refused(old, new, expected):
    case = ProgramCase(
        why="x", configuration=TINY, image_seed=3, data_bytes=4096, program=(Halt(),)
    )
    with pytest.raises(IsaError, match=r"kept\.tw") as problem:
        parse_case(format_case(case).replace(old, new), "kept.tw")
    assert expected in str(problem.value)
