"""`tilewright agent`: lend the devices of this machine to clients on others."""

import argparse
import asyncio
import getpass
import os
import re
import signal
import socket
from contextlib import suppress
from pathlib import Path

from ....errors import UsageError, did_you_mean
from ....runtime.agents import PORT, host_and_port
from ....runtime.devices import DEVICES, has_accelerator, is_board, kind_of
from ....runtime.identity import (
    CERTIFICATE,
    CLIENTS,
    certificates,
    check_name,
    load_identity,
    new_identity,
    read_certificate,
    trust,
)
from ...agent.leases import TERM_S, LeaseState, LentDevice
from ...agent.server import Agent, Limits
from ..console import note, say

LOOPBACK = ("127.0.0.1", "::1", "localhost")

USUAL = Limits()

BOARDS = "board"
"""Name that any board answers to."""


def add(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    keys = parser.add_argument_group("keys, instead of serving")
    keys.add_argument(
        "--new-keys", nargs="?", const="", metavar="NAME",
        help="make your key and certificate, once on each machine (default: USER-HOST)",
    )  # fmt: skip
    keys.add_argument(
        "--allow", type=Path, metavar="FILE.pem",
        help="let the owner of this certificate use the agents that you start here",
    )  # fmt: skip
    keys.add_argument("--name", metavar="NAME", help="its name (default: that in the certificate)")
    parser.add_argument(
        "--listen", default=f"127.0.0.1:{PORT}", metavar="HOST:PORT",
        help="where clients connect; port 0 is any free one (default: this machine alone, "
        "%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--offer", default="sim,rtl,host", metavar="NAME,...",
        help=f"simulators and processors: of {', '.join(DEVICES)}, or `none` (default: "
        "%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--board", action="append", default=[], metavar="NAME=ADDRESS", dest="boards",
        help="a board on this machine: serial://..., tcp://... or zynq://...; several bitstreams "
        "of one Zynq board are separated by commas; may be repeated",
    )  # fmt: skip
    limits = parser.add_argument_group("limits")
    limits.add_argument(
        "--places", type=int, metavar="N",
        help="clients of each simulator at a time (default: processors of this machine); `host` "
        "and boards have one",
    )  # fmt: skip
    limits.add_argument(
        "--time-limit", type=float, default=USUAL.job_s, metavar="SECONDS",
        help="of a job (default: %(default)g)",
    )  # fmt: skip
    limits.add_argument(
        "--memory-gib", type=float, default=USUAL.memory_bytes >> 30, metavar="GIB",
        help="address space of a job (default: %(default)g)",
    )  # fmt: skip
    limits.add_argument(
        "--term", type=float, default=TERM_S, metavar="SECONDS",
        help="a lease ends after this time without a sign of life (default: %(default)g)",
    )  # fmt: skip
    parser.set_defaults(function=agent)


def agent(arguments: argparse.Namespace) -> None:
    """Make or trust keys, or serve until interrupted.

    Raises
    ------
    UsageError
        For arguments that make no sense, or keys that are missing.
    """
    if arguments.new_keys is not None:
        _new_keys(arguments.new_keys)
        return
    if arguments.allow is not None:
        _allow(arguments.allow, arguments.name)
        return
    if arguments.name is not None:
        raise UsageError("`--name`: expected `--allow FILE.pem`, whose owner it names")
    for option in ("places", "time_limit", "memory_gib", "term"):
        value = getattr(arguments, option)
        if value is not None and not 0 < value < 1 << 30:
            raise UsageError(f"`--{option.replace('_', '-')} {value:g}`: expected more than 0")
    host, port = host_and_port(arguments.listen, "")
    units, addresses = offered(arguments.offer, arguments.boards, arguments.places)
    limits = Limits(arguments.time_limit, round(arguments.memory_gib * (1 << 30)))
    served = Agent(load_identity(), units, addresses, limits, term_s=arguments.term, say=note)
    if host not in LOOPBACK:
        note(f"agent: {host} can be reached from other machines; only known keys come in")

    def ready(host: str, port: int) -> None:
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        say(f"agent          {place}")
        say(f"devices        {', '.join(addresses)}")
        say(f"for example    tilewright run MODEL --device remote://{place}/{units[0].pool}")

    async def serve() -> None:
        task = asyncio.current_task()
        assert task is not None
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        with suppress(asyncio.CancelledError):
            await served.serve(host, port, ready)

    try:
        asyncio.run(serve())
    except OSError as problem:
        raise UsageError(
            f"`--listen {arguments.listen}`: cannot listen there ({problem.strerror}); choose "
            "another address or port"
        ) from None
    say("stopped")


def offered(
    names: str, boards: list[str], places: int | None
) -> tuple[list[LentDevice], dict[str, list[str]]]:
    """Return the devices that an agent offers, and their addresses on this machine.

    Raises
    ------
    UsageError
        For an unknown device, a board without an address, or two with one name.
    """
    units: list[LentDevice] = []
    addresses: dict[str, list[str]] = {}
    for name in [] if names == "none" else names.split(","):
        if name not in DEVICES:
            raise UsageError(
                f"`--offer {names}`: expected names of {', '.join(DEVICES)}, or none"
                + did_you_mean(name, DEVICES)
            )
        count = places or len(os.sched_getaffinity(0)) if has_accelerator(name) else 1
        for index in range(count):
            units.append(LentDevice(name if count == 1 else f"{name}{index + 1}", name))
            addresses[units[-1].name] = [name]
    for text in boards:
        name, _, listed = text.partition("=")
        where = listed.split(",")
        if not all(is_board(one) and kind_of(one) == one for one in where) or name in DEVICES:
            raise UsageError(
                f"`--board {text}`: expected NAME=ADDRESS such as `lab=serial:///dev/ttyUSB0`, "
                "with a name of your own"
            )
        check_name(name)
        units.append(LentDevice(name, BOARDS, checked=True, state=LeaseState.CHECKING))
        addresses[name] = where
    if not units or len(addresses) < len(units):
        raise UsageError(
            "`--offer`, `--board`: expected at least one device, each with a name of its own"
        )
    return units, addresses


def _new_keys(name: str) -> None:
    usual = re.sub(r"[^A-Za-z0-9_.-]+", "-", f"{getpass.getuser()}-{socket.gethostname()}")
    identity = new_identity(name or usual.strip("-.")[:63])
    say(f"certificate    {identity.folder / CERTIFICATE}")
    say(f"fingerprint    {identity.certificate.fingerprint}")
    say("hand the certificate, which is no secret, to the other side: there, `tilewright agent "
        "--allow FILE` lets you in, and `tilewright devices --add NAME=HOST:PORT --certificate "
        "FILE` trusts your agent")  # fmt: skip


def _allow(path: Path, name: str | None) -> None:
    certificate, identity = read_certificate(path), load_identity()
    name = name or certificate.owner or path.stem
    known = certificates(identity.folder, CLIENTS).get(name, certificate)
    if known != certificate:
        raise UsageError(
            f"`--allow {path}`: another certificate of `{name}` is allowed already; give this one "
            f"another name with `--name`, or remove `{identity.folder / CLIENTS / name}.pem`"
        )
    kept = trust(identity.folder, CLIENTS, name, certificate)
    say(f"allowed        {kept}; remove this file to end that")
    say(f"fingerprint    {certificate.fingerprint}; compare it with the owner's")
