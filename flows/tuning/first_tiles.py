"""First tiles that are smaller than the others, so that a layer starts sooner.

The compiler's tiles are equal, except for the last one. Here a split of each layer gets a smaller
first block, with as many blocks as before or a few more. Each schedule is timed among its
neighbours, and the best of each layer in the whole network, equal layers together.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from ...compiler.scheduling.candidate_timer import NEVER
from ...compiler.scheduling.given_schedules import GivenSchedule
from ...compiler.te.loop_steps import Split, SplitFirst
from ...compiler.te.schedule import Schedule
from .chain_search import ChainChange, Places, together
from .network_trials import NetworkTrials, TriedChange

SIZES = 1 / 4, 1 / 2, 3 / 4
"""Sizes of the first block to try, relative to a block of the equal split."""

MORE_BLOCKS = range(3)
"""Numbers of blocks to try, in addition to those of the equal split."""


def search_first_tiles(network: NetworkTrials, trials: int, may_go_on: Callable[[], bool]) -> None:
    """Shrink the first tiles of layers where that saves cycles.

    Parameters
    ----------
    trials
        Maximum number of changes to try in the network.
    """
    for changes in together(_changes(network, may_go_on)):
        if trials <= 0 or not may_go_on():
            return
        trials -= 1
        schedules = network.kept | {
            name: text for change in changes for name, text in change.layers.items()
        }
        cycles = network.attempt(schedules)
        if cycles is not None:
            names = tuple(name for change in changes for name in change.layers)
            kept = network.kept is schedules
            network.first_tiles.append(TriedChange(names, cycles, kept))


def _changes(network: NetworkTrials, may_go_on: Callable[[], bool]) -> Iterator[ChainChange]:
    module = network.module()
    for number, segment in enumerate(module.segments):
        places = Places(module, number)
        for at in range(len(segment.layers)):
            if not may_go_on():
                return
            if places.is_layer(at):
                yield from _best_change(places, at)


def _best_change(places: Places, at: int) -> Iterator[ChainChange]:
    """Yield the fastest schedule between the layer's neighbours, if it beats the current one."""
    part = kernel, given = places.given(at)
    assert isinstance(given, GivenSchedule)
    before, behind = places.around(at)
    best = past = places.time([*before, part, *behind])
    if past == NEVER:  # a schedule that needs its whole network
        return
    chosen = given
    for text in with_first_tiles(given.schedule(kernel, places.timer.programs.configuration)):
        one = replace(given, text=text)
        cycles = places.time([*before, (kernel, one), *behind])
        if cycles < best:
            best, chosen = cycles, one
    if best < past:
        form = places.timer.programs.form(kernel), best, past
        yield ChainChange({given.layer: chosen.text}, form, best / past)


def with_first_tiles(schedule: Schedule) -> Iterator[str]:
    """Yield schedules in which one split of data into equal blocks has a smaller first block.

    Not all are legal: the first block may cut lanes, for example.
    """
    stages = {stage.name: stage for stage in schedule.stages}
    lines = list(map(str, schedule.steps))
    for number, step in enumerate(schedule.steps):
        if not isinstance(step, Split) or isinstance(step, SplitFirst):
            continue
        stage = stages[step.stage]
        if step.loop not in stage.axes:
            continue
        low, high = stage.domain[stage.axes.index(step.loop)]
        extent, blocks = high - low, -(-(high - low) // step.factor)
        pairs: dict[tuple[int, int], None] = {}
        for first in (round(size * step.factor) for size in SIZES):
            for count in (blocks + more - 1 for more in MORE_BLOCKS):
                factor = -(-(extent - first) // count) if count else 0
                if 0 < first < factor:
                    pairs[factor, first] = None
        for factor, first in pairs:
            change = str(SplitFirst(step.stage, step.loop, factor, first))
            yield "\n".join([*lines[:number], change, *lines[number + 1 :]])
