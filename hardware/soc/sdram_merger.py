"""Writes of single bytes to an SDRAM whose bytes cannot be masked: old words are read before."""

from amaranth.hdl import Assert, Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...isa.sdram import Sdram, SdramCycles
from ..axi import LEN_BITS


class SdramMerger(wiring.Component):
    """Keep the last and the first beat that a burst is going to replace, and merge them with it.

    The words of the last beat are fetched first, then those of the first beat. Beats in between
    must be whole.

    Parameters
    ----------
    sdram : Sdram
    beat_words : int
        Words of the chip in a beat of the bus.
    cycles : SdramCycles

    Members
    -------
    left : In
        Words of the burst that are left after the one that moves.
    fetches : In(1)
        Ask for a word: one per cycle until `fetch_ends`, before the burst moves.
    offset : Out
        Where the word lies that is fetched, in words from the beginning of the burst.
    fetch_ends : Out(1)
        The word that is fetched is the last one.
    read : In(data_bits)
        The chip's answer, `SdramCycles.answer` after the request.
    moves : In(1)
        The burst writes a word: `new`, save for the bytes that `mask` excludes.
    written : Out(data_bits)
        The word with its old bytes.
    sent : Out(1)
        The burst would have been sent now if it had fetched nothing.
    """

    def __init__(self, sdram: Sdram, beat_words: int, cycles: SdramCycles):
        self.beat_words, self.answer = beat_words, cycles.answer
        words, bits = beat_words << LEN_BITS, sdram.data_bits
        super().__init__(
            {
                "left": In(range(words)),
                "fetches": In(1),
                "offset": Out(range(words)),
                "fetch_ends": Out(1),
                "read": In(bits),
                "moves": In(1),
                "new": In(bits),
                "mask": In(bits // 8),
                "written": Out(bits),
                "sent": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        index_bits, bits = (self.beat_words - 1).bit_length(), len(self.read)
        fetched, begun = Signal(index_bits + 1), Signal()
        index, is_first = fetched[:index_bits], fetched[-1]
        with m.If(self.fetches):
            m.d.sync += [fetched.eq(fetched + 1), begun.eq(~self.fetch_ends)]
        last_beat = self.left[index_bits:]
        m.d.comb += [
            self.offset.eq(Cat(index, Mux(is_first, 0, last_beat))),
            self.fetch_ends.eq(fetched.all()),
        ]
        arrives = Signal(self.answer)
        m.d.sync += arrives.eq(Cat(self.fetches, arrives))
        beat_bits = self.beat_words * bits
        old = Signal(2 * beat_bits, reset_less=True)
        with m.If(arrives[-1]):
            m.d.sync += old.eq(Cat(old, self.read)[bits:])
        kept = Mux(last_beat == 0, old[:beat_bits], old[beat_bits:])
        kept = kept.word_select(~self.left[:index_bits], bits)
        for byte, masked in enumerate(self.mask):
            part = slice(8 * byte, 8 * byte + 8)
            m.d.comb += self.written[part].eq(Mux(masked, kept[part], self.new[part]))

        # The counterpart of `left`, from the first word that is fetched on.
        counts, remaining = Signal(), Signal.like(self.left)
        begins = self.fetches & ~begun
        m.d.comb += self.sent.eq((begins | counts) & (remaining == 0))
        with m.If(begins | counts):
            m.d.sync += [counts.eq(~self.sent), remaining.eq(remaining - 1)]
        with m.Else():
            m.d.sync += remaining.eq(self.left)

        later = Signal()
        with m.If(self.moves):
            m.d.sync += later.eq((self.left != 0) & (later | (self.left[:index_bits] == 0)))
        within = self.moves & later & (last_beat != 0)
        m.d.sync += Assert(~within | (self.mask == 0), "a beat within a burst is not whole")
        return m
