"""`--placement` and related options: which side runs each layer."""

import argparse
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ...errors import UsageError
from ...runtime.devices import has_accelerator
from .clock_options import DEFAULT_CLOCK_MHZ, add_clock, chosen_clock

if TYPE_CHECKING:
    from ...compiler.placement import Placement
    from ...compiler.placement.costs import Costs
    from ...runtime.device import Device

POLICIES = ("accelerator", "cost", "host")
SIDES = ("accelerator", "host")
HOST_NAMES = ("here", "cortex-a9", "cortex-a53", "picorv32")
"""As in `compiler.placement` and `execution.hosts`, which a command with a kept network omits."""

FIGURES = ("host_gops", "host_gbps", "link_gbps", "segment_us")
"""Options for the estimates of the host's and the link's times."""


@dataclass(frozen=True, slots=True)
class Placing:
    """The user's placement; figures that were not given are None.

    Parameters
    ----------
    policy : str
    forced : tuple of tuple
    strict : bool
        See `compiler.placement.Placement`.
    clock : float
    host_gops : float or None
    host_gbps : float or None
    link_gbps : float or None
    segment_us : float or None
        See `compiler.placement.costs`.
    host : str
        The processor that runs the other layers, for estimates: one of `HOST_NAMES`.
    stated : bool
        Whether the user named a policy, which then overrides an artifact's own.
    clock_stated : bool
        Whether the user named a clock, which then overrides a board's own.
    """

    policy: str = "accelerator"
    forced: tuple[tuple[str, str], ...] = ()
    clock: float = DEFAULT_CLOCK_MHZ
    host_gops: float | None = None
    host_gbps: float | None = None
    link_gbps: float | None = None
    segment_us: float | None = None
    strict: bool = False
    host: str = HOST_NAMES[0]
    stated: bool = field(default=False, compare=False)
    clock_stated: bool = field(default=False, compare=False)

    @property
    def is_default(self) -> bool:
        """Whether the accelerator runs every layer that it can."""
        return self.policy == POLICIES[0] and not self.forced

    def on(self, device: "Device") -> "Placing":
        """Return the placement with the clock of a board, unless the user named one."""
        clock_hz: int = getattr(device, "clock_hz", 0)
        return self if self.clock_stated or not clock_hz else replace(self, clock=clock_hz / 1e6)

    def key(self) -> tuple[object, ...]:
        """Return the part of the cache key; empty for the default."""
        if self.is_default and not self.strict:
            return ()
        more = (self.costs(),) if self.policy == "cost" else ()
        return ("placement", self.policy, self.forced, *more, *(["strict"] if self.strict else []))

    def placement(self) -> "Placement":
        """Return the placement for the compiler."""
        from ...compiler.placement import Placement

        return Placement(self.policy, self.forced, self.strict)

    def costs(self) -> "Costs":
        """Return the figures for estimates: given, measured on this machine, or assumed."""
        from ...compiler.placement.costs import Costs, LinkSpeed
        from ..execution.host_figures import measured_host
        from ..execution.hosts import HOSTS

        host = HOSTS[self.host].speed if self.host in HOSTS else measured_host()
        link = LinkSpeed()
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

STRICT_PLACING = Placing(strict=True)
"""The same, but a layer that does not fit the accelerator is an error."""


def add_placement(parser: argparse.ArgumentParser, *, table: bool = True) -> None:
    """Add the options of placement, and the clock; `--table` only where the command prints it."""
    add_clock(parser)
    group = parser.add_argument_group("placement: which side runs each layer")
    group.add_argument(
        "--placement", choices=POLICIES,
        help="accelerator: every layer that can run there (default); cost: the least estimated "
        "time; host: nothing on the accelerator",
    )  # fmt: skip
    group.add_argument(
        "--place", action="append", default=[], metavar="LAYER=SIDE",
        help="run a node on `host` or `accelerator`; LAYER is its name, the end of it or a pattern "
        "with `*`; may be repeated, the last match counts",
    )  # fmt: skip
    if table:
        group.add_argument(
            "--table", action="store_true",
            help="print which side runs each layer, why, and estimated times on both sides",
        )  # fmt: skip
    else:
        parser.set_defaults(table=False)
    group.add_argument(
        "--host", choices=HOST_NAMES,
        help="processor whose times are estimated: this machine's, as measured (default), or one "
        "beside an FPGA, with assumed figures",
    )  # fmt: skip
    for name, unit, what in (
        ("--host-gops", "N", "10^9 operations a second of the host (default: that of --host)"),
        ("--host-gbps", "N", "10^9 bytes a second of its memory (default: that of --host)"),
        ("--link-gbps", "N", "10^9 bytes a second to the accelerator's memory (default: 1)"),
        ("--segment-us", "N", "microseconds to start the accelerator (default: 20)"),
    ):
        group.add_argument(name, type=float, metavar=unit, help=what)


def chosen_placing(arguments: argparse.Namespace, *, places: bool = False) -> Placing:
    """Return the requested placement.

    Parameters
    ----------
    places : bool
        Whether the command also estimates times without `--table`.

    Raises
    ------
    UsageError
        For a malformed option, figures that are not positive, or options without effect.
    """
    forced = []
    for text in arguments.place:
        name, _, side = text.rpartition("=")
        if not name or side not in SIDES:
            raise UsageError(
                f"`--place {text}`: expected LAYER=host or LAYER=accelerator; correct it"
            )
        forced.append((name, side))
    figures = {name: getattr(arguments, name) for name in FIGURES}
    for name, figure in figures.items():
        least = 0 if name == "segment_us" else 1e-9
        if figure is not None and not least <= figure < float("inf"):
            option = "--" + name.replace("_", "-")
            raise UsageError(f"`{option} {figure:g}`: expected a positive number; correct it")
    clock, policy = chosen_clock(arguments), arguments.placement
    unused = [name for name in ("host", *FIGURES) if getattr(arguments, name) is not None]
    if unused and policy != "cost" and not (arguments.table or places):
        option = "--" + unused[0].replace("_", "-")
        raise UsageError(
            f"`{option}`: expected `--placement cost` or `--table`, which estimate times, got "
            "neither; add one, or leave it out"
        )
    device = getattr(arguments, "device", "")
    if not has_accelerator(device):
        there = [name for name, side in forced if side == SIDES[0]]
        if policy not in (None, "host") or there:
            what = f"--place {there[0]}={SIDES[0]}" if there else f"--placement {policy}"
            raise UsageError(
                f"`{what}`: expected a device that is an accelerator, got `--device {device}`; "
                "leave one of them out"
            )
        policy = "host"
    return Placing(
        policy or POLICIES[0],
        tuple(forced),
        clock,
        **figures,
        host=arguments.host or HOST_NAMES[0],
        stated=policy is not None,
        clock_stated=arguments.clock is not None,
    )
