"""Pipeline depths and queue sizes that are the same in every configuration: one table.

Hardware, timing model (in Python and in C++), checker and manual all take these numbers from here.
The C++ reads them as a generated header (`sim/contract_headers.py`), the manual prints them.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PipelineConstant:
    """One constant of the machine, equal in every configuration.

    Parameters
    ----------
    name
        Its name in this module, and in C++.
    value, unit
        Number and unit of measurement.
    owner
        The unit or block to which it belongs.
    meaning
        Explanation: the events that it counts between.
    """

    name: str
    value: int
    unit: str
    owner: str
    meaning: str


PIPELINE: list[PipelineConstant] = []
"""All constants of this module, in the order of their declaration."""


def _constant(name: str, value: int, unit: str, owner: str, meaning: str) -> int:
    PIPELINE.append(PipelineConstant(name, value, unit, owner, meaning))
    return value


# Scratchpads and arithmetic ----------------------------------------------------------------------

RAM_CYCLES = _constant("RAM_CYCLES", 2, "cycles", "RAMs", "from a read's address to its data")
READ_LATENCY = _constant(
    "READ_LATENCY",
    RAM_CYCLES + 1,
    "cycles",
    "scratchpads",
    "from a read's address to its data; the first takes the address to its bank",
)
MULTIPLIER_CYCLES = _constant(
    "MULTIPLIER_CYCLES", 3, "cycles", "VECTOR", "from a multiplier's operands to their product"
)

# FETCH -------------------------------------------------------------------------------------------

FETCH_START_CYCLES = _constant(
    "FETCH_START_CYCLES", 2, "cycles", "FETCH", "from the host's write of start to FETCH's start"
)
FETCH_BUFFERED_WORDS = _constant(
    "FETCH_BUFFERED_WORDS", 4, "instructions", "FETCH", "that its buffer holds at least"
)
FETCH_REQUEST_CYCLES = _constant(
    "FETCH_REQUEST_CYCLES",
    3,
    "cycles",
    "FETCH",
    "from the event that allows a request to the request",
)
FETCH_BURSTS = _constant("FETCH_BURSTS", 4, "bursts", "FETCH", "in flight at most")

# Queues ------------------------------------------------------------------------------------------

LEAVING_CYCLES = _constant(
    "LEAVING_CYCLES", 1, "cycles", "queues", "from an instruction's start to its leaving the queue"
)
READY_CYCLES = _constant(
    "READY_CYCLES",
    1,
    "cycles",
    "queues",
    "from an instruction at the head of its queue, with its tokens there, to its earliest start",
)
START_CYCLES = _constant(
    "START_CYCLES",
    LEAVING_CYCLES + 1 + READY_CYCLES,
    "cycles",
    "queues",
    "minimum from the start of one instruction of a unit to that of the next",
)

# GEMM --------------------------------------------------------------------------------------------

GEMM_REVISIT_STEPS = _constant(
    "GEMM_REVISIT_STEPS",
    READ_LATENCY + 2,
    "steps",
    "GEMM",
    "minimum from one visit of an accumulator row to the next: read, add, write",
)
LINE_STEPS = _constant(
    "LINE_STEPS",
    32,
    "steps",
    "GEMM",
    "maximum steps of a line that a depthwise GEMM combines with later lines",
)
GEMMS_IN_FLIGHT = _constant(
    "GEMMS_IN_FLIGHT", 4, "instructions", "GEMM", "maximum between start and retirement"
)
GEMM_ISSUE_CYCLES = _constant(
    "GEMM_ISSUE_CYCLES", 1, "cycles", "GEMM", "from choosing a row to reading it"
)
GEMM_ARRAY_CYCLES = _constant(
    "GEMM_ARRAY_CYCLES",
    7,
    "cycles",
    "GEMM",
    "from a row's data to the sum of its products, without the levels of the adder tree",
)
GEMM_TAIL_CYCLES = _constant(
    "GEMM_TAIL_CYCLES",
    GEMM_ISSUE_CYCLES + READ_LATENCY + GEMM_ARRAY_CYCLES + 2,
    "cycles",
    "GEMM",
    "from its last row to its completion, without the levels of the adder tree; the last two add "
    "to the accumulator and write it",
)

# VECTOR ------------------------------------------------------------------------------------------

VECTORS_IN_FLIGHT = _constant(
    "VECTORS_IN_FLIGHT", 2, "instructions", "VECTOR", "maximum between start and retirement"
)
VECTOR_OPERAND_CYCLES = _constant(
    "VECTOR_OPERAND_CYCLES", READ_LATENCY + 1, "cycles", "VECTOR", "from a step to its operands"
)
VECTOR_REDUCE_CYCLES = _constant(
    "VECTOR_REDUCE_CYCLES",
    MULTIPLIER_CYCLES + 2,
    "cycles",
    "VECTOR",
    "from operands to the input of the reduction",
)
VECTOR_BIAS_CYCLES = _constant(
    "VECTOR_BIAS_CYCLES", 2, "cycles", "VECTOR", "to reduce, and to add the bias"
)
WIDE_MULTIPLIER_CYCLES = _constant(
    "WIDE_MULTIPLIER_CYCLES",
    MULTIPLIER_CYCLES + 3,
    "cycles",
    "VECTOR",
    "from significands to their product, which takes several multipliers",
)
REQUANTISE_CYCLES = _constant(
    "REQUANTISE_CYCLES",
    WIDE_MULTIPLIER_CYCLES + 6,
    "cycles",
    "VECTOR",
    "from a total to its int8 value",
)
LOOKUP_CYCLES = _constant(
    "LOOKUP_CYCLES", RAM_CYCLES + 1, "cycles", "VECTOR", "from an index to the table's value"
)
VECTOR_TOTAL_CYCLES = _constant(
    "VECTOR_TOTAL_CYCLES",
    VECTOR_OPERAND_CYCLES + VECTOR_REDUCE_CYCLES + VECTOR_BIAS_CYCLES + 1,
    "cycles",
    "VECTOR",
    "from its last step to its completion, if it writes ACC",
)
VECTOR_RESULT_CYCLES = _constant(
    "VECTOR_RESULT_CYCLES",
    VECTOR_TOTAL_CYCLES + REQUANTISE_CYCLES + LOOKUP_CYCLES,
    "cycles",
    "VECTOR",
    "from its last step to its completion, if it writes anything else",
)
VECTOR_ROW_CYCLES = _constant(
    "VECTOR_ROW_CYCLES",
    32,
    "cycles",
    "VECTOR",
    "from the last result of a row to its parameters in PARAM: sums across lanes, reciprocal",
)

# LOAD, STORE and the memory port -----------------------------------------------------------------

TRANSFERS_IN_FLIGHT = _constant(
    "TRANSFERS_IN_FLIGHT",
    8,
    "instructions",
    "LOAD, STORE",
    "maximum for each; more would hide no more latency, because bursts run out first",
)
QUEUED_BURSTS = _constant(
    "QUEUED_BURSTS",
    2,
    "bursts",
    "LOAD, STORE",
    "that wait between the splitting of a run and the port",
)
PLACING_CYCLES = _constant(
    "PLACING_CYCLES",
    2,
    "cycles",
    "LOAD",
    "from taking a piece to writing it; a LOAD is complete with its last write",
)
REQUEST_REGISTERS = _constant(
    "REQUEST_REGISTERS",
    2,
    "bursts",
    "memory port",
    "that the registers in front of the read addresses hold",
)
READ_BUFFER_BEATS = _constant(
    "READ_BUFFER_BEATS", 2, "beats", "memory port", "that the read buffer holds"
)
PACKING_CYCLES = _constant(
    "PACKING_CYCLES",
    READ_LATENCY + 4,
    "cycles",
    "STORE",
    "from taking a beat's last piece to offering the beat to the port",
)
FREEING_CYCLES = _constant(
    "FREEING_CYCLES",
    2,
    "cycles",
    "STORE",
    "from the cycle in which a beat leaves for the port to the first in which its place is free",
)
QUEUED_BEATS = _constant(
    "QUEUED_BEATS",
    PACKING_CYCLES + FREEING_CYCLES + 1,
    "beats",
    "STORE",
    "on their way between the scratchpad and the port, at most: enough that reads never pause "
    "while the port takes a beat in every cycle",
)
