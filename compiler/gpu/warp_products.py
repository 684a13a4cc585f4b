"""Emit products of matrices by warps: fragments from shared memory, sums in registers."""

from collections.abc import Sequence

from llvmlite import ir

from ...errors import CompileError
from ...isa.expressions import Affine, Read
from ..cpu.codegen.areas import CodeBuffer, bytes_of
from ..cpu.codegen.dot_products import factors, update_inside
from ..cpu.codegen.emitter import FLOAT, HALF, I32, I64, TYPES, LlvmValue
from ..cpu.codegen.environment import Environment, without
from ..te.affine import total
from ..te.nodes import InstructionNest
from ..te.target import SHARED
from .emitter import GpuEmitter
from .instructions import WarpProduct
from .shared_memory import PIECE_BYTES, SharedMemory

SUM_BYTES = 4

HALVES = (("float16", "float16"),)
"""Operands that LLVM takes as vectors; all others it takes as bits."""


class WarpProducts:
    """The products of one kernel.

    Parameters
    ----------
    emitter, shared
        Emit the code.
    """

    def __init__(self, emitter: GpuEmitter, shared: SharedMemory) -> None:
        self.emitter, self.shared, self.memory = emitter, shared, shared.memory

    def emit(self, node: InstructionNest, env: Environment, thread: LlvmValue, region: int) -> None:
        """Add a product to its sums.

        Parameters
        ----------
        thread
            The thread's number.
        region
            Number of the region; what it loaded from shared memory, another does not reuse.
        """
        law = node.instruction
        assert isinstance(law, WarpProduct)
        names = [name for name, _ in law.lanes]
        half, row, pair, column, _ = names
        update, env, _ = update_inside(node, env, names, names[:-1])
        area = self.shared.areas[update.target.tensor]
        place = self._place(update.target, env)
        first = _without(place, names)
        places = [
            self.memory.address(
                area, total(first, h * place.coefficient(half) + c * place.coefficient(column))
            )
            for h in range(2)
            for c in range(2)
        ]
        builder, kind = self.emitter.builder, TYPES[area.tensor.dtype]
        sums = [builder.load(one, align=SUM_BYTES, typ=kind) for one in places]
        operands: list[LlvmValue] = []
        for read, rows, count in zip(
            factors(update), ({row: 1, half: 8}, {column: 1, pair: 2}), (4, 2), strict=True
        ):
            found, offset, row_bytes = self._operand(read, rows, node, env)
            key = ("fragment", read.tensor, offset, region)

            def load(found=found, offset=offset, row_bytes=row_bytes, count=count):
                return self._matrices(found, offset, row_bytes, count, thread)

            operands += self.memory.once(key, load)
        if law.pairs == HALVES:
            operands = [builder.bitcast(one, ir.VectorType(HALF, 2)) for one in operands]
        result = ir.LiteralStructType([kind] * len(sums))
        found = self.emitter.intrinsic(law.intrinsic, result, [*operands, *sums])
        for number, one in enumerate(places):
            builder.store(builder.extract_value(found, number), one, align=SUM_BYTES)

    def _operand(
        self, read: Read, rows: dict[str, int], node: InstructionNest, env: Environment
    ) -> tuple[CodeBuffer, Affine, int]:
        """The buffer of an operand, the offset of its first element, and the bytes of a row.

        Parameters
        ----------
        rows
            The loops over rows, with the rows from one iteration to the next.
        """
        area = self.shared.areas[read.tensor]
        offset = self._place(read, env)
        apart = min(map(offset.coefficient, rows))
        steps = {name: apart * count for name, count in rows.items()} | {"tap": 1}
        row_bytes = apart * bytes_of(area)
        laid_out = {name: offset.coefficient(name) for name in steps} == steps
        if not laid_out or row_bytes % PIECE_BYTES or read.tensor not in self.shared.swizzled:
            raise CompileError(
                f"{node.mnemonic}: `{read}` must be a copy in {SHARED} that only products read, "
                f"with its taps side by side and rows of a multiple of {PIECE_BYTES} bytes; "
                "cache_read it, and split the reduction by whole instructions"
            )
        if not self.memory.has_room(area, [env.resolved(part) for part in read.index], env):
            raise CompileError(
                f"{node.mnemonic}: `{read}` reaches beyond `{read.tensor}`, which is smaller than "
                "the block's tile; split rows and columns by factors that do not exceed them"
            )
        return area, _without(offset, [*steps]), row_bytes

    def _matrices(
        self, area: CodeBuffer, offset: Affine, row_bytes: int, count: int, thread: LlvmValue
    ) -> list[LlvmValue]:
        """Load matrices of 8 rows of 16 bytes: rows first, then the other half of the taps."""
        builder = self.emitter.builder
        lines = 4 * count  # rows of all matrices that hold the first half of the taps
        line = builder.and_(thread, I64(lines - 1))
        half = builder.and_(builder.lshr(thread, I64(lines.bit_length() - 1)), I64(1))
        more = builder.add(builder.mul(line, I64(row_bytes)), builder.mul(half, I64(PIECE_BYTES)))
        found = self.emitter.intrinsic(
            f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x{count}.b16.p3",
            ir.LiteralStructType([I32] * count),
            [self.emitter.in_shared(self.shared.address(area, offset, more))],
        )
        parts = [builder.extract_value(found, number) for number in range(count)]
        if area.tensor.dtype == "float32":
            # The tensor cores would cut the low bits off.
            return [
                self.emitter.intrinsic("llvm.nvvm.f2tf32.rna", I32, [builder.bitcast(one, FLOAT)])
                for one in parts
            ]
        return parts

    def _place(self, read: Read, env: Environment) -> Affine:
        """Offset of an element, in elements."""
        index = [env.resolved(part) for part in read.index]
        return self.memory.place(self.shared.areas[read.tensor], index, env)[0]


def _without(affine: Affine, symbols: Sequence[str]) -> Affine:
    for symbol in symbols:
        affine = without(affine, symbol)
    return affine
