"""The machine's only multiplier outside the array: two operands of at most 18 bits, pipelined.

The portable description has its registers where multiplier blocks have them, so synthesis tools can
infer a block. For some technologies, the block is instantiated.
"""

from amaranth.hdl import Module, Shape, ShapeLike, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..isa.pipeline import MULTIPLIER_CYCLES
from .cells import ecp5, gowin, ice40, xilinx
from .fabric_multiplier import FabricMultiplier
from .technology import Technology

XILINX = (Technology.XILINX7, Technology.ULTRASCALE)


class Multiplier(wiring.Component):
    """Multiply two integers exactly, one pair per cycle.

    Latency `LATENCY` cycles (operands, partial products, product); never stalls. Operands of at
    most 18 bits take one multiplier block of an FPGA. On the iCE40, one must have at most 16.

    Parameters
    ----------
    left_shape, right_shape : ShapeLike
        Widths and signedness of the operands.
    in_fabric : bool
        Build it from logic instead of a multiplier block; for narrow operands.

    Members
    -------
    left : In(left_shape)
    right : In(right_shape)
    product : Out(as wide as both operands together, signed if one is)
        Product of the operands `LATENCY` cycles ago.
    """

    LATENCY = MULTIPLIER_CYCLES

    def __init__(self, left_shape: ShapeLike, right_shape: ShapeLike, *, in_fabric: bool = False):
        left, right = Shape.cast(left_shape), Shape.cast(right_shape)
        self.in_fabric = in_fabric
        self.bits = max(left.width, right.width)
        product = Shape(left.width + right.width, left.signed or right.signed)
        super().__init__({"left": In(left), "right": In(right), "product": Out(product)})

    def elaborate(self, platform) -> Module:
        m = Module()
        if self.in_fabric and platform is not Technology.SIMULATION:
            self._add_rows(m)
        elif platform is Technology.ECP5 and self.bits <= ecp5.MULTIPLIER_BITS:
            self._instantiate_ecp5(m)
        elif platform is Technology.GOWIN and self.bits <= gowin.MULTIPLIER_BITS:
            self._instantiate_gowin(m)
        elif platform is Technology.ICE40 and self._fits_ice40():
            self._instantiate_ice40(m)
        elif platform in XILINX and self._fits_dsp48():
            self._instantiate_xilinx(m)
        else:
            self._multiply(m)
        return m

    def _multiply(self, m: Module) -> None:
        left, right = self._operands(m)
        partial = Signal.like(self.product, reset_less=True)
        total = Signal.like(self.product, reset_less=True)
        m.d.sync += [partial.eq(left * right), total.eq(partial)]
        m.d.comb += self.product.eq(total)

    def _add_rows(self, m: Module) -> None:
        swapped = len(self.right) > len(self.left)
        left, right = (self.right, self.left) if swapped else (self.left, self.right)
        m.submodules.rows = rows = FabricMultiplier(left.shape(), right.shape())
        m.d.comb += [rows.left.eq(left), rows.right.eq(right), self.product.eq(rows.product)]

    def _operands(self, m: Module) -> tuple[Signal, Signal]:
        left = Signal.like(self.left, reset_less=True)
        right = Signal.like(self.right, reset_less=True)
        m.d.sync += [left.eq(self.left), right.eq(self.right)]
        return left, right

    def _instantiate_ecp5(self, m: Module) -> None:
        left, right = self.left.shape(), self.right.shape()
        m.submodules.block = block = ecp5.Multiplier18(left.signed, right.signed)
        m.d.comb += [
            block.left.eq(self.left),
            block.right.eq(self.right),
            block.load_left.eq(1),
            self.product.eq(block.product),
        ]

    def _instantiate_gowin(self, m: Module) -> None:
        left, right = self.left.shape(), self.right.shape()
        narrow = self.bits <= gowin.NARROW_MULTIPLIER_BITS
        bits = gowin.NARROW_MULTIPLIER_BITS if narrow else gowin.MULTIPLIER_BITS
        m.submodules.block = block = gowin.BlockMultiplier(bits, left.signed, right.signed)
        m.d.comb += [
            block.left.eq(self.left),
            block.right.eq(self.right),
            self.product.eq(block.product),
        ]

    def _fits_ice40(self) -> bool:
        narrow = min(len(self.left), len(self.right))
        return narrow <= ice40.MULTIPLIER_BITS and self.bits <= ice40.MULTIPLIER_BITS + 2

    def _instantiate_ice40(self, m: Module) -> None:
        swapped = len(self.right) > len(self.left)
        left, right = (self.right, self.left) if swapped else (self.left, self.right)
        signs = left.shape().signed, right.shape().signed
        if self.bits <= ice40.MULTIPLIER_BITS:
            block = ice40.BlockMultiplier(*signs)
        else:
            block = ice40.LongMultiplier(len(left), len(right), *signs)
        m.submodules.block = block
        m.d.comb += [
            block.left.eq(left),
            block.right.eq(right),
            self.product.eq(block.product),
        ]

    def _by_width(self) -> tuple[Signal, Signal]:
        """Return the operands, the wider one first. An unsigned one needs a bit for the sign."""
        operands = sorted((self.left, self.right), key=_signed_bits)
        return operands[1], operands[0]

    def _fits_dsp48(self) -> bool:
        wide, narrow = self._by_width()
        return _signed_bits(wide) <= xilinx.LEFT_BITS and _signed_bits(narrow) <= xilinx.RIGHT_BITS

    def _instantiate_xilinx(self, m: Module) -> None:
        wide, narrow = self._by_width()
        m.submodules.block = block = xilinx.Multiplier25()
        m.d.comb += [
            block.left.eq(wide),
            block.right.eq(narrow),
            block.load_left.eq(1),
            self.product.eq(block.product),
        ]


def _signed_bits(operand: Signal) -> int:
    return len(operand) + (not operand.shape().signed)
