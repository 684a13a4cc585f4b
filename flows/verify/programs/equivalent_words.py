"""Other words for the same program: random contents of bits that do not affect the meaning.

The encoder writes zeros there, so encoded programs would not expose a machine that reads these
bits. Loops of extent 1 may be at any level, and their other fields may hold anything. So may these
bits: padding, the byte of a LOAD without fill, the memory side of a LOAD with fill, and the part of
a GEMM that is not depthwise.
"""

import random
from collections.abc import Callable, Iterable, Sequence

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
        levels, loops = instruction.levels(nest, configuration), getattr(instruction, nest)
        places = sorted(chance.sample(range(levels), len(loops)))
        place_loops(values, instruction, nest, places, configuration, lambda f: _any(f, chance))
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


def place_loops(
    values: dict[str, int],
    instruction: Instruction,
    nest: str,
    places: Sequence[int],
    configuration: Configuration,
    garbage: Callable[[Field], int],
) -> None:
    """Move the loops of a nest, within the values of its instruction, to other levels in order.

    All other levels have extent 1, and `garbage` in their other fields.
    """
    levels = instruction.loop_fields(configuration).nests[nest]
    loops = levels[len(levels) - len(places) :]
    contents = [[values[field.name] for field in level] for level in loops]
    for number, level in enumerate(levels):
        if number in places:
            content = contents[places.index(number)]
        else:
            content = [1, *(garbage(field) for field in list(level)[1:])]
        values.update(zip((field.name for field in level), content, strict=True))


def _any(field: Field, chance: random.Random) -> int:
    return chance.choice((field.low, field.high, chance.randint(field.low, field.high)))
