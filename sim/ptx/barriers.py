"""Barriers of a block: 16 of them, with counts, arrivals and reductions."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .batch import RUNNING, TYPES, WAITING, BlockBatch
from .builders import unsupported
from .faults import FaultKind, LaneFault
from .mbarriers import Mbarriers
from .syntax import BitPattern, PtxInstruction

COUNT = 16


def cluster_barrier(lanes: np.ndarray) -> int:
    """Barrier number of a one-block cluster; its arrivals count with its waits."""
    return COUNT


@dataclass(frozen=True, slots=True)
class Arrival:
    """A barrier instruction, compiled.

    Attributes
    ----------
    number, threads : function(lanes) -> int
        The barrier, and how many threads it waits for (0: all threads of the block).
    waits, aligned : bool
        `sync` and `red` wait, `arrive` does not; aligned ones need whole warps.
    reduce : function(lanes, released lanes) or None
        Writes the result of a reduction.
    """

    number: Callable[[np.ndarray], int]
    threads: Callable[[np.ndarray], int]
    waits: bool
    aligned: bool
    vote: Callable[[np.ndarray], np.ndarray] | None
    reduce: Callable[[np.ndarray, np.ndarray], None] | None


def build_arrival(batch: BlockBatch, instruction: PtxInstruction) -> Arrival:
    """Compile `bar`, `barrier` or `barrier.cta`."""
    parts = instruction.parts
    operands = list(instruction.operands)
    if parts[1:3] == ("cluster", "wait"):
        kind = "sync"
    else:
        kind = next((part for part in parts if part in ("sync", "arrive", "red")), None)
    if kind is None:
        raise unsupported(instruction)
    vote, reduce = None, None
    if kind == "red":
        result, condition = operands.pop(0), operands.pop()
        vote = batch.predicate(condition)
        row = batch.row(result, TYPES["u32" if "popc" in parts else "pred"])
        functions = {"popc": np.count_nonzero, "and": np.all, "or": np.any}
        reduce = _reduction(row, next(functions[part] for part in parts if part in functions))
    u32 = TYPES["u32"]
    rows = [batch.source(operand, u32) for operand in operands]

    def uniform(row: np.ndarray) -> Callable[[np.ndarray], int]:
        def read(lanes: np.ndarray) -> int:
            value = int(row[lanes[0]])
            if (row[lanes] != value).any():
                raise LaneFault(
                    FaultKind.DIVERGENT_BARRIER, "lanes of a warp differ", int(lanes[0])
                )
            return value

        return read

    if rows and not all(isinstance(operand, BitPattern) for operand in operands):
        readers = [uniform(row) for row in rows]
    else:
        readers = [lambda lanes, value=int(row[0]): value for row in rows]
    readers += [lambda lanes: 0] * (2 - len(readers))
    return Arrival(
        cluster_barrier if "cluster" in parts else readers[0],
        readers[1],
        kind != "arrive",
        parts[0] == "bar" or "aligned" in parts,
        vote,
        reduce,
    )


def _reduction(row: np.ndarray, function) -> Callable[[np.ndarray, np.ndarray], None]:
    def reduce(lanes: np.ndarray, votes: np.ndarray) -> None:
        row[lanes] = function(votes)

    return reduce


class Barriers:
    """The state of all barriers in a batch of blocks."""

    def __init__(self, batch: BlockBatch):
        self.batch = batch
        blocks = len(batch.block_ids)
        self.arrived = np.zeros((blocks, COUNT + 1), np.int64)
        self.expected = np.zeros((blocks, COUNT + 1), np.int64)
        self.mail = np.zeros((blocks, COUNT + 1, batch.clocks.rows.shape[1]), np.uint32)
        self.waits_at = np.full(batch.count, -1, np.int8)
        self.votes = np.zeros(batch.count, bool)
        self.reductions: dict[int, Callable[[np.ndarray, np.ndarray], None]] = {}

    def arrive(self, arrival: Arrival, lanes: np.ndarray) -> None:
        """Let `lanes`, at the barrier instruction, arrive; those complete become running."""
        batch = self.batch
        number, threads = arrival.number(lanes), arrival.threads(lanes)
        named = number < COUNT or arrival.number is cluster_barrier
        if not named or threads % 32:
            detail = f"barrier {number} for {threads} threads: 16 barriers, multiples of 32 threads"
            raise LaneFault(FaultKind.BARRIER_COUNT, detail, int(lanes[0]))
        if arrival.vote is not None and arrival.reduce is not None:
            self.votes[lanes] = arrival.vote(lanes)
            self.reductions[number] = arrival.reduce
        warps = np.unique(batch.warps[lanes])
        blocks = warps // batch.warps_per_block
        np.maximum.at(self.mail[:, number], blocks, batch.clocks.publish(warps))
        used = np.unique(blocks)
        wrong = (self.arrived[used, number] > 0) & (self.expected[used, number] != threads)
        if wrong.any():
            detail = f"barrier {number} is used with {threads} and with another number of threads"
            raise LaneFault(FaultKind.BARRIER_COUNT, detail, int(lanes[0]))
        self.expected[used, number] = threads
        # Hardware counts warps: lanes that have exited arrive with the rest of their warp.
        weight = (
            np.full(len(warps), 32) if arrival.aligned else np.bincount(batch.warps[lanes])[warps]
        )
        np.add.at(self.arrived[:, number], blocks, weight)
        if arrival.waits:
            batch.state[lanes] = WAITING
            self.waits_at[lanes] = number
        self.release(number)

    def release(self, number: int) -> None:
        """Let those go on whose barrier is complete."""
        batch = self.batch
        alive = (batch.state != 3).reshape(len(batch.block_ids), -1, 32).any(axis=2).sum(axis=1)
        expected = np.where(self.expected[:, number] == 0, 32 * alive, self.expected[:, number])
        arrived = self.arrived[:, number]
        if (arrived > expected).any():
            lane = int(np.argmax(arrived > expected)) * batch.warps_per_block * 32
            detail = (
                f"{int(arrived.max())} threads arrive at barrier {number}, of {int(expected.max())}"
            )
            raise LaneFault(FaultKind.BARRIER_COUNT, detail, lane)
        complete = (arrived == expected) & (arrived > 0)
        if not complete.any():
            return
        self.arrived[complete, number] = 0
        lanes = np.flatnonzero((self.waits_at == number) & complete[batch.blocks])
        warps = np.unique(batch.warps[lanes])
        batch.clocks.learn(warps, self.mail[warps // batch.warps_per_block, number])
        self.mail[complete, number] = 0
        if number in self.reductions:
            for block in np.unique(batch.blocks[lanes]):
                members = lanes[batch.blocks[lanes] == block]
                self.reductions[number](members, self.votes[members])
        self.waits_at[lanes] = -1
        batch.state[lanes] = RUNNING
        Mbarriers.of(batch).announce(lanes)

    def release_after_exit(self) -> None:
        """Look again at barriers for all threads, of which some have exited."""
        for number in np.flatnonzero((self.waits_at >= 0).any() and (self.arrived > 0).any(axis=0)):
            self.release(int(number))
