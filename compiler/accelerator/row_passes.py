"""Stages over rows as several instructions, which share rows of ACC and of PARAM.

Each pass is a compute of its own, so that `Tensoriser` makes its instructions.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ...errors import UnfitError
from ...isa.configuration import Configuration, Memory
from ...isa.expressions import Affine, Match, Read
from ...isa.instructions import Instruction, Role
from ...isa.row_laws import Shared, row_elements
from ..tensor import Compute
from .matching import MatchedInstruction
from .phases import own_index
from .tile_layout import Buffer, TileLayout, row_major


class RowPasses:
    """The passes of one stage.

    Parameters
    ----------
    matched
        The law of the stage.
    compute
        The whole stage.
    configuration
        The machine.

    Attributes
    ----------
    computes
        The passes, in order.
    instructions
        The instruction of each pass, by the result of its compute.
    """

    def __init__(
        self, matched: MatchedInstruction, compute: Compute, configuration: Configuration
    ) -> None:
        self.configuration = configuration
        self.name = name = compute.output.name
        pattern, values = matched.pattern, dict(matched.found.fields)
        self.reads: dict[Role, Read] = {}
        for slot, read in matched.found.reads:  # the rows before their mask
            self.reads.setdefault(pattern.role(slot), read)
        outer = tuple(Affine.of(**{axis.name: 1}) for axis in compute.axes[:-1])
        self.row, self.spare = Read(f"{name} row", outer), Read(f"{name} spare", ())
        held: dict[str | Shared, Read] = {
            **{slot.operand: read for slot, read in matched.found.reads},
            Shared.ROW: self.row, Shared.SPARE: self.spare,
        }  # fmt: skip
        self.sums = [f"{name} pass {index}" for index in range(len(pattern.passes) - 1)]
        self.computes: list[Compute] = []
        self.instructions: dict[str, MatchedInstruction] = {}
        for output, one in zip((*self.sums, name), pattern.passes, strict=True):
            fields = {**one.fields, **{field: values[known] for field, known in one.taken.items()}}
            reads = tuple((slot, held[source]) for slot, source in one.operands)
            law = replace(pattern, fields=fields, passes=())
            self.instructions[output] = matched._replace(pattern=law, found=Match(reads))
            self.computes.append(replace(compute, output=replace(compute.output, name=output)))
            held[Shared.SUMS] = Read(output, own_index(compute))

    def used(self, stage: Compute, buffers: Mapping[str, Buffer]) -> dict[str, Buffer]:
        """The buffers of a pass, among those of all."""
        reads = self.instructions[stage.output.name].found.reads
        return {name: buffers[name] for name in (stage.output.name, *(r.tensor for _, r in reads))}

    def buffers(
        self, tile: Mapping[str, int], given: Mapping[str, Buffer], sums: Buffer
    ) -> dict[str, Buffer]:
        """The buffers of the passes over a tile.

        Parameters
        ----------
        given
            The operands and the result of the stage.
        sums
            Rows of ACC for the tile.

        Raises
        ------
        UnfitError
            When the tile leaves no bank of ACT free.
        """
        lanes = self.configuration.vector_lanes
        outer = [axis.name for axis in self.computes[0].axes[:-1]]
        strides = row_major(tuple(tile[axis] for axis in outer))
        rows = {axis: TileLayout(step * lanes) for axis, step in zip(outer, strides, strict=True)}
        first = given[self.reads[Role.EPSILON].tensor].base + lanes
        spare = self._spare(tile, given[self.reads[Role.STREAM].tensor], given[self.name])
        return {
            **given,
            **dict.fromkeys(self.sums, sums),
            self.row.tensor: Buffer(Memory.PARAM, first, rows),
            self.spare.tensor: Buffer(Memory.ACT, spare, {}),
        }

    def _spare(self, tile: Mapping[str, int], stream: Buffer, result: Buffer) -> int:
        """A place in a bank of ACT that the stream does not use; the result's if possible.

        The unit has that bank anyway. Otherwise it is one of the last, since results of VECTOR come
        behind what GEMM reads.
        """
        size = self.configuration.bank_bytes(Memory.ACT)
        last = stream.base + sum(one.offset(tile[axis] - 1) for axis, one in stream.axes.items())
        used = range(stream.base // size, last // size + 1)
        for bank in (result.base // size, *reversed(range(self.configuration.act_banks))):
            if bank not in used:
                return bank * size
        raise UnfitError(
            f"stage `{self.name}`: a tile takes all {self.configuration.act_banks} banks of ACT, "
            "of which a pass needs one more; split more or raise `act_banks`"
        )

    def check(self, found: Iterable[Instruction], tile: Mapping[str, int]) -> None:
        """Refuse rows that were cut, because the machine has too few loops.

        Raises
        ------
        UnfitError
            When a row is not within one instruction.
        """
        elements = tile[self.computes[0].axes[-1].name]
        if any(row_elements(one, self.configuration) not in (None, elements) for one in found):
            raise UnfitError(
                f"stage `{self.name}`: a row of {elements} elements takes more map loops than "
                f"`{self.configuration.name}` has; raise `map_loops`"
            )
