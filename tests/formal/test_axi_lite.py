"""The register port answers each request exactly once and holds its answer until it is taken."""

import pytest
from amaranth.hdl import Cat, Module, Signal

from tilewright.hardware.axi_lite import AxiLiteRegisters

from .bench import ProofBench
from .watch import stays, watch_order

ADDRESS_BITS = 4


class RegistersBench(ProofBench):
    """A host that may access everything at once, and registers with any values."""

    def __init__(self, fault: str = "") -> None:
        super().__init__()
        self.fault = fault

    def world(self, m: Module) -> None:
        m.submodules.registers = registers = AxiLiteRegisters(ADDRESS_BITS)
        port = registers.port
        for name in ("awvalid", "wvalid", "bready", "arvalid", "rready"):
            m.d.comb += getattr(port, name).eq(self.any(m, name))
        strobes = self.any(m, "strobes", len(port.wstrb))
        m.d.comb += [
            port.awaddr.eq(self.any(m, "write_address", ADDRESS_BITS)),
            port.araddr.eq(self.any(m, "read_address", ADDRESS_BITS)),
            port.wdata.eq(self.any(m, "write_value", 32)),
            port.wstrb.eq(strobes),
            registers.read_data.eq(self.any(m, "register_value", 32)),
            registers.read_valid.eq(self.any(m, "register_valid")),
        ]
        address, data, response, request, result = (
            getattr(port, f"{channel}valid") & getattr(port, f"{channel}ready")
            for channel in ("aw", "w", "b", "ar", "r")
        )
        # A response belongs to one address and one word of data; a second pair may have come.
        addresses = watch_order(
            self, m, "write address", address, port.awvalid, response, port.bvalid, 2
        )
        words = watch_order(self, m, "write data", data, port.wvalid, response, port.bvalid, 2)
        requests = watch_order(self, m, "read", request, port.arvalid, result, port.rvalid, 2)
        waits = registers.read & ~registers.read_valid
        for name, asked, answers in (
            ("write", (addresses != 0) & (words != 0), port.bvalid),
            ("read", (requests != 0) & ~waits, port.rvalid),
        ):
            late = Signal(range(3), name=f"{name}_late")
            m.d.sync += late.eq(0)
            with m.If(asked & ~answers):
                m.d.sync += late.eq(late + 1)
            most = 0 if self.fault else 1
            self.claim(m, late <= most, f"a {name} whose value is there is answered in two cycles")
        stays(self, m, "write response", port.bvalid, port.bready, port.bresp)
        stays(self, m, "read data", port.rvalid, port.rready, Cat(port.rdata, port.rresp))

        # What the registers see, when every write is of a whole register.
        whole = Signal(init=1)
        m.d.sync += whole.eq(whole & (~data | strobes.all()))
        written = registers.write
        read = registers.read & registers.read_valid
        self.claim(m, ~written | (addresses != 0), "a write has an address")
        offset, low = registers.write_offset, ADDRESS_BITS - 2
        watch_order(
            self,
            m,
            "register write",
            data & whole & strobes.all(),
            port.wdata,
            written & whole,
            registers.write_data,
            1,
        )
        self.claim(m, (registers.read_offset[:2] == 0) & (offset[:2] == 0), "offsets are of words")
        watch_order(
            self,
            m,
            "read address",
            request,
            port.araddr[-low:],
            read,
            registers.read_offset[-low:],
            1,
        )
        watch_order(self, m, "register read", read, registers.read_data, result, port.rdata, 1)
        self.goal(m, (addresses == 2) & (words == 2) & (requests == 2), "two of each at once")


def test_every_request_is_answered_once(prover):
    prover.proves(RegistersBench())


@pytest.mark.slow
def test_the_proof_of_the_register_port_can_fail(prover):
    prover.refutes(RegistersBench(fault="sooner"), "is answered in two cycles")
    prover.reaches(RegistersBench(), "two of each at once")
