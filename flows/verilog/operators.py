"""Rewrite operators and assignments that linters would misread."""

from .rtlil import Bit, Cell, RtlilModule

MODULAR = {"$and", "$or", "$xor", "$xnor", "$not", "$add", "$sub", "$neg"}
"""Operators whose low result bits depend on the low operand bits only."""

COMPARISONS = {"$eq", "$ne", "$lt", "$le", "$gt", "$ge"}
SHIFTS = {"$shl", "$shr", "$sshr", "$shift"}


def equalise_widths(module: RtlilModule) -> None:
    """Make every extension explicit, except in products, which tools map to multipliers."""
    for cell in module.cells:
        operands = [port for port in ("\\A", "\\B") if port in cell.ports]
        if cell.kind == "$logic_not" and len(cell.ports["\\A"]) > 1:
            _compare_with_zero(cell)
        elif cell.kind in MODULAR:
            _resize(cell, operands, len(cell.ports["\\Y"]))
            cell.parameters |= {f"{port}_SIGNED": "0" for port in operands}
        elif cell.kind in COMPARISONS:
            _resize(cell, operands, max(len(cell.ports[port]) for port in operands))
        elif cell.kind in SHIFTS:
            _widen_shift(module, cell)


def separate_copies(module: RtlilModule) -> None:
    """Move each bit that is copied within its wire, as a sign bit is, to a wire of its own.

    Linters judge whole wires, and would see a loop.
    """
    copied = {
        source
        for targets, sources in module.links
        for target, source in zip(targets, sources, strict=True)
        if not isinstance(source, str) and source[0] == target[0]
    }
    moved: dict[Bit, Bit] = {
        bit: module.add_wire(f"{bit[0]}_{bit[1]}", 1)[0] for bit in sorted(copied)
    }
    module.map_bits(moved)
    module.links += [((bit,), (own,)) for bit, own in moved.items()]


def _resize(cell: Cell, operands: list[str], width: int) -> None:
    """Extend or cut operands; they are signed if all of them are."""
    signed = all(cell.number(f"{port}_SIGNED") for port in operands)
    for port in operands:
        signal = cell.ports[port]
        fill: Bit = signal[-1] if signed else "0"
        cell.ports[port] = (signal + (fill,) * (width - len(signal)))[:width]
        cell.parameters[f"{port}_WIDTH"] = str(width)


def _compare_with_zero(cell: Cell) -> None:
    width = len(cell.ports["\\A"])
    cell.kind = "$eq"
    cell.ports["\\B"] = ("0",) * width
    cell.parameters |= {"\\A_SIGNED": "0", "\\B_SIGNED": "0", "\\B_WIDTH": str(width)}


def _widen_shift(module: RtlilModule, cell: Cell) -> None:
    result = cell.ports["\\Y"]
    width = max(len(cell.ports["\\A"]), len(result))
    _resize(cell, ["\\A"], width)
    if width > len(result):
        cell.ports["\\Y"] = result + module.add_wire("\\unused_shift", width - len(result))
        cell.parameters["\\Y_WIDTH"] = str(width)
