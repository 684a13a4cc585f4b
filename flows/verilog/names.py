"""Name the ports that Amaranth only numbers, after the signals on either side of them."""

import re
from collections import defaultdict

from .rtlil import Bit, RtlilModule, Signal

NUMBERED = re.compile(r"\\port\$\d+\$\d+")
"""A port that is no whole signal of the module around it, such as a field of a record."""

NAMED = re.compile(r"\\[A-Za-z]")


class _NamedSignals:
    """The named signals of a module, by the bits that they stand for."""

    def __init__(self, module: RtlilModule):
        self.module = module
        self.names: dict[str, str] = {}
        """Names of numbered ports, as they become known."""
        self._sources = {
            bit: other
            for target, source in module.links
            for bit, other in zip(target, source, strict=True)
        }
        self._places: dict[Bit, list[tuple[str, int]]] = defaultdict(list)
        for wire in module.wires:
            if NAMED.match(wire):
                for _, index in module.whole(wire):
                    self._places[self._root((wire, index))].append((wire, index))

    def _root(self, bit: Bit) -> Bit:
        while bit in self._sources:
            bit = self._sources[bit]
        return bit

    def name_of(self, signal: Signal) -> str | None:
        """A named signal that contains these bits, or else the first of them."""
        roots = [self._root(bit) for bit in signal if not isinstance(bit, str)]
        for length in (len(roots), 1):
            found = [
                (low, self.module.wires[wire].width, name)
                for wire, low in (self._places[roots[0]] if roots else ())
                if (name := self.names.get(wire, wire))
                and not NUMBERED.match(name)
                and low + length <= self.module.wires[wire].width
                and all(
                    self._root((wire, low + index)) == root
                    for index, root in enumerate(roots[:length])
                )
            ]
            if found:
                low, _, name = min(found, key=lambda one: (one[0] > 0, one[1], one[2]))
                return f"{name}_{low}" if low else name
        return None


def port_names(modules: dict[str, RtlilModule], top: str) -> dict[tuple[str, str], str]:
    """Names for numbered ports, by module and port, while all signals still exist.

    In order of preference: a signal of the module with these bits, a signal around the module, the
    output of the neighbour that drives them.
    """
    names: dict[tuple[str, str], str] = {}
    work = [_NamedSignals(modules[top])]
    while work:
        outer = work.pop()
        drivers: dict[Bit, str] = {}
        inner_cells = [cell for cell in outer.module.cells if cell.kind in modules]
        for cell in inner_cells:
            for port, signal in cell.ports.items():
                if modules[cell.kind].wires[port].direction == "output":
                    drivers |= dict.fromkeys(signal, f"{cell.name}_{port[1:]}")
        for cell in inner_cells:
            inner = _NamedSignals(modules[cell.kind])
            for port, signal in cell.ports.items():
                if NUMBERED.fullmatch(port):
                    name = inner.name_of(inner.module.whole(port)) or outer.name_of(signal)
                    if name is None and signal[0] in drivers:
                        name = drivers[signal[0]]
                    if name is not None:
                        inner.names[port] = names[cell.kind, port] = name
            work.append(inner)
    return names


def rename_ports(modules: dict[str, RtlilModule], names: dict[tuple[str, str], str]) -> None:
    """Rename ports, or what is left of them, and their connections."""
    renamed: dict[tuple[str, str], str] = {}
    for module in modules.values():
        wires, module.wires = module.wires, {}
        moved: dict[Bit, Bit] = {}
        for name, wire in wires.items():
            found = NUMBERED.match(name)
            wanted = found and names.get((module.name, found[0]))
            new = module.free_name(wanted, wires) if wanted else name
            module.wires[new] = wire
            renamed[module.name, name] = new
            if new != name:
                moved |= {(name, index): (new, index) for index in range(wire.width)}
        module.map_bits(moved)
    for module in modules.values():
        for cell in module.cells:
            if cell.kind in modules:
                cell.ports = {renamed[cell.kind, p]: s for p, s in cell.ports.items()}
