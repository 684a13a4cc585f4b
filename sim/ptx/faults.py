"""Faults of a kernel that the interpreter reports, each with its name and place."""

from enum import StrEnum

from tilewright.errors import ProgramError


class FaultKind(StrEnum):
    """Names of everything that a kernel can do wrong here."""

    SYNTAX = "syntax error"
    UNSUPPORTED = "unsupported instruction"
    ARGUMENTS = "wrong launch arguments"
    OUT_OF_BOUNDS = "access out of bounds"
    MISALIGNED = "misaligned access"
    READ_ONLY = "store to read-only memory"
    UNINITIALISED_REGISTER = "uninitialised register"
    UNINITIALISED_SHARED = "uninitialised shared memory"
    SHARED_RACE = "race in shared memory"
    GLOBAL_RACE = "race in global memory"
    PENDING_COPY = "asynchronous copy not waited for"
    PENDING_PRODUCT = "wgmma not waited for"
    MISSING_FENCE = "missing proxy fence"
    TENSOR_MAP = "invalid tensor map"
    MBARRIER_STATE = "mbarrier not initialised"
    MBARRIER_COUNT = "wrong mbarrier count"
    MBARRIER_BYTES = "wrong byte count of an mbarrier"
    MBARRIER_PHASE = "wait for a phase that is over"
    REGISTER_COUNT = "wrong register count"
    DIVERGENT_BARRIER = "divergent barrier"
    DIVERGENT_WARP = "divergent warp"
    BARRIER_COUNT = "wrong barrier count"
    DEADLOCK = "deadlock"
    ENDLESS = "endless loop"
    TRAP = "trap"


class PtxFault(ProgramError):
    """A kernel breaks a rule of PTX, or gives a wrong result.

    Attributes
    ----------
    fault : FaultKind
        Its name.
    line : int or None
        Line of the PTX text, from 1.
    block, thread : tuple[int, int, int] or None
        The first thread that is affected, as `%ctaid` and `%tid`.
    """

    def __init__(
        self,
        fault: FaultKind,
        detail: str,
        line: int | None = None,
        block: tuple[int, int, int] | None = None,
        thread: tuple[int, int, int] | None = None,
    ):
        self.fault, self.detail = fault, detail
        self.line, self.block, self.thread = line, block, thread
        place = "" if line is None else f"line {line}: "
        if block is not None:
            thread_place = "" if thread is None else f", thread {thread}"
            place += f"block {block}{thread_place}: "
        super().__init__(f"{place}{fault}: {detail}")


class LaneFault(Exception):
    """A fault of one lane, raised where neither the line nor the thread's index is known.

    Attributes
    ----------
    fault : FaultKind
        Its name.
    lane : int
        Index of the lane among all lanes of the batch of blocks.
    """

    def __init__(self, fault: FaultKind, detail: str, lane: int):
        super().__init__(detail)
        self.fault, self.detail, self.lane = fault, detail, lane
