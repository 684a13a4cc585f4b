"""Rules that an instruction must obey on its own, whatever else runs.

Each rule is a generator of messages; a caller can stop at the first fault or list them all. The
rules exist because the hardware pipelines a whole loop nest without hazard checks.
"""

from collections.abc import Iterator
from math import prod

import numpy as np

from ..errors import IsaError, ProgramError
from ..wording import counted
from .configuration import Configuration, Memory
from .encoding import encode
from .footprints import EXACT_RUNS, bank_mask, footprint, regions_share_a_row
from .instructions import Gemm, Instruction, Load, Loop, Statistic, Vector
from .instructions.load import FLAGS
from .instructions.loops import nest_addresses, nest_jumps
from .instructions.vector import MAX_BOUND
from .pipeline import GEMM_REVISIT_STEPS, VECTOR_RESULT_CYCLES, VECTOR_TOTAL_CYCLES
from .semantics import check_bounds

_MAX_ELEMENTS = {Statistic.VARIANCE: 1 << 12, Statistic.POWER: 1 << 12}
"""Elements of a row for which the spread has its bits."""

_ACC = Gemm.nests["tile_loops"].index("acc"), Gemm.nests["row_loops"].index("acc")


def instruction_faults(
    instruction: Instruction, configuration: Configuration, data_bytes: int
) -> Iterator[str]:
    """Faults of one instruction on its own; empty for a legal one.

    Parameters
    ----------
    data_bytes
        Size of the data window of main memory.
    """
    try:
        encode(instruction, configuration)
        if _leaves_a_memory(instruction, configuration, data_bytes):
            check_bounds(instruction, configuration, data_bytes, 0)
    except IsaError as problem:
        yield str(problem).removeprefix(f"{instruction.mnemonic}: ")
        return
    except ProgramError as problem:
        yield str(problem).split(": ", 1)[1]
        return
    if isinstance(instruction, Load):
        yield from load_faults(instruction, configuration)
    elif isinstance(instruction, Gemm):
        known = instruction.shared.get("revisits")  # these do not depend on its addresses
        if known is None or known[0] is not configuration or known[1]:
            revisits = tuple(gemm_faults(instruction, configuration))
            instruction.shared["revisits"] = configuration, bool(revisits)
            yield from revisits
    elif isinstance(instruction, Vector):
        yield from vector_faults(instruction, configuration)


def _leaves_a_memory(
    instruction: Instruction, configuration: Configuration, data_bytes: int
) -> bool:
    """Whether `check_bounds` would fail, from the footprint."""
    here = footprint(instruction, configuration)
    for place in here.read_regions + here.written_regions:
        memory = place.memory
        size = data_bytes if memory is Memory.DRAM else configuration.size_bytes(memory)
        if place.low < 0 or place.high >= size:
            return True
    return False


def load_faults(load: Load, configuration: Configuration) -> Iterator[str]:
    """Reject what is no weight tile, or would give the hardware part of a packed row in a cycle."""
    flags = [name for name in FLAGS if getattr(load, name)]
    if flags and (load.fill or load.destination is not Memory.WGT or len(flags) > 1):
        yield (
            f"`{flags[0]}` reads weight tiles into WGT and has no `fill`"
            f"{f' or `{flags[1]}`' if flags[1:] else ''}; leave one of them out"
        )
        return
    if not load.unpack:
        return
    steps = {
        "length": configuration.packed_tile_bytes,
        "memory": min(configuration.packed_row_bytes, configuration.bus_bytes),
        "local": configuration.tile_bytes,
    }
    for name, step in steps.items():
        strides = [stride for _, stride in load.nest_of(name)] if name != "length" else []
        if any(value % step for value in (getattr(load, name), *strides)):
            yield f"with `unpack`, `{name}` has to move in steps of {step} bytes; align the tiles"
            return


def gemm_faults(gemm: Gemm, configuration: Configuration) -> Iterator[str]:
    """Reject an ACC row that is visited again before its previous sum is written.

    The accumulator loop (read, add, write) takes `GEMM_REVISIT_STEPS` steps and has no forwarding.
    One iteration of the row loops is one step. One iteration of the tile loops lasts as long as
    exchanging a tile, at least `max(rows, lanes_in, GEMM_REVISIT_STEPS)` steps. Two visits can
    therefore be too close only within one tile, or between the last rows of a tile and the first
    rows of the next.
    """
    rows = gemm.rows()
    if rows > EXACT_RUNS:
        yield (
            f"{rows} row iterations are more than the checker examines ({EXACT_RUNS}); split the "
            "instruction"
        )
        return
    pattern = nest_addresses(gemm.acc, _strides(gemm.row_loops, _ACC[1]))
    for distance in range(1, GEMM_REVISIT_STEPS):
        again = np.flatnonzero(pattern[distance:] == pattern[:-distance])
        if again.size:
            yield _revisit(int(pattern[again[0]]), distance, "in the row loops")
            return
    duration = max(rows, configuration.lanes_in, GEMM_REVISIT_STEPS)
    for level, move in enumerate(nest_jumps(_strides(gemm.tile_loops, _ACC[0]))):
        for last in range(max(0, rows - GEMM_REVISIT_STEPS + 1), rows):
            reach = GEMM_REVISIT_STEPS - (duration - last)
            for first in range(min(rows, max(0, reach))):
                if pattern[last] == pattern[first] + move:
                    steps = duration - last + first
                    yield _revisit(int(pattern[last]), steps, f"across tile loop {level}")
                    return


def _strides(loops: tuple[Loop, ...], index: int) -> tuple[tuple[int, int], ...]:
    return tuple((loop.extent, loop.strides[index]) for loop in loops)


def _revisit(row: int, steps: int, where: str) -> str:
    return (
        f"ACC row {row} is visited again after {counted(steps, 'step')} {where}; expected "
        f"at least {GEMM_REVISIT_STEPS}; put a loop that moves `acc` inside"
    )


def vector_faults(vector: Vector, configuration: Configuration) -> Iterator[str]:
    """Reject operands that share a bank, results that a later output reads, and RAM collisions.

    `a` and `b` are read in the same cycle, so they must never share a bank of ACT. Reads run ahead
    of writes by the depth of the pipeline. A slice may be read by the output that overwrites it or
    by an earlier output, which both see the old value, but never by a later one. Where several
    slices form a row, no slice may be read in the cycle in which another slice of its row is
    written, because what a block RAM then reads is undefined.
    """
    here = footprint(vector, configuration)
    places = {place.operand: place for place in here.read_regions + here.written_regions}
    if "b" in places and not vector.a_from_acc:
        shared = bank_mask(places["a"], configuration) & bank_mask(places["b"], configuration)
        if shared:
            bank = (shared & -shared).bit_length() - 1
            yield (
                f"operands `a` and `b` both read ACT bank {bank}, which has one read port; move "
                "one of them to another bank"
            )
    if vector.has_rows:
        yield from _row_faults(vector, configuration)
    for name in ("a", "b") if "dst" in places else ():
        if name in places and regions_share_a_row(places[name], places["dst"]):
            yield from _late_reads(vector, name, configuration)
            yield from _collisions(vector, name, configuration)


def _row_faults(vector: Vector, configuration: Configuration) -> Iterator[str]:
    """Reject rows that are too long for their sums, or whose parameters are read once more.

    A row's parameters are written when those of later rows have been read.
    """
    elements = vector.row_outputs() * configuration.vector_lanes
    longest = min(vector.row_bound(vector.rows() - 1), elements)
    limit = _MAX_ELEMENTS.get(vector.measured, MAX_BOUND)
    if longest > limit:
        yield (
            f"a row of {longest} elements; `statistic={vector.measured.name.lower()}` takes at "
            f"most {limit}; lower `bound`"
        )
    if vector.measured and (vector.bias or vector.scale):
        steps, rows = vector.steps(), vector.rows()
        if steps > EXACT_RUNS or np.unique(vector.addresses("param")).size < rows:
            yield (
                "rows share a row of PARAM (`param`), which is read after the first of them has "
                "written it; move `param` from row to row or leave out `bias` and `scale`"
            )


def _late_reads(vector: Vector, name: str, configuration: Configuration) -> Iterator[str]:
    if vector.steps() > EXACT_RUNS:
        yield (
            f"operand `{name}` shares rows with `dst` over {vector.steps()} steps, more than the "
            f"checker examines ({EXACT_RUNS}); split the instruction"
        )
        return
    read, written = _reads_and_writes(vector, name)
    outputs = written.size
    size = configuration.size_bytes(vector.memory_of("dst"))
    first_write = np.full(size // vector.granule_bytes("dst", configuration), outputs)
    np.minimum.at(first_write, written, np.arange(outputs))
    late = first_write[read] < np.arange(outputs)[:, None]
    if late.any():
        output, step = (int(i[0]) for i in np.nonzero(late))
        slice_address = int(read[output, step])
        yield (
            f"operand `{name}` reads slice {slice_address} of {vector.memory_of('dst').name} at "
            f"output {output}, but output {first_write[slice_address]} of the same instruction "
            "writes it; reads run ahead of writes; write elsewhere or split the instruction"
        )


def _collisions(vector: Vector, name: str, configuration: Configuration) -> Iterator[str]:
    row_bytes = configuration.row_bytes(vector.memory_of("dst"))
    slices = row_bytes // vector.granule_bytes("dst", configuration)
    if slices == 1 or vector.steps() > EXACT_RUNS:
        return  # a later output reads the slice, or has been told to split
    read, written = _reads_and_writes(vector, name)
    steps, rows = read.reshape(-1) // slices, written // slices
    delay = (VECTOR_TOTAL_CYCLES if vector.stays_total else VECTOR_RESULT_CYCLES) - 1
    cycles = delay + np.arange(1, rows.size + 1) * read.shape[1] - 1
    rows = rows[cycles < steps.size]
    (met,) = np.nonzero(steps[cycles[: rows.size]] == rows)
    if met.size:
        output = int(met[0])
        yield (
            f"operand `{name}` reads row {rows[output]} of {vector.memory_of('dst').name} at step "
            f"{cycles[output]}, in the cycle in which output {output} writes another slice of the "
            "row; order the loops differently or write elsewhere"
        )


def _reads_and_writes(vector: Vector, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Slices that an operand reads, int64[outputs, steps], and that are written, int64[outputs]."""
    outputs = prod(loop.extent for loop in vector.map_loops)
    read = vector.addresses(name).reshape(outputs, -1)
    return read, vector.addresses("dst").reshape(outputs, -1)[:, 0]


def has_faults(instruction: Instruction, configuration: Configuration, data_bytes: int) -> bool:
    """Whether an instruction breaks a rule on its own."""
    return next(instruction_faults(instruction, configuration, data_bytes), None) is not None
