"""Refusals of the compiled simulator, and its replacement where nothing can be compiled.

That it computes what the definition says is tested with the other fast simulator, in
`test_functional.py`.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.errors import IsaError, ProgramError
from tilewright.isa.configuration import PRESETS, Memory
from tilewright.isa.encoding import encode_program, word_bytes
from tilewright.isa.fields import pack
from tilewright.isa.instructions import Combine, Gemm, Halt, Load, Loop, Store, Sync, Unit, Vector
from tilewright.isa.semantics import Machine
from tilewright.isa.vector_operations import OPERATIONS
from tilewright.sim import native_functional
from tilewright.sim.decode import native_decoder
from tilewright.sim.functional import FunctionalMachine
from tilewright.sim.native_functional import NativeMachine, functional_machine

SMALL = PRESETS["4x4"]
DATA_BYTES = 4096
ACT_ROWS, ACC_ROWS = SMALL.rows(Memory.ACT), SMALL.rows(Memory.ACC)
WGT_TILES, PARAM_ROWS = SMALL.rows(Memory.WGT) // SMALL.lanes_in, SMALL.rows(Memory.PARAM)


def image(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, DATA_BYTES, dtype=np.uint8)


def refusal(kind: type[Machine], program) -> str:
    with pytest.raises(ProgramError) as refused:
        kind(SMALL, image()).run(program)
    return str(refused.value)


LEAVING = {
    "load above memory": Load(destination=Memory.ACT, length=2, memory=DATA_BYTES - 1, local=0),
    "load above ACT": Load(destination=Memory.ACT, length=5, local=4 * ACT_ROWS - 4),
    "load below ACT": Load(
        destination=Memory.ACT, length=4, local=4, loops=(Loop(3, (0, -4)),)
    ),
    "fill above PARAM": Load(
        destination=Memory.PARAM, fill=True, length=8, local=32 * PARAM_ROWS - 4
    ),
    "store above ACC": Store(source=Memory.ACC, length=4, local=16 * ACC_ROWS - 3, memory=0),
    "store below memory": Store(
        source=Memory.ACT, length=4, local=0, memory=7, loops=(Loop(3, (4, -4)),)
    ),
    "gemm above ACT": Gemm(
        act=ACT_ROWS - 6, wgt=0, acc=0, row_loops=(Loop(6, (1, 1)), Loop(2, (1, 6)))
    ),
    "gemm above WGT": Gemm(act=0, wgt=WGT_TILES - 2, acc=0, tile_loops=(Loop(3, (0, 1, 0)),)),
    "gemm below ACC": Gemm(act=0, wgt=0, acc=2, tile_loops=(Loop(4, (0, 0, -1)),)),
    "gemm above ACC": Gemm(act=0, wgt=0, acc=ACC_ROWS - 2, row_loops=(Loop(3, (0, 1)),)),
    "vector writes above ACT": Vector(dst=ACT_ROWS - 1, a=0, map_loops=(Loop(2, (1, 0, 0, 0)),)),
    "vector writes above ACC": Vector(dst=ACC_ROWS, a=0, to_acc=True),
    "vector reads above ACC": Vector(
        dst=0, a=ACC_ROWS - 2, a_from_acc=True, reduce_loops=(Loop(3, (1, 0)),)
    ),
    "vector combines below ACT": Vector(
        combine=Combine.MAX, dst=0, a=0, b=1, map_loops=(Loop(3, (0, 0, -1, 0)),)
    ),
    "vector adds a bias above PARAM": Vector(
        bias=True, dst=0, a=0, param=PARAM_ROWS - 3, map_loops=(Loop(4, (1, 1, 0, 1)),)
    ),
    "vector scales above PARAM": Vector(
        scale=True, dst=0, a=0, param=PARAM_ROWS - 1, map_loops=(Loop(2, (1, 1, 0, 1)),)
    ),
}  # fmt: skip


@pytest.mark.parametrize("leaving", LEAVING.values(), ids=LEAVING)
def test_an_instruction_that_leaves_a_memory_is_refused_as_the_definition_does(leaving):
    program = [Sync(target=Unit.LOAD), leaving, Halt()]
    text = refusal(NativeMachine, program)
    assert text == refusal(Machine, program)
    assert text.startswith(f"instruction 1 ({leaving.mnemonic}): operand `")


def test_nothing_is_executed_of_a_program_that_is_refused():
    machine = NativeMachine(SMALL, image())
    before = {memory: data.copy() for memory, data in machine.memories.items()}
    good = Load(destination=Memory.ACT, length=64, memory=0, local=0)
    with pytest.raises(ProgramError):
        machine.run([good, LEAVING["store above ACC"], Halt()])
    for memory, data in before.items():
        np.testing.assert_array_equal(machine.memories[memory], data)


def test_operands_that_an_instruction_does_not_use_may_point_anywhere():
    unused = [
        Vector(dst=0, a=0, b=ACT_ROWS - 1, param=PARAM_ROWS - 1,
               map_loops=(Loop(9, (1, 1, 50, 50)),)),
        Load(destination=Memory.LUT, fill=True, value=3, length=9, memory=0, local=5),
        Halt(),
        LEAVING["store above ACC"],
    ]  # fmt: skip
    machine = NativeMachine(SMALL, image())
    machine.run(unused)
    np.testing.assert_array_equal(machine.memories[Memory.LUT][4:15], [0] + [3] * 9 + [0])


def test_a_fill_ignores_the_addresses_of_memory_in_its_word():
    fill = Load(destination=Memory.LUT, fill=True, value=9, length=4, local=8)
    values = fill.values(SMALL) | {"memory": (1 << 32) - 1}
    values |= {"loops.3.extent": 2, "loops.3.memory": -(1 << 32), "loops.3.local": 4}
    word = pack(Load.layout(SMALL), values).to_bytes(word_bytes(SMALL), "little")
    machine = NativeMachine(SMALL, image())
    machine.run_words(word)
    np.testing.assert_array_equal(machine.memories[Memory.LUT][7:17], [0] + [9] * 8 + [0])


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_encodable_instruction_is_executed_or_refused_like_the_definition(data):
    """Bases and strides anywhere: mostly outside, and never written outside."""
    draw = data.draw
    slices, locals_ = st.integers(0, ACT_ROWS - 1), st.integers(0, 4 * ACT_ROWS - 1)
    stride = st.one_of(st.integers(-4, 4), st.integers(-128, 127))

    def loops(count: int, moved: int) -> tuple[Loop, ...]:
        return tuple(
            Loop(draw(st.integers(1, 4)), tuple(draw(stride) for _ in range(moved)))
            for _ in range(draw(st.integers(0, count)))
        )

    memory = st.one_of(st.integers(0, DATA_BYTES), st.integers(0, 1 << 31))
    instruction = draw(
        st.sampled_from(
            [
                lambda: Load(
                    destination=draw(st.sampled_from(list(Memory)[:4])), fill=draw(st.booleans()),
                    length=draw(st.integers(1, 40)), memory=draw(memory), local=draw(locals_),
                    loops=loops(4, 2),
                ),
                lambda: Store(
                    source=draw(st.sampled_from([Memory.ACT, Memory.ACC])),
                    length=draw(st.integers(1, 40)), memory=draw(memory), local=draw(locals_),
                    loops=loops(4, 2),
                ),
                lambda: Gemm(
                    act=draw(slices), wgt=draw(st.integers(0, WGT_TILES - 1)),
                    acc=draw(st.integers(0, ACC_ROWS - 1)), tile_loops=loops(4, 3),
                    row_loops=loops(2, 2),
                ),
                lambda: Vector(
                    a_from_acc=draw(st.booleans()), to_acc=draw(st.booleans()),
                    combine=draw(st.sampled_from(OPERATIONS)), scale=draw(st.booleans()),
                    lookup=draw(st.booleans()), dst=draw(slices), a=draw(slices), b=draw(slices),
                    param=draw(st.integers(0, PARAM_ROWS - 1)), map_loops=loops(4, 4),
                    reduce_loops=loops(2, 2),
                ),
            ]
        )
    )()  # fmt: skip
    program = [Load(destination=Memory.ACT, length=DATA_BYTES, local=64), instruction]
    assert left_by(NativeMachine, program) == left_by(Machine, program)


def left_by(kind: type[Machine], program) -> dict[Memory, bytes] | str:
    """All memories after a program, or the reason why it is refused."""
    machine = kind(SMALL, image(1))
    try:
        machine.run(program)
    except ProgramError as problem:
        return str(problem)
    return {memory: contents.tobytes() for memory, contents in machine.memories.items()}


def test_words_that_mean_nothing_are_refused_like_the_decoder_does():
    code = encode_program([Sync(target=Unit.LOAD), Halt()], SMALL)
    machine = NativeMachine(SMALL, image())
    with pytest.raises(IsaError, match=r"^instruction 1: instruction word: opcode 15 is not one"):
        machine.run_words(code[: word_bytes(SMALL)] + b"\xff" * word_bytes(SMALL))
    with pytest.raises(IsaError, match="is not a whole number of"):
        machine.run_words(code[:-1])


@pytest.fixture
def nothing_loaded():
    """Libraries as in a new process, before and after."""
    kept = (native_decoder, native_functional._library, native_functional._say_once)
    for function in kept:
        function.cache_clear()
    yield
    for function in kept:
        function.cache_clear()


def test_without_a_compiler_numpy_simulates_and_says_so_once(nothing_loaded, monkeypatch, capfd):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert functional_machine(SMALL) is FunctionalMachine
    assert functional_machine(SMALL) is FunctionalMachine
    assert capfd.readouterr().err == (
        "sim: simulation: no C++ compiler `no-such-compiler` found; install g++ (Debian and "
        "Ubuntu: `apt install g++`), or set `CXX`; using the slower "
        "simulation in NumPy instead\n"
    )
    monkeypatch.undo()
    assert functional_machine(SMALL) is NativeMachine
