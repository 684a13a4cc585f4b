"""A large RAM of any size, made of banks that are powers of two."""

from amaranth.hdl import Const, Module, Mux, Signal

from ..blocks import BLOCK_18K
from ..ram import Ram

DEEPEST = BLOCK_18K.deepest
"""Words of the largest bank: a bit of each lies in a block of its own."""


def bank_words(words: int) -> list[int]:
    """Return the words of each bank: the largest first, all of them powers of two."""
    banks = [DEEPEST] * (words // DEEPEST)
    rest = words % DEEPEST
    return banks + [1 << bit for bit in reversed(range(rest.bit_length())) if rest >> bit & 1]


class BankedRam(Ram):
    """A `Ram` with a write enable per byte; see there. Addresses beyond its end access any word.

    Where the words are no power of two, blocks for the next one would be wasted.
    """

    def __init__(self, depth: int, width: int):
        super().__init__(depth, width, granularity=8)

    def elaborate(self, platform) -> Module:
        m = Module()
        start, data = 0, Const(0, self.width)
        for index, words in enumerate(bank_words(self.depth)):
            m.submodules[f"bank_{index}"] = bank = Ram(words, self.width, granularity=8)
            bits = (words - 1).bit_length()
            reads, writes = Signal(name=f"reads_{index}"), Signal(name=f"writes_{index}")
            m.d.comb += [
                reads.eq(self.read_address[bits:] == start // words),
                writes.eq(self.write_address[bits:] == start // words),
                bank.read_enable.eq(self.read_enable & reads),
                bank.read_address.eq(self.read_address[:bits]),
                bank.write.eq(self.write & writes),
                bank.write_enable.eq(self.write_enable),
                bank.write_address.eq(self.write_address[:bits]),
                bank.write_data.eq(self.write_data),
            ]
            shown = self._delayed(m, reads, f"shown_{index}")
            data = Mux(shown, bank.read_data, data) if index else bank.read_data
            start += words
        m.d.comb += self.read_data.eq(data)
        return m

    def _delayed(self, m: Module, reads: Signal, name: str) -> Signal:
        """Return whether the last word that was read is of a bank, as late as its data."""
        fetched, asked = Signal(name=f"{name}_fetched"), Signal(name=f"{name}_asked")
        shown = Signal(name=name)
        m.d.sync += fetched.eq(self.read_enable)
        with m.If(self.read_enable):
            m.d.sync += asked.eq(reads)
        with m.If(fetched):
            m.d.sync += shown.eq(asked)
        return shown
