"""The memory port: its AXI4 signals, and the streams that the units use in their place.

Bursts are always of type INCR and consist of whole beats. There are no identifiers, so responses
arrive in request order. Source: AMBA AXI protocol specification, ARM IHI 0022, issue H.
"""

from amaranth.hdl import Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..isa.configuration import Configuration

LEN_BITS = 8
"""Width of AxLEN, beats minus one."""

BURST_INCR = 1
"""AxBURST: addresses ascend."""

RESPONSE_BITS = 2
RESPONSE_OKAY = 0

WINDOW_BITS = 32
"""Width of `DATA_BYTES` and `PROGRAM_BYTES`."""


def read_port(configuration: Configuration) -> wiring.Signature:
    """Channels AR and R, seen from the master, with the specification's names without a prefix."""
    return wiring.Signature(
        {
            **_address_channel("ar", configuration),
            "rdata": In(configuration.bus_bits),
            "rresp": In(RESPONSE_BITS),
            "rlast": In(1),
            "rvalid": In(1),
            "rready": Out(1),
        }
    )


def write_port(configuration: Configuration) -> wiring.Signature:
    """Channels AW, W and B, seen from the master."""
    return wiring.Signature(
        {
            **_address_channel("aw", configuration),
            "wdata": Out(configuration.bus_bits),
            "wstrb": Out(configuration.bus_bytes),
            "wlast": Out(1),
            "wvalid": Out(1),
            "wready": In(1),
            "bresp": In(RESPONSE_BITS),
            "bvalid": In(1),
            "bready": Out(1),
        }
    )


def _address_channel(prefix: str, configuration: Configuration) -> dict[str, wiring.Member]:
    return {
        f"{prefix}addr": Out(configuration.address_bits),
        f"{prefix}len": Out(LEN_BITS),
        f"{prefix}size": Out(3),
        f"{prefix}burst": Out(2),
        f"{prefix}valid": Out(1),
        f"{prefix}ready": In(1),
    }


def request_layout(configuration: Configuration) -> data.StructLayout:
    """One burst: byte address (rounded down to a beat by the port), and beats minus one."""
    return data.StructLayout({"address": configuration.address_bits, "beats_minus_one": LEN_BITS})


def read_beat_layout(configuration: Configuration) -> data.StructLayout:
    """One beat of read data; `failed` marks a response other than OKAY, `last` ends a burst."""
    return data.StructLayout({"data": configuration.bus_bits, "failed": 1, "last": 1})


def write_beat_layout(configuration: Configuration) -> data.StructLayout:
    """One beat of write data; `strobe` has a bit per byte, `last` ends a burst."""
    return data.StructLayout(
        {"data": configuration.bus_bits, "strobe": configuration.bus_bytes, "last": 1}
    )


def assign_address(port, prefix: str, request, configuration: Configuration) -> list:
    """Return the assignments of a request to the address channel `ar` or `aw` of a port."""
    beat_bits = (configuration.bus_bytes - 1).bit_length()
    address = Value.cast(request.address)
    return [
        getattr(port, f"{prefix}addr").eq((address >> beat_bits) << beat_bits),
        getattr(port, f"{prefix}len").eq(request.beats_minus_one),
        getattr(port, f"{prefix}size").eq(beat_bits),
        getattr(port, f"{prefix}burst").eq(BURST_INCR),
    ]
