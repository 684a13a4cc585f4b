"""Moves, addresses, loads and stores."""

import numpy as np

from .batch import TYPES, BlockBatch, Step
from .builders import apply, builds, type_of, unsupported
from .faults import FaultKind, LaneFault
from .mbarriers import Mbarriers
from .memory import LOCAL_WINDOW, PARAMETER_WINDOW, SHARED_WINDOW, WINDOW_BITS, AddressSpace
from .syntax import Operand, Pair, PtxInstruction, RegisterVector, Special, Symbol, VirtualRegister

U64 = np.dtype(np.uint64)
SPACES = ("global", "shared", "local", "param", "const")
WINDOWS = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAMETER_WINDOW}


def space_of(instruction: PtxInstruction) -> str | None:
    """The address space of an instruction, or None for generic addresses."""
    for part in instruction.parts:
        if (name := part.split("::")[0]) in SPACES:
            return name
    return None


def memory_of(batch: BlockBatch, space: str) -> AddressSpace:
    """The memory that a space stands for."""
    memories = {"shared": batch.shared, "local": batch.local, "param": batch.parameters}
    return memories.get(space, batch.launch.memory)


def by_space(batch: BlockBatch, space: str | None, function):
    """Call `function(memory, lanes, addresses)`; for generic addresses once for each space."""
    if space is not None:
        memory = memory_of(batch, space)
        return lambda lanes, addresses: function(memory, lanes, addresses)

    def run(lanes, addresses) -> None:
        windows = addresses >> WINDOW_BITS
        rest = np.ones(len(addresses), bool)
        for name, window in WINDOWS.items():
            here = windows == window
            if here.any():
                rest &= ~here
                offsets = addresses[here] - (window << WINDOW_BITS)
                function(memory_of(batch, name), lanes[here], offsets)
        if rest.all():
            function(batch.launch.memory, lanes, addresses)
        elif rest.any():
            function(batch.launch.memory, lanes[rest], addresses[rest])

    return run


@builds("mov")
def build_move(batch: BlockBatch, instruction: PtxInstruction) -> Step:
    """`mov`, also packing and unpacking of vectors, and addresses of variables."""
    result, source = instruction.operands
    kind = type_of(instruction)
    if isinstance(source, Special) and source.name.startswith(("%clock", "%globaltimer")):
        clock = batch.row(result, TYPES[kind])

        def read_clock(lanes) -> None:
            clock[lanes] = batch.executed

        return read_clock
    if isinstance(source, RegisterVector):
        return _build_pack(batch, result, source, kind)
    if isinstance(result, RegisterVector):
        return _build_unpack(batch, result, source, kind)
    if isinstance(source, Symbol):
        # `mov` of a variable gives its address within its space; of a parameter, a generic one.
        space = batch.launch.space_of(source)
        base = PARAMETER_WINDOW << WINDOW_BITS if space == "param" else 0
        address = np.array(batch.launch.address_of(source) + base).astype(TYPES[kind])
        return apply(
            np.positive, batch.row(result, TYPES[kind]), np.broadcast_to(address, batch.count)
        )
    dtype = TYPES["pred"] if kind == "pred" else np.dtype(f"u{TYPES[kind].itemsize}")
    row, value = batch.row(result, dtype), batch.source(source, dtype)

    def run(lanes) -> None:
        row[lanes] = value[lanes]

    return run


def _elements(batch: BlockBatch, vector: RegisterVector, bits: int) -> list[np.ndarray]:
    dtype = np.dtype(f"u{bits // 8 // len(vector.elements)}")
    return [batch.source(element, dtype) for element in vector.elements]


def _build_pack(batch: BlockBatch, result: Operand, source: RegisterVector, kind: str) -> Step:
    bits = 128 if kind == "b128" else 8 * TYPES[kind].itemsize
    parts = _elements(batch, source, bits)
    row = batch.row(result, U64 if bits == 128 else np.dtype(f"u{bits // 8}"))

    def run(lanes) -> None:
        both = np.stack([part[lanes] for part in parts], axis=-1)
        row[lanes] = both if bits == 128 else both.view(row.dtype)[:, 0]

    return run


def _build_unpack(batch: BlockBatch, result: RegisterVector, source: Operand, kind: str) -> Step:
    bits = 128 if kind == "b128" else 8 * TYPES[kind].itemsize
    row = batch.source(source, U64 if bits == 128 else np.dtype(f"u{bits // 8}"))
    part = np.dtype(f"u{bits // 8 // len(result.elements)}")
    rows = [batch.row(element, part) for element in result.elements]

    def run(lanes) -> None:
        words = np.ascontiguousarray(row[lanes]).view(part).reshape(-1, len(rows))
        for index, target in enumerate(rows):
            target[lanes] = words[:, index]

    return run


@builds("cvta")
def build_convert_address(batch: BlockBatch, instruction: PtxInstruction) -> Step:
    """`cvta`: between an address in a space and a generic one."""
    space = space_of(instruction)
    if space is None:
        raise unsupported(instruction)
    result, source = instruction.operands
    base = WINDOWS.get(space, 0) << WINDOW_BITS
    offset = np.broadcast_to(np.uint64(base), batch.count)
    # Addresses of parameters may be generic already: `mov` makes them so.
    function = np.subtract if "to" in instruction.parts else np.bitwise_or
    return apply(function, batch.row(result, U64), batch.source(source, U64), offset)


@builds("mapa")
def build_cluster_address(batch: BlockBatch, instruction: PtxInstruction) -> Step:
    """`mapa` in a cluster of one block, whose rank is 0."""
    dtype = TYPES[type_of(instruction)]
    result, address, rank = instruction.operands
    row, addresses = batch.row(result, dtype), batch.source(address, dtype)
    ranks = batch.source(rank, TYPES["u32"])

    def run(lanes) -> None:
        if ranks[lanes].any():
            lane = int(batch.ids(lanes)[int(np.argmax(ranks[lanes] != 0))])
            raise LaneFault(FaultKind.OUT_OF_BOUNDS, "a cluster here has one block", lane)
        row[lanes] = addresses[lanes]

    return run


@builds("isspacep")
def build_is_space(batch: BlockBatch, instruction: PtxInstruction) -> Step:
    """`isspacep`: tell whether a generic address lies in a space."""
    space = space_of(instruction)
    window = WINDOWS.get(space or "")
    others = list(WINDOWS.values())

    def function(address):
        windows = address >> np.uint64(WINDOW_BITS)
        return windows == window if window is not None else ~np.isin(windows, others)

    result, source = instruction.operands
    return apply(function, batch.row(result, TYPES["pred"]), batch.source(source, U64))


@builds("ld", "ldu")
def build_load(batch: BlockBatch, instruction: PtxInstruction) -> Step:
    """Loads of one value or a vector from any space."""
    result, address = instruction.operands[:2]
    registers = result.elements if isinstance(result, RegisterVector) else (result,)
    kind = type_of_memory(instruction)
    if kind == "b128":
        raise unsupported(instruction)
    dtype = TYPES[kind]
    rows = [batch.wide_row(register, dtype) for register in registers]
    addresses = batch.addresses(address)

    def load(memory: AddressSpace, lanes, offsets) -> None:
        words = memory.load(batch, lanes, offsets, dtype.itemsize, len(rows))
        for index, row in enumerate(rows):
            row[lanes] = (
                words[:, index].view(dtype) if row.dtype != words.dtype else words[:, index]
            )

    access = by_space(batch, space_of(instruction), load)
    return lambda lanes: access(batch.ids(lanes), addresses(lanes))


def type_of_memory(instruction: PtxInstruction) -> str:
    """The type of a load or store, which its last qualifier gives."""
    kind = instruction.parts[-1]
    if kind not in TYPES and kind != "b128":
        raise unsupported(instruction)
    return kind


@builds("st")
def build_store(batch: BlockBatch, instruction: PtxInstruction) -> Step:
    """Stores of one value or a vector to any space."""
    address, value = instruction.operands[:2]
    elements = value.elements if isinstance(value, RegisterVector) else (value,)
    kind = type_of_memory(instruction)
    if kind == "b128":
        raise unsupported(instruction)
    dtype = np.dtype(f"u{TYPES[kind].itemsize}")
    sources = [batch.source(element, dtype, narrow=True) for element in elements]
    addresses = batch.addresses(address)

    def store(memory: AddressSpace, lanes, offsets) -> None:
        values = np.stack([source[lanes] for source in sources], axis=-1)
        memory.store(batch, lanes, offsets, values)

    access = by_space(batch, space_of(instruction), store)
    return lambda lanes: access(batch.ids(lanes), addresses(lanes))


@builds("membar", "fence")
def build_fence(batch: BlockBatch, instruction: PtxInstruction) -> Step:
    """Fences: an atomic after one releases; proxy fences precede the asynchronous proxy."""
    parts = instruction.parts
    if "mbarrier_init" in parts:
        return lambda lanes: Mbarriers.of(batch).announce(batch.ids(lanes))
    if parts[1:3] == ("proxy", "async") and "global" not in parts:

        def fence_proxy(lanes) -> None:
            Mbarriers.of(batch).announce(batch.ids(lanes))
            batch.clocks.fence_proxy(batch.warps[lanes], batch.threads[lanes])

        return fence_proxy
    wide = not {"cta", "proxy"} & set(parts)

    def run(lanes) -> None:
        batch.fenced[batch.warps[lanes]] |= wide

    return run


@builds("prefetch", "prefetchu", "applypriority", "discard", "nanosleep")
@builds("griddepcontrol", "pmevent", "createpolicy")
def build_nothing(batch: BlockBatch, instruction: PtxInstruction) -> Step:
    """Instructions that have no effect here."""
    return lambda lanes: None


def results_of(instruction: PtxInstruction) -> list[VirtualRegister]:
    """The registers that an instruction writes."""
    if not instruction.operands or instruction.name in WITHOUT_RESULT:
        return []
    if instruction.name in ("bar", "barrier") and "red" not in instruction.parts:
        return []
    match instruction.operands[0]:
        case VirtualRegister() as register:
            return [register]
        case Pair(first, second):
            return [first, second]
        case RegisterVector(elements):
            return [element for element in elements if isinstance(element, VirtualRegister)]
    return []


WITHOUT_RESULT = {"st", "red", "bra", "brx", "ret", "exit", "trap", "nanosleep", "setmaxnreg"}
