"""`--technology`: the cells of the netlist that `--device gate` simulates."""

import argparse
from typing import Any

from ...errors import UsageError, did_you_mean
from ...runtime.devices import kind_of
from ...sim.gate.cell_models import MODELS

DEFAULT = next(iter(MODELS))


def add_technology(parser: argparse.ArgumentParser) -> None:
    """Add `--technology`."""
    parser.add_argument(
        "--technology", type=str.lower, metavar="NAME",
        help=f"gate: cells of the netlist: {', '.join(MODELS)} (default: {DEFAULT})",
    )  # fmt: skip


def technology_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the options for `open_device`.

    Raises
    ------
    UsageError
        For an unknown technology, or another device.
    """
    name = arguments.technology
    if name is None:
        return {}
    if kind_of(arguments.device) != "gate":
        raise UsageError(
            f"`--technology`: expected `--device gate`, got `{arguments.device}`; only a netlist "
            "has cells"
        )
    if name not in MODELS:
        raise UsageError(
            f"`--technology {name}`: expected one of {', '.join(MODELS)}"
            + did_you_mean(name, MODELS, "; choose one")
        )
    return {"technology": name}
