"""The updates between the matrix products of one step of a recurrent layer, for all samples."""

from collections.abc import Mapping
from dataclasses import dataclass

from typing_extensions import override

from ... import te
from ...formulas import Formula
from ..target import CpuTarget
from .description import Array, Description, KernelSchedule
from .formulas import value_of


@dataclass(frozen=True, slots=True)
class RecurrentUpdate(Description):
    """A formula of gates, float32[rows, hidden].

    Operands are float32[rows, gates * hidden]: the gates lie side by side in the columns. In the
    formula, gate 2 of the operand `x` is `x.2`. An operand without gates is [rows, 1]: one number
    for each row, in the formula `x`.

    Parameters
    ----------
    rows, hidden
        Extents.
    gates
        Operands and their numbers of gates.
    formula
        As in `Elementwise`.
    bound
        Operands that are the same in all calls and for all rows: [1, gates * hidden].
    """

    rows: int
    hidden: int
    gates: tuple[tuple[str, int], ...]
    formula: Formula
    bound: tuple[str, ...] = ()

    @property
    @override
    def arrays(self) -> Mapping[str, Array]:
        shapes = {
            name: (1 if name in self.bound else self.rows, gates * self.hidden if gates else 1)
            for name, gates in self.gates
        }
        shapes["out"] = self.rows, self.hidden
        return {name: Array("float32", shape) for name, shape in shapes.items()}

    @override
    def plan(self, target: CpuTarget) -> KernelSchedule:
        n, h = te.axes(n=self.rows, h=self.hidden)
        read = {}
        for name, gates in self.gates:
            array = self.operands[name]
            given = te.tensor(name, array.dtype, array.shape)
            row = 0 if name in self.bound else n
            for gate in range(gates):
                read[f"{name}.{gate}"] = given[row, h + gate * self.hidden]
            if not gates:
                read[name] = given[row, 0]
        out = te.compute("out", "float32", (n, h), value_of(self.formula, read))
        s = te.Schedule(te.kernel("recurrent", out), target.processor)
        s.nest("out", "h.i~", h=min(target.lanes, self.hidden))
        return KernelSchedule(s)
