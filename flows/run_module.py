"""The network that `tilewright run` is given: a model or an artifact, placed as asked for.

An artifact's network is compiled again where the user says who shall run what. That is done once:
the module is kept like that of a model, under the artifact's bytes, what was asked for and this
processor.
"""

from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..compiler.host import host_target
from ..compiler.importers import NeedsInputError
from ..compiler.options import DEFAULT_OPTIONS
from ..runtime.artifact import is_artifact
from .arguments import chosen_configuration, load_module
from .calibration_options import chosen_calibration, refuse_calibration
from .compile_cache import CompileCache
from .input_options import chosen_wishes, fixed_sentence, fixes_of_samples, refuse_wishes
from .placing import Placing

if TYPE_CHECKING:
    from ..compiler.module import Module
    from ..isa.configuration import Configuration


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
    if is_placed_artifact(arguments.source, placing):
        refuse_calibration(arguments.source, calibration)
        refuse_wishes(arguments.source, wishes)
        return placed_module(arguments.source, configuration, placing, keep_all=arguments.compare)
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


def is_placed_artifact(source: Path, placing: Placing) -> bool:
    """Whether an artifact's network has to be compiled again for what was asked for."""
    said = placing.stated or not placing.is_default
    return said and source.is_file() and is_artifact(source)


def placed_module(
    artifact: Path, configuration: "Configuration | None", placing: Placing, *, keep_all: bool
) -> "Module":
    """An artifact's network, compiled with a placement of the user's or taken from the cache.

    Parameters
    ----------
    configuration
        None for the artifact's own.
    keep_all
        Whether every layer's output can be read.

    Raises
    ------
    TilewrightError
        As the artifact's reader or the compiler says.
    """
    more = ("artifact", repr(host_target()), *placing.key())
    kept = CompileCache(artifact, configuration, DEFAULT_OPTIONS, keep_all=keep_all, more=more)
    module = kept.load()
    if module is None:
        module = load_module(artifact, configuration, keep_all=keep_all, placing=placing)
        kept.save(module)
    return module
