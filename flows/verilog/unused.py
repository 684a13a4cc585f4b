"""Remove what no output depends on, bit by bit and through the hierarchy.

Amaranth declares whole records at both ends of a port, of which a module may read a few bits. Every
module has one instance, so a port may lose the bits that its module does not read.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby

from .rtlil import Bit, Cell, RtlilModule, Signal, Wire, WireBit, constant_bits

RESULTS = {"\\Y", "\\Q", "\\RD_DATA"}
"""Outputs of Yosys' own cells."""

BITWISE = (("\\A", "\\B"), "\\Y", ("\\A_WIDTH", "\\B_WIDTH", "\\Y_WIDTH"))
REGISTER = (("\\D",), "\\Q", ("\\WIDTH",))
SLICED = {
    "$mux": (("\\A", "\\B"), "\\Y", ("\\WIDTH",)),
    "$not": (("\\A",), "\\Y", ("\\A_WIDTH", "\\Y_WIDTH")),
    **dict.fromkeys(("$and", "$or", "$xor", "$xnor"), BITWISE),
    **dict.fromkeys(("$dff", "$dffe", "$sdff", "$sdffe", "$sdffce"), REGISTER),
}
"""Cells that treat each bit on its own: their inputs, output, and parameters with the width."""

UNUSED = "\\unused"
"""Beginning of the names of wires that nothing reads; linters know the word."""

Place = tuple[str, str, int]
"""Module, wire, index."""


def remove_unused(modules: dict[str, RtlilModule], top: str) -> None:
    """Keep the bits that an output of the top module depends on; bits without driver become x.

    The ports of the top module stay; a wire `unused_inputs` reads those that have no effect.
    """
    used = _used_places(modules, top)
    for module in modules.values():
        _trim_cells(module, modules, used)
        _trim_links(module, used)
    parts = {
        name: _trim_wires(module, used, keeps_ports=name == top) for name, module in modules.items()
    }
    for module in modules.values():
        for cell in module.cells:
            if cell.kind in modules:
                cell.ports = {
                    part: tuple(signal[index] for index in chosen)
                    for port, signal in cell.ports.items()
                    for part, chosen in parts[cell.kind][port]
                }
        _clear_undriven(module, modules)
    _read_inputs(modules[top], used)


def _used_places(modules: dict[str, RtlilModule], top: str) -> set[Place]:
    sources, work = _sources(modules)
    work += [(top, name, index) for name, index in _port_bits(modules[top], "output")]
    used: set[Place] = set()
    while work:
        place = work.pop()
        if place not in used:
            used.add(place)
            name, signals = sources.get(place, ("", ()))
            work.extend((name, *bit) for signal in signals for bit in _wired(signal))
    return used


def _sources(
    modules: dict[str, RtlilModule],
) -> tuple[dict[Place, tuple[str, tuple[Signal, ...]]], list[Place]]:
    """What every bit depends on; and the bits at cells of the technology, which all count."""
    sources: dict[Place, tuple[str, tuple[Signal, ...]]] = {}
    fixed: list[Place] = []

    def drive(name: str, bit: Bit, origin: str, *signals: Signal) -> None:
        if not isinstance(bit, str):
            sources[name, *bit] = origin, signals

    for name, module in modules.items():
        for target, source in module.links:
            for bit, other in zip(target, source, strict=True):
                drive(name, bit, name, (other,))
        for cell in module.cells:
            if cell.kind in modules:
                for port, signal in cell.ports.items():
                    inner = modules[cell.kind]
                    for bit, inside in zip(signal, inner.whole(port), strict=True):
                        if inner.wires[port].direction == "output":
                            drive(name, bit, inner.name, (inside,))
                        else:
                            drive(inner.name, inside, name, (bit,))
            elif cell.kind in SLICED:
                inputs, output, _ = SLICED[cell.kind]
                common = [s for port, s in cell.ports.items() if port not in (*inputs, output)]
                for index, bit in enumerate(cell.ports[output]):
                    own = tuple(cell.ports[port][index] for port in inputs)
                    drive(name, bit, name, own, *common)
            elif cell.kind.startswith("$"):
                inputs = [signal for port, signal in cell.ports.items() if port not in RESULTS]
                for port in RESULTS & cell.ports.keys():
                    for bit in cell.ports[port]:
                        drive(name, bit, name, *inputs)
            else:
                fixed += [(name, *bit) for s in cell.ports.values() for bit in _wired(s)]
    return sources, fixed


def _wired(signal: Signal) -> Iterator[WireBit]:
    return (bit for bit in signal if not isinstance(bit, str))


def _port_bits(module: RtlilModule, direction: str) -> tuple[WireBit, ...]:
    return tuple(
        bit
        for name, wire in module.wires.items()
        if wire.direction == direction
        for bit in module.whole(name)
    )


def _trim_cells(module: RtlilModule, modules: dict[str, RtlilModule], used: set[Place]) -> None:
    kept = []
    for cell in module.cells:
        if cell.kind in modules:
            inner = modules[cell.kind]
            for port, signal in cell.ports.items():
                if inner.wires[port].direction == "output":
                    read_inside = [(inner.name, *bit) in used for bit in inner.whole(port)]
                    cell.ports[port] = _named_unused(module, signal, used, read_inside)
        elif cell.kind.startswith("$"):
            outputs = [port for port in cell.ports if port in RESULTS]
            if not any(_used(module, bit, used) for port in outputs for bit in cell.ports[port]):
                continue
            if cell.kind in SLICED:
                _slice(module, cell, used)
            else:
                for port in outputs:
                    cell.ports[port] = _named_unused(module, cell.ports[port], used)
        kept.append(cell)
    module.cells = kept


def _used(module: RtlilModule, bit: Bit, used: set[Place]) -> bool:
    return isinstance(bit, str) or (module.name, *bit) in used


def _slice(module: RtlilModule, cell: Cell, used: set[Place]) -> None:
    """Keep the bits of a cell whose results are used."""
    inputs, output, widths = SLICED[cell.kind]
    chosen = [i for i, bit in enumerate(cell.ports[output]) if _used(module, bit, used)]
    if len(chosen) == len(cell.ports[output]):
        return
    for port in (*inputs, output):
        cell.ports[port] = tuple(cell.ports[port][index] for index in chosen)
    cell.parameters |= dict.fromkeys(widths, str(len(chosen)))
    if reset := cell.parameters.get("\\SRST_VALUE"):
        bits = constant_bits(reset)[::-1]
        value = "".join(bits[index] for index in reversed(chosen))
        cell.parameters["\\SRST_VALUE"] = f"{len(chosen)}'{value}"


def _named_unused(
    module: RtlilModule, signal: Signal, used: set[Place], driven: Sequence[bool] | None = None
) -> Signal:
    """Put the unused bits of a result onto wires that say so; `driven` leaves out some bits."""
    pairs = zip(signal, driven or [True] * len(signal), strict=True)
    bits: list[Bit] = []
    for needs_wire, group in groupby(pairs, lambda p: p[1] and not _used(module, p[0], used)):
        run = tuple(bit for bit, _ in group)
        if needs_wire:
            run = module.add_wire(UNUSED, len(run))
            used.update((module.name, *bit) for bit in _wired(run))
        bits += run
    return tuple(bits)


def _trim_links(module: RtlilModule, used: set[Place]) -> None:
    links = []
    for target, source in module.links:
        chosen = [i for i, bit in enumerate(target) if _used(module, bit, used)]
        if chosen:
            links.append((tuple(target[i] for i in chosen), tuple(source[i] for i in chosen)))
    module.links = links


def _trim_wires(
    module: RtlilModule, used: set[Place], *, keeps_ports: bool
) -> dict[str, list[tuple[str, list[int]]]]:
    """Cut wires down to their used bits; a wire with holes becomes several.

    Returns the parts of every wire: their names, and the indices of their bits.
    """
    moved: dict[Bit, Bit] = {}
    parts: dict[str, list[tuple[str, list[int]]]] = {}
    old = module.wires
    module.wires = {}
    for name, wire in old.items():
        chosen = [i for i in range(wire.width) if (module.name, name, i) in used]
        if len(chosen) == wire.width or (keeps_ports and wire.direction):
            module.wires[name] = wire
            parts[name] = [(name, list(range(wire.width)))]
            continue
        runs = [
            [index for _, index in run]
            for _, run in groupby(enumerate(chosen), lambda pair: pair[1] - pair[0])
        ]
        parts[name] = []
        for run in runs:
            part = name if len(runs) == 1 else module.free_name(f"{name}_{run[0]}", old)
            module.wires[part] = _cut(wire, run)
            parts[name].append((part, run))
            moved |= {(name, before): (part, after) for after, before in enumerate(run)}
    module.map_bits(moved)
    return parts


def _cut(wire: Wire, run: list[int]) -> Wire:
    attributes = dict(wire.attributes)
    if initial := attributes.get("\\init"):
        bits = constant_bits(initial)[::-1]
        attributes["\\init"] = f"{len(run)}'{bits[run[0] : run[-1] + 1][::-1]}"
    offset = wire.offset + run[0] if len(run) > 1 else 0
    return Wire(
        len(run), offset, wire.direction, wire.signed and run[-1] == wire.width - 1, attributes
    )


def _clear_undriven(module: RtlilModule, modules: dict[str, RtlilModule]) -> None:
    """Yosys leaves bits without driver where they have no effect."""
    driven = set(_port_bits(module, "input"))
    for target, _ in module.links:
        driven.update(_wired(target))
    for cell in module.cells:
        for port, signal in cell.ports.items():
            inner = modules.get(cell.kind)
            is_input = (
                inner.wires[port].direction == "input"
                if inner
                else cell.kind.startswith("$") and port not in RESULTS
            )
            if not is_input:
                driven.update(_wired(signal))
    module.map_bits(
        {bit: "0" for name in module.wires for bit in module.whole(name) if bit not in driven}
    )


def _read_inputs(top: RtlilModule, used: set[Place]) -> None:
    """Read the inputs without effect, as linters expect it."""
    ignored = tuple(b for b in _port_bits(top, "input") if (top.name, *b) not in used)
    if ignored:
        result = top.add_wire(f"{UNUSED}_inputs", 1)
        parameters = {"\\A_SIGNED": "0", "\\A_WIDTH": str(len(ignored)), "\\Y_WIDTH": "1"}
        ports: dict[str, Signal] = {"\\A": ignored, "\\Y": result}
        top.cells.append(Cell("$reduce_and", "$unused_inputs", parameters, ports))
