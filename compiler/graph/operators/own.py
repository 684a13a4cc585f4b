"""Operators that users register. A node carries its law, so it runs without registration."""

from functools import cache

from ...formulas import Formula, names_in, substituted
from ..functions import Function
from ..operator import operator
from ..types import TensorType, Types
from .elementwise import Pointwise

MAX_OPERANDS = 16


@operator("function", 1, MAX_OPERANDS)
class OwnFunction(Pointwise):
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
    def title(self) -> str:
        """The name of the operator in reports."""
        return self.name

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
