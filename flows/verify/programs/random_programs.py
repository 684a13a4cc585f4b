"""Random legal programs: every opcode, every corner of every field, real concurrency.

The seed chooses a profile, which sets the frequency of each kind of scene; tokens follow from the
conflicts. Blocks of SYNCs that fill counters are inserted afterwards. A block that gives and takes
equally many tokens of each pair can be inserted anywhere, because every later wait then takes a
token that is given no earlier than before.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ....isa.configuration import Configuration
from ....isa.instructions import Instruction, Sync, Unit, peers
from ....isa.tokens import synthesise_tokens
from .possible_corners import STRETCH
from .random_instructions import parameter_bytes
from .random_scenes import Scene, Scenes

FILLS = 13
"""Largest number of initial loads, which give later instructions values to read."""


@dataclass(frozen=True, slots=True)
class ProgramProfile:
    """Frequencies of scenes, by the name of their method of `Scenes`.

    Parameters
    ----------
    weights
        Frequencies of the scenes.
    tight
        Whether room for a full queue matters more than loads at the start.
    redundant
        Probabilities of unnecessary waits, one of which is chosen.
    blocks
        Whether blocks of SYNCs are woven in.
    """

    weights: dict[str, int]
    tight: bool = False
    redundant: tuple[float, ...] = (0.0, 0.0, 0.03)
    blocks: bool = False


PROFILES: dict[str, ProgramProfile] = {
    "mixed": ProgramProfile(
        {"load": 30, "gemm": 20, "vector": 28, "store": 16, "sync": 6}, redundant=(0.0, 0.03, 0.15)
    ),
    "transfers": ProgramProfile(
        {
            "load": 12, "store": 12, "boundaries": 22, "long_run": 7, "byte_runs": 12, "pads": 6,
            "spans": 8, "gemm": 5, "vector": 8, "greatest": 2,
        }
    ),
    "tokens": ProgramProfile(
        {"hazard": 60, "load": 4, "gemm": 4, "vector": 4, "store": 4, "bare_syncs": 4},
        tight=True, redundant=(0.0, 0.3, 1.0), blocks=True,
    ),
    "tiny-instructions": ProgramProfile(
        {"tiny_run": 30, "flood": 40, "bare_syncs": 4, "hazard": 10, "byte_runs": 6}, tight=True
    ),
    "gemm": ProgramProfile(
        {
            "gemm": 50, "load": 10, "wraps": 8, "soonest": 4, "spans": 4, "banks": 6,
            "greatest": 2, "vector": 8, "store": 14,
        }
    ),
    "vector": ProgramProfile(
        {
            "vector": 60, "load": 10, "wraps": 6, "spans": 8, "banks": 6, "greatest": 2, "gemm": 6,
            "store": 8,
        }
    ),
}  # fmt: skip
"""Profiles of programs; any six consecutive seeds use each one once."""


def profile_of(seed: int) -> str:
    """Name of the profile that a seed draws from."""
    return tuple(PROFILES)[seed % len(PROFILES)]


def random_program(
    configuration: Configuration, seed: int, length: int = 40, data_bytes: int = 1 << 14
) -> tuple[tuple[Instruction, ...], np.ndarray]:
    """Draw a program that the checker accepts, and the memory that it starts from.

    Parameters
    ----------
    seed
        The same seed gives the same program and image.
    length
        Number of instructions, including about ten initial loads, but without HALT and the SYNCs
        that token limits require.
    data_bytes
        Size of the data window, at least 4096.

    Returns
    -------
    program
        With tokens, HALT last.
    dram
        uint8[data_bytes].
    """
    profile = PROFILES[profile_of(seed)]
    scenes = Scenes(configuration, seed, data_bytes)
    chance = scenes.chance
    blocks = _token_blocks(configuration, seed, length - 3, chance) if profile.blocks else []
    length -= sum(map(len, blocks))
    fills = FILLS
    if profile.tight:
        fills = max(1, min(FILLS // 2, length - configuration.queue_depth - 5))
    body: Scene = scenes.fill_scratchpads(fills)
    names, weights = tuple(profile.weights), tuple(profile.weights.values())
    while len(body) < length:
        drawn = getattr(scenes, chance.choices(names, weights)[0])()
        body += drawn if isinstance(drawn, list) else [drawn]
    rate = chance.choice(profile.redundant)

    def redundant(count: int) -> int | None:
        return chance.randrange(count) if count and chance.random() < rate else None

    program = synthesise_tokens(body[:length], configuration, redundant)
    for block in blocks:
        program = _insert(program, block, chance, configuration.token_limit)
    return program, random_image(seed, data_bytes)


def _token_blocks(
    configuration: Configuration, seed: int, room: int, chance: random.Random
) -> list[list[Sync]]:
    """Blocks of SYNCs that give and take the same tokens, together at most `room` of them.

    One of every two seeds of a profile fills a counter, each pair of units in turn.
    """
    turn, fills = divmod(seed // len(PROFILES), 2)
    if fills:
        pairs = [(source, target) for source in Unit for target in peers(source)]
        source, target = pairs[turn % len(pairs)]
        return [_flood(source, [target], min(configuration.token_limit, room // 2), chance)]
    blocks = []
    for _ in range(chance.randint(0, 3)):
        kind = chance.choice(("flood", "ring", "all"))
        units = chance.sample(tuple(Unit), chance.randint(2, len(Unit)))
        if kind == "flood":
            count = chance.randint(1, min(configuration.token_limit, 6))
            block = _flood(units[0], units[1:], count, chance)
        elif kind == "ring":
            block = _ring(units, chance.randint(STRETCH, 2 * STRETCH))
        else:
            block = [Sync(target=unit, signal=frozenset(peers(unit))) for unit in units]
            takes = [(unit, peer) for unit in units for peer in peers(unit)]
            block += [
                Sync(target=unit, wait=frozenset(giver for giver, taker in takes if taker is unit))
                for unit in Unit
            ]
        if sum(map(len, blocks)) + len(block) <= room:
            blocks.append(block)
    return blocks


def _flood(source: Unit, targets: Sequence[Unit], count: int, chance: random.Random) -> list[Sync]:
    """Many tokens from one unit before any is taken."""
    gives = [Sync(target=source, signal=frozenset(targets)) for _ in range(count)]
    takes = [Sync(target=unit, wait=frozenset((source,))) for unit in targets for _ in range(count)]
    chance.shuffle(takes)
    return gives + takes


def _ring(units: Sequence[Unit], count: int) -> list[Sync]:
    """One token passed from unit to unit."""
    ring = []
    for step in range(count):
        before, here = units[(step - 1) % len(units)], units[step % len(units)]
        after = units[(step + 1) % len(units)]
        wait = frozenset((before,)) if step else frozenset()
        signal = frozenset((after,)) if step < count - 1 else frozenset()
        ring.append(Sync(target=here, wait=wait, signal=signal))
    return ring


def _insert(
    program: tuple[Instruction, ...], block: list[Sync], chance: random.Random, limit: int
) -> tuple[Instruction, ...]:
    """A program with a block at a random place where no counter overflows, or at the start."""
    for _ in range(8):
        place = chance.randrange(len(program))
        pending = {(u, v): 0 for u in Unit for v in Unit}
        for instruction in program[:place]:
            _count(instruction, pending)
        fits = True
        for sync in block:
            _count(sync, pending)
            fits = fits and max(pending.values()) <= limit
        if fits:
            return (*program[:place], *block, *program[place:])
    return (*block, *program)


def _count(instruction: Instruction, pending: dict[tuple[Unit, Unit], int]) -> None:
    if instruction.home is not None:
        for giver in instruction.wait:
            pending[giver, instruction.home] -= 1
        for taker in instruction.signal:
            pending[instruction.home, taker] += 1


def random_image(seed: int, data_bytes: int) -> np.ndarray:
    """Contents of the data window: pairs of bias and scale, then int8 values, uint8[data_bytes].

    The first quarter of the biases are the ends of int32. Most scales are sensible; some are zero,
    negative, subnormal, infinite or no numbers at all.
    """
    chance = np.random.default_rng(seed)
    pairs = parameter_bytes(data_bytes) // 8
    bias = chance.integers(-(1 << 14), 1 << 14, pairs).astype(np.int32)
    wild = chance.random(pairs) < 0.1
    bias[wild] = chance.integers(-(1 << 31), 1 << 31, int(wild.sum()))
    scale = np.exp2(chance.uniform(-16, 2, pairs)).astype(np.float32).view(np.uint32)
    wild = chance.random(pairs) < 0.08
    scale[wild] = chance.integers(0, 1 << 32, int(wild.sum()), dtype=np.uint64)
    corners = np.array([0, 1 << 31, 1, 0x7F800000, 0x7FC00000, 0x3F800000, 0x3F000000, 0x43800000])
    wild = chance.random(pairs) < 0.08
    scale[wild] = chance.choice(corners, int(wild.sum()))
    values = chance.integers(-128, 128, data_bytes - 8 * pairs).astype(np.int8)
    wild = chance.random(values.size) < 0.1
    values[wild] = chance.choice([-128, -127, 0, 127], int(wild.sum()))
    ends = np.array([(1 << 31) - 1, -(1 << 31)], dtype=np.int32)
    bias[: pairs // 4] = np.resize(ends, pairs // 4)
    image = np.stack([bias.view(np.uint32), scale], axis=1).reshape(-1).view(np.uint8)
    return np.concatenate([image, values.view(np.uint8)])
