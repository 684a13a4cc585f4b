"""C files of a network: its interface, its steps, its programs and constants."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...compiler.graph.types import TensorType
from ...compiler.host.order import Evaluate, Event, Finish, Start, order_events, reads_of
from ...compiler.module import Binding, Module
from ...isa.configuration import CONTRACT_VERSION
from ...isa.registers import MAGIC, OFFSETS, Error
from ...quoting import c_name, comment
from ...runtime.board import BUSY, DONE, ERROR, START, STOP
from .host_steps import (
    C_TYPES,
    ELEMENT_BYTES,
    check_steps,
    constant_declaration,
    constant_in_c,
    statement,
)
from .layout import MemoryLayout, ProgramImage, lay_out
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
        Constants of all segments, and those of host steps.
    memory : int
        Memory that CPU and core share, which holds all but constants of host steps, and the
        activations.
    values : int
        The CPU's own memory, for values between host steps.
    """

    program: int
    clearing: int
    constants: int
    memory: int
    values: int


@dataclass(frozen=True, slots=True)
class CNetwork:
    """A network in C: its files, text by name, and its sizes."""

    files: Mapping[str, str]
    sizes: Sizes


@dataclass(frozen=True, slots=True)
class CArgument:
    """A parameter of `network_run`: an input or an output, and the value that it gives or takes."""

    name: str
    value: str
    type: TensorType
    is_input: bool

    @property
    def declaration(self) -> str:
        """The declaration in C, with the shape in a comment."""
        constant = "const " if self.is_input else ""
        shape = " x ".join(map(str, self.type.shape)) or "scalar"
        return (
            f"{constant}{C_TYPES[self.type.dtype]} {self.name}[{self.type.elements}] /* {shape} */"
        )


def network_in_c(module: Module) -> CNetwork:
    """Return the C of a network that has segments.

    Raises
    ------
    CompileError
        If C cannot express it.
    """
    check_steps(module)
    layout = lay_out(module)
    parameters = _parameters(module)
    events = order_events(module.graph, module.steps, module.segments, ())
    names = _host_constants(module, events)
    held = {name: module.graph.data(value) for value, name in names.items()}
    given = {p.value: p.name for p in parameters if p.is_input}
    values = place_values(module, events, given | names)
    programs = (layout.clearing, *layout.programs)
    arrays = {f"network_program_{index}": one.code for index, one in enumerate(programs)}
    arrays |= {f"network_constants_{n}": data for n, data in enumerate(layout.constants.values())}
    texts = (
        _source(module, layout, parameters, events, values, arrays, held),
        _header(module, layout, parameters),
        [
            "#include <stdint.h>", *(line for one in arrays.items() for line in _array(*one)),
            *(line for one in held.items() for line in ("", constant_in_c(*one))),
        ],
        _registers(),
    )  # fmt: skip
    sizes = Sizes(
        program=sum(len(program.code) for program in layout.programs),
        clearing=len(layout.clearing.code),
        constants=sum(map(len, layout.constants.values()))
        + sum(data.nbytes for data in held.values()),
        memory=layout.memory_bytes,
        values=sum(values.array_bytes.values()),
    )
    files = {name: "\n".join([*lines, ""]) for name, lines in zip(FILES, texts, strict=True)}
    return CNetwork(files, sizes)


def _host_constants(module: Module, events: Sequence[Event]) -> dict[str, str]:
    """Return the C names of the constants that host steps read, by the value's name."""
    reads = (name for event in events for name in reads_of(event, module.segments))
    values = dict.fromkeys(name for name in reads if module.graph.is_constant(name))
    return {value: f"network_values_{index}" for index, value in enumerate(values)}


def _parameters(module: Module) -> list[CArgument]:
    """Return inputs, then outputs, with distinct identifiers."""
    graph = module.graph
    ends = [(f"in_{value.name}", value.name, True) for value in graph.inputs]
    ends += [(f"out_{output.name}", output.value, False) for output in graph.outputs]
    found: dict[str, CArgument] = {}
    for wanted, value, is_input in ends:
        name = plain = c_name(wanted)
        while name in found:
            name = f"{plain}_{len(found)}"
        found[name] = CArgument(name, value, graph.types[value], is_input)
    return list(found.values())


def _signature(parameters: Sequence[CArgument]) -> str:
    margin = ",\n" + " " * len("int network_run(")
    return f"int network_run({margin.join(one.declaration for one in parameters)})"


def _title(module: Module) -> str:
    """Return a comment with the names."""
    return f"/* {comment(f'{module.name} for configuration {module.configuration.name}')}. */"


def _header(module: Module, layout: MemoryLayout, parameters: Sequence[CArgument]) -> list[str]:
    return [
        _title(module), "",
        "#ifndef NETWORK_H", "#define NETWORK_H", "", "#include <stdint.h>", "",
        "/* Hash of the configuration that the core must have. */",
        f"#define NETWORK_CONFIGURATION {module.configuration.hash:#010x}u", "",
        "/* Bytes of the memory that CPU and core share, at TILEWRIGHT_MEMORY. */",
        f"#define NETWORK_MEMORY_BYTES {layout.memory_bytes}u", "",
        "/* Check the core, and write programs and constants to memory; once after each reset. */",
        "int network_load(void);", "",
        "/* Run the network once. Both functions return 0, or an error of tilewright.h. */",
        f"{_signature(parameters)};", "", "#endif",
    ]  # fmt: skip


def _source(
    module: Module,
    layout: MemoryLayout,
    parameters: Sequence[CArgument],
    events: Sequence[Event],
    values: HostValues,
    arrays: Mapping[str, bytes],
    held: Mapping[str, np.ndarray],
) -> list[str]:
    """Return the tables, and the functions that load and run the network."""
    programs = (layout.clearing, *layout.programs)
    places = [*(program.place for program in programs), *layout.constants]
    tensors, lines = _steps(module, layout, events, values.expressions)
    for one in parameters:
        if not one.is_input:
            size = one.type.elements * ELEMENT_BYTES[one.type.dtype]
            source = values.expressions[one.value]
            lines.append(f"tilewright_copy({one.name}, {source}, {size});")
    return [
        _title(module), "",
        '#include "network.h"', "", '#include "tilewright.h"', "",
        *(f"extern const uint8_t {name}[{len(data)}];" for name, data in arrays.items()),
        *(f"extern {constant_declaration(*one)};" for one in held.items()), "",
        *_table("struct tilewright_program programs", map(_program, programs)), "",
        *_table("struct tilewright_tensor tensors", tensors), "",
        *values.declarations(), "",
        "int network_load(void)", "{",
        "    const int result = tilewright_identify(NETWORK_CONFIGURATION, "
        f"{module.configuration.address_bits}, NETWORK_MEMORY_BYTES);", "",
        "    if (result != TILEWRIGHT_OK) return result;",
        *(f"    tilewright_clear({p.data_place}, {p.data_bytes});" for p in layout.programs),
        *(
            f"    tilewright_load({place}, {name}, sizeof {name});"
            for place, name in zip(places, arrays, strict=True)
        ),
        "    return TILEWRIGHT_OK;", "}", "",
        _signature(parameters), "{", "    int result;", "",
        *(f"    {line}" for line in lines), "    return TILEWRIGHT_OK;", "}",
    ]  # fmt: skip


def _steps(
    module: Module, layout: MemoryLayout, events: Sequence[Event], values: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    """Return the activations that are written and read, and the statements of a run."""
    tensors: list[str] = []
    lines: list[str] = []

    def move(function: str, bindings: Iterable[Binding], segment: int) -> None:
        for binding in bindings:
            value = values[binding.name]
            lines.append(f"tilewright_{function}(&tensors[{len(tensors)}], {value});")
            tensors.append(_tensor(binding, layout.programs[segment].data_place))

    for event in events:
        if isinstance(event, Start):
            index = event.segment
            move("put", module.segments[index].inputs, index)
            lines.append(f"result = tilewright_run(&programs[0], &programs[{index + 1}]);")
            lines.append("if (result != TILEWRIGHT_OK) return result;")
        elif isinstance(event, Finish):
            move("get", module.segments[event.segment].outputs, event.segment)
        elif isinstance(event, Evaluate):
            node = event.node
            types = [module.graph.types[name] for name in node.inputs]
            line = statement(
                node, types, [values[name] for name in node.inputs], values[node.output.name]
            )
            assert line is not None, "check_steps accepts the node"
            lines.append(line)
    return tensors, lines


def _program(program: ProgramImage) -> str:
    return _braced((program.place, len(program.code), program.data_place, program.data_bytes))


def _tensor(binding: Binding, base: int) -> str:
    _, height, width, channels = binding.stored_shape
    strides = binding.strides or (height * width * channels, width * channels, channels, 1)
    lists = [_braced(each) for each in (binding.stored_shape, binding.shape, binding.corner)]
    steps = _braced(stride % (1 << 32) for stride in strides)  # addresses wrap around
    return _braced((base + binding.offset, *lists, binding.fill, steps))


def _braced(parts: Iterable[object]) -> str:
    return f"{{{', '.join(map(str, parts))}}}"


def _table(what: str, rows: Iterable[str]) -> list[str]:
    lines = [f"    {row}," for row in rows]
    return [f"static const {what}[{len(lines)}] = {{", *lines, "};"]


def _array(name: str, data: bytes) -> list[str]:
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
