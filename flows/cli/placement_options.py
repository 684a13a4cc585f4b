"""What `--placement` and the options beside it mean."""

import argparse
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ...errors import UsageError
from .clock_options import DEFAULT_CLOCK_MHZ, add_clock, chosen_clock

if TYPE_CHECKING:
    from ...compiler.placement import Placement
    from ...compiler.placement.costs import Costs

POLICIES = ("accelerator", "cost", "cpu")
SIDES = ("accelerator", "cpu")
"""As in `compiler.placement`, which a command that finds its network compiled does not need."""

FIGURES = ("host_gops", "host_gbps", "link_gbps", "segment_us")
"""Options that say what the host's and the link's times are estimated from."""


@dataclass(frozen=True, slots=True)
class Placing:
    """Who shall run what, as asked for; figures that nothing was said of are None.

    Parameters
    ----------
    policy, forced
        See `compiler.placement.Placement`.
    clock, host_gops, host_gbps, link_gbps, segment_us
        See `compiler.placement.costs`.
    stated
        Whether the user has named a policy, so that an artifact's own does not count.
    """

    policy: str = "accelerator"
    forced: tuple[tuple[str, str], ...] = ()
    clock: float = DEFAULT_CLOCK_MHZ
    host_gops: float | None = None
    host_gbps: float | None = None
    link_gbps: float | None = None
    segment_us: float | None = None
    stated: bool = field(default=False, compare=False)

    @property
    def is_default(self) -> bool:
        """Whether the accelerator runs all that it can."""
        return self.policy == POLICIES[0] and not self.forced

    def key(self) -> tuple[object, ...]:
        """What a compiled module follows from; nothing where it is as by default."""
        if self.is_default:
            return ()
        measured = (self.costs(),) if self.policy == "cost" else ()
        return ("placement", self.policy, self.forced, *measured)

    def placement(self) -> "Placement":
        """For the compiler."""
        from ...compiler.placement import Placement

        return Placement(self.policy, self.forced)

    def costs(self) -> "Costs":
        """What times are estimated from: as stated, measured on this machine, or assumed."""
        from ...compiler.placement.costs import Costs, LinkSpeed
        from ..execution.host_figures import measured_host

        host, link = measured_host(), LinkSpeed()
        if self.host_gops is not None:
            host = replace(host, int8_gops=self.host_gops, float_gops=self.host_gops)
        if self.host_gbps is not None:
            host = replace(host, gbps=self.host_gbps)
        if self.link_gbps is not None:
            link = replace(link, gbps=self.link_gbps)
        if self.segment_us is not None:
            link = replace(link, start_us=self.segment_us)
        return Costs(self.clock, host, link)


DEFAULT_PLACING = Placing()


def add_placement(parser: argparse.ArgumentParser) -> None:
    """Add the options of placement, and the clock, which estimates start from."""
    add_clock(parser)
    group = parser.add_argument_group("who runs what")
    group.add_argument(
        "--placement", choices=POLICIES,
        help="accelerator: all that it can run (default); cost: the least estimated time; cpu: "
        "nothing on the accelerator",
    )  # fmt: skip
    group.add_argument(
        "--place", action="append", default=[], metavar="LAYER=SIDE",
        help="a node of the model, the end of its name or a pattern with `*`, on `cpu` or "
        "`accelerator`; may be repeated, the last one counts",
    )  # fmt: skip
    group.add_argument(
        "--table", action="store_true",
        help="print who runs each layer, why, and estimated times on both sides",
    )  # fmt: skip
    for name, unit, what in (
        ("--host-gops", "N", "10^9 operations a second of the CPU (default: measured here)"),
        ("--host-gbps", "N", "10^9 bytes a second of its memory (default: measured here)"),
        ("--link-gbps", "N", "10^9 bytes a second to the accelerator's memory (default: 1)"),
        ("--segment-us", "N", "microseconds to start the accelerator (default: 20)"),
    ):
        group.add_argument(name, type=float, metavar=unit, help=what)


def chosen_placing(arguments: argparse.Namespace, *, places: bool = False) -> Placing:
    """What was asked for.

    Parameters
    ----------
    places
        Whether the command estimates times without `--table` too.

    Raises
    ------
    UsageError
        For what is not of the form, figures that are not positive, or such as nothing follows
        from.
    """
    forced = []
    for text in arguments.place:
        name, _, side = text.rpartition("=")
        if not name or side not in SIDES:
            raise UsageError(
                f"`--place {text}`: expected LAYER=cpu or LAYER=accelerator; correct it"
            )
        forced.append((name, side))
    figures = {name: getattr(arguments, name) for name in FIGURES}
    for name, figure in figures.items():
        least = 0 if name == "segment_us" else 1e-9
        if figure is not None and not least <= figure < float("inf"):
            option = "--" + name.replace("_", "-")
            raise UsageError(f"`{option} {figure:g}`: expected a positive number; correct it")
    clock, policy = chosen_clock(arguments), arguments.placement
    unused = [name for name, figure in figures.items() if figure is not None]
    if unused and policy != "cost" and not (arguments.table or places):
        option = "--" + unused[0].replace("_", "-")
        raise UsageError(
            f"`{option}`: expected `--placement cost` or `--table`, which estimate times, got "
            "neither; add one, or leave it out"
        )
    if getattr(arguments, "device", "") == "cpu":
        there = [name for name, side in forced if side == SIDES[0]]
        if policy not in (None, "cpu") or there:
            what = f"--place {there[0]}={SIDES[0]}" if there else f"--placement {policy}"
            raise UsageError(
                f"`{what}`: expected a device that is an accelerator, got `--device cpu`; leave "
                "one of them out"
            )
        policy = "cpu"
    return Placing(
        policy or POLICIES[0], tuple(forced), clock, **figures, stated=policy is not None
    )
