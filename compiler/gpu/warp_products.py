"""Emit matrix products of warps and warpgroups, whose sums stay in registers.

The threads of a warp load its operands from shared memory as fragments; a warpgroup's instruction
finds them there by descriptors, and runs on while the threads go on.

Source: NVIDIA, PTX ISA 8.5, sections 9.7.15.5.1, descriptors and strides, and 9.7.15.7.
"""

from collections.abc import Sequence
from functools import partial

from llvmlite import ir

from ...errors import CompileError
from ...isa.expressions import Affine, Read
from ..cpu.codegen.areas import CodeBuffer, bytes_of
from ..cpu.codegen.dot_products import factors, update_inside
from ..cpu.codegen.emitter import BIT, FLOAT, HALF, I32, I64, TYPES, LlvmType, LlvmValue
from ..cpu.codegen.environment import Environment, without
from ..te.affine import total
from ..te.nodes import InstructionNest
from ..te.target import SHARED
from .emitter import GpuEmitter
from .instructions import WIDE, WarpProduct
from .shared_memory import PIECE_BYTES, SharedMemory

SUM_BYTES = 4

STEP_BYTES = 32
"""Taps of one instruction, in bytes."""

_MODES = {32: 3, 64: 2, 128: 1}
"""Numbers of the patterns of swizzled rows in descriptors, by the bytes of a row."""

_UNIT_BITS = 4
"""Addresses and strides in descriptors count 16 bytes."""

_FLAGS = {16: ", 1, 1, 0, 0", 8: ", 1, 1"}
"""Immediates by number of taps: no operand is negated, or transposed where that is possible."""

Operand = tuple[CodeBuffer, Affine, int]
"""A buffer, the offset of its first element, and the bytes of a row."""

Parts = tuple[tuple[str, int], ...]
"""Loops, outermost first, with their extents."""

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
        self._pending: dict[tuple[str, Affine], tuple[list[LlvmValue], LlvmType]] = {}
        """Addresses and types of sums that are still being computed."""

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
        update, env, _ = update_inside(node, env, names, names[:-1])
        area = self.shared.areas[update.target.tensor]
        place = self._place(update.target, env)
        first = _without(place, names)
        steps = [place.coefficient(name) for name in ("across", "half", "column")]
        places = [
            self.memory.address(area, total(first, a * steps[0] + h * steps[1] + c * steps[2]))
            for a in range(law.columns // WIDE)
            for h in range(2)
            for c in range(2)
        ]
        operands = [
            self._operand(read, parts, node, env)
            for read, parts in zip(factors(update), (law.row_parts, law.column_parts), strict=True)
        ]
        builder, kind = self.emitter.builder, TYPES[area.tensor.dtype]
        sums = [builder.load(one, align=SUM_BYTES, typ=kind) for one in places]
        if law.reads_shared:
            found = [self._descriptor(node, *one) for one in operands]
            values = self._multiply(law, found, sums, (area.tensor.name, first) in self._pending)
            self._pending.setdefault((area.tensor.name, first), (places, kind))
        else:
            values = self._multiply_fragments(law, operands, sums, thread, region)
        for value, one in zip(values, places, strict=True):
            builder.store(value, one, align=SUM_BYTES)

    def _multiply_fragments(
        self,
        law: WarpProduct,
        operands: Sequence[Operand],
        sums: Sequence[LlvmValue],
        thread: LlvmValue,
        region: int,
    ) -> list[LlvmValue]:
        """The new sums of a warp, whose threads load the operands."""
        found: list[LlvmValue] = []
        for operand, count in zip(operands, (4, 2), strict=True):
            area, offset, _ = operand
            key = ("fragment", area.tensor.name, offset, region)
            found += self.memory.once(key, partial(self._matrices, *operand, count, thread))
        builder = self.emitter.builder
        if law.pairs == HALVES:
            found = [builder.bitcast(one, ir.VectorType(HALF, 2)) for one in found]
        result = ir.LiteralStructType([sums[0].type] * len(sums))
        changed = self.emitter.intrinsic(law.intrinsic, result, [*found, *sums])
        return [builder.extract_value(changed, number) for number in range(len(sums))]

    # Warpgroups ----------------------------------------------------------------------------------

    def _multiply(
        self,
        law: WarpProduct,
        descriptors: Sequence[LlvmValue],
        sums: Sequence[LlvmValue],
        continues: bool,
    ) -> list[LlvmValue]:
        """The sums of a warpgroup, which are new once `finish` has waited for them.

        Parameters
        ----------
        continues
            Whether the last instruction that changed the sums is such a product as well.
        """
        count = len(sums)
        registers = ", ".join(f"${place}" for place in range(count))
        a, b, adds = (f"${2 * count + place}" for place in range(3))
        kinds = law.mnemonic.removeprefix("wgmma.")
        name = f"wgmma.mma_async.sync.aligned.m{law.rows}n{law.columns}k{law.taps}.{kinds}"
        operation = f"{name} {{{registers}}}, {a}, {b}, {adds}{_FLAGS.get(law.taps, '')};"
        fence = "" if continues else "wgmma.fence.sync.aligned;\n\t"
        return self.emitter.assembly(fence + operation, [*descriptors, BIT(1)], sums)

    def _descriptor(
        self, node: InstructionNest, area: CodeBuffer, offset: Affine, row_bytes: int
    ) -> LlvmValue:
        """The operand as instructions find it: its address, and the pattern of its rows."""
        numbers = offset.constant, *(factor for _, factor in offset.terms)
        inside = [number * bytes_of(area) % (WIDE * row_bytes) for number in numbers]
        if row_bytes not in _MODES or any(n % STEP_BYTES or n >= row_bytes for n in inside):
            raise CompileError(
                f"{node.mnemonic}: the rows of `{area.tensor.name}` have {row_bytes} bytes, and a "
                f"tile starts inside of {WIDE} of them; split the reduction by taps of "
                f"{', '.join(map(str, _MODES))} bytes, and columns by multiples of {WIDE}"
            )
        builder = self.emitter.builder
        pointer = self.emitter.in_shared(self.memory.address(area, offset))
        address = builder.lshr(builder.ptrtoint(pointer, I32), I32(_UNIT_BITS))
        pattern = WIDE * row_bytes >> _UNIT_BITS << 32 | _MODES[row_bytes] << 62 | 1 << 16
        return builder.or_(builder.zext(address, I64), I64(pattern))

    def finish(self) -> None:
        """Wait for all products since the last call; then threads may use their sums."""
        if not self._pending:
            return
        builder = self.emitter.builder
        places = [(one, kind) for found, kind in self._pending.values() for one in found]
        sums = [builder.load(one, align=SUM_BYTES, typ=kind) for one, kind in places]
        waited = "wgmma.commit_group.sync.aligned;\n\twgmma.wait_group.sync.aligned 0;"
        changed = self.emitter.assembly(waited, (), sums)
        for value, (one, _) in zip(changed, places, strict=True):
            builder.store(value, one, align=SUM_BYTES)
        self._pending.clear()

    # Operands ------------------------------------------------------------------------------------

    def _operand(
        self, read: Read, parts: Parts, node: InstructionNest, env: Environment
    ) -> Operand:
        """An operand, whose rows are those of the instruction's loops `parts`."""
        area = self.shared.areas[read.tensor]
        offset = self._place(read, env)
        rows, below = dict[str, int](), 1
        for name, extent in reversed(parts):
            if extent > 1:
                rows[name] = below
            below *= extent
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
