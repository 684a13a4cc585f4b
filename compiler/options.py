"""What the compiler may do to make a network faster; all of it unless told otherwise.

Leaving something out shows what it brings. The results are the same bits each time.
"""

from dataclasses import dataclass

from ..errors import CompileError


@dataclass(frozen=True, slots=True)
class Options:
    """Choices of `compile_graph`.

    Parameters
    ----------
    pipeline_depth
        Tiles of each operand on chip at a time: 1 computes a tile before the next is loaded, 2
        loads one while another is computed, and so on. 0 uses all the room there is.
    fuse
        Let kernels hand tiles to each other on chip.
    gather
        Let first layers with few channels gather whole windows into the lanes, and strided 1x1
        convolutions only the pixels that they use.
    candidates
        Most schedules per kernel that are timed, where a timing model is at hand.
    most_instructions
        A longer program is refused before it is made. ResNet-50 takes 300,000 with 4x4 lanes, and
        compiling it a minute or two and a gigabyte.

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
