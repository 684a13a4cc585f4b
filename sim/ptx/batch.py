"""Blocks that run side by side: registers of all lanes, and the operands of instructions.

A lane is a thread, with threads added so that each block has whole warps. A step of a compiled
kernel is called with the lanes that execute it: `FULL`, or ascending indices.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from .clocks import Clocks
from .faults import FaultKind, LaneFault, PtxFault
from .memory import ParameterMemory, PrivateMemory
from .shadow import BLOCK_SHIFT, THREAD_SHIFT, SharedShadow
from .syntax import (
    BitPattern,
    MemoryOperand,
    Not,
    Operand,
    PtxInstruction,
    Special,
    Symbol,
    VirtualRegister,
)

if TYPE_CHECKING:
    from .bulk_copies import BulkStores
    from .copies import AsyncCopies
    from .launch import Launch
    from .mbarriers import Mbarriers
    from .warpgroups import PendingProducts

FULL = slice(None)
Lanes = slice | np.ndarray
Step = Callable[[Lanes], None]

RUNNING, PARKED, WAITING, EXITED = range(4)
"""States of a lane: a parked one waits for lanes of its warp, a waiting one at any barrier."""

TYPES = {
    **{f"b{bits}": np.dtype(f"u{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"u{bits}": np.dtype(f"u{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"s{bits}": np.dtype(f"i{bits // 8}") for bits in (8, 16, 32, 64)},
    **{"f16": np.dtype(np.float16), "f32": np.dtype(np.float32), "f64": np.dtype(np.float64)},
    **{"bf16": np.dtype(ml_dtypes.bfloat16), "pred": np.dtype(bool), "tf32": np.dtype(np.float32)},
    **{"f16x2": np.dtype(np.float16), "bf16x2": np.dtype(ml_dtypes.bfloat16)},
}
"""NumPy's type for each type of PTX; of the packed ones, the type of an element."""


class BlockBatch:
    """State of the blocks with the linear indices `block_ids` of a launch.

    Attributes
    ----------
    warps, own_warps, blocks, threads : int[lanes]
        Each lane's warp among all of the batch and within its block, its block within the batch,
        and its thread index within the block.
    pc, state : int[lanes]
        The next instruction of each lane, and what it waits for.
    """

    def __init__(self, launch: "Launch", block_ids: np.ndarray):
        self.launch, self.block_ids = launch, block_ids
        threads = int(np.prod(launch.block))
        self.warps_per_block = -(-threads // 32)
        self.count = len(block_ids) * self.warps_per_block * 32
        self.lanes = np.arange(self.count)
        self.warps = self.lanes // 32
        self.own_warps = self.warps % self.warps_per_block
        self.blocks = self.warps // self.warps_per_block
        self.threads = self.lanes % (self.warps_per_block * 32)
        self.pc = np.zeros(self.count, np.int32)
        self.state = np.where(self.threads < threads, RUNNING, EXITED).astype(np.uint8)
        self.stamp_base = (block_ids[self.blocks].astype(np.uint64) + np.uint64(1)) << BLOCK_SHIFT
        self.stamp_base |= self.threads.astype(np.uint64) << THREAD_SHIFT
        self.clocks = Clocks(len(block_ids), self.warps_per_block, launch.has_async_proxy)
        self.fenced = np.zeros(len(block_ids) * self.warps_per_block, bool)
        self.executed = 0
        self.copies: AsyncCopies | None = None
        self.products: PendingProducts | None = None
        self.mbarriers: Mbarriers | None = None
        self.bulk_stores: BulkStores | None = None
        self.register_counts = np.zeros(len(block_ids) * self.warps_per_block, np.int64)
        self.product_counts = np.zeros_like(self.register_counts)
        self.initialised: dict[str, np.ndarray] = {}
        self._allocate_memory()
        self.rows: dict[str, np.ndarray] = {}
        for register in launch.kernel.registers:
            dtype = bool if register.bits == 0 else f"u{min(register.bits, 64) // 8}"
            shape = (self.count, 2) if register.bits == 128 else self.count
            self.rows[register.name] = np.zeros(shape, dtype)
        self._specials = self._special_registers()

    def _allocate_memory(self) -> None:
        launch = self.launch
        self.shared_stride = -(-launch.shared_bytes // 128) * 128
        owners = len(self.block_ids)
        self.shared = PrivateMemory("shared", owners, launch.shared_bytes, self.shared_stride)
        self.shared_shadow = SharedShadow(
            owners * self.shared_stride, launch.shared_granule, self.clocks.known.shape[1]
        )
        self.shared.shadow = self.shared_shadow
        stride = -(-launch.local_bytes // 16) * 16
        self.local = PrivateMemory("local", self.count, launch.local_bytes, stride)
        self.parameters = ParameterMemory(launch.parameter_bytes)

    def _special_registers(self) -> dict[str, np.ndarray]:
        launch = self.launch
        lane_ids = (self.lanes % 32).astype(np.uint32)
        bit = np.uint32(1) << lane_ids
        block_ids = self.block_ids[self.blocks]
        values: dict[str, np.ndarray | int] = {
            "%laneid": lane_ids,
            "%warpid": self.own_warps,
            "%nwarpid": self.warps_per_block,
            "%lanemask_eq": bit,
            "%lanemask_lt": bit - np.uint32(1),
            "%lanemask_le": (bit - np.uint32(1)) | bit,
            "%lanemask_gt": ~((bit - np.uint32(1)) | bit),
            "%lanemask_ge": ~(bit - np.uint32(1)),
            "%smid": self.blocks,
            "%nsmid": len(self.block_ids),
            "%gridid": 0,
            "%dynamic_smem_size": launch.dynamic_shared_bytes,
            "%total_smem_size": launch.shared_bytes,
            "%clusterid.x": block_ids,
            "%cluster_ctarank": 0,
            "%cluster_nctarank": 1,
        }
        for axis, name in enumerate("xyz"):
            inner, grid_inner = (
                int(np.prod(extents[:axis])) for extents in (launch.block, launch.grid)
            )
            values[f"%tid.{name}"] = self.threads // inner % launch.block[axis]
            values[f"%ctaid.{name}"] = block_ids // grid_inner % launch.grid[axis]
            values[f"%ntid.{name}"] = launch.block[axis]
            values[f"%nctaid.{name}"] = launch.grid[axis]
            values[f"%cluster_ctaid.{name}"] = 0
            values[f"%cluster_nctaid.{name}"] = 1
        return {
            name: np.broadcast_to(np.asarray(value).astype(np.uint32), self.count)
            for name, value in values.items()
        }

    def ids(self, lanes: Lanes) -> np.ndarray:
        """Indices of `lanes`, also of FULL."""
        return self.lanes if isinstance(lanes, slice) else lanes

    def thread(self, lane: int) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """Block and thread index of a lane."""

        def index(name: str) -> tuple[int, int, int]:
            x, y, z = (int(self._specials[f"%{name}.{axis}"][lane]) for axis in "xyz")
            return x, y, z

        return index("ctaid"), index("tid")

    def row(self, register: Operand, dtype: np.dtype, narrow: bool = False) -> np.ndarray:
        """A register of all lanes, to read and write; with `narrow` perhaps its low part."""
        if not isinstance(register, VirtualRegister):
            raise PtxFault(FaultKind.SYNTAX, f"`{register}` is not a register")
        if register.name == "_":
            return np.zeros(self.count, dtype)
        row = self.rows[register.name]
        if (row.dtype.kind == "b") != (dtype.kind == "b"):
            raise PtxFault(FaultKind.SYNTAX, f"`{register.name}` has the wrong type")
        if register.bits == 128:
            return row
        ratio, rest = divmod(row.itemsize, dtype.itemsize)
        if rest or (ratio > 1 and not narrow):
            detail = f"`{register.name}` has {register.bits} bits, not {8 * dtype.itemsize}"
            raise PtxFault(FaultKind.SYNTAX, detail)
        return row.view(dtype)[::ratio] if ratio > 1 else row.view(dtype)

    def wide_row(self, register: Operand, dtype: np.dtype) -> np.ndarray:
        """A register of all lanes, to which values of `dtype` or narrower are extended."""
        if isinstance(register, VirtualRegister) and register.bits > 8 * dtype.itemsize > 0:
            kind = "i" if dtype.kind == "i" else "u"
            return self.row(register, np.dtype(f"{kind}{register.bits // 8}"))
        return self.row(register, dtype)

    def source(self, operand: Operand, dtype: np.dtype, narrow: bool = False) -> np.ndarray:
        """The values of an operand for all lanes, as `dtype`; `narrow` as in `row`."""
        match operand:
            case VirtualRegister():
                return self.row(operand, dtype, narrow)
            case Not():
                raise PtxFault(FaultKind.UNSUPPORTED, "a negated predicate here")
            case BitPattern():
                if dtype.kind == "b":
                    return np.broadcast_to(np.bool_(operand.bits != 0), self.count)
                bits = operand.bits & ((1 << 8 * dtype.itemsize) - 1)
                value = np.array(bits, f"u{dtype.itemsize}").view(dtype)
                return np.broadcast_to(value, self.count)
            case Special():
                return self.special(operand.name, dtype)
            case Symbol():
                value = np.array(self.launch.address_of(operand)).astype(dtype)
                return np.broadcast_to(value, self.count)
        raise PtxFault(FaultKind.SYNTAX, f"`{operand}` is not a value")

    def special(self, name: str, dtype: np.dtype) -> np.ndarray:
        """Values of a special register."""
        if name not in self._specials:
            raise PtxFault(FaultKind.UNSUPPORTED, f"special register `{name}`")
        row = self._specials[name]
        return row.view(dtype) if dtype.itemsize == 4 else row.astype(dtype)

    def packed(self, operand: Operand, dtype: np.dtype) -> np.ndarray:
        """The values of a packed operand, as `dtype[lanes, 2]`."""
        words = self.source(operand, np.dtype(np.uint32))
        if words.strides[0] == 0:
            pair = np.array(words[0]).reshape(1).view(dtype)
            return np.broadcast_to(pair, (self.count, 2))
        return words.view(dtype).reshape(self.count, 2)

    def predicate(self, operand: Operand) -> Callable[[Lanes], np.ndarray]:
        """Read a predicate that may be negated."""
        if isinstance(operand, Not):
            row = self.row(operand.register, TYPES["pred"])
            return lambda lanes: ~row[lanes]
        row = self.source(operand, TYPES["pred"])
        return lambda lanes: row[lanes]

    def addresses(self, operand: Operand) -> Callable[[Lanes], np.ndarray]:
        """Compute the addresses of `[base + offset]`, as `int64[lanes]`."""
        if not isinstance(operand, MemoryOperand):
            raise PtxFault(FaultKind.SYNTAX, f"`{operand}` is not an address")
        base, offset = operand.base, operand.offset
        if isinstance(base, VirtualRegister):
            row = self.row(base, np.dtype(f"{'i' if base.bits == 64 else 'u'}{base.bits // 8}"))
            return lambda lanes: row[lanes].astype(np.int64) + offset
        start = self.launch.address_of(base) if isinstance(base, Symbol) else base.bits
        constant = np.broadcast_to(np.int64(start + offset), self.count)
        return lambda lanes: constant[lanes]


def guarded(batch: BlockBatch, instruction: PtxInstruction, step: Step) -> Step:
    """Execute `step` only in the lanes whose guard holds."""
    if instruction.guard is None:
        return step
    row = batch.row(instruction.guard, TYPES["pred"])
    negated = instruction.guard_negated

    def run(lanes: Lanes) -> None:
        holds = ~row[lanes] if negated else row[lanes]
        if holds.all():
            step(lanes)
        elif holds.any():
            step(batch.ids(lanes)[holds])

    return run


def refuse_uninitialised(batch: BlockBatch, names: list[str], step: Step) -> Step:
    """Check registers that may be read before they are written."""
    checks = [(name, batch.initialised[name]) for name in names]

    def run(lanes: Lanes) -> None:
        for name, initialised in checks:
            if not (valid := initialised[lanes]).all():
                lane = int(batch.ids(lanes)[int(np.argmin(valid))])
                raise LaneFault(FaultKind.UNINITIALISED_REGISTER, f"`{name.split('#')[0]}`", lane)
        step(lanes)

    return run
