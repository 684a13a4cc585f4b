"""C files of a network: its interface, its steps, its programs and constants.

Memory that CPU and core share holds the data windows of all segments, each at a page, then the
program that clears the scratchpads, then the segments' programs.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from ...compiler.aligned import align
from ...compiler.graph.types import TensorType
from ...compiler.host.order import Alias, Event, Evaluate, Finish, Start, order_events
from ...compiler.module import Binding, Module
from ...isa.clearing import clearing_program
from ...isa.configuration import CONTRACT_VERSION
from ...isa.configuration_rules import PAGE_BYTES
from ...isa.encoding import encode_program
from ...isa.registers import MAGIC, OFFSETS, Error
from ...runtime.board import BUSY, DONE, ERROR, START, STOP
from .host_steps import C_TYPES, ELEMENT_BYTES, call, check_steps
from .values import HostValues, place_values

FILES = ("network.c", "network.h", "network_data.c", "tilewright_registers.h")
"""Files that depend on the network or the contract."""

BYTES_A_LINE = 24
"""Bytes of an array in one line of C."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of an exported network.

    Parameters
    ----------
    program : int
        Programs of all segments.
    clearing : int
        The program that clears the scratchpads.
    constants : int
        Constants of all segments.
    memory : int
        Memory that CPU and core share, which holds all of these and the activations.
    values : int
        The CPU's own memory, for values between host steps.
    """

    program: int
    clearing: int
    constants: int
    memory: int
    values: int


@dataclass(frozen=True, slots=True)
class Network:
    """A network in C: the text of each file by its name, and sizes."""

    files: Mapping[str, str]
    sizes: Sizes


def network_in_c(module: Module) -> Network:
    """Return the C of a network.

    Raises
    ------
    CompileError
        If C cannot express it.
    """
    check_steps(module)
    machine, graph, segments = module.configuration, module.graph, module.segments
    codes = [clearing_program(machine), *(segment.program for segment in segments)]
    programs = [encode_program(code, machine) for code in codes]
    windows = [align(segment.data_bytes, PAGE_BYTES) for segment in segments[:-1]]
    windows.append(align(segments[-1].data_bytes))
    places = list(accumulate(windows + [align(len(code)) for code in programs], initial=0))
    bases, starts, memory_bytes = places[: len(segments)], places[len(segments) : -1], places[-1]
    names = _names([*(f"in_{one.name}" for one in graph.inputs),
                    *(f"out_{one.name}" for one in graph.outputs)])  # fmt: skip
    events = order_events(graph, module.steps, segments, ())
    inputs = {value.name: name for value, name in zip(graph.inputs, names, strict=False)}
    values = place_values(module, events, inputs)
    arrays = {f"network_program_{index}": code for index, code in enumerate(programs)}
    loads = dict(zip(arrays, starts, strict=True))
    for index, (segment, base) in enumerate(zip(segments, bases, strict=True)):
        if segment.constants:
            arrays[f"network_constants_{index}"] = segment.constants
            loads[f"network_constants_{index}"] = base + segment.constants_offset
    sizes = Sizes(
        program=sum(map(len, programs[1:])),
        clearing=len(programs[0]),
        constants=sum(len(segment.constants) for segment in segments),
        memory=memory_bytes,
        values=sum(values.array_bytes.values()),
    )
    used = [(0, 0), *((base, one.data_bytes) for base, one in zip(bases, segments, strict=True))]
    rows = [
        f"{{{start}, {len(code)}, {base}, {data_bytes}}}"
        for start, code, (base, data_bytes) in zip(starts, programs, used, strict=True)
    ]
    code = _Code(module, events, values, bases)
    run = "int network_run(" + ",\n                ".join(_parameters(module, names)) + ")"
    title = f"/* {_comment(module.name)} for configuration {_comment(machine.name)}. */"
    source = [
        title, "", '#include "network.h"', "", '#include "tilewright.h"', "",
        *(f"extern const uint8_t {name}[{len(data)}];" for name, data in arrays.items()), "",
        *_initialised("struct tilewright_program programs", rows), "",
        *_initialised("struct tilewright_tensor tensors", code.tensors), "",
        *values.declarations(), "",
        "int network_load(void)", "{",
        "    const int result = tilewright_identify(NETWORK_CONFIGURATION, "
        f"{machine.address_bits}, NETWORK_MEMORY_BYTES);", "",
        "    if (result != TILEWRIGHT_OK) return result;",
        *(f"    tilewright_clear({base}, {data_bytes});" for base, data_bytes in used[1:]),
        *(f"    tilewright_load({place}, {name}, sizeof {name});" for name, place in loads.items()),
        "    return TILEWRIGHT_OK;", "}", "",
        run, "{", "    int result;", "",
        *(f"    {line}" for line in code.lines),
        *(f"    {line}" for line in _outputs(module, names, values)),
        "    return TILEWRIGHT_OK;", "}",
    ]  # fmt: skip
    header = [
        title, "", "#ifndef NETWORK_H", "#define NETWORK_H", "", "#include <stdint.h>", "",
        "/* Hash of the configuration that the core must have. */",
        f"#define NETWORK_CONFIGURATION {machine.hash:#010x}u", "",
        "/* Bytes of the memory that CPU and core share, at TILEWRIGHT_MEMORY. */",
        f"#define NETWORK_MEMORY_BYTES {memory_bytes}u", "",
        "/* Check the core, and write programs and constants to memory; once after each reset. */",
        "int network_load(void);", "",
        "/* Run the network once. Both functions return 0, or an error of tilewright.h. */",
        f"{run};", "", "#endif",
    ]  # fmt: skip
    data = ["#include <stdint.h>", *(line for one in arrays.items() for line in _bytes(*one))]
    lines = source, header, data, _registers()
    files = {name: "\n".join([*file, ""]) for name, file in zip(FILES, lines, strict=True)}
    return Network(files, sizes)


class _Code:
    """The statements of a run, and the activations that they write and read."""

    def __init__(
        self, module: Module, events: Sequence[Event], values: HostValues, bases: Sequence[int]
    ) -> None:
        self.lines: list[str] = []
        self.tensors: list[str] = []
        self._values, self._bases = values.expressions, bases
        for event in events:
            if isinstance(event, Start):
                segment = module.segments[event.segment]
                self._move("put", segment.inputs, event.segment)
                self.lines += [
                    f"result = tilewright_run(&programs[0], &programs[{event.segment + 1}]);",
                    "if (result != TILEWRIGHT_OK) return result;",
                ]
            elif isinstance(event, Finish):
                self._move("get", module.segments[event.segment].outputs, event.segment)
            elif isinstance(event, Evaluate):
                (source,), target = event.node.inputs, event.node.output.name
                kind = module.graph.types[source]
                self.lines.append(
                    call(event.node, kind, self._values[source], self._values[target])
                )
            else:
                assert isinstance(event, Alias), "no event without kernels"

    def _move(self, function: str, bindings: Iterable[Binding], segment: int) -> None:
        """Write or read the activations at the ends of a segment."""
        for binding in bindings:
            value = self._values[binding.name]
            self.lines.append(f"tilewright_{function}(&tensors[{len(self.tensors)}], {value});")
            self.tensors.append(_tensor(binding, self._bases[segment]))


def _tensor(binding: Binding, base: int) -> str:
    """Return the initialiser of an activation."""
    n, height, width, channels = binding.stored_shape
    strides = binding.strides or (height * width * channels, width * channels, channels, 1)
    lists = [_braced(each) for each in (binding.stored_shape, binding.shape, binding.corner)]
    parts = [str(base + binding.offset), *lists, str(binding.fill), _braced(strides)]
    return f"{{{', '.join(parts)}}}"


def _braced(numbers: Iterable[int]) -> str:
    return f"{{{', '.join(map(str, numbers))}}}"


def _initialised(what: str, rows: Sequence[str]) -> list[str]:
    return [f"static const {what}[{len(rows)}] = {{", *(f"    {row}," for row in rows), "};"]


def _parameters(module: Module, names: Sequence[str]) -> list[str]:
    """Return the parameters of a run; their comments have the shapes."""
    graph = module.graph
    types = [one.type for one in graph.inputs] + [graph.types[one.value] for one in graph.outputs]
    constant = ["const "] * len(graph.inputs) + [""] * len(graph.outputs)
    return [
        f"{prefix}{C_TYPES[kind.dtype]} {name}[{kind.elements}] /* {_shape(kind)} */"
        for prefix, kind, name in zip(constant, types, names, strict=True)
    ]


def _shape(kind: TensorType) -> str:
    return " x ".join(map(str, kind.shape)) or "scalar"


def _outputs(module: Module, names: Sequence[str], values: HostValues) -> list[str]:
    """Return the statements that give the caller the outputs."""
    graph = module.graph
    lines = []
    for output, name in zip(graph.outputs, names[len(graph.inputs) :], strict=True):
        kind, source = graph.types[output.value], values.expressions[output.value]
        size = kind.elements * ELEMENT_BYTES[kind.dtype]
        lines.append(f"tilewright_copy({name}, {source}, {size});")
    return lines


def _names(wanted: Sequence[str]) -> list[str]:
    """Return distinct identifiers of C."""
    names: list[str] = []
    for one in wanted:
        name = plain = re.sub(r"[^A-Za-z0-9_]", "_", one)
        while name in names:
            name = f"{plain}_{len(names)}"
        names.append(name)
    return names


def _comment(text: str) -> str:
    """Return a name that ends no comment."""
    return re.sub(r"[^\w .,=-]", "_", text, flags=re.ASCII)


def _bytes(name: str, data: bytes) -> list[str]:
    """Return the definition of an array."""
    rows = (data[at : at + BYTES_A_LINE] for at in range(0, len(data), BYTES_A_LINE))
    lines = (",".join(map(str, row)) + "," for row in rows)
    return ["", f"const uint8_t {name}[{len(data)}] = {{", *lines, "};"]


def _registers() -> list[str]:
    """Return the header with the core's registers, their bits, and its errors."""
    numbers = {
        "MAGIC": MAGIC, "CONTRACT_VERSION": CONTRACT_VERSION, **OFFSETS,
        "START": START, "STOP": STOP, "BUSY": BUSY, "DONE": DONE, "ERROR": ERROR,
        **{f"ERROR_{error.name}": error.value for error in Error},
    }  # fmt: skip
    return [
        "/* Registers of the core by their offsets, bits of CONTROL and STATUS, errors. */", "",
        "#ifndef TILEWRIGHT_REGISTERS_H", "#define TILEWRIGHT_REGISTERS_H", "",
        *(f"#define TILEWRIGHT_{name} {value:#x}u" for name, value in numbers.items()), "",
        "#endif",
    ]  # fmt: skip
