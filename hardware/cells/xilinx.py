"""Cells of Xilinx' 7 series and UltraScale+: multiplier, block RAM, registers that are not merged.

The modes follow Xilinx' UG479 (DSP48E1), UG579 (DSP48E2), UG473 and UG573 (memory). They are
the same in both families, so the technology passed to `elaborate` only selects the cells' names.
"""

from amaranth.hdl import Cat, ClockSignal, Const, Instance, Module, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..technology import Technology
from . import interfaces

LEFT_BITS, RIGHT_BITS = 25, 18
"""Bits of a multiplier's operands, both signed."""


class Multiplier25(wiring.Component):
    """One DSP48 with the registers of its multiplier: operands, pipeline, product.

    Latency three cycles; one product per cycle; never stalls. The registers have no reset.

    Members
    -------
    left : In(signed(25))
    right : In(signed(18))
    load_left : In(1)
        The register of `left` holds its value without it.
    product : Out(signed(43))
    """

    def __init__(self):
        super().__init__(
            {
                "left": In(signed(LEFT_BITS)),
                "right": In(signed(RIGHT_BITS)),
                "load_left": In(1),
                "product": Out(signed(LEFT_BITS + RIGHT_BITS)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        series7 = platform is Technology.XILINX7
        wide = Signal(signed(30))
        product = Signal(48)
        m.d.comb += [wide.eq(self.left), self.product.eq(product)]
        others = ("ACASC", "AD", "ALUMODE", "BCASC", "CARRYIN", "CARRYINSEL", "C", "D")
        registers = dict.fromkeys((*others, "INMODE", "OPMODE"), 0)
        registers |= dict.fromkeys(("A", "ACASC", "B", "BCASC", "M", "P"), 1)
        enables = dict.fromkeys(("A1", "AD", "ALUMODE", "B1", "C", "CARRYIN", "CTRL", "D"), 0)
        enables |= {"INMODE": 0, "A2": self.load_left, "B2": 1, "M": 1, "P": 1}
        resets = ("A", "ALLCARRYIN", "ALUMODE", "B", "C", "CTRL", "D", "INMODE", "M", "P")
        m.submodules.cell = Instance(
            "DSP48E1" if series7 else "DSP48E2",
            **{f"p_{name}REG": count for name, count in registers.items()},
            p_USE_MULT="MULTIPLY",
            p_USE_SIMD="ONE48",
            **{f"p_{name}_INPUT": "DIRECT" for name in "AB"},
            **({"p_USE_DPORT": "FALSE"} if series7 else {}),
            **{f"i_CE{name}": enable for name, enable in enables.items()},
            **{f"i_RST{name}": Const(0) for name in resets},
            i_CLK=ClockSignal(),
            i_A=wide,
            i_B=self.right,
            i_C=Const(0, 48),
            i_D=Const(0, 25 if series7 else 27),
            i_CARRYIN=Const(0),
            i_CARRYINSEL=Const(0, 3),
            i_INMODE=Const(0, 5),
            i_ALUMODE=Const(0, 4),
            # The adder behind the multiplier passes the product on.
            i_OPMODE=Const(0b0000101, 7 if series7 else 9),
            o_P=product,
        )
        return m


class BlockRam(interfaces.BlockRam):
    """One RAMB18."""

    def elaborate(self, platform) -> Module:
        m = Module()
        series7 = platform is Technology.XILINX7
        unused = Const(0, 14 - self.address_bits)
        # A lane's ninth bit has a pin of its own.
        lanes = [
            self.write_data[low : low + self.lane_bits]
            for low in range(0, self.width, self.lane_bits)
        ]
        data = Cat(Cat(lane[:8] for lane in lanes), Const(0, 32))[:32]
        parity = Cat(Cat(lane[8:] for lane in lanes), Const(0, 4))[:4]
        # Words of 36 bits use the data inputs of both ports, narrower ones only those of port B.
        whole = self.lanes == 4
        halves = [(data[:16], parity[:2]), (data[16:], parity[2:])]
        if not whole:
            halves = [(Const(0, 16), Const(0, 2)), halves[0]]
        outputs = [(Signal(16, name=f"data_{p}"), Signal(2, name=f"parity_{p}")) for p in "ab"]
        read_data, read_parity = Cat(outputs[0][0], outputs[1][0]), Cat(o[1] for o in outputs)
        m.d.comb += self.read_data.eq(
            Cat(
                Cat(read_data[8 * lane :][: min(8, self.width)], read_parity[lane])[
                    : self.lane_bits
                ]
                for lane in range(self.lanes)
            )
        )
        enables = self.write_enable.replicate(4 // self.lanes)
        names = (
            [("DIADI", "DIPADIP", "DOADO", "DOPADOP"), ("DIBDI", "DIPBDIP", "DOBDO", "DOPBDOP")]
            if series7
            else [
                ("DINADIN", "DINPADINP", "DOUTADOUT", "DOUTPADOUTP"),
                ("DINBDIN", "DINPBDINP", "DOUTBDOUT", "DOUTPBDOUTP"),
            ]
        )
        ports: dict[str, object] = {}
        for pins, written, read in zip(names, halves, outputs, strict=True):
            ports |= {f"i_{pin}": value for pin, value in zip(pins[:2], written, strict=True)}
            ports |= {f"o_{pin}": value for pin, value in zip(pins[2:], read, strict=True)}
        if series7:
            ports["p_RAM_MODE"] = "SDP" if whole else "TDP"
        else:
            ports |= {"i_ADDRENA": Const(1), "i_ADDRENB": Const(1), "i_SLEEP": Const(0)}
        m.submodules.cell = Instance(
            "RAMB18E1" if series7 else "RAMB18E2",
            p_READ_WIDTH_A=self.width,
            p_WRITE_WIDTH_B=self.width,
            p_READ_WIDTH_B=0,
            p_WRITE_WIDTH_A=0,
            **{f"p_WRITE_MODE_{port}": "READ_FIRST" for port in "AB"},
            **{f"p_DO{port}_REG": 1 for port in "AB"},
            **ports,
            i_CLKARDCLK=ClockSignal(),
            i_CLKBWRCLK=ClockSignal(),
            i_ENARDEN=self.read_enable,
            i_ENBWREN=self.write,
            i_REGCEAREGCE=Const(1),
            i_REGCEB=Const(1),
            i_ADDRARDADDR=Cat(unused, self.read_address),
            i_ADDRBWRADDR=Cat(unused, self.write_address),
            i_WEA=Const(0, 2),
            i_WEBWE=enables,
            **{
                f"i_{name}": Const(0)
                for name in ("RSTRAMARSTRAM", "RSTRAMB", "RSTREGARSTREG", "RSTREGB")
            },
        )
        return m


class Copies(interfaces.Copies):
    """Each copy is one FDRE."""

    def register(self, copy: Value) -> Instance:
        return Instance(
            "FDRE",
            p_INIT=Const(0, 1),
            i_C=ClockSignal(),
            i_CE=Const(1),
            i_R=Const(0),
            i_D=self.value,
            o_Q=copy,
        )
