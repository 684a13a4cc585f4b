"""Random programs are legal by construction, repeatable, concurrent, and reach every corner."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pytest

from tilewright.flows.verify.programs.adversary import execute_adversarially, first_difference
from tilewright.flows.verify.programs.corners import coverage, program_corners
from tilewright.flows.verify.programs.number_corners import NUMBER_CORNERS
from tilewright.flows.verify.programs.possible_corners import possible_corners
from tilewright.flows.verify.programs.random_configurations import verification_configurations
from tilewright.flows.verify.programs.random_programs import PROFILES, profile_of, random_program
from tilewright.isa.assembly import format_program, parse_program
from tilewright.isa.checker import check
from tilewright.isa.configuration import DEFAULT, PRESETS, SCRATCHPADS, Configuration, Memory
from tilewright.isa.encoding import decode_program, encode_program
from tilewright.isa.instructions import FAMILIES, Gemm, Instruction, Load, Store, Vector
from tilewright.isa.semantics import Machine

VARIANTS = {
    **PRESETS,
    "odd": DEFAULT.replace(
        name="odd",
        lanes_in=8,
        lanes_out=32,
        vector_lanes=2,
        act_banks=2,
        wgt_banks=1,
        param_depth=2,
        tile_loops=1,
        map_loops=6,
        dma_loops=2,
        bus_bits=32,
        token_bits=2,
    ),
}


VERIFIED = verification_configurations()
FAST_CORNERS = ("tiny",)
SLOW_CORNERS = (
    "4x4",
    "two-by-eight",
    "eight-by-two",
    "no-taps",
    "16x8",
    "least-memory",
    "most-loops",
    "many-banks",
    "bus-256",
    "one-burst",
    "packed-words",
)


def assert_all_corners_are_met(name: str) -> None:
    configuration = VERIFIED[name]
    programs = (random_program(configuration, seed) for seed in range(300))
    met = coverage(programs, configuration)
    assert [corner for corner, count in met.items() if not count] == []
    assert set(met) == possible_corners(configuration, 1 << 14), "a corner called impossible is met"


@pytest.mark.parametrize("name", FAST_CORNERS)
def test_three_hundred_programs_meet_every_corner(name):
    assert_all_corners_are_met(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW_CORNERS)
def test_three_hundred_programs_meet_every_corner_of_larger_machines(name):
    assert_all_corners_are_met(name)


def test_what_no_program_meets_counts_zero():
    program = parse_program("load destination=act fill length=1 local=0\nhalt\n")
    met = coverage([(program, np.zeros(4096, np.uint8))], PRESETS["tiny"])
    assert met["load.fill ACT"] == 1
    assert met["load.local@ACT first"] == 1
    assert met["load.local@ACT last"] == 0
    assert all(met[corner] == 0 for corner in NUMBER_CORNERS)


def test_a_hazard_counts_for_the_token_that_alone_covers_it():
    """A second token over the same pair leaves none that covers it alone."""
    text = """
        load destination=act fill length=2 local=0 signal={0}
        {1}vector a=0 dst=1 wait={2}
        halt
    """
    kind = "hazard LOAD>VECTOR read after write"
    one = parse_program(text.format("vector", "", "load"))
    assert kind in program_corners(one, PRESETS["tiny"], 4096)
    detour = "sync target=gemm wait=load signal=vector\n"
    two = parse_program(text.format("vector,gemm", detour, "load,gemm"))
    check(two, PRESETS["tiny"], 4096)
    assert kind not in program_corners(two, PRESETS["tiny"], 4096)


def test_six_seeds_in_a_row_draw_from_every_profile():
    assert {profile_of(seed) for seed in range(100, 100 + len(PROFILES))} == set(PROFILES)


@pytest.mark.parametrize("configuration", VARIANTS.values(), ids=VARIANTS)
def test_random_programs_pass_the_checker_and_every_order_gives_one_result(configuration):
    concurrent = 0
    for seed in range(6):
        program, dram = random_program(configuration, seed)
        concurrent += check(program, configuration, dram.size).concurrent_pairs
        expected = Machine(configuration, dram.copy())
        expected.run(program)
        got = execute_adversarially(program, configuration, dram.copy(), seed)
        assert first_difference(expected, got) is None, f"seed {seed}"
        assert parse_program(format_program(program)) == program
        code = encode_program(program, configuration)
        assert decode_program(code, configuration) == program
    assert concurrent > 6 * 40


def test_a_seed_gives_its_program_again():
    one, first = random_program(DEFAULT, 7)
    again, second = random_program(DEFAULT, 7)
    other, _ = random_program(DEFAULT, 8)
    assert one == again
    assert np.array_equal(first, second)
    assert one != other


def test_length_and_data_window_are_as_asked():
    program, dram = random_program(PRESETS["4x4"], 1, length=90, data_bytes=1 << 15)
    assert 91 <= len(program) <= 100
    assert dram.shape == (1 << 15,)
    assert dram.dtype == np.uint8


def test_a_small_window_still_gives_legal_programs():
    for seed in range(20):
        program, dram = random_program(PRESETS["32x32"], seed, length=20, data_bytes=4096)
        check(program, PRESETS["32x32"], dram.size)


def drawn(configuration: Configuration, count: int) -> Sequence[Instruction]:
    return [i for seed in range(count) for i in random_program(configuration, seed)[0]]


def test_every_opcode_flag_code_and_loop_level_is_drawn():
    """All values of small fields, both ends of immediates, both signs of strides, all levels."""
    for configuration in (PRESETS["tiny"], PRESETS["16x8"]):
        seen: dict[tuple[str, str], set[int]] = defaultdict(set)
        for instruction in drawn(configuration, 40):
            for name, value in instruction.values(configuration).items():
                seen[instruction.mnemonic, name].add(value)
            for nest, moved in instruction.nests.items():
                for loop in getattr(instruction, nest):
                    for operand, stride in zip(moved, loop.strides, strict=True):
                        seen[instruction.mnemonic, f"{nest}.{operand}"].add(stride)
        for family in FAMILIES:
            for field in family.layout(configuration):
                values = seen[family.mnemonic, field.name]
                where = f"{family.mnemonic} {field.name}"
                if field.name.endswith(".extent"):
                    assert max(values) > 1, where
                elif "." in field.name and field.signed:
                    nest, _, operand = field.name.split(".")
                    strides = seen[family.mnemonic, f"{nest}.{operand}"]
                    assert min(strides) < 0 < max(strides), where
                elif field.signed:
                    assert min(values) < 0 < max(values), where
                elif field.bits == 1 and family.mnemonic != "halt":
                    assert values == {0, 1}, where
        for name, low, high in (("zero_point", -128, 127), ("low", -128, 127)):
            assert {low, high} <= seen["vector", name]
        assert {-32768, 32767, 1} <= seen["vector", "a_multiplier"]
        assert seen["vector", "combine"] == {0, 1, 2, 3, 4}
        assert seen["load", "destination"] == {0, 1, 2, 3}
        assert {0, 128, 255} <= seen["load", "value"]
        assert seen["sync", "target"] == {0, 1, 2, 3}


def test_a_loop_of_the_greatest_extent_is_drawn():
    greatest = 1 << PRESETS["tiny"].extent_bits
    extents = {
        loop.extent
        for instruction in drawn(PRESETS["tiny"], 40)
        for nest in instruction.nests
        for loop in getattr(instruction, nest)
    }
    assert greatest in extents


def rough_cycles(instruction: Instruction, configuration: Configuration) -> int:
    """Cycles that an instruction takes when memory answers at once."""
    if isinstance(instruction, Gemm):
        return instruction.tiles() * max(instruction.rows(), configuration.lanes_in, 4)
    if isinstance(instruction, Vector):
        return instruction.steps()
    if isinstance(instruction, Load | Store):
        return instruction.steps() * (instruction.length // configuration.bus_bytes + 2)
    return 1


@pytest.mark.parametrize("configuration", VARIANTS.values(), ids=VARIANTS)
def test_programs_are_short_enough_to_run_hundreds_in_rtl(configuration):
    cycles = [
        sum(rough_cycles(i, configuration) for i in random_program(configuration, seed)[0])
        for seed in range(30)
    ]
    assert sorted(cycles)[15] < 3500
    assert max(cycles) < 12000


def test_programs_leave_varied_values_behind():
    """A program that wrote one value everywhere would not show an error of the hardware."""
    finals = []
    for seed in range(8):
        program, dram = random_program(PRESETS["8x8"], seed)
        machine = Machine(PRESETS["8x8"], dram.copy())
        machine.run(program)
        assert not np.array_equal(machine.memories[Memory.DRAM], dram)
        finals.append(sum(len(np.unique(machine.memories[m])) for m in SCRATCHPADS))
    assert min(finals) > 100
    assert sorted(finals)[4] > 200
