"""AXI4-Lite slave: single reads and writes of 32-bit registers.

Source: AMBA AXI protocol specification, ARM IHI 0022, issue H, part B.
"""

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

DATA_BITS = 32
STROBE_BITS = DATA_BITS // 8
RESPONSE_BITS = 2
RESPONSE_OKAY = 0


def axi_lite_port(address_bits: int) -> wiring.Signature:
    """All channels, seen from the master, with the specification's names without a prefix."""
    return wiring.Signature(
        {
            "awaddr": Out(address_bits),
            "awvalid": Out(1),
            "awready": In(1),
            "wdata": Out(DATA_BITS),
            "wstrb": Out(STROBE_BITS),
            "wvalid": Out(1),
            "wready": In(1),
            "bresp": In(RESPONSE_BITS),
            "bvalid": In(1),
            "bready": Out(1),
            "araddr": Out(address_bits),
            "arvalid": Out(1),
            "arready": In(1),
            "rdata": In(DATA_BITS),
            "rresp": In(RESPONSE_BITS),
            "rvalid": In(1),
            "rready": Out(1),
        }
    )


class AxiLiteRegisters(wiring.Component):
    """Turn bus transfers into one-cycle register accesses; one of each kind at a time.

    A write happens in the cycle after address and data have both arrived, a read when its value is
    there. The response is always OKAY. Writes of less than a whole register are ignored.

    Parameters
    ----------
    address_bits : int
        Width of a byte offset.

    Members
    -------
    port : In(AXI4-Lite)
    write : Out(1)
        Write `write_data` to the register at `write_offset`.
    write_offset, write_data : Out
    read : Out(1)
        Read the register at `read_offset`.
    read_offset : Out
    read_valid : In(1)
        `read_data` is the value of the register. It counts only while `read` is set, and ends it.
    read_data : In(32)
    """

    def __init__(self, address_bits: int):
        super().__init__(
            {
                "port": In(axi_lite_port(address_bits)),
                "write": Out(1),
                "write_offset": Out(address_bits),
                "write_data": Out(DATA_BITS),
                "read": Out(1),
                "read_offset": Out(address_bits),
                "read_valid": In(1),
                "read_data": In(DATA_BITS),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        port = self.port
        have_address, have_data, whole = Signal(), Signal(), Signal(reset_less=True)
        m.d.comb += [
            port.awready.eq(~have_address),
            port.wready.eq(~have_data),
            port.bresp.eq(RESPONSE_OKAY),
        ]
        accesses = have_address & have_data & ~port.bvalid
        # The register lies in front of a long path: a write may start the machine.
        m.d.sync += self.write.eq(accesses & whole)
        with m.If(port.awvalid & port.awready):
            m.d.sync += [have_address.eq(1), self.write_offset.eq(_aligned(port.awaddr))]
        with m.If(port.wvalid & port.wready):
            m.d.sync += [
                have_data.eq(1),
                self.write_data.eq(port.wdata),
                whole.eq(port.wstrb.all()),
            ]
        with m.If(accesses):
            m.d.sync += [have_address.eq(0), have_data.eq(0), port.bvalid.eq(1)]
        with m.Elif(port.bready):
            m.d.sync += port.bvalid.eq(0)

        have_read = Signal()
        m.d.comb += [
            port.arready.eq(~have_read),
            port.rresp.eq(RESPONSE_OKAY),
            self.read.eq(have_read & ~port.rvalid),
        ]
        with m.If(port.arvalid & port.arready):
            m.d.sync += [have_read.eq(1), self.read_offset.eq(_aligned(port.araddr))]
        with m.If(self.read & self.read_valid):
            m.d.sync += [have_read.eq(0), port.rvalid.eq(1), port.rdata.eq(self.read_data)]
        with m.Elif(port.rready):
            m.d.sync += port.rvalid.eq(0)
        return m


def _aligned(offset: Value) -> Value:
    """Clear the bits that select a byte inside a register."""
    byte_bits = (STROBE_BITS - 1).bit_length()
    return offset & ~((1 << byte_bits) - 1)
