"""Elementwise functions, selection, and conversions between element types."""

from abc import abstractmethod
from collections.abc import Mapping

import numpy as np

from ....errors import CompileError, did_you_mean
from ...formulas import Formula, compute
from ..functions import BINARY, UNARY, Function
from ..operator import Operator, onnx_form, operator
from ..types import DTYPES, NARROW_FLOATS, TensorType, Types, wide


class Pointwise(Operator):
    """Base of the elementwise functions; operands are broadcast and have one element type."""

    __slots__ = ()
    numpy_passes = 2

    @property
    @abstractmethod
    def function(self) -> Function:
        """The function; only operators that `infer` accepted have one."""

    @property
    def formula(self) -> Formula:
        """The function's formula with its parameters."""
        return self.function.formula

    def typed(self, allowed: tuple[str, ...], types: Types) -> TensorType:
        """Return the type of the result, if the operands' types are allowed."""
        first = types[0].dtype
        self.expect(all(kind.dtype == first for kind in types), "one element type", types)
        self.expect(first in allowed, " or ".join(allowed), types)
        shape = self.broadcast(types, *(kind.shape for kind in types))
        return TensorType("bool" if self.function.test else first, shape)

    def expect_kind(self, kind: str, known: Mapping[str, Function]) -> None:
        if kind not in known:
            hint = did_you_mean(kind, known, f"; choose one of {', '.join(known)}")
            raise CompileError(f"`{self.op}`: expected a function of ONNX, got kind `{kind}`{hint}")

    def compute(self, *arrays: np.ndarray) -> np.ndarray:
        function = self.function
        values = dict(zip(function.operands, map(wide, arrays), strict=True))
        with np.errstate(all="ignore"):
            result = compute(self.formula, values)
            return result.astype(bool if function.test else arrays[0].dtype)


@operator("unary")
class Unary(Pointwise):
    """An elementwise function of one tensor; `kind` and `parameters` as in `UNARY`."""

    kind: str
    parameters: tuple[float, ...] = ()

    @property
    def function(self) -> Function:
        return UNARY[self.kind]

    @property
    def formula(self) -> Formula:
        return self.function.with_parameters(self.parameters)

    def result_type(self, types: Types) -> TensorType:
        self.expect_kind(self.kind, UNARY)
        known = len(self.parameters) == len(self.function.parameters)
        self.expect(known, f"{len(self.function.parameters)} parameters of `{self.kind}`", types)
        return self.typed(self.function.types, types)


@operator("binary", 2)
class Binary(Pointwise):
    """An elementwise function of two tensors of one type, with broadcasting; `kind` as in ONNX."""

    kind: str

    @property
    def function(self) -> Function:
        return BINARY[self.kind]

    def result_type(self, types: Types) -> TensorType:
        self.expect_kind(self.kind, BINARY)
        return self.typed(self.function.types, types)


@operator("where", 3)
class Where(Operator):
    """The second input where the first (bool) is true, else the third; with broadcasting."""

    onnx = onnx_form("Where")

    def result_type(self, types: Types) -> TensorType:
        condition, a, b = types
        fits = condition.dtype == "bool" and a.dtype == b.dtype
        self.expect(fits, "bool and two of a type", types)
        return TensorType(a.dtype, self.broadcast(types, *(t.shape for t in types)))

    def compute(self, condition: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.where(condition, a, b)


@operator("cast")
class Cast(Operator):
    """Conversion to `dtype`: to bool, nonzero is True; to integers, values round towards zero."""

    dtype: str

    def result_type(self, types: Types) -> TensorType:
        return TensorType(self.dtype, types[0].shape)

    def compute(self, x: np.ndarray) -> np.ndarray:
        values = wide(x)
        if values.dtype.kind == "V":  # narrow integers convert only to NumPy's own types
            values = values.astype(np.int32)
        if self.dtype == "bool":
            return values != 0
        if self.dtype in NARROW_FLOATS and values.dtype.kind != "f":
            values = values.astype(np.float32)
        with np.errstate(all="ignore"):
            return values.astype(DTYPES[self.dtype])
