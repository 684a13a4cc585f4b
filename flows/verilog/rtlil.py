"""Netlists in RTLIL, Yosys' text format, between Yosys' passes and ours.

Only what Yosys writes after `proc` is understood: no processes. A signal is a tuple of bits, the
lowest first; a bit is a constant (`"0"`, `"1"`, `"x"`, `"z"`) or a wire's name with an index.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

WireBit = tuple[str, int]
Bit = str | WireBit
Signal = tuple[Bit, ...]
Attributes = dict[str, str]
"""Values as RTLIL writes them."""

TOKENS = re.compile(r"[{}]|\[[^\]]*\]|[^\s\[\]{}]\S*")
WIRE = re.compile(
    r"wire(?: width (\d+))?(?: offset (\d+))?(?: (input|output) \d+)?( signed)? (\S+)$"
)


@dataclass(slots=True)
class Wire:
    """A wire, whose bit 0 has the index `offset` in Verilog; `direction` is empty if no port."""

    width: int
    offset: int = 0
    direction: str = ""
    signed: bool = False
    attributes: Attributes = field(default_factory=dict)


@dataclass(slots=True)
class Cell:
    """An operator, or an instance of a module."""

    kind: str
    name: str
    parameters: dict[str, str] = field(default_factory=dict)
    ports: dict[str, Signal] = field(default_factory=dict)
    attributes: Attributes = field(default_factory=dict)

    def number(self, parameter: str) -> int:
        """A parameter as a number: `5`, or `3'101`."""
        return int(constant_bits(self.parameters[parameter]), 2)


@dataclass(slots=True)
class RtlilModule:
    """A module; `links` are its continuous assignments, target and source."""

    name: str
    wires: dict[str, Wire] = field(default_factory=dict)
    cells: list[Cell] = field(default_factory=list)
    links: list[tuple[Signal, Signal]] = field(default_factory=list)
    attributes: Attributes = field(default_factory=dict)

    def whole(self, wire: str) -> tuple[WireBit, ...]:
        return tuple((wire, index) for index in range(self.wires[wire].width))

    def add_wire(self, wanted: str, width: int) -> tuple[WireBit, ...]:
        """A new wire with this name, or one like it."""
        name = self.free_name(wanted)
        self.wires[name] = Wire(width)
        return self.whole(name)

    def free_name(self, wanted: str, taken: Collection[str] = ()) -> str:
        """The name that was asked for, or with a number if it is taken."""
        name, number = wanted, 1
        while name in self.wires or name in taken:
            name, number = f"{wanted}_{number}", number + 1
        return name

    def map_bits(self, moved: Mapping[Bit, Bit]) -> None:
        """Replace bits in all cells and links."""

        def mapped(signal: Signal) -> Signal:
            return tuple(moved.get(bit, bit) for bit in signal)

        for cell in self.cells:
            cell.ports = {port: mapped(signal) for port, signal in cell.ports.items()}
        self.links = [(mapped(target), mapped(source)) for target, source in self.links]


def parse_design(text: str) -> dict[str, RtlilModule]:
    """Read the modules of a design, by name."""
    modules = {}
    lines = (line.strip() for line in text.splitlines())
    attributes: Attributes = {}
    for line in lines:
        if line.startswith("attribute"):
            _add(attributes, line)
        elif line.startswith("module "):
            module = RtlilModule(line.split()[1], attributes=attributes)
            attributes = {}
            _parse_module(module, lines)
            modules[module.name] = module
    return modules


def _add(values: dict[str, str], line: str) -> None:
    _, name, value = line.split(maxsplit=2)
    values[name] = value


def _parse_module(module: RtlilModule, lines: Iterator[str]) -> None:
    attributes: Attributes = {}
    for line in lines:
        match line.split(maxsplit=1)[0]:
            case "end":
                return
            case "attribute":
                _add(attributes, line)
                continue
            case "wire":
                found = WIRE.match(line)
                assert found is not None, line
                width, offset, direction, signed, name = found.groups()
                module.wires[name] = Wire(
                    int(width or 1), int(offset or 0), direction or "", bool(signed), attributes
                )
            case "cell":
                _, kind, name = line.split()
                cell = Cell(kind, name, attributes=attributes)
                for inner in lines:
                    word, *rest = inner.split(maxsplit=2)
                    if word == "end":
                        break
                    if word == "parameter":
                        _add(cell.parameters, inner)
                    else:
                        cell.ports[rest[0]] = _parse_signal(module, rest[1])
                module.cells.append(cell)
            case "connect":
                words = TOKENS.findall(line)[1:]
                target, used = _take(module, words, 0)
                source, _ = _take(module, words, used)
                module.links.append((target, source))
            case other:
                raise AssertionError(other)
        attributes = {}


def _parse_signal(module: RtlilModule, text: str) -> Signal:
    return _take(module, TOKENS.findall(text), 0)[0]


def _take(module: RtlilModule, words: list[str], at: int) -> tuple[Signal, int]:
    """The signal that begins at a word, and the index of the word behind it."""
    if words[at] == "{":
        parts = []
        at += 1
        while words[at] != "}":
            part, at = _take(module, words, at)
            parts.append(part)
        return tuple(bit for part in reversed(parts) for bit in part), at + 1
    word = words[at]
    if word[0].isdigit():
        return tuple(reversed(constant_bits(word))), at + 1
    signal, at = module.whole(word), at + 1
    while at < len(words) and words[at][0] == "[":
        high, _, low = words[at][1:-1].partition(":")
        signal, at = signal[int(low or high) : int(high) + 1], at + 1
    return signal, at


def constant_bits(text: str) -> str:
    """The bits of a constant, the highest first: `4'0101`, `64'x`, or a number of 32 bits."""
    width, quote, digits = text.partition("'")
    if not quote:
        return f"{int(text):032b}"
    return digits.rjust(int(width), digits[0] if digits[:1] in ("x", "z") else "0")


def write_design(modules: dict[str, RtlilModule]) -> str:
    """The text of a design."""
    return "\n".join(line for module in modules.values() for line in _module_lines(module)) + "\n"


def _module_lines(module: RtlilModule) -> Iterator[str]:
    yield from (f"attribute {name} {value}" for name, value in module.attributes.items())
    yield f"module {module.name}"
    for number, (name, wire) in enumerate(module.wires.items()):
        yield from (f"attribute {key} {value}" for key, value in wire.attributes.items())
        offset = f"offset {wire.offset} " if wire.offset else ""
        port = f"{wire.direction} {number} " if wire.direction else ""
        signed = "signed " if wire.signed else ""
        yield f"wire width {wire.width} {offset}{port}{signed}{name}"
    for cell in module.cells:
        yield from (f"attribute {key} {value}" for key, value in cell.attributes.items())
        yield f"cell {cell.kind} {cell.name}"
        yield from (f"parameter {key} {value}" for key, value in cell.parameters.items())
        for port, signal in cell.ports.items():
            yield f"connect {port} {_signal_text(module, signal)}"
        yield "end"
    for target, source in module.links:
        yield f"connect {_signal_text(module, target)} {_signal_text(module, source)}"
    yield "end"


def _signal_text(module: RtlilModule, signal: Signal) -> str:
    parts = []
    at = 0
    while at < len(signal):
        start, bit = at, signal[at]
        at += 1
        if isinstance(bit, str):
            while at < len(signal) and isinstance(signal[at], str):
                at += 1
            digits = "".join(str(one) for one in reversed(signal[start:at]))
            parts.append(f"{at - start}'{digits}")
            continue
        wire, low = bit
        while at < len(signal) and signal[at] == (wire, low + at - start):
            at += 1
        if low == 0 and at - start == module.wires[wire].width:
            parts.append(wire)
        else:
            parts.append(f"{wire} [{low + at - start - 1}:{low}]")
    return parts[0] if len(parts) == 1 else f"{{ {' '.join(reversed(parts))} }}"
