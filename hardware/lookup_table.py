"""One lane's copy of the look-up tables, for any function from int8 to int8.

Every lane reads a different address in each cycle, so every lane has a copy. All copies are written
together, in rows of four bytes.
"""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..isa.pipeline import LOOKUP_CYCLES, RAM_CYCLES
from .delay import delayed
from .ram import Ram

ROW_BYTES = 4
ROWS = 256 // ROW_BYTES
"""Rows of one table; table `t` starts at row `t * ROWS`."""


class LookupTable(wiring.Component):
    """Map an int8 through the selected table, or pass it unchanged; one value per cycle.

    Latency `LATENCY` cycles either way; never stalls. A row that is written while it is read has
    no defined value.

    Parameters
    ----------
    tables : int
        Number of tables, a power of two.
    gives_entries : bool
        Whether the table may hold entries of 16 bits.

    Members
    -------
    index : In(int8)
        Value x, which selects byte x + 128 of the table.
    active : In(1)
        Must be high from an index to its value; the output holds while it is low.
    enable : In(1)
        Look up; stable, like `table`, while values are in flight.
    table : In(range(tables))
    value : Out(int8)
        Value for the index `LATENCY` cycles ago.
    entries : In(1)
        Look up an entry, and let the value pass; stable like `enable`.
    counts : In(1)
        The entry of the next cycle is not 0.
    unchanged : Out(int8)
        The index in the cycle of its value.
    entry : Out(16)
        Entry of the index, in two tables from `table` on.
    write_address : In(range(tables * 64))
        Row of four bytes: `table * 64 + index // 4`.
    write_data : In(32)
        Bytes of the row, the lowest index first.
    write_bytes : In(4)
        Mask of the bytes to write.
    """

    LATENCY = LOOKUP_CYCLES

    def __init__(self, tables: int, gives_entries: bool = False):
        self.tables, self.gives_entries = tables, gives_entries
        members = {
            "entries": In(1),
            "counts": In(1),
            "unchanged": Out(signed(8)),
            "entry": Out(16),
        }
        super().__init__(
            {
                "index": In(signed(8)),
                "active": In(1),
                "enable": In(1),
                "table": In(range(tables)),
                "value": Out(signed(8)),
                "write_address": In(range(tables * ROWS)),
                "write_data": In(8 * ROW_BYTES),
                "write_bytes": In(ROW_BYTES),
                **(members if gives_entries else {}),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.rows = rows = Ram(self.tables * ROWS, 8 * ROW_BYTES, granularity=8)
        position = Cat(self.index[:7], ~self.index[7])
        byte_bits = ceil_log2(ROW_BYTES)
        byte = delayed(m, position[:byte_bits], RAM_CYCLES, "byte")
        unchanged = delayed(m, self.index, RAM_CYCLES, "unchanged")
        value = Signal(8, reset_less=True)
        m.d.comb += [
            rows.write_address.eq(self.write_address),
            rows.write_data.eq(self.write_data),
            rows.write_enable.eq(self.write_bytes),
            rows.read_address.eq(Cat(position[byte_bits:], self.table)),
            rows.read_enable.eq(self.enable & self.active),
            self.value.eq(value),
        ]
        with m.If(self.active):
            m.d.sync += value.eq(Mux(self.enable, rows.read_data.word_select(byte, 8), unchanged))
        if self.gives_entries:
            self._look_up_entries(m, rows, value, position, unchanged, byte[0])
        return m

    def _look_up_entries(self, m: Module, rows: Ram, value, position, unchanged, half) -> None:
        entry = Signal(16, reset_less=True)
        index = Signal(signed(8), reset_less=True)
        with m.If(self.entries):
            table = (self.table + position[-1])[: len(self.table)]
            m.d.comb += [
                rows.read_address.eq(Cat(position[1:-1], table)),
                rows.read_enable.eq(self.active),
            ]
        with m.If(self.active):
            found = rows.read_data.word_select(half, 16)
            m.d.sync += [index.eq(unchanged), entry.eq(Mux(self.counts, found, 0))]
            with m.If(self.entries):
                m.d.sync += value.eq(unchanged)
        m.d.comb += [self.unchanged.eq(index), self.entry.eq(entry)]
