"""Small faults in good programs: each is caught by the checker, or proved harmless by results."""

from collections import Counter
from itertools import islice

import numpy as np
import pytest

from tilewright.errors import ProgramError
from tilewright.flows.verify.programs.adversary import execute_adversarially, first_difference
from tilewright.flows.verify.programs.mutants import mutants, token_ends
from tilewright.flows.verify.programs.random_programs import random_program
from tilewright.isa.checker import check
from tilewright.isa.configuration import PRESETS
from tilewright.isa.instructions import Halt, Instruction
from tilewright.isa.semantics import Machine

PROGRAMS = 28
MUTANTS = 20
ORDERS = 6


def differing_orders(
    program: tuple[Instruction, ...], configuration, dram: np.ndarray, orders: int
) -> list[str]:
    """How executions in random orders differ from program order; empty if none does."""
    expected = Machine(configuration, dram.copy())
    expected.run(program)
    results = (
        execute_adversarially(program, configuration, dram.copy(), order) for order in range(orders)
    )
    differences = (first_difference(expected, machine) for machine in results)
    return [difference for difference in differences if difference is not None]


@pytest.mark.slow
def test_every_mutant_is_caught_or_harmless(capsys):
    """At least 500 mutants; an accepted one gives its program-order result in every order."""
    outcomes = Counter()
    for seed in range(PROGRAMS):
        configuration = PRESETS["tiny" if seed % 2 else "4x4"]
        program, dram = random_program(configuration, seed, length=24, data_bytes=4096)
        for mutant in islice(mutants(program, seed), MUTANTS):
            try:
                check(mutant.program, configuration, dram.size)
            except ProgramError:
                outcomes["caught"] += 1
                continue
            differences = differing_orders(mutant.program, configuration, dram, ORDERS)
            assert not differences, f"seed {seed}, {mutant.text}: {differences[0]}"
            outcomes["harmless"] += 1
    with capsys.disabled():
        print(
            f"\nmutants: {outcomes.total()}, caught by the checker {outcomes['caught']}, proved "
            f"harmless in {ORDERS} random orders each {outcomes['harmless']}, missed 0"
        )
    assert outcomes.total() >= 500
    assert outcomes["caught"] >= 250
    assert outcomes["harmless"] >= 50


@pytest.mark.slow
def test_dropped_tokens_that_the_checker_refuses_do_change_results():
    """The proof by equal results means something: it sees races when they are there."""
    refused = visible = 0
    for seed in range(12):
        configuration = PRESETS["tiny"]
        program, dram = random_program(configuration, seed, length=24, data_bytes=4096)
        for mutant in islice(
            (m for m in mutants(program, seed) if m.text.startswith("drop token")), 4
        ):
            try:
                check(mutant.program, configuration, dram.size)
            except ProgramError as refusal:
                refused += 1
                if "races" in str(refusal) and "port" not in str(refusal):
                    visible += bool(differing_orders(mutant.program, configuration, dram, 12))
    assert refused >= 30
    assert visible >= 10


def test_a_mutant_is_a_changed_program():
    program, _ = random_program(PRESETS["tiny"], 3)
    for mutant in islice(mutants(program, 3), 300):
        assert mutant.program != program
        assert mutant.text


def test_all_kinds_of_mutants_are_drawn():
    program, _ = random_program(PRESETS["tiny"], 3)
    texts = [mutant.text for mutant in islice(mutants(program, 5), 400)]
    kinds = (
        "drop token",
        "drop wait",
        "drop signal",
        "add",
        "move signal",
        "swap",
        "drop instruction",
        "repeat",
        "change",
    )
    for kind in kinds:
        assert any(text.startswith(kind) for text in texts), kind


def test_the_same_seed_gives_the_same_mutants():
    program, _ = random_program(PRESETS["tiny"], 3)
    assert list(islice(mutants(program, 5), 50)) == list(islice(mutants(program, 5), 50))
    assert list(islice(mutants(program, 5), 50)) != list(islice(mutants(program, 6), 50))


def test_token_ends_match_first_in_first_out():
    program, _ = random_program(PRESETS["8x8"], 4, length=60)
    ends = token_ends(program)
    assert len(ends) == sum(len(i.signal) for i in program)
    for giver, taker in ends:
        assert giver < taker
        assert program[taker].home in program[giver].signal
        assert program[giver].home in program[taker].wait


def test_a_program_of_halt_alone_has_few_mutants_but_some():
    assert next(mutants((Halt(),), 0)).program in ((), (Halt(), Halt()))
