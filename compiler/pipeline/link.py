"""Order the instructions of a segment, add tokens, and prove the program safe."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from ...aligned import align
from ...errors import CompileError
from ...isa.checker import check
from ...isa.configuration import Configuration, Memory
from ...isa.instructions import Instruction
from ..accelerator.lower_schedules import Emitted
from ..graph.macs import all_macs_of
from ..module import Layer, Segment
from ..scheduling.given_schedules import joined
from ..scheduling.issue_order import Issued, Measure, issue, reorder_loads
from .request import CompileRequest, Linked, Lowered


def link(
    request: CompileRequest, lowered: Lowered, measure: Measure | None, *, reorder: bool = True
) -> Linked:
    """Make the program of a segment; unless the request is lean, `prove` must follow.

    Loads may pass others if `reorder`, which schedules are chosen without. The orders found for
    narrower ports, from that of the search on, are tried too: see `group.narrower_ports`.
    """
    instructions = [emitted.instruction for emitted in lowered.stream]
    issued = issue(instructions, request.configuration, measure)
    if reorder:
        issued = reorder_loads(instructions, issued, request.configuration, measure)
        if measure is not None:
            for machine in _narrower(request.configuration, lowered.scheduled.grouped.searched):
                other = _ordered(instructions, machine, request.configuration, measure)
                issued = min(issued, other, key=lambda each: each.cycles)
    program, order, cycles = issued
    notes = () if request.lean else _notes(program, [lowered.stream[index] for index in order])
    runs = _runs(program, [bisect_right(lowered.ends, index) for index in order])
    scheduled = lowered.scheduled
    layers = tuple(
        Layer(
            name=layer.group.name,
            op=layer.group.op,
            output=layer.group.output,
            macs=all_macs_of(lowered.scheduled.grouped.layout.graph, layer.group.nodes),
            schedule=joined(layer.schedules),
            runs=tuple(runs.get(number, ())),
        )
        for number, layer in enumerate(scheduled.layers)
    )
    layout, pool = scheduled.grouped.layout, lowered.constants
    segment = Segment(
        program=program,
        notes=notes,
        layers=layers,
        inputs=tuple(scheduled.bound[name] for name in layout.inputs),
        outputs=tuple(scheduled.bound[name] for name in layout.outputs),
        activations=tuple(scheduled.bound.values()),
        constants=pool.image(),
        constants_offset=pool.base,
        data_bytes=align(pool.base + pool.size),
    )
    return Linked(lowered, segment, cycles)


def _narrower(configuration: Configuration, narrowest: Configuration) -> Iterator[Configuration]:
    """Yield the machines from the one with the narrowest port up to a machine, without it."""
    machine = narrowest
    while machine.bus_bits < configuration.bus_bits:
        yield machine
        machine = machine.replace(bus_bits=2 * machine.bus_bits)


def _ordered(
    instructions: Sequence[Instruction],
    searched: Configuration,
    configuration: Configuration,
    measure: Measure,
) -> Issued:
    """Return the program that has the order found for one machine, and its cycles on another."""
    first = issue(instructions, searched, measure)
    order = reorder_loads(instructions, first, searched, measure).order
    found = issue([instructions[index] for index in order], configuration, measure)
    return found._replace(order=[order[index] for index in found.order])


def prove(request: CompileRequest, segment: Segment) -> None:
    """Check that a program addresses all its data, and that any execution gives the same result.

    Raises
    ------
    CompileError
        When the data are too large for the machine's addresses.
    """
    _refuse_large_data(request.graph.name, segment.data_bytes, request.configuration)
    check(segment.program, request.configuration, segment.data_bytes)


def _refuse_large_data(model: str, data_bytes: int, configuration: Configuration) -> None:
    """Refuse data that no instruction could address."""
    reach = configuration.size_bytes(Memory.DRAM)
    if data_bytes > reach:
        raise CompileError(
            f"model `{model}`: its activations and constants take {data_bytes:,} bytes, but "
            f"`address_bits` = {configuration.address_bits} of configuration "
            f"`{configuration.name}` reaches {reach:,}; raise it, or leave layers to the host"
        )


def _notes(program: Sequence[Instruction], emitted: Sequence[Emitted]) -> tuple[str, ...]:
    """The note of every instruction."""
    items = iter(emitted)
    notes = [
        "token" if instruction.only_tokens else f"{(item := next(items)).kernel}: {item.note}"
        for instruction in program[:-1]
    ]
    return (*notes, "end")


def _runs(
    program: Sequence[Instruction], layers: Sequence[int]
) -> dict[int, list[tuple[int, int]]]:
    """The ranges of a program that belong to each layer; a SYNC belongs to the next instruction.

    Parameters
    ----------
    layers
        For each instruction that is not a SYNC or HALT, the number of its layer.
    """
    runs: dict[int, list[tuple[int, int]]] = {}
    numbers, first, before = iter(layers), 0, None
    for place, instruction in enumerate(program[:-1]):
        if instruction.only_tokens:
            continue
        number = next(numbers)
        mine = runs.setdefault(number, [])
        if number == before:
            first, _ = mine.pop()
        mine.append((first, place + 1))
        first, before = place + 1, number
    return runs
