"""The arbiter between core and bridge keeps AXI's handshake and returns each burst to its owner."""

import pytest
from amaranth.hdl import Module, Mux, Signal, Value

from tilewright.hardware.soc.port_arbiter import PortArbiter, bursts_in_flight
from tilewright.isa.configuration import PRESETS

from .bench import ProofBench
from .watch import stays, watch_order

TINY = PRESETS["tiny"].replace(name="one burst", outstanding_bursts=1)
ADDRESS_BITS = 2
"""Addresses are only passed on, so two bits of them stand for all."""


class ArbiterBench(ProofBench):
    """Two masters that keep their offers, and a memory that answers what was asked, at any time."""

    def __init__(self, fault: str = "") -> None:
        super().__init__()
        self.fault = fault

    def world(self, m: Module) -> None:
        m.submodules.arbiter = arbiter = PortArbiter(TINY)
        depth = bursts_in_flight(TINY)
        for owner in ("core", "bridge"):
            read, write = getattr(arbiter, f"{owner}_read"), getattr(arbiter, f"{owner}_write")
            for name, port, channel, payload in (
                ("read", read, "ar", "araddr"),
                ("write", write, "aw", "awaddr"),
                ("data", write, "w", "wdata"),
            ):
                self._offer(m, f"{owner}_{name}", port, channel, payload)
            m.d.comb += [
                read.rready.eq(self.any(m, f"{owner}_takes_beats")),
                write.bready.eq(self.any(m, f"{owner}_takes_responses")),
                write.wlast.eq(1),
            ]
        for name, port, address, answer, bridge in (
            ("read", arbiter.read, "ar", "r", arbiter.bridge_read),
            ("write", arbiter.write, "aw", "b", arbiter.bridge_write),
        ):
            valid, ready = getattr(port, f"{address}valid"), getattr(port, f"{address}ready")
            m.d.comb += ready.eq(self.any(m, f"{name}_ready"))
            answers = getattr(port, f"{answer}valid") & getattr(port, f"{answer}ready")
            chosen = getattr(bridge, f"{address}valid") & getattr(bridge, f"{address}ready")
            delivered = getattr(bridge, f"{answer}valid")
            if self.fault == "swaps" and name == "read":
                delivered = ~delivered
            owners = watch_order(
                self, m, f"{name} owner", valid & ready, chosen, answers, delivered, depth
            )
            offered = Signal(name=f"{name}_answer_offered")
            there = owners != 0
            if name == "write":
                there = self._data(m, arbiter, valid & ready, answers, depth)
            m.d.comb += getattr(port, f"{answer}valid").eq(
                there & (offered | self.any(m, f"{name}_answers"))
            )
            m.d.sync += offered.eq(getattr(port, f"{answer}valid") & ~answers)
            payload = getattr(port, f"{address}addr")[:ADDRESS_BITS]
            if self.fault == "drifts":
                payload = payload ^ self.any(m, f"{name}_drift", ADDRESS_BITS)
            stays(self, m, f"{name} request", valid, ready, payload)
        m.d.comb += arbiter.read.rlast.eq(1)
        self.goal(
            m,
            arbiter.core_read.arvalid & arbiter.bridge_read.arvalid & arbiter.bridge_read.rvalid,
            "both ask while the bridge is answered",
        )

    def _offer(self, m: Module, name: str, port, channel: str, payload: str) -> None:
        """Offer anything at any time, and keep it until it is taken."""
        valid, ready = getattr(port, f"{channel}valid"), getattr(port, f"{channel}ready")
        waits, held = Signal(name=f"{name}_waits"), Signal(ADDRESS_BITS, name=f"{name}_held")
        value = Signal(ADDRESS_BITS, name=f"{name}_value")
        chosen = self.any(m, f"{name}_chosen", ADDRESS_BITS)
        m.d.comb += [
            valid.eq(waits | self.any(m, f"{name}_offers")),
            value.eq(Mux(waits, held, chosen)),
            getattr(port, payload).eq(value),
        ]
        m.d.sync += [waits.eq(valid & ~ready), held.eq(value)]

    def _data(self, m: Module, arbiter, addressed, answered, depth: int) -> Value:
        """Follow the data of writes; return whether a whole burst waits for its response."""
        write = arbiter.write
        m.d.comb += write.wready.eq(self.any(m, "data_ready"))
        passes = write.wvalid & write.wready
        missing, whole = Signal(range(depth + 2)), Signal(range(depth + 2))
        m.d.sync += [
            missing.eq(missing + addressed - passes),
            whole.eq(whole + passes - answered),
        ]
        self.claim(m, ~passes | (missing != 0), "data follow their address")
        from_core = arbiter.core_write.wvalid & arbiter.core_write.wready
        from_bridge = arbiter.bridge_write.wvalid & arbiter.bridge_write.wready
        self.claim(m, passes == (from_core | from_bridge), "data that pass are taken from a master")
        self.claim(m, ~(from_core & from_bridge), "data come from one master")
        chosen = arbiter.bridge_write.awvalid & arbiter.bridge_write.awready
        watch_order(self, m, "data owner", addressed, chosen, passes, from_bridge, depth)
        stays(self, m, "data", write.wvalid, write.wready, write.wdata[:ADDRESS_BITS])
        return whole != 0


@pytest.mark.slow
def test_each_burst_returns_to_its_owner(prover):
    prover.proves(ArbiterBench())


@pytest.mark.slow
def test_the_proof_of_the_arbiter_can_fail(prover):
    prover.refutes(ArbiterBench("swaps"), "what leaves is what entered")
    prover.refutes(ArbiterBench("drifts"), "what is offered does not change")
    prover.reaches(ArbiterBench(), "both ask while the bridge is answered")
