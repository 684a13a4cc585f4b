"""The module of `tilewright run`; the file of samples fixes inputs that shapes depend on."""

from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from ...compiler.importers import NeedsInputError
from ..cli.arguments import Check, chosen_configuration, connected_board, load_module
from ..cli.calibration_options import chosen_calibration
from ..cli.input_options import chosen_overrides, fixed_sentence, fixes_of_samples
from ..cli.memory_options import memory_model, program_memory
from ..cli.placement_options import Placing
from ..cli.schedule_options import chosen_schedules

if TYPE_CHECKING:
    from ...compiler.module import Module


def chosen_module(
    arguments: Namespace, placing: Placing, say: Callable[[str], None], check: Check
) -> "Module":
    """Return the module; the input file gives the values of inputs that shapes depend on.

    Parameters
    ----------
    say : callable
        Called with a sentence about the inputs that were fixed.
    check : callable
        See `load_module`.

    Raises
    ------
    TilewrightError
        As `load_module`; `NeedsInputError` for an input that has no value.
    """
    configuration = chosen_configuration(arguments)
    calibration, overrides = chosen_calibration(arguments), chosen_overrides(arguments)
    board = connected_board(arguments.device, arguments.source, configuration)
    memory = program_memory(
        arguments, board.memory if board else memory_model(arguments, arguments.source)
    )
    if board:
        configuration, placing = board.configuration, placing.on(board)
    given = set(overrides.fixed)
    while True:
        try:
            module = load_module(
                arguments.source,
                configuration,
                keep_all=arguments.compare,
                calibration=calibration,
                overrides=overrides,
                placing=placing,
                trust_code=arguments.trust_code,
                memory=memory,
                schedules=chosen_schedules(arguments),
                check=check,
            )
            break
        except NeedsInputError as need:
            if calibration is not None:
                raise
            more = fixes_of_samples(need, arguments.input)
            overrides = replace(overrides, fixed={**overrides.fixed, **more})
    found = [name for name in overrides.fixed if name not in given]
    if found:
        say(fixed_sentence(found))
    return module
