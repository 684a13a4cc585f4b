"""Operators that users register. A node carries its law, so it runs without registration."""

from functools import cache

import numpy as np

from ...formulas import Formula, names_in, substituted
from ...kernel_text import read_kernel
from ...tensor import Kernel, Tensor, evaluate
from ..functions import Function
from ..operator import Operator, operator
from ..types import TensorType, Types
from .elementwise import Pointwise
from .integer import Accelerated

MAX_OPERANDS = 16


class _Registered:
    """Base of registered operators; `name` is domain and name in ONNX, joined by a dot."""

    __slots__ = ()
    name: str

    @property
    def title(self) -> str:
        return self.name.rpartition(".")[2]


class _Declared(_Registered):
    """An operator that a kernel's text defines."""

    __slots__ = ()
    declaration: str

    @property
    def declared(self) -> Kernel:
        """The declaration, without the values of its constants."""
        return read_kernel(self.declaration)


@operator("function", 1, MAX_OPERANDS)
class OwnFunction(_Registered, Pointwise):
    """An elementwise function of floats, with broadcasting.

    Attributes
    ----------
    name : str
        Domain and name in ONNX, joined by a dot.
    law : str
        The function of its operands and parameters, as `read_formula` reads it.
    operands : tuple of str
        Names of the operands in the law.
    parameters : tuple of (str, float)
        Names and values of the parameters in the law.
    """

    name: str
    law: str
    operands: tuple[str, ...]
    parameters: tuple[tuple[str, float], ...] = ()

    @property
    def function(self) -> Function:
        return _function(self.law, self.operands)

    @property
    def formula(self) -> Formula:
        return substituted(self.function.formula, dict(self.parameters))

    def result_type(self, types: Types) -> TensorType:
        self.expect(len(types) == len(self.operands), f"{len(self.operands)} operands", types)
        unknown = {*names_in(self.formula)} - {*self.operands}
        self.expect(not unknown, f"a law without `{', '.join(sorted(unknown))}`", types)
        return self.typed(self.function.types, types)


@cache
def _function(law: str, operands: tuple[str, ...]) -> Function:
    return Function(law, operands)


def given_tensors(kernel: Kernel) -> tuple[Tensor, ...]:
    """Return the tensors that a kernel is given, in the order of the node's operands."""
    made = {stage.output.name for stage in kernel.stages}
    return tuple(tensor for name, tensor in kernel.tensors.items() if name not in made)


def _kernel_type(operator: Operator, kernel: Kernel, types: Types) -> TensorType:
    given = given_tensors(kernel)
    fits = [(t.dtype, t.shape) for t in given] == [(t.dtype, t.shape) for t in types]
    listed = ", ".join(f"{t.dtype}{list(t.shape)}" for t in given)
    operator.expect(bool(kernel.stages) and fits, listed, types)
    return TensorType(kernel.output.dtype, kernel.output.shape)


def _kernel_result(kernel: Kernel, arrays: tuple[np.ndarray, ...]) -> np.ndarray:
    names = (tensor.name for tensor in given_tensors(kernel))
    try:
        return evaluate(kernel, dict(zip(names, arrays, strict=True)))
    except TypeError as error:  # a text that no declaration wrote
        raise ValueError(str(error)) from error


@operator("kernel", 1, MAX_OPERANDS)
class OwnKernel(_Declared, Operator):
    """A kernel that a user declared with `te`; `declaration` as `read_kernel` reads it.

    Attributes
    ----------
    name : str
        Domain and name in ONNX, joined by a dot.
    declaration : str
        The kernel; its operands are the node's, then its constants.
    settings : tuple of (str, number or str)
        Attributes of the node, with which the kernel was declared.
    constants : int
        Number of its inputs, the last ones, that are constants of the kernel.
    """

    name: str
    declaration: str
    settings: tuple[tuple[str, int | float | str], ...] = ()
    constants: int = 0

    def result_type(self, types: Types) -> TensorType:
        return _kernel_type(self, self.declared, types)

    def compute(self, *arrays: np.ndarray) -> np.ndarray:
        return _kernel_result(self.declared, arrays)


@operator("qkernel", 1, MAX_OPERANDS)
class QKernel(_Declared, Accelerated):
    """The form in integers of a user's kernel: int8[N, H, W, C], then constants of any type.

    Attributes
    ----------
    name, declaration : str
        As in OwnKernel.
    count : int
        Number of inputs before the constants.
    """

    name: str
    declaration: str
    count: int

    @property
    def operand_count(self) -> int:
        return self.count

    def result_type(self, types: Types) -> TensorType:
        result = _kernel_type(self, self.declared, types)
        self.expect(result.dtype == "int8" and len(result.shape) == 4, "int8 [N,H,W,C]", types)
        return result

    def compute(self, *arrays: np.ndarray) -> np.ndarray:
        return _kernel_result(self.declared, arrays)
