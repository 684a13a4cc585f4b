"""`--compare`: the machine and the main memory of one side of a comparison."""

import argparse

from ...errors import UsageError, did_you_mean
from ...isa.configuration import DEFAULT, Configuration, load_configuration
from ...isa.memory_model import MemoryModel
from ..sweep.dimensions import MEMORY, NAMES, Value, as_parameters, memory_with, read_dimension
from .arguments import changed
from .memory_options import memory_model


def chosen_side(
    arguments: argparse.Namespace, text: str
) -> tuple[Configuration | None, MemoryModel]:
    """Return the machine and the memory of `CONFIG,NAME=VALUE,...`; both parts may be left out.

    What a side does not say is as in the options of the command. The machine is None if neither
    chooses one.

    Raises
    ------
    ConfigurationError
        For an unknown configuration or a broken rule.
    UsageError
        For a text of another form, an unknown name or an impossible value.
    """
    first, *rest = (part.strip() for part in text.split(","))
    name = arguments.config
    if "=" in first:
        rest = [first, *rest]
    else:
        name = first
    chosen = dict(_setting(part, f"`--compare {text}`") for part in rest)
    memory = memory_with(memory_model(arguments), chosen)
    machine = {each: value for each, value in chosen.items() if each not in MEMORY}
    if name is None and not machine and not arguments.changes:
        return None, memory
    base = changed(load_configuration(name) if name else DEFAULT, arguments.changes)
    if machine:
        changes = [part for part in rest if part.partition("=")[0].strip() in machine]
        parameters = {
            parameter: number
            for each, value in machine.items()
            for parameter, number in as_parameters(each, value).items()
        }
        base = base.replace(name=",".join([base.name, *changes]), **parameters)
    return base, memory


def _setting(text: str, option: str) -> tuple[str, Value]:
    name, given, value = (part.strip() for part in text.partition("="))
    if not given:
        raise UsageError(
            f"{option}: expected CONFIG,NAME=VALUE,... such as `16x16,act_depth=512,latency=200`, "
            f"got `{text}`; correct it"
        )
    if name not in NAMES:
        raise UsageError(
            f"{option}: unknown parameter `{name}`; expected lanes, a parameter of the "
            f"configuration (`tilewright config show`), or one of {', '.join(MEMORY)}"
            + did_you_mean(name, NAMES)
        )
    found, *more = read_dimension(name, value, option).values
    if more:
        raise UsageError(f"{option}: expected one value of `{name}`, got `{value}`; choose one")
    return name, found
