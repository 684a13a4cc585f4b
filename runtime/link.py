"""Requests to a board over a stream that loses and changes bytes.

A transfer is cut into requests, several of which are on their way at a time. The board answers in
order, so an answer shows that the requests before it, if still unanswered, are lost; they are sent
again at once. Without any answer for a while, all are sent again, with ever longer pauses, and in
the end the board counts as silent. Requests get shorter where many are lost.
"""

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from typing_extensions import override

from ..errors import DeviceError
from ..isa.link import (
    ANSWER_HEAD,
    CHECK_BYTES,
    FLAG,
    PAYLOAD_BYTES,
    REQUEST,
    Answer,
    Command,
    Status,
    body_of,
    frame,
    parse_answer,
    request,
)
from .transports import Transport

OPEN_REQUESTS = 4
"""Most requests without an answer yet. The board's serial port can buffer this many reads."""

SILENT_ROUNDS = 4
"""Rounds without an answer after which the board counts as silent; each lasts twice the last."""

MIN_BYTES = 64
"""Payload of the shortest requests of a long transfer."""

TAGS = 1 << 16

MAX_FRAME = 2 * (ANSWER_HEAD.size + PAYLOAD_BYTES + 1 + CHECK_BYTES)
"""Maximum number of bytes between two flags of a legal frame; longer ones are noise."""

ROUND_TRIP_BYTES = 2 * (REQUEST.size + PAYLOAD_BYTES + CHECK_BYTES)
"""Bytes of a request and its answer, with some escapes."""


class SilenceError(DeviceError):
    """The board does not answer."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """A read or a write of contiguous bytes.

    Parameters
    ----------
    command, address, length
        As in a request, but for a length without a limit.
    payload
        Bytes to write; empty for a read.
    """

    command: Command
    address: int
    length: int
    payload: bytes = b""


Piece = tuple[int, int]
"""Offset and length of the part of a transfer that one request moves."""


class Connection(ABC):
    """Access to a board's memory and registers."""

    resent = 0
    """Requests that were sent more than once."""

    @abstractmethod
    def read(self, command: Command, address: int, length: int) -> bytes:
        """Read memory or registers.

        Raises
        ------
        DeviceError
            If the board is silent, refuses, or the stream breaks.
        """

    @abstractmethod
    def write_memory(self, address: int, data: bytes) -> None:
        """Write bytes to memory; see `read`."""

    @abstractmethod
    def write_register(self, address: int, value: int) -> None:
        """Write a register; see `read`."""

    @abstractmethod
    def write_once(self, address: int, value: int) -> bool:
        """Write a register without a second try; return whether the board confirmed it.

        Raises
        ------
        DeviceError
            If the board refuses, or the stream breaks.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""


class Link(Connection):
    """The board at the other end of a stream.

    Parameters
    ----------
    transport : Transport
    first_tag : int
        The first request's tag; answers to requests of an earlier connection have others.
    """

    def __init__(self, transport: Transport, first_tag: int = 0) -> None:
        self.transport = transport
        self._tag = first_tag
        self._waiting = b""
        self._piece_bytes = PAYLOAD_BYTES

    @override
    def close(self) -> None:
        self.transport.close()

    @override
    def read(self, command: Command, address: int, length: int) -> bytes:
        return self._move(Transfer(command, address, length))

    @override
    def write_memory(self, address: int, data: bytes) -> None:
        self._move(Transfer(Command.WRITE_MEMORY, address, len(data), data))

    @override
    def write_register(self, address: int, value: int) -> None:
        self._move(_register_write(address, value))

    @override
    def write_once(self, address: int, value: int) -> bool:
        try:
            self._move(_register_write(address, value), rounds=1)
        except SilenceError:
            return False
        return True

    def _move(self, transfer: Transfer, rounds: int = SILENT_ROUNDS) -> bytes:
        """Execute a transfer, and return the bytes that it reads."""
        result = bytearray(transfer.length)
        lost, sent = deque[Piece](), dict[int, Piece]()
        position = 0
        patience = self.transport.address.timeout_s
        patience += OPEN_REQUESTS * ROUND_TRIP_BYTES * self.transport.seconds_per_byte
        deadline = time.monotonic() + patience
        silent = 0
        while lost or sent or position < transfer.length:
            while len(sent) < OPEN_REQUESTS and (lost or position < transfer.length):
                if lost:
                    piece = lost.popleft()
                else:
                    piece = position, min(self._piece_bytes, transfer.length - position)
                    position += piece[1]
                sent[self._send(transfer, piece)] = piece
            for answer in self._answers(deadline - time.monotonic()):
                piece = sent.get(answer.tag)
                if piece is None or not self._fits(answer, transfer, piece):
                    continue
                if not transfer.payload:
                    result[piece[0] : sum(piece)] = answer.payload
                self._piece_bytes = min(PAYLOAD_BYTES, self._piece_bytes + MIN_BYTES)
                silent, deadline = 0, time.monotonic() + patience
                tags = list(sent)
                lost.extend(self._give_up(sent, tags[: tags.index(answer.tag)]))
                del sent[answer.tag]
            if sent and time.monotonic() >= deadline:
                silent += 1
                if silent >= rounds:
                    raise SilenceError(
                        f"device `{self.transport.address.text}`: no answer; check that the board "
                        "holds Tilewright's bitstream and has power, the cable, and the baud rate"
                    )
                lost.extend(self._give_up(sent, list(sent)))
                deadline = time.monotonic() + patience * 2**silent
        return bytes(result)

    def _give_up(self, sent: dict[int, Piece], tags: list[int]) -> Iterator[Piece]:
        """Take requests out that were lost, and yield what is to be sent in their place."""
        for tag in tags:
            offset, length = sent.pop(tag)
            self.resent += 1
            # A multiple of the shortest, since registers are moved whole.
            shorter = self._piece_bytes // (2 * MIN_BYTES)
            self._piece_bytes = step = MIN_BYTES * max(1, shorter)
            yield from (
                (offset + start, min(step, length - start)) for start in range(0, length, step)
            )

    def _send(self, transfer: Transfer, piece: Piece) -> int:
        """Send a request, and return its tag."""
        self._tag = (self._tag + 1) % TAGS
        offset, length = piece
        payload = transfer.payload[offset : offset + length]
        body = request(transfer.command, self._tag, transfer.address + offset, length, payload)
        self.transport.send(frame(body))
        return self._tag

    def _answers(self, seconds: float) -> Iterator[Answer]:
        """Yield the answers in what arrives next."""
        *frames, self._waiting = (self._waiting + self.transport.receive(seconds)).split(
            bytes([FLAG])
        )
        self._waiting = self._waiting[-MAX_FRAME:]
        for stuffed in frames:
            body = body_of(stuffed)
            answer = None if body is None else parse_answer(body)
            if answer is not None:
                yield answer

    def _fits(self, answer: Answer, transfer: Transfer, piece: Piece) -> bool:
        """Whether an answer is one to a part of a transfer.

        Raises
        ------
        DeviceError
            If the board refused.
        """
        if answer.command != transfer.command:
            return False
        if answer.status != Status.OKAY:
            raise DeviceError(
                f"device `{self.transport.address.text}`: the board refused "
                f"{transfer.command.name.lower()} of {piece[1]} bytes at "
                f"{transfer.address + piece[0]:#x} (status {answer.status}); this is a fault of "
                "the driver or of the board: report it"
            )
        return len(answer.payload) == (0 if transfer.payload else piece[1])


def _register_write(address: int, value: int) -> Transfer:
    data = value.to_bytes(4, "little")
    return Transfer(Command.WRITE_REGISTERS, address, len(data), data)
