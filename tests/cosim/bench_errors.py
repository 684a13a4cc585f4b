"""Errors are reported with the right code, leave no open bursts, and can be recovered from."""

import cocotb
import numpy as np
from bench import BUSY, CONFIGURATION, DATA_BASE, DONE, PROGRAM_BASE, STOP, Bench

from tilewright.isa.configuration import Memory
from tilewright.isa.encoding import encode_program, word_bytes
from tilewright.isa.instructions import Halt, Load, Loop, Store, Sync, Unit
from tilewright.isa.registers import Error

DATA_BYTES = 1 << 12
WORD = word_bytes(CONFIGURATION)
ROW = CONFIGURATION.row_bytes(Memory.ACT)
LOAD = Load(destination=Memory.ACT, length=4 * ROW, memory=256, local=0)
STORE = Store(source=Memory.ACT, length=4 * ROW, local=0, memory=512, wait=frozenset({Unit.LOAD}))
COPY = [Load(destination=Memory.ACT, length=4 * ROW, memory=256, local=0,
             signal=frozenset({Unit.STORE})), STORE, Halt()]  # fmt: skip


def image() -> np.ndarray:
    return np.random.default_rng(5).integers(0, 256, DATA_BYTES, dtype=np.uint8)


async def expect(bench: Bench, code: bytes, error: Error) -> None:
    """The run ends with an error and not with `done`; then a good program runs as ever."""
    await bench.start(code, image())
    done, found = await bench.finish()
    assert (done, found) == (False, error), (done, found)
    await recover(bench)


async def recover(bench: Bench) -> None:
    bench.memory.faults = (0, 0)
    data = await bench.run(COPY, image())
    np.testing.assert_array_equal(data[512 : 512 + 4 * ROW], image()[256 : 256 + 4 * ROW])
    bench.checker.finish()


def corrupt(code: bytes, index: int, opcode: int) -> bytes:
    words = bytearray(code)
    words[index * WORD] = words[index * WORD] & 0xF0 | opcode
    return bytes(words)


@cocotb.test()
async def unknown_opcodes_stop_the_machine(dut):
    bench = await Bench.create(dut, 20)
    good = encode_program([LOAD, LOAD, Halt()], CONFIGURATION)
    for opcode in (0, 7, 15):
        await expect(bench, corrupt(good, 1, opcode), Error.ILLEGAL_INSTRUCTION)


@cocotb.test()
async def a_program_without_halt_is_reported(dut):
    bench = await Bench.create(dut, 21)
    code = encode_program([LOAD, Sync(target=Unit.GEMM)], CONFIGURATION)
    await expect(bench, code, Error.NO_HALT)


@cocotb.test()
async def loads_outside_of_the_window_are_not_issued(dut):
    bench = await Bench.create(dut, 22)
    edge = Load(destination=Memory.ACT, length=8, memory=DATA_BYTES - 7, local=0)
    late = Load(destination=Memory.ACT, length=8, memory=0, local=0, loops=(Loop(5, (1024, 0)),))
    for load in (edge, late):
        await expect(bench, encode_program([load, Halt()], CONFIGURATION), Error.OUT_OF_WINDOW)


@cocotb.test()
async def stores_outside_of_the_window_write_nothing_there(dut):
    bench = await Bench.create(dut, 23)
    store = Store(source=Memory.ACT, length=8, local=0, memory=DATA_BYTES - 7)
    beyond = slice(DATA_BASE + DATA_BYTES, DATA_BASE + DATA_BYTES + 64)
    bench.memory.bytes[beyond] = 0x5A
    await expect(bench, encode_program([store, Halt()], CONFIGURATION), Error.OUT_OF_WINDOW)
    assert (bench.memory.bytes[beyond] == 0x5A).all()


@cocotb.test()
async def failing_memory_is_reported(dut):
    bench = await Bench.create(dut, 24)
    for low, high in (
        (DATA_BASE + 256, DATA_BASE + 272),
        (DATA_BASE + 512, DATA_BASE + 528),
        (PROGRAM_BASE, PROGRAM_BASE + WORD),
    ):
        bench.memory.faults = (low, high)
        await expect(bench, encode_program(COPY, CONFIGURATION), Error.MEMORY_RESPONSE)


@cocotb.test()
async def a_missing_token_is_visible_and_can_be_stopped(dut):
    bench = await Bench.create(dut, 25)
    await bench.start(encode_program([STORE, Halt()], CONFIGURATION), image())
    await bench.wait(1500)
    assert await bench.read("STATUS") & BUSY
    waits_for_load = 1 << 1
    assert await bench.read("STORE_STATE") & waits_for_load
    assert await bench.read("STORE_TOKENS") == 0
    assert await bench.read("LOAD_STATE") == 0
    await bench.write("CONTROL", STOP)
    await bench.wait(50)
    assert not await bench.read("STATUS") & (BUSY | DONE)
    assert await bench.read("STORE_STATE") == 0
    await recover(bench)


@cocotb.test()
async def a_stop_in_the_middle_leaves_nothing_behind(dut):
    """Reads and writes in flight at the stop are drained and never reach the next program."""
    bench = await Bench.create(dut, 27, latency=80, stalls=0.5)
    copies = [*COPY[:2]] * 6
    for delay in (1, 40, 90, 160, 230, 320, 450):
        await bench.start(encode_program([*copies, Halt()], CONFIGURATION), image())
        await bench.wait(delay)
        await bench.write("CONTROL", STOP)
        await bench.settle()
        await recover(bench)


@cocotb.test()
async def tokens_do_not_survive_a_new_start(dut):
    bench = await Bench.create(dut, 26)
    spare = Sync(target=Unit.LOAD, signal=frozenset({Unit.STORE}))
    await bench.run([spare, Halt()], image())
    await bench.start(encode_program([STORE, Halt()], CONFIGURATION), image())
    await bench.wait(1500)
    assert await bench.read("STATUS") & BUSY
    await bench.write("CONTROL", STOP)
    await bench.settle()
    await recover(bench)
