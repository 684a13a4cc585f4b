"""Frames survive any bytes, and no damage passes their check."""

import zlib

from hypothesis import given
from hypothesis import strategies as st

from tilewright.isa.link import (
    ANSWER,
    CHECK_BYTES,
    CHECK_INITIAL,
    CHECK_RESIDUE,
    ESCAPE,
    FLAG,
    Answer,
    Command,
    Status,
    body_of,
    frame,
    parse_answer,
    request,
)

BODIES = st.binary(min_size=1, max_size=80) | st.text("}~^]", min_size=1).map(str.encode)


def inside(framed: bytes) -> bytes:
    assert framed[0] == framed[-1] == FLAG
    assert FLAG not in framed[1:-1]
    return framed[1:-1]


@given(BODIES)
def test_a_frame_gives_its_body_back(body):
    assert body_of(inside(frame(body))) == body


@given(BODIES, st.data())
def test_a_damaged_frame_is_dropped(body, data):
    stuffed = bytearray(inside(frame(body)))
    place = data.draw(st.integers(0, len(stuffed) - 1))
    if data.draw(st.booleans()):
        stuffed[place] ^= 1 << data.draw(st.integers(0, 7))
    else:
        del stuffed[place]
    # A flag in the middle ends the frame early and begins another.
    for part in bytes(stuffed).split(bytes([FLAG])):
        assert body_of(part) is None


def test_nothing_and_a_lonely_escape_are_no_frames():
    assert body_of(b"") is None
    assert body_of(inside(frame(b"ab")) + bytes([ESCAPE])) is None


@given(BODIES)
def test_the_residue_is_the_same_for_all_bodies(body):
    checked = body + zlib.crc32(body).to_bytes(CHECK_BYTES, "little")
    assert zlib.crc32(checked) ^ CHECK_INITIAL == CHECK_RESIDUE


def test_an_answer_is_read_and_a_request_is_none():
    body = bytes([Command.READ_MEMORY | ANSWER, 0x34, 0x12]) + b"data" + bytes([Status.OKAY])
    assert parse_answer(body) == Answer(Command.READ_MEMORY, 0x1234, b"data", Status.OKAY)
    assert parse_answer(request(Command.READ_MEMORY, 1, 0, 4)) is None
    assert parse_answer(body[:3]) is None
