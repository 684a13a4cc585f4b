"""Optimisations of the compiler; all are on by default.

Turn one off to see its effect on the cycles. The results are bit-identical in every case.
"""

from dataclasses import dataclass

from ..argument_types import checked_class
from ..errors import CompileError


@checked_class("Options")
@dataclass(frozen=True, slots=True)
class Options:
    """Options of `compile_graph`.

    Parameters
    ----------
    pipeline_depth
        Number of tiles of each operand on chip at a time. With 1, a tile is computed before the
        next is loaded; with 2, one is loaded while another is computed; and so on. 0 uses all the
        room.
    fuse
        Let kernels hand tiles to each other on chip.
    gather
        Let first layers with few channels gather whole windows into the lanes, and let strided 1x1
        convolutions load only the pixels that they use.
    candidates
        Maximum number of schedules per kernel to time, if there is a timing model.
    most_instructions
        A longer program is rejected before generation. ResNet-50 takes 300,000 instructions with
        4x4 lanes; its compilation takes a minute or two and a gigabyte.

    Raises
    ------
    CompileError
        For a negative depth, no candidate, or no instruction.
    """

    pipeline_depth: int = 0
    fuse: bool = True
    gather: bool = True
    candidates: int = 3
    most_instructions: int = 1 << 20

    def __post_init__(self) -> None:
        if self.pipeline_depth < 0:
            raise CompileError(
                f"pipeline depth: expected 0 (all the room there is) or more, got "
                f"{self.pipeline_depth}"
            )
        for name in ("candidates", "most_instructions"):
            if getattr(self, name) < 1:
                text = name.replace("_", " ")
                raise CompileError(f"{text}: expected at least 1, got {getattr(self, name)}")


DEFAULT_OPTIONS = Options()
