"""Other words for the same program: random contents of bits that do not affect the meaning.

The encoder writes zeros there, so encoded programs would not expose a machine that reads these
bits. Loops of extent 1 may be at any level with any strides. These bits may hold anything: padding,
the byte of a LOAD without fill, the memory side of a LOAD with fill, and the part of a GEMM that is
not depthwise.
"""

import random
from collections.abc import Iterable, Sequence

from ....isa.configuration import Configuration
from ....isa.encoding import word_bytes
from ....isa.fields import Field, pack, width
from ....isa.instructions import Instruction, Load


def equivalent_words(
    program: Sequence[Instruction], configuration: Configuration, seed: int
) -> bytes:
    """Words that `decode_program` reads as `program`; the same seed gives the same ones."""
    chance = random.Random(seed)
    return b"".join(_word(instruction, configuration, chance) for instruction in program)


def _word(instruction: Instruction, configuration: Configuration, chance: random.Random) -> bytes:
    layout = instruction.layout(configuration)
    fields = {field.name: field for field in layout}
    values = instruction.values(configuration)
    for nest in instruction.nests:
        _scatter(instruction, nest, values, fields, configuration, chance)
    for name in _free(instruction, fields):
        values[name] = _any(fields[name], chance)
    word, used = pack(layout, values), width(layout)
    bits = 8 * word_bytes(configuration)
    word |= chance.getrandbits(bits - used) << used if bits > used else 0
    return word.to_bytes(bits // 8, "little")


def _free(instruction: Instruction, fields: Iterable[str]) -> list[str]:
    """Fields without effect in this instruction."""
    free = [name for name in instruction.forgotten if not instruction.takes_effect(name)]
    if isinstance(instruction, Load) and instruction.fill:
        free += [name for name in fields if name.rpartition(".")[2] == "memory"]
    return free


def _scatter(
    instruction: Instruction,
    nest: str,
    values: dict[str, int],
    fields: dict[str, Field],
    configuration: Configuration,
    chance: random.Random,
) -> None:
    """Put the loops of a nest at any levels, in order, with garbage around them."""
    loops, levels = getattr(instruction, nest), instruction.levels(nest, configuration)
    moved = instruction.nests[nest]
    places = sorted(chance.sample(range(levels), len(loops)))
    for level in range(levels):
        loop = loops[places.index(level)] if level in places else None
        values[f"{nest}.{level}.extent"] = loop.extent if loop else 1
        for operand, name in enumerate(moved):
            field = fields[f"{nest}.{level}.{name}"]
            values[field.name] = loop.strides[operand] if loop else _any(field, chance)


def _any(field: Field, chance: random.Random) -> int:
    return chance.choice((field.low, field.high, chance.randint(field.low, field.high)))
