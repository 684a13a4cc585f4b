"""The link between a host and a board: frames of bytes, requests, and the board's own registers.

A frame is HDLC-like: `FLAG`, the body with its check, `FLAG`. In between, `ESCAPE` precedes each
`FLAG` and `ESCAPE`, which are then sent with one bit flipped. Whatever was lost or changed before a
`FLAG`, the byte after it begins a frame. A frame whose check is wrong is dropped without an answer,
so the host asks again. Every request may be executed twice, but a write of `CONTROL`: it starts a
run.

Sources: RFC 1662, section 4 (octet-stuffed framing); IEEE 802.3, section 3.2.9 (CRC-32).
"""

import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum

from .registers import REGISTER_SPACE_BYTES, Register

FLAG, ESCAPE, ESCAPE_FLIP = 0x7E, 0x7D, 0x20

CHECK_BYTES = 4
"""CRC-32 of the body, little endian."""

CHECK_POLYNOMIAL, CHECK_INITIAL = 0xEDB88320, 0xFFFFFFFF
"""Bit-reversed polynomial, and the register before the first byte; it is sent inverted."""

CHECK_RESIDUE = 0xDEBB20E3
"""The register after a body and its check, if both arrived unchanged."""

PAYLOAD_BYTES = 1024
"""Most bytes that a request writes or reads."""

LINK_VERSION = 2


class Command(IntEnum):
    """The first byte of a request; `ANSWER` is added in the answer."""

    READ_MEMORY = 1
    WRITE_MEMORY = 2
    READ_REGISTERS = 3
    WRITE_REGISTERS = 4


ANSWER = 0x80


class Status(IntEnum):
    """The last byte of an answer: whether the board executed the request."""

    OKAY = 0
    REFUSED = 1
    """Unknown command, or not inside the memory or the registers; nothing was done."""
    MEMORY_RESPONSE = 2
    """The memory answered an access with an error."""


REQUEST = struct.Struct("<BHIH")
"""Head of a request: command, tag, byte address, bytes. Bytes to write follow."""

ANSWER_HEAD = struct.Struct("<BH")
"""Head of an answer: command with `ANSWER`, tag. Bytes read follow, then a `Status`."""

LINK_MAGIC = 0x4B4C5754
"""`LINK_ID` reads "TWLK" byte by byte."""

_BOARD = (
    ("LINK_ID", False, f"`0x{LINK_MAGIC:08X}`"),
    ("LINK_VERSION", False, "version of the link"),
    ("MEMORY_BYTES", False, "bytes of main memory, from address 0"),
    ("MEMORY_LATENCY", False, "cycles from a read's address to its first beat"),
    ("MEMORY_BEAT_CYCLES", False, "cycles of a beat if reads and writes share a bus; else 0"),
    ("MEMORY_READ_GAP", False, "cycles of a burst of reads beside its beats, on a shared bus"),
    ("MEMORY_WRITE_GAP", False, "cycles of a burst of writes beside its beats"),
    ("MEMORY_REFRESH", False, "cycles of a refresh"),
    ("MEMORY_REFRESH_INTERVAL", False, "cycles from one refresh to the next"),
    ("CLOCK_HZ", False, "clock of the core"),
    ("SESSION", True, "a number of the host's; 0 after a reset, when memory may have changed"),
)

BOARD_REGISTERS = tuple(
    Register(name, REGISTER_SPACE_BYTES + 4 * index, writable, text)
    for index, (name, writable, text) in enumerate(_BOARD)
)
"""Registers of the board, behind those of the core."""

BOARD_OFFSETS = {register.name: register.offset for register in BOARD_REGISTERS}

BOARD_SPACE_BYTES = 4 * len(BOARD_REGISTERS)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that arrived unchanged.

    Parameters
    ----------
    command, tag : int
        Those of the request.
    payload : bytes
        Bytes read.
    status : int
        A `Status`.
    """

    command: int
    tag: int
    payload: bytes
    status: int


def frame(body: bytes) -> bytes:
    """Return the bytes of a frame on the link."""
    checked = body + zlib.crc32(body).to_bytes(CHECK_BYTES, "little")
    stuffed = checked.replace(bytes([ESCAPE]), bytes([ESCAPE, ESCAPE ^ ESCAPE_FLIP]))
    stuffed = stuffed.replace(bytes([FLAG]), bytes([ESCAPE, FLAG ^ ESCAPE_FLIP]))
    return bytes([FLAG, *stuffed, FLAG])


def body_of(stuffed: bytes) -> bytes | None:
    """Return the body of a frame from the bytes between its flags; None if its check is wrong."""
    plain = bytearray()
    parts = stuffed.split(bytes([ESCAPE]))
    plain += parts[0]
    for part in parts[1:]:
        if not part:
            return None
        plain += bytes([part[0] ^ ESCAPE_FLIP]) + part[1:]
    if len(plain) < CHECK_BYTES:
        return None
    body, check = bytes(plain[:-CHECK_BYTES]), plain[-CHECK_BYTES:]
    return body if zlib.crc32(body) == int.from_bytes(check, "little") else None


def request(command: int, tag: int, address: int, length: int, payload: bytes = b"") -> bytes:
    """Return the body of a request."""
    return REQUEST.pack(command, tag, address, length) + payload


def parse_answer(body: bytes) -> Answer | None:
    """Return the answer in a body; None if it is not one."""
    if len(body) <= ANSWER_HEAD.size:
        return None
    command, tag = ANSWER_HEAD.unpack_from(body)
    if not command & ANSWER:
        return None
    return Answer(command ^ ANSWER, tag, body[ANSWER_HEAD.size : -1], body[-1])
