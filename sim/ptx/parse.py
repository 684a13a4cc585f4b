"""PTX text to kernels: registers with unique names, instructions, variables and parameters.

Scopes are resolved here, so inline assembly that declares registers of its own in braces is no
special case afterwards. Debug information (`.loc`, `.section`) is dropped.
"""

import re
import struct
from dataclasses import replace

from .faults import FaultKind, PtxFault
from .syntax import (
    WIDTHS,
    BitPattern,
    MemoryOperand,
    Not,
    Operand,
    Pair,
    PtxInstruction,
    PtxKernel,
    RegisterVector,
    Special,
    Symbol,
    Variable,
    VirtualRegister,
)

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_NAME = r"[A-Za-z_$%][\w$%]*"
_ENTRY = re.compile(
    rf"\.entry\s+(?P<name>{_NAME})\s*(?:\((?P<parameters>[^)]*)\))?(?P<rules>[^{{;]*)\{{"
)
_VARIABLE = re.compile(
    r"\.(?P<space>global|shared|const|local|param)\b(?P<rules>[^;=]*?)"
    rf"\.(?P<type>{'|'.join(sorted(WIDTHS, key=len, reverse=True))})\s+"
    r"(?:\.ptr\s+(?:\.(?:global|shared|const|local)\s+)?(?:\.align\s+\d+\s+)?)?(?P<rest>[^;]*);"
)
_STATEMENT = re.compile(
    rf"\s*(?:(?P<skip>\.(?:loc|file)\b[^\n]*)|(?P<brace>[{{}}])"
    rf"|(?P<label>{_NAME}):(?!:)|(?P<statement>[^;]+);)"
)
_GUARDED = re.compile(rf"(?:@(?P<not>!?)\s*(?P<guard>{_NAME})\s+)?(?P<opcode>[a-z][\w.:]*)")
_INTEGER = re.compile(r"-?\s*(?:0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?$")


def parse_ptx(text: str) -> dict[str, PtxKernel]:
    """Parse a PTX module into its kernels, by name.

    Raises
    ------
    PtxFault
        The text is not PTX as compilers write it.
    """
    text = _COMMENT.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    target = re.search(r"\.target\s+(\w+)", text)
    if target is None:
        raise PtxFault(FaultKind.SYNTAX, "the module has no `.target`")
    kernels, outside, end = {}, [], 0
    for match in _ENTRY.finditer(text):
        body_end = _closing_brace(text, match.end())
        outside.append(text[end : match.start()])
        end = body_end
        line = text.count("\n", 0, match.end()) + 1
        parameters = [
            _variable(declaration, line)[0]
            for declaration in _VARIABLE.finditer(
                (match["parameters"] or "").replace(",", ";") + ";"
            )
        ]
        kernel = PtxKernel(match["name"], parameters, [], target[1])
        kernel.max_threads = _extent(match["rules"], "maxntid")
        kernel.required_threads = _extent(match["rules"], "reqntid")
        kernel.cluster_blocks = _extent(match["rules"], "reqnctapercluster")
        _Body(kernel).read(text[match.end() : body_end], line)
        kernels[kernel.name] = kernel
    module_variables = [
        variable
        for part in [*outside, re.split(r"\.section\b", text[end:])[0]]
        for declaration in _VARIABLE.finditer(part)
        for variable in _variable(declaration, 0)
    ]
    for kernel in kernels.values():
        kernel.variables = module_variables + kernel.variables
    return kernels


def _closing_brace(text: str, start: int) -> int:
    depth = 1
    for match in re.compile(r"[{}]").finditer(text, start):
        depth += 1 if match[0] == "{" else -1
        if not depth:
            return match.start()
    raise PtxFault(FaultKind.SYNTAX, "a brace is not closed", text.count("\n", 0, start) + 1)


def _extent(rules: str, name: str) -> int | None:
    match = re.search(rf"\.{name}\s+([\d\s,]+)", rules)
    if match is None:
        return None
    product = 1
    for extent in match[1].split(","):
        product *= int(extent)
    return product


def _variable(declaration: re.Match[str], line: int) -> list[Variable]:
    bits = WIDTHS[declaration["type"]]
    align = re.search(r"\.align\s+(\d+)", declaration["rules"])
    names, _, values = declaration["rest"].partition("=")
    variables = []
    for text in names.split(","):
        match = re.match(rf"\s*({_NAME})\s*((?:\[\s*\d*\s*\])*)\s*$", text)
        if match is None:
            raise PtxFault(
                FaultKind.SYNTAX, f"cannot read the declaration of `{text.strip()}`", line
            )
        size = bits // 8
        for extent in re.findall(r"\[\s*(\d*)\s*\]", match[2]):
            size *= int(extent or 0)
        variables.append(
            Variable(
                match[1],
                declaration["space"],
                size,
                int(align[1]) if align else max(bits // 8, 1),
                _initial_bytes(values, bits, line),
                declaration["type"],
            )
        )
    return variables


def _initial_bytes(values: str, bits: int, line: int) -> bytes:
    data = b""
    for value in re.findall(r"[^\s{},]+", values):
        number = _immediate(value)
        if number is None:
            raise PtxFault(FaultKind.UNSUPPORTED, f"initial value `{value}`", line)
        data += (number.bits & ((1 << bits) - 1)).to_bytes(bits // 8, "little")
    return data


def _immediate(text: str) -> BitPattern | None:
    if _INTEGER.match(text):
        return BitPattern(_integer(text))
    if match := re.match(r"0[fF]([0-9a-fA-F]{8})$|0[dD]([0-9a-fA-F]{16})$", text):
        return BitPattern(int(match[1] or match[2], 16))
    if re.match(r"-?\d+\.\d*(?:[eE][-+]?\d+)?$", text):
        return BitPattern(struct.unpack("<Q", struct.pack("<d", float(text)))[0])
    return None


def _integer(text: str) -> int:
    digits = text.replace(" ", "").rstrip("U")
    sign, digits = (-1, digits[1:]) if digits.startswith("-") else (1, digits)
    octal = len(digits) > 1 and digits.isdigit() and digits[0] == "0"
    return sign * (int(digits, 8) if octal else int(digits, 0))


class _Body:
    """Read the statements of one kernel."""

    def __init__(self, kernel: PtxKernel):
        self.kernel = kernel
        self.scopes: list[dict[str, VirtualRegister]] = [{}]
        self.label_scopes: list[dict[str, str]] = [{}]
        self.scope_count = 0
        self.line = 0

    def read(self, text: str, first_line: int) -> None:
        text = text.rstrip()
        position, self.line, counted = 0, first_line, 0
        while position < len(text):
            match = _STATEMENT.match(text, position)
            if match is None:
                raise PtxFault(FaultKind.SYNTAX, "a statement is not closed", self.line)
            start = match.start() + len(match[0]) - len(match[0].lstrip())
            self.line += text.count("\n", counted, start)
            counted, position = start, match.end()
            if match["brace"] == "{":
                self.scope_count += 1
                self.scopes.append({})
                self.label_scopes.append(self._labels_of_scope(text, position))
            elif match["brace"]:
                self.scopes.pop()
                self.label_scopes.pop()
            elif match["label"]:
                self.kernel.labels[self._label(match["label"])] = len(self.kernel.instructions)
            elif match["statement"]:
                self._statement(match["statement"].strip())
        for instruction in self.kernel.instructions:
            target = instruction.operands[-1] if instruction.name in ("bra", "brx") else None
            if isinstance(target, Symbol) and target.name not in self.kernel.labels:
                detail = f"label `{target.name}` is not defined"
                raise PtxFault(FaultKind.SYNTAX, detail, instruction.line)

    def _labels_of_scope(self, text: str, start: int) -> dict[str, str]:
        inside = text[start : _closing_brace(text + "}", start)]
        names = re.findall(rf"(?:^|[;{{}}])\s*({_NAME}):(?!:)", inside)
        return {name: f"{name}#{self.scope_count}" for name in names}

    def _label(self, name: str) -> str:
        for scope in reversed(self.label_scopes):
            if name in scope:
                return scope[name]
        return name

    def _statement(self, text: str) -> None:
        if text.startswith(".reg"):
            self._declare_registers(text)
        elif match := re.match(r"\.branchtargets\s+(.*)", text, re.DOTALL):
            table = next(reversed(self.kernel.labels))
            targets = tuple(self._label(name.strip()) for name in match[1].split(","))
            self.kernel.branch_tables[table] = targets
        elif text.startswith("."):
            if declaration := _VARIABLE.match(text + ";"):
                self.kernel.variables += _variable(declaration, self.line)
            elif not text.startswith(".pragma"):
                raise PtxFault(FaultKind.UNSUPPORTED, f"directive `{text.split()[0]}`", self.line)
        else:
            match = _GUARDED.match(text)
            if match is None:
                raise PtxFault(FaultKind.SYNTAX, f"cannot read `{text}`", self.line)
            guard = self._operand(match["guard"]) if match["guard"] else None
            if guard is not None and not (isinstance(guard, VirtualRegister) and guard.bits == 0):
                raise PtxFault(
                    FaultKind.SYNTAX, f"guard `{match['guard']}` is not a predicate", self.line
                )
            operands = tuple(self._operand(part) for part in _split(text[match.end() :]))
            parts = tuple(match["opcode"].split("."))
            self.kernel.instructions.append(
                PtxInstruction(parts, operands, guard, bool(match["not"]), self.line)
            )

    def _declare_registers(self, text: str) -> None:
        match = re.match(r"\.reg\s+\.(\w+)\s+(.*)", text, re.DOTALL)
        if match is None or match[1] not in WIDTHS:
            raise PtxFault(FaultKind.SYNTAX, f"cannot read `{text}`", self.line)
        for name in match[2].split(","):
            array = re.match(rf"({_NAME})<(\d+)>$", name.strip())
            names = [f"{array[1]}{i}" for i in range(int(array[2]))] if array else [name.strip()]
            for single in names:
                unique = single if len(self.scopes) == 1 else f"{single}#{self.scope_count}"
                register = VirtualRegister(unique, WIDTHS[match[1]])
                self.scopes[-1][single] = register
                self.kernel.registers.append(register)

    def _operand(self, text: str) -> Operand:
        text = text.strip()
        if text.startswith("{"):
            return RegisterVector(tuple(self._operand(part) for part in _split(text[1:-1])))
        if text.startswith("["):
            first, *extra = _split(text[1:-1])
            address = self._address(first)
            return replace(address, extra=tuple(self._operand(part) for part in extra))
        if text.startswith("!"):
            register = self._operand(text[1:])
            if isinstance(register, VirtualRegister):
                return Not(register)
        if "|" in text:
            first, second = (self._operand(part) for part in text.split("|"))
            if isinstance(first, VirtualRegister) and isinstance(second, VirtualRegister):
                return Pair(first, second)
        if text == "_":
            return VirtualRegister("_", -1)
        if (number := _immediate(text)) is not None:
            return number
        for scope in reversed(self.scopes):
            if text in scope:
                return scope[text]
        if text == "WARP_SZ":
            return BitPattern(32)
        if text.startswith("%"):
            return Special(text)
        if re.match(rf"{_NAME}$", text):
            return Symbol(self._label(text))
        if match := re.match(rf"({_NAME})\s*([+-]\s*\w+)$", text):
            return Symbol(match[1], _integer(match[2].lstrip("+").strip()))
        raise PtxFault(FaultKind.SYNTAX, f"cannot read operand `{text}`", self.line)

    def _address(self, text: str) -> MemoryOperand:
        match = re.match(r"(.*?)\s*(?:([+-])\s*(-?\s*\w+))?$", text.strip())
        base = self._operand(match[1]) if match else None
        if match is None or not isinstance(base, VirtualRegister | Symbol | BitPattern):
            raise PtxFault(FaultKind.SYNTAX, f"cannot read address `[{text}]`", self.line)
        offset = _integer(match[3]) if match[3] else 0
        return MemoryOperand(base, -offset if match[2] == "-" else offset)


def _split(text: str) -> list[str]:
    """Split at commas outside braces and brackets."""
    parts, depth, current = [], 0, ""
    for character in text:
        depth += (character in "{[") - (character in "}]")
        if character == "," and not depth:
            parts.append(current)
            current = ""
        else:
            current += character
    return [*parts, current] if current.strip() else parts
