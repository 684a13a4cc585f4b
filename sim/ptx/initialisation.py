"""Find registers that a path may read before it writes them; only those are checked at run time."""

from collections.abc import Iterator

from .moves import results_of
from .syntax import (
    MemoryOperand,
    Not,
    Operand,
    Pair,
    PtxInstruction,
    PtxKernel,
    RegisterVector,
    Symbol,
    VirtualRegister,
)

ENDS = ("ret", "exit", "trap")


def registers_in(operand: Operand) -> Iterator[VirtualRegister]:
    """All registers of an operand."""
    match operand:
        case VirtualRegister():
            if operand.name != "_":
                yield operand
        case RegisterVector(elements):
            for element in elements:
                yield from registers_in(element)
        case Not(register):
            yield register
        case Pair(first, second):
            yield first
            yield second
        case MemoryOperand(base, _, extra):
            yield from registers_in(base)
            for element in extra:
                yield from registers_in(element)


def reads_of(instruction: PtxInstruction) -> list[str]:
    """Names of the registers that an instruction reads, its guard included."""
    operands = instruction.operands
    # wgmma adds to its first operand, or not, by a predicate: it does not count as read.
    skip = 1 if results_of(instruction) else 0
    names = [register.name for operand in operands[skip:] for register in registers_in(operand)]
    return names + ([instruction.guard.name] if instruction.guard else [])


def successors(kernel: PtxKernel, index: int) -> list[int]:
    """Instructions that can follow one."""
    instruction = kernel.instructions[index]
    following = [index + 1]
    if instruction.name == "bra":
        target = instruction.operands[0]
        following = [kernel.labels[target.name]] if isinstance(target, Symbol) else []
    elif instruction.name == "brx":
        table = instruction.operands[1]
        names = kernel.branch_tables[table.name] if isinstance(table, Symbol) else ()
        following = [kernel.labels[name] for name in names]
    elif instruction.name in ENDS:
        following = []
    if instruction.guard is not None and index + 1 not in following:
        following.append(index + 1)
    return [target for target in following if target < len(kernel.instructions)]


def doubtful_reads(kernel: PtxKernel) -> dict[int, list[str]]:
    """For each instruction, the registers that it may read uninitialised (those alone)."""
    numbers = {register.name: 1 << index for index, register in enumerate(kernel.registers)}
    everything = (1 << len(numbers)) - 1
    count = len(kernel.instructions)
    defined = [everything] * count
    gains = [0] * count
    for index, instruction in enumerate(kernel.instructions):
        if instruction.guard is None:
            for register in results_of(instruction):
                gains[index] |= numbers.get(register.name, 0)
    following = [successors(kernel, index) for index in range(count)]
    if count:
        defined[0] = 0
    work = [0] if count else []
    while work:
        index = work.pop()
        after = defined[index] | gains[index]
        for target in following[index]:
            if (narrowed := defined[target] & after) != defined[target]:
                defined[target] = narrowed
                work.append(target)
    doubtful = {}
    for index, instruction in enumerate(kernel.instructions):
        names = [name for name in reads_of(instruction) if not numbers[name] & defined[index]]
        if names:
            doubtful[index] = list(dict.fromkeys(names))
    return doubtful
