"""Messages of clients, agents and their workers: a JSON header and byte strings.

Nothing is pickled. Sizes are bounded before anything is read, and a message that is cut off or
malformed is an error of the other side, never a wait for ever. The header is an object with `op`,
the sizes of the byte strings, and fields that `take` checks one by one.
"""

import json
import socket
import struct
import time
from asyncio import IncompleteReadError, StreamReader, timeout
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

from ..errors import DeviceError
from ..file_access import parse_json

WIRE_VERSION = 2
"""Version of these messages; every incompatible change increments it."""

MAX_HEADER_BYTES = 1 << 20
MAX_PARTS = 1024
MAX_BYTES = 1 << 30
"""Bytes of all parts of a message; data windows and artifacts may be as large."""

MIN_BYTES_PER_S = 1 << 16
"""A slower link counts as broken."""

SENDING_S = 60.0
"""Seconds in which a message has to leave, beside those of its bytes."""

HEAD = struct.Struct("<4sI")
MAGIC = b"TWm1"

_Type = TypeVar("_Type")


class JobVerdict(StrEnum):
    """The end of a job. Only a lost machine is a reason to try the same job again."""

    OK = "ok"
    REFUSED = "refused"
    """By the door: key, version, signature, size, or a device that the agent does not have."""
    STALE = "stale lease"
    """The token is not that of the lease in force."""
    MISSING = "missing artifact"
    """The agent does not keep the artifact, or no longer."""
    FAILED = "failed"
    """The job's own fault: an illegal program, inputs that do not fit."""
    WRONG = "wrong result"
    FAULT = "device fault"
    TOOL = "tool error"
    TIMEOUT = "timeout"
    MEMORY = "out of memory"
    CRASHED = "crashed"
    DISK_FULL = "disk full"
    LOST = "lost machine"


class JobError(DeviceError):
    """A job on an agent that did not end well; `verdict` is its class."""

    def __init__(self, verdict: JobVerdict, text: str) -> None:
        super().__init__(text)
        self.verdict = verdict


class WireError(Exception):
    """The other side sent something that is no message; the text says what."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message that was received.

    Parameters
    ----------
    op : str
        What it asks or answers.
    fields : dict
        Values of the header, of which none is checked.
    parts : tuple of bytes
        The byte strings that follow the header.
    """

    op: str
    fields: dict[str, Any] = field(default_factory=dict)
    parts: tuple[bytes, ...] = ()

    def take(self, name: str, kind: type[_Type]) -> _Type:
        """Return a field of a type.

        Raises
        ------
        WireError
            If it is missing or of another type.
        """
        value = self.fields.get(name)
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind:
            raise WireError(f"`{self.op}`: expected `{name}` as {kind.__name__}, got {value!r:.60}")
        return value

    def only_part(self) -> bytes:
        """Return the only byte string; raises as `take`."""
        if len(self.parts) != 1:
            raise WireError(f"`{self.op}`: expected 1 byte string, got {len(self.parts)}")
        return self.parts[0]

    def numbers(self, name: str) -> list[int]:
        """Return a field that is a list of integers from 0 on; raises as `take`."""
        values = self.take(name, list)
        if not all(type(value) is int and value >= 0 for value in values):
            raise WireError(f"`{self.op}`: expected counts in `{name}`, got {values!r:.60}")
        return values


def encode(op: str, parts: Sequence[bytes] = (), **fields: Any) -> list[bytes]:
    """Return a message as byte strings to send one after the other.

    Raises
    ------
    ValueError
        If it is larger than a receiver would take.
    """
    sizes = [len(part) for part in parts]
    header = json.dumps({**fields, "op": op, "sizes": sizes}).encode()
    if len(header) > MAX_HEADER_BYTES or len(sizes) > MAX_PARTS or sum(sizes) > MAX_BYTES:
        raise ValueError(
            f"{sum(sizes):,} bytes in {len(sizes):,} parts, where an agent takes at most "
            f"{MAX_BYTES:,} in {MAX_PARTS:,}"
        )
    return [HEAD.pack(MAGIC, len(header)) + header, *parts]


def decoding(max_bytes: int = MAX_BYTES) -> Generator[int, bytes, Message]:
    """Decode a message: yields numbers of bytes, is sent so many, and returns the message.

    Raises
    ------
    WireError
        As soon as the bytes cannot be a message.
    """
    magic, length = HEAD.unpack((yield HEAD.size))
    if magic != MAGIC or length > MAX_HEADER_BYTES:
        raise WireError("bytes that are no message of this version")
    try:
        header = parse_json((yield length))
    except ValueError:
        raise WireError("a header that is not JSON") from None
    if not isinstance(header, dict):
        raise WireError("a header that is not an object")
    op = header.pop("op", None)
    message = Message(op if isinstance(op, str) else "", header)
    sizes = message.numbers("sizes")
    if len(sizes) > MAX_PARTS or sum(sizes) > max_bytes:
        raise WireError(f"{sum(sizes):,} bytes in {len(sizes):,} parts, which is too much")
    parts = []
    for size in sizes:
        parts.append((yield size) if size else b"")
    return Message(message.op, header, tuple(parts))


async def receive_message(
    reader: StreamReader, idle_s: float | None = None, max_bytes: int = MAX_BYTES
) -> Message | None:
    """Receive a message from a stream of asyncio; None at its end.

    Parameters
    ----------
    idle_s : float or None
        Seconds until it has to begin; None for any time.

    Raises
    ------
    WireError
        For other bytes, or a message that is late or cut off.
    """
    decoder = decoding(max_bytes)
    wanted, begun = next(decoder), False
    while True:
        limit_s = idle_s if not begun else SENDING_S + wanted / MIN_BYTES_PER_S
        try:
            async with timeout(limit_s):
                data = await reader.readexactly(wanted)
        except TimeoutError:
            raise WireError(f"nothing came for {limit_s:g} s") from None
        except IncompleteReadError as problem:
            if not begun and not problem.partial:
                return None
            raise WireError("a message that is cut off") from None
        except OSError:
            raise WireError("a broken connection") from None
        begun = True
        try:
            wanted = decoder.send(data)
        except StopIteration as end:
            return end.value


class Channel:
    """Messages over a blocking socket, encrypted or between processes; used by one thread.

    Parameters
    ----------
    stream : socket
        Closed with the channel.
    """

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream

    def close(self) -> None:
        self._stream.close()

    def send(self, op: str, parts: Sequence[bytes] = (), **fields: Any) -> None:
        """Send a message.

        Raises
        ------
        OSError
            If it does not leave in time, or the connection is broken.
        """
        for part in encode(op, parts, **fields):
            self._stream.settimeout(SENDING_S + len(part) / MIN_BYTES_PER_S)
            self._stream.sendall(part)

    def receive(self, seconds: float | None) -> Message:
        """Receive a message.

        Parameters
        ----------
        seconds : float or None
            Time for each part of it, beside that of its bytes; None to wait without a limit.

        Raises
        ------
        WireError
            For bytes that are no message, or the end of the stream.
        TimeoutError, OSError
            If nothing comes, or the connection is broken.
        """
        decoder = decoding()
        wanted = next(decoder)
        while True:
            data = self._exactly(wanted, seconds)
            try:
                wanted = decoder.send(data)
            except StopIteration as end:
                return end.value

    def _exactly(self, count: int, seconds: float | None) -> bytes:
        data, place = bytearray(count), 0
        end = None if seconds is None else time.monotonic() + seconds + count / MIN_BYTES_PER_S
        while place < count:
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError(f"nothing came for {seconds:g} s")
            self._stream.settimeout(left)
            got = self._stream.recv_into(memoryview(data)[place:])
            if not got:
                raise WireError("a message that is cut off" if place else "the end of the stream")
            place += got
        return bytes(data)
