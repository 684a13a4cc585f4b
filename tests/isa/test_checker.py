"""Programs with a fault are refused in one sentence; legal ones run the same in every order."""

from dataclasses import replace

import numpy as np
import pytest

from tilewright.errors import ProgramError
from tilewright.flows.verify.programs.adversary import execute_adversarially, first_difference
from tilewright.flows.verify.programs.mutants import token_ends
from tilewright.isa.assembly import parse_program
from tilewright.isa.checker import check, faults
from tilewright.isa.configuration import DEFAULT, PRESETS
from tilewright.isa.instructions import Unit
from tilewright.isa.pipeline import GEMM_REVISIT_STEPS
from tilewright.isa.semantics import Machine

DATA_BYTES = 1 << 16

DOUBLE_BUFFERED = """
load destination=param fill value=1 length=128 local=0
load destination=wgt length=4096 memory=0 local=0
load destination=act length=256 memory=4096 local=0 signal=gemm
load destination=act length=256 memory=4352 local=32768 signal=gemm
gemm act=0 wgt=0 acc=0 row[16: act 1, acc 1] wait=load signal=load,vector
load destination=act length=256 memory=4608 local=0 wait=gemm signal=gemm
vector a_from_acc bias scale dst=4096 a=0 map[16: dst 1, a 1] wait=gemm signal=gemm,store
gemm act=2048 wgt=1 acc=1024 row[16: act 1, acc 1] wait=load signal=vector
store source=act length=256 local=65536 memory=8192 wait=vector signal=vector
vector a_from_acc bias scale dst=6144 a=1024 map[16: dst 1, a 1] wait=gemm signal=store
gemm act=0 wgt=2 acc=0 row[16: act 1, acc 1] wait=load,vector signal=vector
store source=act length=256 local=98304 memory=8448 wait=vector
vector a_from_acc bias scale dst=4096 a=0 map[16: dst 1, a 1] wait=gemm,store signal=store
store source=act length=256 local=65536 memory=8704 wait=vector
halt
"""


def program(text: str):
    return parse_program(text)


def test_a_double_buffered_program_is_accepted_and_described():
    report = check(program(DOUBLE_BUFFERED), DEFAULT, DATA_BYTES)
    assert report.instructions == 15
    assert report.per_unit == {Unit.LOAD: 5, Unit.GEMM: 3, Unit.VECTOR: 3, Unit.STORE: 3}
    assert report.tokens == 12
    assert report.peak_tokens[Unit.LOAD, Unit.GEMM] == 2
    assert report.peak_tokens[Unit.STORE, Unit.GEMM] == 0
    assert report.concurrent_pairs > 10


@pytest.mark.parametrize(("giver", "taker"), token_ends(program(DOUBLE_BUFFERED)))
def test_every_token_of_that_program_is_needed(giver, taker):
    lame = list(program(DOUBLE_BUFFERED))
    source, target = lame[giver].home, lame[taker].home
    lame[giver] = replace(lame[giver], signal=lame[giver].signal - {target})
    lame[taker] = replace(lame[taker], wait=lame[taker].wait - {source})
    with pytest.raises(ProgramError, match="races with instruction"):
        check(lame, DEFAULT, DATA_BYTES)


REFUSED = [
    ("", "program of 0 instructions: no HALT at the end; append one"),
    ("sync target=load", "program of 1 instruction: no HALT at the end; append one"),
    (
        "halt\nsync target=load\nhalt",
        "instruction 0 (halt): 2 more follow; HALT must be the last instruction",
    ),
    (
        "gemm act=0 wgt=0 acc=0 wait=load\nhalt",
        "instruction 0 (gemm): waits for a token of LOAD that no earlier instruction signals; the "
        "machine would wait forever; signal it earlier or remove the wait",
    ),
    (
        "sync target=gemm wait=load\nsync target=load signal=gemm\nhalt",
        "instruction 0 (sync): waits for a token of LOAD that no earlier instruction signals; the "
        "machine would wait forever; signal it earlier or remove the wait",
    ),
    (
        "sync target=load signal=gemm\nhalt",
        "instruction 0: signals GEMM, but at the end 1 token of LOAD (instruction 0) is left "
        "over; let GEMM wait for each, or remove the signal",
    ),
    (
        "sync target=load signal=gemm\nsync target=load signal=gemm\nhalt",
        "instruction 0: signals GEMM, but at the end 2 tokens of LOAD (instructions 0, 1) are "
        "left over; let GEMM wait for each, or remove the signal",
    ),
    (
        "sync target=load signal=gemm\n" * 16 + "sync target=gemm wait=load\n" * 16 + "halt",
        "instruction 15 (sync): signals GEMM while 15 tokens of LOAD are pending, and the counter "
        "holds 15; let GEMM wait earlier or raise `token_bits`",
    ),
    (
        "load destination=act length=16 memory=0 local=0\ngemm act=0 wgt=0 acc=0\nhalt",
        "instruction 1 (gemm): races with instruction 0 (load): no token orders them and "
        "the first writes (`local`) what the second reads (`act`) among bytes 0 to 15 of ACT; let "
        "LOAD signal GEMM in between",
    ),
    (
        "store source=acc length=16 local=0 memory=0\ngemm act=0 wgt=0 acc=9\nhalt",
        "instruction 1 (gemm): races with instruction 0 (store): no token orders them and "
        "both need the read port of ACC bank 0; let STORE signal GEMM in between",
    ),
    (
        "load destination=act length=16 memory=65521 local=0\nhalt",
        "instruction 0 (load): operand `memory` touches bytes 65521 to 65536 of DRAM, which has "
        "65536 bytes; correct the address or the strides",
    ),
    (
        "gemm act=0 wgt=0 acc=0 row[2]\nhalt",
        "instruction 0 (gemm): ACC row 0 is visited again after 1 step in the row loops; expected "
        f"at least {GEMM_REVISIT_STEPS}; put a loop that moves `acc` inside",
    ),
    (
        "vector dst=0 a=0 table=7\nhalt",
        "instruction 0 (vector): field `table`: 7 does not fit 1 bits; expected 0 to 1",
    ),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_a_faulty_program_is_refused_in_one_sentence(text, message):
    with pytest.raises(ProgramError) as refusal:
        check(program(text), DEFAULT, DATA_BYTES)
    assert str(refusal.value) == message


def test_a_data_window_beyond_the_address_width_is_refused():
    with pytest.raises(ProgramError) as refusal:
        check(program("halt"), PRESETS["tiny"], (1 << 20) + 1)
    assert str(refusal.value) == (
        "data window: 1048577 bytes are more than `address_bits` = 20 can address"
    )


def test_all_faults_are_listed_with_their_places():
    text = """
    gemm act=9999 wgt=0 acc=0 wait=store
    load destination=act length=16 memory=0 local=0 signal=store
    gemm act=0 wgt=0 acc=0
    """
    found = [
        (fault.index, str(fault).split(";")[0]) for fault in faults(program(text), DEFAULT, 64)
    ]
    assert found == [
        (
            0,
            "instruction 0 (gemm): field `act`: 9999 does not fit 13 bits",
        ),
        (
            0,
            "instruction 0 (gemm): waits for a token of STORE that no earlier instruction signals",
        ),
        (
            2,
            "instruction 2 (gemm): races with instruction 1 (load): no token orders them "
            "and the first writes (`local`) what the second reads (`act`) among bytes 0 to 15 of "
            "ACT",
        ),
        (None, "program of 3 instructions: no HALT at the end"),
        (
            1,
            "instruction 1: signals STORE, but at the end 1 token of LOAD (instruction 1) is left "
            "over",
        ),
    ]


ORDERED = [
    # through a third unit
    "load destination=act length=16 memory=0 local=0 signal=store\n"
    "sync target=store wait=load signal=gemm\n"
    "gemm act=0 wgt=0 acc=0 wait=store\nhalt",
    # through a later instruction of the same unit
    "load destination=act length=16 memory=0 local=0\n"
    "load destination=wgt length=16 memory=0 local=0 signal=gemm\n"
    "gemm act=0 wgt=0 acc=0 wait=load\nhalt",
    # taken by an earlier instruction of the same unit
    "load destination=act length=16 memory=0 local=0 signal=gemm\n"
    "sync target=gemm wait=load\n"
    "gemm act=0 wgt=0 acc=0\nhalt",
]


@pytest.mark.parametrize("text", ORDERED)
def test_order_is_seen_through_other_instructions(text):
    check(program(text), DEFAULT, DATA_BYTES)


def test_a_token_of_an_earlier_instruction_orders_nothing_after_it():
    text = """
    load destination=wgt length=16 memory=0 local=0 signal=gemm
    load destination=act length=16 memory=0 local=0
    gemm act=0 wgt=0 acc=0 wait=load
    halt
    """
    with pytest.raises(ProgramError, match="races with instruction 1"):
        check(program(text), DEFAULT, DATA_BYTES)


def test_tokens_are_first_in_first_out():
    text = """
    load destination=act length=16 memory=0 local=0 signal=gemm
    load destination=act length=16 memory=0 local=32768 signal=gemm
    gemm act=2048 wgt=0 acc=0 wait=load
    gemm act=0 wgt=0 acc=16 wait=load
    halt
    """
    with pytest.raises(ProgramError, match="races with instruction 1"):
        check(program(text), DEFAULT, DATA_BYTES)


def image(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, DATA_BYTES).astype(np.uint8)


@pytest.mark.parametrize("seed", range(10))
def test_the_double_buffered_program_gives_one_result_in_every_order(seed):
    expected = Machine(DEFAULT, image(seed))
    expected.run(program(DOUBLE_BUFFERED))
    got = execute_adversarially(program(DOUBLE_BUFFERED), DEFAULT, image(seed), seed)
    assert first_difference(expected, got) is None


def test_the_adversary_shows_the_race_that_a_missing_token_opens():
    racy = program(DOUBLE_BUFFERED.replace(" wait=load signal=load,vector", " signal=load,vector"))
    expected = Machine(DEFAULT, image(0))
    expected.run(racy)
    differences = [
        first_difference(expected, execute_adversarially(racy, DEFAULT, image(0), seed))
        for seed in range(20)
    ]
    assert any(difference is not None for difference in differences)


def test_the_adversary_reports_a_deadlock():
    stuck = program("sync target=gemm wait=load\nsync target=load wait=gemm signal=gemm\nhalt")
    with pytest.raises(ProgramError) as refusal:
        execute_adversarially(stuck, DEFAULT, image(0), 3)
    assert str(refusal.value) == "deadlock after seed 3: LOAD, GEMM wait forever"


def test_a_counter_that_is_too_small_deadlocks_and_the_checker_knows():
    text = (
        "sync target=gemm wait=store\n"
        + "sync target=load signal=gemm\n" * 4
        + "sync target=load signal=store\nsync target=store wait=load signal=gemm\n"
        + "sync target=gemm wait=load\n" * 4
        + "halt"
    )
    with pytest.raises(ProgramError, match="deadlock after seed 0: LOAD, GEMM, STORE wait"):
        execute_adversarially(program(text), PRESETS["tiny"], image(0), 0)
    with pytest.raises(ProgramError, match="waits for a token of STORE that no earlier"):
        check(program(text), PRESETS["tiny"], DATA_BYTES)
