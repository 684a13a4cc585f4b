"""Kernels as text: what a graph stores of a kernel that a user declared, and reads back.

One statement for each tensor: `x: int8[1, 8, 8, 4] pad 3` is given, and
`y: int32[n<1, c<4] = sum(x[n, ky, kx, c]) over ky<8, kx<8` is computed. The last one is the result.
"""

import ast
import math
import re
from functools import cache

from ..errors import CompileError
from ..isa.expressions import ROW_OPS, Affine, Call, Expression, Literal, Op, Read, Real, Reduction
from .tensor import Axis, Compute, Kernel, Tensor

MAX_CHARACTERS = 20_000
MAX_ELEMENTS = 1 << 31
DTYPES = ("float32", "int8", "uint8", "int16", "int32", "int64", "bool")
"""Element types of `te`."""

STATEMENT = re.compile(r"(\w+): (\w+)\[([^\]]*)\](?: pad (-?\d+))?(?: = (.*?)(?: over ([^=]*))?)?")
_INFIX = {ast.Add: Op.ADD, ast.Mult: Op.MULTIPLY, ast.RShift: Op.SHIFT_RIGHT, ast.BitAnd: Op.AND,
          ast.BitOr: Op.OR, ast.BitXor: Op.XOR, ast.Div: Op.DIVIDE}  # fmt: skip
_CALLS = {op.value: op for op in Op if op.value.isidentifier() and op not in ROW_OPS}


def write_kernel(kernel: Kernel) -> str:
    """Return the text of a kernel; constants are tensors that are given.

    Raises
    ------
    CompileError
        When a tensor has no elements.
    """
    for name, tensor in kernel.tensors.items():
        if 0 in tensor.shape:
            raise CompileError(
                f"kernel `{kernel.name}`: tensor `{name}`: expected extents of 1 or more, got "
                f"{list(tensor.shape)}; a kernel in a network computes something"
            )
    made = {stage.output.name: stage for stage in kernel.stages}
    statements = [
        f"{name}: {tensor.dtype}{list(tensor.shape)}{_pad(tensor)}"
        for name, tensor in kernel.tensors.items()
        if name not in made
    ]
    for stage in kernel.stages:
        axes = _axes(stage.axes)
        over = f" over {_axes(stage.reductions)}" if stage.reductions else ""
        output = stage.output
        head = f"{output.name}: {output.dtype}[{axes}]{_pad(output)}"
        statements.append(f"{head} = {_written(stage.body)}{over}")
    return "; ".join(statements)


def _pad(tensor: Tensor) -> str:
    return f" pad {tensor.pad}" if tensor.pad else ""


def _axes(axes: tuple[Axis, ...]) -> str:
    return ", ".join(f"{axis.name}<{axis.extent}" for axis in axes)


def _written(tree: Expression) -> str:
    if isinstance(tree, Real):
        return repr(float(tree.value))
    if isinstance(tree, Read):
        return f"{tree.tensor}[{', '.join(map(str, tree.index)) or '()'}]"
    if isinstance(tree, Reduction):
        return f"{'sum' if tree.op is Op.ADD else 'max'}({_written(tree.body)})"
    if isinstance(tree, Call):
        parts = [_written(part) for part in tree.arguments]
        if tree.op in _INFIX.values():
            return "(" + f" {tree.op.value} ".join(parts) + ")"
        return f"{tree.op.value}({', '.join(parts)})"
    return str(tree)


@cache
def read_kernel(text: str) -> Kernel:
    """Read the text of a kernel.

    Raises
    ------
    CompileError
        If it is malformed.
    """
    try:
        if len(text) > MAX_CHARACTERS:
            raise ValueError("too long")
        return _read(text)
    except (ValueError, KeyError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
        raise CompileError(
            f"kernel `{text[:60]}...`: expected statements such as `x: int8[4]`, got "
            f"`{' '.join(str(error).split())[:60]}`; declare it with `tilewright.te`"
        ) from error


def _read(text: str) -> Kernel:
    tensors: dict[str, Tensor] = {}
    stages: list[Compute] = []
    for statement in text.split("; "):
        match = STATEMENT.fullmatch(statement)
        if match is None:
            raise ValueError(statement)
        name, dtype, inside, pad, body, over = match.groups()
        if name in tensors:
            raise ValueError(f"{name} twice")
        axes = _read_axes(inside) if body else ()
        sizes = [axis.extent for axis in axes] if body else map(int, inside.split(", "))
        tensors[name] = made = Tensor(name, dtype, tuple(sizes), int(pad or 0))
        if dtype not in DTYPES or not 0 < math.prod(made.shape) <= MAX_ELEMENTS:
            raise ValueError(f"{dtype}{list(made.shape)}")
        if body:
            tree = _tree(ast.parse(body, mode="eval").body)
            stages.append(Compute(tensors[name], axes, _read_axes(over or ""), tree))
    kernel = Kernel("kernel", tuple(stages), tensors)
    _check(kernel)
    return kernel


def _check(kernel: Kernel) -> None:
    """Refuse reads of unknown tensors and axes, which nothing else would notice."""
    for stage in kernel.stages:
        for read in _reads(stage.body):
            rank = len(kernel.tensors[read.tensor].shape) if read.index else 0
            terms = {axis for affine in read.index for axis, _ in affine.terms}
            if len(read.index) != rank or not terms <= stage.extents.keys():
                raise ValueError(str(read))


def _reads(tree: Expression):
    if isinstance(tree, Read):
        yield tree
    elif isinstance(tree, Reduction):
        yield from _reads(tree.body)
    elif isinstance(tree, Call):
        for part in tree.arguments:
            yield from _reads(part)


def _read_axes(text: str) -> tuple[Axis, ...]:
    pairs = [part.split("<") for part in text.split(", ") if part]
    return tuple(Axis(name, int(extent)) for name, extent in pairs)


def _tree(node: ast.expr) -> Expression:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _tree(node.operand)
        if isinstance(inner, Real):
            return Real(-inner.value)
        if isinstance(inner, Literal):
            return Literal(-inner.value)
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        return Literal(node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, float):
        return Real(node.value)
    elif isinstance(node, ast.Name) and node.id in ("inf", "nan"):
        return Real(math.inf if node.id == "inf" else math.nan)
    elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return Read(node.value.id, tuple(map(_affine, parts)))
    elif isinstance(node, ast.BinOp) and type(node.op) in _INFIX:
        return Call(_INFIX[type(node.op)], (_tree(node.left), _tree(node.right)))
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        parts = tuple(map(_tree, node.args))
        if node.func.id == "sum" or (node.func.id == "max" and len(parts) == 1):
            return Reduction(Op.ADD if node.func.id == "sum" else Op.MAXIMUM, parts[0])
        return Call(_CALLS[node.func.id], parts)
    raise ValueError(ast.unparse(node))


def _affine(node: ast.expr) -> Affine:
    """Read an index: a sum of axes, axes times numbers, and a number."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
        left, right = _affine(node.left), _affine(node.right)
        sign = 1 if isinstance(node.op, ast.Add) else -1
        terms = dict(left.terms)
        for axis, factor in right.terms:
            terms[axis] = terms.get(axis, 0) + sign * factor
        return Affine.of(left.constant + sign * right.constant, **terms)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        factor, axis = _affine(node.left).constant, node.right
        if isinstance(axis, ast.Name):
            return Affine.of(**{axis.id: factor})
    if isinstance(node, ast.Name):
        return Affine.of(**{node.id: 1})
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _affine(node.operand)
        return Affine.of(-inner.constant, **{axis: -f for axis, f in inner.terms})
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return Affine.of(node.value)
    raise ValueError(ast.unparse(node))
