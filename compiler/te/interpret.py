"""Run a loop program literally, so that a wrong bound is an error and not hidden.

Every buffer has only its allocated elements, and all of them start as poison. It is an error to
read an element that was never written, or to access an element outside the buffer. Loops that need
no order run in random order. Use small shapes: an element takes tens of microseconds.
"""

import random
from collections.abc import Mapping

import numpy as np

from ...errors import CompileError, InputError
from ...isa.expressions import ROW_OPS, Call, Expression, Literal, Op, Read, Real
from ..tensor import MEANINGS, ROW_CONSTANTS, holds_reals, rows_of
from .affine import value_of
from .nodes import Allocate, Assign, Barrier, Block, For, Guard, Let, Node, Update, holds, let_value
from .program import Program
from .rolling import Rows

Values = dict[str, int]


class InterpretError(CompileError):
    """A loop program reads an uncomputed element, or an element outside a buffer."""


class Area:
    """A live buffer: its elements, which of them are written, and the start of its box.

    Parameters
    ----------
    name
        Name of the tensor.
    elements
        The memory, of the box's shape.
    origin
        Tensor coordinates of the first element.
    written
        Whether all elements have values from the start.
    """

    def __init__(
        self, name: str, elements: np.ndarray, origin: tuple[int, ...], written: bool
    ) -> None:
        self.name, self.elements, self.origin = name, elements, origin
        self.written = np.full(elements.shape, written)

    def place(self, index: tuple[int, ...]) -> tuple[int, ...]:
        """Position of an element, which must be inside the buffer."""
        place = tuple(i - start for i, start in zip(index, self.origin, strict=True))
        if any(not 0 <= i < size for i, size in zip(place, self.elements.shape, strict=True)):
            raise InterpretError(
                f"`{self.name}`{list(index)} lies outside its buffer, {list(self.elements.shape)} "
                f"from {list(self.origin)}"
            )
        return place

    def read(self, index: tuple[int, ...]) -> int | float:
        """Read an element, which must be written."""
        place = self.place(index)
        if not self.written[place]:
            raise InterpretError(f"`{self.name}`{list(index)} is read but was never written")
        return self.elements[place].item()

    def write(self, index: tuple[int, ...], value: int) -> None:
        """Write an element; the value wraps to the type."""
        place = self.place(index)
        self.elements[place] = cut(value, self.elements.dtype)
        self.written[place] = True


def cut(value: int, dtype: np.dtype) -> int:
    """Wrap a value to an integer type."""
    bits = 8 * dtype.itemsize
    return wrapped(value, bits) if dtype.kind == "i" else value & ((1 << bits) - 1)


def wrapped(value: int, bits: int) -> int:
    """The low bits, as a signed number."""
    half = 1 << (bits - 1)
    return ((value + half) & ((1 << bits) - 1)) - half


def interpret(program: Program, inputs: Mapping[str, np.ndarray], seed: int = 0) -> np.ndarray:
    """Run a loop program.

    Parameters
    ----------
    program
        The program of a schedule.
    inputs
        Arrays for the kernel's inputs, with the shapes and types of their tensors.
    seed
        Seed for the order of parallel loops.

    Returns
    -------
    The kernel's output.

    Raises
    ------
    InterpretError
        When the program reads an element that was never written, or leaves a buffer.
    InputError
        When an input is missing or does not fit.
    """
    kernel = program.kernel
    areas: dict[str, Area] = {}
    for name in (*kernel.inputs, *kernel.constants):
        tensor = kernel.tensors[name]
        given = kernel.constants.get(name, inputs.get(name))
        if given is None:
            raise InputError(f"kernel `{kernel.name}`: input `{name}` is missing")
        if given.shape != tensor.shape or given.dtype != tensor.dtype:
            raise InputError(
                f"kernel `{kernel.name}`: input `{name}` is {given.dtype}{list(given.shape)}, "
                f"expected {tensor.dtype}{list(tensor.shape)}"
            )
        areas[name] = Area(name, given, (0,) * given.ndim, written=True)
    interpreter = _Interpreter(program, areas, seed)
    for node in program.body:
        interpreter.step(node, {})
    output = areas[kernel.output.name]
    if not output.written.all():
        missing = np.argwhere(~output.written)[0].tolist()
        raise InterpretError(f"`{output.name}`{missing} was never written")
    return output.elements


class _Interpreter:
    def __init__(self, program: Program, areas: dict[str, Area], seed: int) -> None:
        self.program, self.areas = program, areas
        self.random = random.Random(seed)
        self.rows = Rows()

    def run(self, block: Block, values: Values) -> None:
        """Run a block; its variables and buffers exist until its end."""
        for node in block:
            self.step(node, values)
        for node in block:
            if isinstance(node, Let):
                del values[node.variable]
            elif isinstance(node, Allocate):
                del self.areas[node.tensor.name]

    def step(self, node: Node, values: Values) -> None:
        if isinstance(node, For):
            numbers = self.numbers(node, values)
            if not node.kind.keeps_order:
                self.random.shuffle(numbers)
            for number in numbers:
                values[node.variable] = number
                self.run(node.body, values)
            values.pop(node.variable, None)
        elif isinstance(node, Let):
            values[node.variable] = let_value(node, values)
        elif isinstance(node, Guard):
            if all(holds(condition, values) for condition in node.conditions):
                self.run(node.body, values)
        elif isinstance(node, Allocate):
            origin = tuple(value_of(affine, values) for affine in node.origin)
            elements = np.zeros(node.shape, dtype=node.tensor.dtype)
            self.areas[node.tensor.name] = Area(node.tensor.name, elements, origin, written=False)
        elif isinstance(node, Assign):
            value = self.value(node.value, values)
            self.write(node.target, value, values)
        elif isinstance(node, Update):
            self.update(node, values)
        elif not isinstance(node, Barrier):  # one iteration after the other needs none
            self.run(node.body, values)

    def numbers(self, node: For, values: Values) -> list[int]:
        """The iterations of a loop; rows that a ring drops for them become poison."""
        rolling = node.rolling
        if rolling is None:
            start = value_of(node.start, values)
            return list(range(start, start + node.extent))
        stage = node.variable.rsplit(":", 1)[0]
        first, last = self.rows.advance(stage, rolling, values)
        area = self.area(stage)
        dropped = [slice(None)] * len(area.elements.shape)
        if not rolling.narrow or first > -rolling.borders[rolling.dimension][0]:
            dropped[rolling.dimension] = slice(0, max(0, last - rolling.ring))
        area.written[tuple(dropped)] = False
        return list(rolling.tiles(first, last))

    def update(self, node: Update, values: Values) -> None:
        value = self.value(node.value, values)
        if any(values[name] for name in node.first):
            index = tuple(value_of(affine, values) for affine in node.target.index)
            before = self.area(node.target.tensor).read(index)
            value = before + value if node.op is Op.ADD else max(before, value)
        self.write(node.target, value, values)

    def write(self, target: Read, value: int | float, values: Values) -> None:
        index = tuple(value_of(affine, values) for affine in target.index)
        area = self.area(target.tensor)
        if holds_reals(area.elements.dtype):
            place = area.place(index)
            area.elements[place], area.written[place] = value, True
        else:
            assert isinstance(value, int)
            area.write(index, value)

    def area(self, tensor: str) -> Area:
        """The current buffer of a tensor."""
        if tensor not in self.areas:
            raise InterpretError(f"`{tensor}` has no buffer where it is used")
        return self.areas[tensor]

    # Expressions ---------------------------------------------------------------------------------

    def value(self, tree: Expression, values: Values) -> int | float:
        if isinstance(tree, (Literal, Real)):
            return tree.value
        if isinstance(tree, Read):
            return self.element(tree, values)
        assert isinstance(tree, Call)
        if tree.op is Op.LOOKUP:
            table, index = tree.arguments
            assert isinstance(table, Read)
            at = self.value(index, values) + 128
            return self.area(table.tensor).read((int(at),))
        if tree.op is Op.ELEMENT:
            read, distance = tree.arguments
            assert isinstance(read, Read)
            shape = self.program.tensors[read.tensor].shape
            first = np.ravel_multi_index([value_of(one, values) for one in read.index], shape)
            place = np.unravel_index(int(first + self.value(distance, values)), shape)
            return self.area(read.tensor).read(tuple(map(int, place)))
        if tree.op in ROW_OPS:
            return self.of_row(tree, values)
        return apply(tree.op, [self.value(part, values) for part in tree.arguments])

    def of_row(self, tree: Call, values: Values) -> int:
        """The result of a row operation for one element; the whole row is read."""
        read, *others = tree.arguments
        numbers = [each.value for each in others if isinstance(each, Literal)]
        assert isinstance(read, Read)
        row = self.row(read, values)
        mask = self.row(last, values) if isinstance(last := others[-1], Read) else None
        held = [one for one in others if isinstance(one, Read)][:ROW_CONSTANTS]
        given = (self.area(one.tensor).elements for one in held)
        place = value_of(read.index[-1], values)
        return int(rows_of(tree.op, row, mask, *given, *map(np.array, numbers))[place])

    def row(self, read: Read, values: Values) -> np.ndarray:
        """All elements of a tensor along the last index of a read."""
        outer = [value_of(affine, values) for affine in read.index[:-1]]
        area, size = self.area(read.tensor), self.program.tensors[read.tensor].shape[-1]
        return np.array([area.read((*outer, each)) for each in range(size)])

    def element(self, read: Read, values: Values) -> int | float:
        index = tuple(value_of(affine, values) for affine in read.index)
        domain = self.program.domains.get(read.tensor)
        if domain is not None and any(
            not low <= i < high for i, (low, high) in zip(index, domain, strict=True)
        ):
            return self.program.tensors[read.tensor].pad
        return self.area(read.tensor).read(index)


def apply(op: Op, parts: list[int | float]) -> int | float:
    """An operation on numbers, as `Op` defines it; float32 numbers are computed in binary64."""
    with np.errstate(all="ignore"):
        result = MEANINGS[op](*map(np.asarray, parts)).item()
    wraps = op in (Op.ADD, Op.MULTIPLY) and isinstance(result, int)
    return wrapped(result, 32) if wraps else result
