"""From bytes to requests: find frames, check them, and keep the bytes that they write."""

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...isa.link import (
    CHECK_BYTES,
    CHECK_INITIAL,
    CHECK_RESIDUE,
    ESCAPE,
    ESCAPE_FLIP,
    FLAG,
    REQUEST,
)
from ..ram import Ram
from .check import CHECK_BITS, next_check

REQUEST_LAYOUT = data.StructLayout({"command": 8, "tag": 16, "address": 32, "length": 16})
"""The head of a request, in the order of its bytes."""


def payload_words(word_bytes: int, payload_bytes: int) -> int:
    """Return the words of a payload: one that begins inside of a word ends in one more."""
    return payload_bytes // word_bytes + 1


class FrameReceiver(wiring.Component):
    """Offer the head of each frame whose check is right, and keep its payload in words.

    One byte per cycle. While a request is offered, no byte is taken, so its payload stays. A frame
    that is too short, too long or damaged is dropped at its end; the next byte begins a frame.

    Parameters
    ----------
    word_bytes : int
        Bytes of a word of the payload, a power of two. The payload begins at the byte of a word
        that the request's address names.
    payload_bytes : int
        Most bytes of a payload, a power of two.

    Members
    -------
    bytes : In(stream of 8 bits)
    requests : Out(stream of REQUEST_LAYOUT)
        Valid from two cycles after the flag that ends the frame.
    payload_bytes : Out
        Bytes behind the head of the request that is offered.
    read_enable, read_address : In
    read_data : Out(word)
        A word of the payload, `RAM_CYCLES` later. Bytes outside of the payload are arbitrary.
    """

    def __init__(self, word_bytes: int, payload_bytes: int):
        self.word_bytes, self.most = word_bytes, payload_bytes
        self.words = payload_words(word_bytes, payload_bytes)
        super().__init__(
            {
                "bytes": In(stream.Signature(8)),
                "requests": Out(stream.Signature(REQUEST_LAYOUT)),
                "payload_bytes": Out(range(payload_bytes + 1)),
                "read_enable": In(1),
                "read_address": In(range(self.words)),
                "read_data": Out(8 * word_bytes),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        longest = REQUEST.size + self.most + CHECK_BYTES
        head = Signal(REQUEST_LAYOUT, reset_less=True)
        check = Signal(CHECK_BITS, init=CHECK_INITIAL)
        count = Signal(range(longest + 2))
        escaped = Signal()

        taken = self.bytes.valid & self.bytes.ready
        byte = self.bytes.payload
        is_flag, is_escape = byte == FLAG, byte == ESCAPE
        plain = Signal(8)
        enters = Signal()
        m.d.comb += [
            self.bytes.ready.eq(~self.requests.valid),
            plain.eq(byte ^ (escaped << (ESCAPE_FLIP.bit_length() - 1))),
            enters.eq(taken & ~is_flag & ~is_escape),
            self.requests.payload.eq(head),
        ]
        with m.If(self.requests.ready):
            m.d.sync += self.requests.valid.eq(0)
        with m.If(taken):
            m.d.sync += escaped.eq(is_escape)
            with m.If(is_flag):
                m.d.sync += [count.eq(0), check.eq(CHECK_INITIAL)]
                whole = (count >= REQUEST.size + CHECK_BYTES) & (count <= longest)
                m.d.sync += [
                    self.requests.valid.eq(whole & ~escaped & (check == CHECK_RESIDUE)),
                    self.payload_bytes.eq(count - (REQUEST.size + CHECK_BYTES)),
                ]
        with m.If(enters):
            m.d.sync += check.eq(next_check(check, plain))
            with m.If(count <= longest):
                m.d.sync += count.eq(count + 1)
            with m.If(count < REQUEST.size):
                m.d.sync += Value.cast(head).eq(
                    Value.cast(head)[8:] | (plain << (8 * (REQUEST.size - 1)))
                )
        self._keep(m, head, count, enters, plain)
        return m

    def _keep(self, m: Module, head, count: Signal, enters: Signal, plain: Signal) -> None:
        """Write the bytes behind the head; those of the check do no harm."""
        m.submodules.payload = payload = Ram(self.words, 8 * self.word_bytes, granularity=8)
        lane_bits = (self.word_bytes - 1).bit_length()
        place = Signal(range(self.words * self.word_bytes + 1), reset_less=True)
        behind = count >= REQUEST.size
        fits = place < self.words * self.word_bytes
        with m.If(enters):
            m.d.sync += place.eq(place + fits)
            with m.If(~behind):
                m.d.sync += place.eq(head.address[8 : 8 + lane_bits])
        m.d.comb += [
            payload.read_enable.eq(self.read_enable),
            payload.read_address.eq(self.read_address),
            self.read_data.eq(payload.read_data),
            payload.write.eq(enters & behind & fits),
            payload.write_enable.eq(1 << place[:lane_bits]),
            payload.write_address.eq(place[lane_bits:]),
            payload.write_data.eq(plain.replicate(self.word_bytes)),
        ]
