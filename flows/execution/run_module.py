"""The network that `tilewright run` is given, made for what the file of samples says of inputs."""

from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from ...compiler.importers import NeedsInputError
from ..cli.arguments import chosen_configuration, load_module
from ..cli.calibration_options import chosen_calibration
from ..cli.input_options import chosen_wishes, fixed_sentence, fixes_of_samples
from ..cli.placement_options import Placing

if TYPE_CHECKING:
    from ...compiler.module import Module


def chosen_module(arguments: Namespace, placing: Placing, say: Callable[[str], None]) -> "Module":
    """The module; inputs that shapes depend on are fixed at what the input file says of them.

    Parameters
    ----------
    say
        Told which inputs were fixed.

    Raises
    ------
    TilewrightError
        As `load_module`; `NeedsInputError` for an input that nothing says anything of.
    """
    configuration = chosen_configuration(arguments)
    calibration, wishes = chosen_calibration(arguments), chosen_wishes(arguments)
    given = set(wishes.fixed)
    while True:
        try:
            module = load_module(
                arguments.source,
                configuration,
                keep_all=arguments.compare,
                calibration=calibration,
                wishes=wishes,
                placing=placing,
            )
            break
        except NeedsInputError as need:
            if calibration is not None:
                raise
            more = fixes_of_samples(need, arguments.input)
            wishes = replace(wishes, fixed={**wishes.fixed, **more})
    found = [name for name in wishes.fixed if name not in given]
    if found:
        say(fixed_sentence(found))
    return module
