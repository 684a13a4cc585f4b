"""A board by its definition: frames, registers and the semantics of the instructions, in Python."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from tilewright.errors import IsaError
from tilewright.flows.board.faults import NO_FAULTS, FaultRates
from tilewright.flows.board.server import Port, Server, TcpPort
from tilewright.isa.configuration import CONTRACT_VERSION, SCRATCHPADS, Configuration, Memory
from tilewright.isa.encoding import decode_program
from tilewright.isa.link import (
    ANSWER,
    ANSWER_HEAD,
    BOARD_OFFSETS,
    BOARD_SPACE_BYTES,
    FLAG,
    LINK_MAGIC,
    LINK_VERSION,
    REQUEST,
    Command,
    Status,
    body_of,
    frame,
)
from tilewright.isa.memory_model import MemoryModel
from tilewright.isa.registers import MAGIC, OFFSETS, REGISTER_SPACE_BYTES, Error
from tilewright.isa.semantics import Machine
from tilewright.sim.timing import Timer

START, STOP = 1, 2
BUSY, DONE, ERROR = 1, 2, 4
LATENCY_CYCLES = 7


class StubBoard:
    """What `VirtualBoard` does, without hardware; a program ends as soon as it starts.

    Parameters
    ----------
    configuration
    memory_bytes
    changes
        Values of registers in place of the right ones.
    hangs
        Programs never end.
    """

    def __init__(
        self,
        configuration: Configuration,
        memory_bytes: int = 1 << 17,
        changes: dict[str, int] | None = None,
        *,
        hangs: bool = False,
    ) -> None:
        self.configuration, self.hangs = configuration, hangs
        self.memory = np.full(memory_bytes, 0xB5, np.uint8)
        self.changes = changes or {}
        self.machine = Machine(configuration, np.zeros(0, np.uint8))
        self.requests = 0
        self.written = 0
        self.disturbed = False
        self.runs = 0
        self.busy, self.cycles = False, 0
        self._waiting = b""
        self.reset()

    def reset(self) -> None:
        """Forget registers and scratchpads' contents; memory is spoilt, as by a power cut."""
        self.memory ^= 0x5A
        for memory in SCRATCHPADS:
            self.machine.memories[memory][:] = 0xE1
        self.registers = dict.fromkeys(range(0, REGISTER_SPACE_BYTES + 64, 4), 0)
        for name, value in {
            "ID": MAGIC,
            "VERSION": CONTRACT_VERSION,
            "CONFIGURATION": self.configuration.hash,
            "LINK_ID": LINK_MAGIC,
            "LINK_VERSION": LINK_VERSION,
            "MEMORY_BYTES": self.memory.size,
            "MEMORY_LATENCY": LATENCY_CYCLES,
            "CLOCK_HZ": 1_000_000,
            **self.changes,
        }.items():
            self.registers[{**OFFSETS, **BOARD_OFFSETS}[name]] = value

    def clear(self) -> None:
        """See `VirtualBoard.clear`."""
        self.memory[:] = 0
        self._waiting = b""
        self.reset()

    def close(self) -> None:
        """See `VirtualBoard.close`."""

    def run(self, received: bytes, budget: int) -> tuple[int, bytes]:
        """See `VirtualBoard.run`."""
        *frames, self._waiting = (self._waiting + received).split(bytes([FLAG]))
        bodies = [body_of(part) for part in frames]
        return len(received), b"".join(self._answer(body) for body in bodies if body is not None)

    def _answer(self, body: bytes) -> bytes:
        if len(body) < REQUEST.size:
            return b""
        self.requests += 1
        command, tag, address, length = REQUEST.unpack_from(body)
        payload, status = b"", Status.OKAY
        data = body[REQUEST.size :]
        registers = command in (Command.READ_REGISTERS, Command.WRITE_REGISTERS)
        space = REGISTER_SPACE_BYTES + BOARD_SPACE_BYTES if registers else self.memory.size
        if (registers and (address | length) % 4) or address + length > space:
            status = Status.REFUSED
        elif command == Command.READ_MEMORY:
            payload = self.memory[address : address + length].tobytes()
        elif command == Command.WRITE_MEMORY:
            self.memory[address : address + length] = np.frombuffer(data, np.uint8)
            self.written += length
            self.disturbed |= self.registers[OFFSETS["STATUS"]] == BUSY
        elif command == Command.READ_REGISTERS:
            words = [self.registers[address + place] for place in range(0, length, 4)]
            payload = np.array(words, "<u4").tobytes()
        else:
            self._write(address, int.from_bytes(data, "little"))
        head = ANSWER_HEAD.pack(command | ANSWER, tag)
        return frame(head + payload + bytes([status]))

    def _write(self, address: int, value: int) -> None:
        if address != OFFSETS["CONTROL"]:
            self.registers[address] = value
        elif value & STOP:
            self.registers[OFFSETS["STATUS"]] = 0
        elif value & START:
            self._start()

    def _start(self) -> None:
        registers = self.registers
        base, size = registers[OFFSETS["PROGRAM_BASE"]], registers[OFFSETS["PROGRAM_BYTES"]]
        self.runs += 1
        if not size:
            registers[OFFSETS["STATUS"]] = ERROR | Error.NO_HALT << 4
            return
        if self.hangs:
            registers[OFFSETS["STATUS"]] = BUSY
            registers[OFFSETS["CYCLES_LOW"]] = (1 << 32) - 1
            return
        words = self.memory[base : base + size].tobytes()
        try:
            program = decode_program(words, self.configuration)
        except IsaError:  # memory was spoilt
            registers[OFFSETS["STATUS"]] = ERROR | Error.ILLEGAL_INSTRUCTION << 4
            return
        first, length = registers[OFFSETS["DATA_BASE"]], registers[OFFSETS["DATA_BYTES"]]
        self.machine.memories[Memory.DRAM] = self.memory[first : first + length]
        self.machine.run(program)
        timer = Timer(program, self.configuration, words)
        timing = timer.run(MemoryModel(latency_cycles=LATENCY_CYCLES))
        for name, value in timing.counters.items():
            registers[OFFSETS[name]] = value
        registers[OFFSETS["CYCLES_LOW"]] = timing.cycles
        registers[OFFSETS["STATUS"]] = DONE


@contextmanager
def serve_in_background(
    board, rates: FaultRates = NO_FAULTS, seed: int = 0, port: Port | None = None
) -> Iterator[Server]:
    """Serve a board in a thread while the block runs."""
    server = Server(board, port or TcpPort(), rates, seed)
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join()
