"""Programs as text: assembly with a header that names machine and memory.

    # why: a LOAD of more bursts than may be in flight
    # configuration: {"lanes_in": 4, ...}
    # memory: {"latency_cycles": 2, ...}
    # image: seed 7, 16384 bytes
    load destination=act length=512 memory=0 local=0
    halt

The header consists of comments, so the file is ordinary assembly for other readers.
"""

import json
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ....errors import IsaError
from ....isa.assembly import format_program, parse_program
from ....isa.configuration import Configuration
from ....isa.instructions import Instruction
from .random_programs import random_image

_LINE = re.compile(r"# (why|configuration|memory|image): (.*)")
_IMAGE = re.compile(r"seed (\d+), (\d+) bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramCase:
    """A program and everything that its run depends on.

    Parameters
    ----------
    why
        Purpose, in one line.
    configuration
        The machine.
    memory
        Arguments of `MemoryModel.of_parameters`; empty for the default one.
    image_seed, data_bytes
        Arguments of `random_image`, the initial contents of main memory.
    program
        Legal, HALT last.
    """

    why: str
    configuration: Configuration
    memory: dict[str, Any] = field(default_factory=dict)
    image_seed: int
    data_bytes: int
    program: tuple[Instruction, ...]

    def image(self) -> np.ndarray:
        """Initial contents of main memory, uint8[data_bytes]."""
        return random_image(self.image_seed, self.data_bytes)


def format_case(case: ProgramCase) -> str:
    """Text that `parse_case` reads back."""
    configuration = {"name": case.configuration.name, **case.configuration.parameters()}
    return (
        f"# why: {case.why}\n"
        f"# configuration: {json.dumps(configuration)}\n"
        f"# memory: {json.dumps(case.memory)}\n"
        f"# image: seed {case.image_seed}, {case.data_bytes} bytes\n"
        f"{format_program(case.program)}"
    )


def parse_case(text: str, source: str = "case") -> ProgramCase:
    """Inverse of `format_case`.

    Parameters
    ----------
    source
        File name for messages.

    Raises
    ------
    IsaError
        When a line of the header is missing or malformed, or the assembly is wrong.
    """
    lines = filter(None, map(_LINE.fullmatch, text.splitlines()))
    head: dict[str, str] = {line[1]: line[2] for line in lines}
    for name in ("why", "configuration", "memory", "image"):
        if name not in head:
            raise IsaError(f"{source}: expected a line `# {name}: ...` in the head, got none")
    image = _IMAGE.fullmatch(head["image"])
    if image is None:
        raise IsaError(
            f"{source}: expected `# image: seed NUMBER, NUMBER bytes`, got `{head['image']}`"
        )
    try:
        configuration, memory = json.loads(head["configuration"]), json.loads(head["memory"])
    except ValueError as problem:
        raise IsaError(f"{source}: the head is not readable as JSON: {problem}") from None
    machine = Configuration.from_dict(configuration, source)
    return ProgramCase(
        why=head["why"],
        configuration=machine,
        memory=memory,
        image_seed=int(image[1]),
        data_bytes=int(image[2]),
        program=parse_program(text, source, machine),
    )
