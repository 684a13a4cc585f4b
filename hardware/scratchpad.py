"""Banked on-chip memories: one reader and one writer per bank at a time, without arbitration.

The program decides which client uses a bank, and the checker proves that no two collide. The
assertions here hold for every checked program.
"""

from collections.abc import Sequence

from amaranth.hdl import Assert, Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..isa.configuration import Configuration, Memory
from ..isa.fields import address_width
from ..isa.pipeline import READ_LATENCY
from .blocks import WORD_BITS, granule_bits
from .delay import delayed
from .fan_out import copied
from .ram import Ram
from .selection import Choice


class RowFormat:
    """Division of a scratchpad's row into words and mask bits.

    Attributes
    ----------
    words, word_bits : int
        Number of words in a row, and bits of a word.
    granularity : int
        Bits that one mask bit covers: an accumulator, or a byte elsewhere.
    address_bits : int
        Width of a row's address, with the bank in its top bits.
    """

    def __init__(self, configuration: Configuration, memory: Memory):
        row_bits = 8 * configuration.row_bytes(memory)
        self.word_bits = min(row_bits, WORD_BITS)
        self.words = row_bits // self.word_bits
        self.granularity = granule_bits(memory)
        self.address_bits = address_width(configuration.rows(memory))
        self.banks = configuration.banks(memory)

    def read_port(self) -> wiring.Signature:
        """A read client, seen from the client; data follow `READ_LATENCY` cycles later."""
        return wiring.Signature(
            {
                "enable": Out(1),
                "address": Out(self.address_bits),
                "data": In(self.word_bits).array(self.words),
            }
        )

    def write_port(self, announces: bool = False) -> wiring.Signature:
        """A write client, seen from the client.

        One that `announces` its writes sets bit b of `announced` in the cycle before it writes
        bank b. Its data then pass through registers that are selected by registers.
        """
        return wiring.Signature(
            {
                **({"announced": Out(self.banks)} if announces else {}),
                "enable": Out(1),
                "address": Out(self.address_bits),
                "data": Out(self.word_bits).array(self.words),
                "mask": Out(self.word_bits // self.granularity).array(self.words),
            }
        )


def elements(words: Sequence[Value], bits: int) -> list[Value]:
    """Split a row into its elements (or their mask bits) of `bits` bits each, in order."""
    return [
        word[low : low + bits]
        for word in map(Value.cast, words)
        for low in range(0, len(word), bits)
    ]


class Bank(wiring.Component):
    """The RAMs of one bank, one for each word of the row, with a common address.

    Members
    -------
    read : In(read client without bank bits)
    write : In(write client without bank bits)
    """

    def __init__(self, row: RowFormat, depth: int):
        self.row, self.depth = row, depth
        narrow = {"address": Out(address_width(depth))}
        super().__init__(
            {
                "read": In(wiring.Signature({**row.read_port().members, **narrow})),
                "write": In(wiring.Signature({**row.write_port().members, **narrow})),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        collides = self.read.enable & self.write.enable & (self.read.address == self.write.address)
        m.d.sync += Assert(~collides, "a row is read and written in the same cycle")
        for word in range(self.row.words):
            ram = Ram(self.depth, self.row.word_bits, self.row.granularity)
            m.submodules[f"word_{word}"] = ram
            m.d.comb += [
                ram.read_enable.eq(self.read.enable),
                ram.read_address.eq(self.read.address),
                self.read.data[word].eq(ram.read_data),
                ram.write.eq(self.write.enable),
                ram.write_enable.eq(self.write.mask[word]),
                ram.write_address.eq(self.write.address),
                ram.write_data.eq(self.write.data[word]),
            ]
        return m


class Scratchpad(wiring.Component):
    """One memory of the machine, zero at power-up.

    Read data are valid for one cycle, `READ_LATENCY` cycles after the address. Reads see a write
    from the next cycle on. Never stalls: two readers or two writers of a bank in one cycle are an
    error of the program.

    Parameters
    ----------
    configuration : Configuration
    memory : Memory
        Determines the row, the depth and the banks.
    readers, writers : Sequence[str]
        Names of the clients.
    announces : bool
        Whether the first writer announces its writes.

    Members
    -------
    read_<client> : In(read client)
    write_<client> : In(write client)
    """

    def __init__(
        self,
        configuration: Configuration,
        memory: Memory,
        readers: Sequence[str],
        writers: Sequence[str],
        announces: bool = False,
    ):
        self.banks = configuration.banks(memory)
        self.depth = configuration.depth(memory)
        self.row = RowFormat(configuration, memory)
        self.readers, self.writers = tuple(readers), tuple(writers)
        self.announces = announces
        super().__init__(
            {f"read_{name}": In(self.row.read_port()) for name in readers}
            | {
                f"write_{name}": In(self.row.write_port(announces and name == writers[0]))
                for name in writers
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        readers = [getattr(self, f"read_{name}") for name in self.readers]
        writers = [getattr(self, f"write_{name}") for name in self.writers]
        banks = []
        for index in range(self.banks):
            bank = Bank(self.row, self.depth)
            m.submodules[f"bank_{index}"] = bank
            banks.append(bank)
            self._select(m, platform, bank.read, readers, index, "read", ())
            self._select(m, platform, bank.write, writers, index, "write", ("data", "mask"))
        for name, reader in zip(self.readers, readers, strict=True):
            bank = self._bank_of(reader.address)
            earlier = delayed(m, bank, READ_LATENCY - 1, f"bank_{name}") if len(bank) else bank
            chosen = copied(m, platform, earlier, self.row.words, f"chosen_{name}")
            for word in range(self.row.words):
                choice = Choice(self.banks, self.row.word_bits)
                m.submodules[f"{name}_{word}"] = choice
                m.d.comb += [
                    choice.index.eq(chosen[word]),
                    *(
                        value.eq(bank.read.data[word])
                        for value, bank in zip(choice.values, banks, strict=True)
                    ),
                    reader.data[word].eq(choice.chosen),
                ]
        return m

    def _bank_of(self, address: Value) -> Value:
        return Value.cast(address)[address_width(self.depth) :]

    def _select(self, m: Module, platform, port, clients, index: int, side: str, payload) -> None:
        """Connect the client that addresses this bank, one cycle later."""
        hits = []
        for number, client in enumerate(clients):
            hit = Signal(name=f"{side}_{number}_hits_{index}")
            m.d.comb += hit.eq(client.enable & (self._bank_of(client.address) == index))
            hits.append(hit)
        m.d.sync += Assert(sum(hits) <= 1, f"two clients {side} one bank in the same cycle")

        def chosen(values: list[Value], selects: list[Value]) -> Value:
            value = values[-1]
            for select, other in zip(selects[-2::-1], values[-2::-1], strict=True):
                value = Mux(select, other, value)
            return value

        selects = [hits] * self.row.words
        if payload and self.announces:
            announced = clients[0].announced[index]
            firsts = copied(m, platform, announced, self.row.words, f"announced_{index}")
            selects = [[first, *hits[1:]] for first in firsts]
            m.d.sync += [
                Assert(firsts[0] | ~hits[0], "a write without its announcement"),
                Assert(~firsts[0] | ~Cat(hits[1:]).any(), "a write in place of an announced one"),
            ]

        # Registers at each bank: a bank is many blocks, far from each other and from the clients.
        enable = Signal(name=f"{side}_enable_{index}")
        m.d.sync += enable.eq(Cat(hits).any())
        m.d.comb += port.enable.eq(enable)
        carried = [(port.address, chosen([client.address for client in clients], hits))]
        for name in payload:
            for word in range(self.row.words):
                values = [getattr(client, name)[word] for client in clients]
                carried.append((getattr(port, name)[word], chosen(values, selects[word])))
        for number, (target, value) in enumerate(carried):
            register = Signal.like(
                Value.cast(target), name=f"{side}_{index}_{number}", reset_less=True
            )
            m.d.sync += register.eq(value)
            m.d.comb += target.eq(register)
