"""Instructions across the lanes of a warp: shuffles, votes, matches, reductions."""

from collections.abc import Callable

import numpy as np

from .batch import FULL, TYPES, BlockBatch, Step
from .builders import builds, type_of, unsupported
from .faults import FaultKind, LaneFault, PtxFault
from .syntax import BitPattern, Pair, PtxInstruction

U32, S32, BOOL = np.dtype(np.uint32), np.dtype(np.int32), np.dtype(bool)
WHOLE = np.uint64(0xFFFFFFFF)
MEMBER_MASK_LAST = ("shfl", "vote", "redux", "match", "elect")
ALIGNED = ("mma", "ldmatrix", "stmatrix", "wgmma")
REGISTERS = 1 << 16
"""Registers of a multiprocessor, of 32 bits."""
MIN_REGISTERS, MAX_REGISTERS = 24, 256


def needed_lanes(
    batch: BlockBatch, instruction: PtxInstruction
) -> Callable[[np.ndarray], np.ndarray] | None:
    """The lanes of its warp that each lane must have beside it, as masks; None if none."""
    name, parts = instruction.name, instruction.parts
    if name in ALIGNED or "aligned" in parts:
        return lambda lanes: np.full(len(lanes), WHOLE)
    if (name in MEMBER_MASK_LAST and "sync" in parts) or (name == "bar" and "warp" in parts):
        mask = batch.source(instruction.operands[-1], U32)
        return lambda lanes: mask[lanes].astype(np.uint64)
    return None


@builds("bar", "barrier")
def build_warp_barrier(batch: BlockBatch, instruction: PtxInstruction) -> Step:
    """`bar.warp.sync`: orders the memory accesses of the lanes of a warp."""
    if instruction.parts[1:3] == ("cluster", "arrive"):
        return lambda lanes: None
    if "warp" not in instruction.parts:
        raise unsupported(instruction)

    def run(lanes) -> None:
        warps = np.unique(batch.warps[batch.ids(lanes)])
        batch.clocks.learn(warps, batch.clocks.publish(warps))

    return run


@builds("shfl")
def build_shuffle(batch: BlockBatch, instruction: PtxInstruction) -> Step:
    """`shfl.sync` in its four modes."""
    if "sync" not in instruction.parts:
        raise unsupported(instruction)
    mode = next(part for part in instruction.parts if part in ("up", "down", "bfly", "idx"))
    result, source, offset, clamp = instruction.operands[:4]
    target = result.first if isinstance(result, Pair) else result
    row, values = batch.row(target, U32), batch.source(source, U32)
    flag = batch.row(result.second, BOOL) if isinstance(result, Pair) else None
    offsets, clamps = batch.source(offset, S32), batch.source(clamp, S32)

    def run(lanes) -> None:
        ids = batch.ids(lanes)
        lane = (ids % 32).astype(np.int32)
        step, bounds = offsets[lanes] & 31, clamps[lanes]
        segment = bounds >> 8 & 31
        lowest = lane & segment
        highest = lowest | (bounds & 31 & ~segment)
        if mode == "up":
            chosen = lane - step
            inside = chosen >= highest
        elif mode == "down":
            chosen = lane + step
            inside = chosen <= highest
        elif mode == "bfly":
            chosen = lane ^ step
            inside = chosen <= highest
        else:
            chosen = lowest | (step & ~segment)
            inside = chosen <= highest
        chosen = np.where(inside, chosen, lane)
        absolute = ids - lane + chosen
        if lanes is not FULL:
            here = np.zeros(batch.count, bool)
            here[ids] = True
            if not here[absolute].all():
                bad = int(np.argmin(here[absolute]))
                detail = f"reads lane {int(chosen[bad])}, which does not take part"
                raise LaneFault(FaultKind.DIVERGENT_WARP, detail, int(ids[bad]))
        row[lanes] = values[absolute]
        if flag is not None:
            flag[lanes] = inside

    return run


def _ballot(batch: BlockBatch, lanes, holds: np.ndarray) -> np.ndarray:
    """For each lane, the mask of the lanes of its warp beside it whose `holds` is true."""
    warps = batch.warps[lanes]
    masks = np.zeros(batch.count // 32, np.uint32)
    bits = holds.astype(np.uint32) << (batch.ids(lanes) % 32).astype(np.uint32)
    np.bitwise_or.at(masks, warps, bits)
    return masks[warps]


@builds("vote")
def build_vote(batch: BlockBatch, instruction: PtxInstruction) -> Step:
    """`vote.sync`: all, any, uniform and ballot."""
    mode = next(part for part in instruction.parts if part in ("all", "any", "uni", "ballot"))
    result, condition = instruction.operands[:2]
    row = batch.row(result, U32 if mode == "ballot" else BOOL)
    holds = batch.predicate(condition)

    def run(lanes) -> None:
        yes = holds(lanes)
        votes = _ballot(batch, lanes, yes)
        everyone = _ballot(batch, lanes, np.ones(len(yes), bool))
        answers = {"ballot": votes, "all": votes == everyone, "any": votes != 0}
        answers["uni"] = (votes == everyone) | (votes == 0)
        row[lanes] = answers[mode]

    return run


@builds("activemask")
def build_active_mask(batch: BlockBatch, instruction: PtxInstruction) -> Step:
    """`activemask`: the lanes that execute it together."""
    row = batch.row(instruction.operands[0], U32)

    def run(lanes) -> None:
        row[lanes] = _ballot(batch, lanes, np.ones(len(batch.ids(lanes)), bool))

    return run


@builds("elect")
def build_elect(batch: BlockBatch, instruction: PtxInstruction) -> Step:
    """`elect.sync`: the first lane of those named is elected."""
    result, mask = instruction.operands
    target = result.first if isinstance(result, Pair) else result
    row = batch.row(target, U32)
    flag = batch.row(result.second, BOOL) if isinstance(result, Pair) else None
    masks = batch.source(mask, U32)

    def run(lanes) -> None:
        named = masks[lanes]
        lowest = named & (~named + np.uint32(1))
        leader = np.bitwise_count(lowest - np.uint32(1)).astype(np.uint32)
        row[lanes] = leader
        if flag is not None:
            flag[lanes] = batch.ids(lanes) % 32 == leader

    return run


@builds("match")
def build_match(batch: BlockBatch, instruction: PtxInstruction) -> Step:
    """`match.any.sync` and `match.all.sync`."""
    dtype = TYPES[type_of(instruction)]
    result, source = instruction.operands[:2]
    target = result.first if isinstance(result, Pair) else result
    row, values = batch.row(target, U32), batch.source(source, dtype)
    flag = batch.row(result.second, BOOL) if isinstance(result, Pair) else None
    every = "all" in instruction.parts

    def run(lanes) -> None:
        ids = batch.ids(lanes)
        present = np.zeros(batch.count, bool)
        present[ids] = True
        first = ids - ids % 32
        others = first[:, None] + np.arange(32)
        equal = (values[others] == values[ids][:, None]) & present[others]
        masks = (equal.astype(np.uint32) << np.arange(32, dtype=np.uint32)).sum(axis=1)
        if every:
            agree = (equal == present[others]).all(axis=1)
            masks = np.where(agree, masks, 0)
            if flag is not None:
                flag[lanes] = agree
        row[lanes] = masks.astype(np.uint32)

    return run


@builds("redux")
def build_reduction(batch: BlockBatch, instruction: PtxInstruction) -> Step:
    """`redux.sync`: a reduction over the lanes of a warp."""
    functions = {"add": np.add, "min": np.minimum, "max": np.maximum}
    functions |= {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
    function = next(functions[part] for part in instruction.parts if part in functions)
    dtype = TYPES[type_of(instruction)]
    result, source = instruction.operands[:2]
    row, values = batch.row(result, dtype), batch.source(source, dtype)

    def run(lanes) -> None:
        warps = batch.warps[lanes]
        starts = np.flatnonzero(np.diff(warps, prepend=-1))
        totals = function.reduceat(values[lanes], starts)
        row[lanes] = totals[np.cumsum(np.diff(warps, prepend=warps[0]) != 0)]

    return run


@builds("setmaxnreg")
def build_register_count(batch: BlockBatch, instruction: PtxInstruction) -> Step:
    """`setmaxnreg`: takes effect at once; the sum is checked when the blocks have ended."""
    count = instruction.operands[0]
    if not isinstance(count, BitPattern):
        raise unsupported(instruction)
    if count.bits % 8 or not MIN_REGISTERS <= count.bits <= MAX_REGISTERS:
        detail = f"{count.bits} registers; expected a multiple of 8 from 24 to 256"
        raise PtxFault(FaultKind.REGISTER_COUNT, detail, instruction.line)

    def run(lanes) -> None:
        batch.register_counts[batch.warps[lanes]] = count.bits

    return run


def check_warpgroups(batch: BlockBatch) -> None:
    """Refuse blocks whose warpgroups did not act as one, or want more registers than there are."""
    blocks = len(batch.block_ids)
    counts = batch.register_counts.reshape(blocks, -1)
    totals = 32 * np.where(counts > 0, counts, MIN_REGISTERS).sum(axis=1)
    bad = (totals > REGISTERS) & (counts > 0).any(axis=1)
    if bad.any():
        block = int(np.argmax(bad))
        detail = f"{int(totals[block])} in a block, of {REGISTERS}: its warps would wait for ever"
        raise LaneFault(FaultKind.REGISTER_COUNT, detail, 32 * batch.warps_per_block * block)
    padding = (0, 0), (0, -batch.warps_per_block % 4)
    for what, values in (("`setmaxnreg`", counts), ("`wgmma`", batch.product_counts)):
        groups = np.pad(values.reshape(blocks, -1), padding).reshape(blocks, -1, 4)
        uneven = (groups != groups[:, :, :1]).any(axis=2)
        if uneven.any():
            block, group = np.argwhere(uneven)[0]
            detail = f"{what} in a part of a warpgroup, or not alike in all of it"
            lane = 32 * int(batch.warps_per_block * block + 4 * group)
            raise LaneFault(FaultKind.DIVERGENT_WARP, detail, lane)
