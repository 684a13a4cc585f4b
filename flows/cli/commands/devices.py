"""`tilewright devices`: list the devices of this machine and of known agents, and add agents."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ....errors import TilewrightError, UsageError
from ....runtime.agents import (
    LISTED,
    KnownAgent,
    add_agent,
    connect,
    forget_agent,
    known_agents,
)
from ....runtime.devices import GpuDevice
from ....runtime.identity import read_certificate
from ....runtime.known_machines import machine_text
from ...board.known_boards import known_boards
from ..console import say
from ..json_output import add_json, check_json, write_json
from ..serial_ports import serial_ports
from ..tables import stdout, table

MEANINGS = {
    "reference": "the definition of the instructions",
    "sim": "fast functional simulator, exact cycles",
    "rtl": "the hardware under Verilator",
    "gate": "its netlist for an FPGA under Verilator",
    "host": "this machine's processor, no accelerator",
}


def add(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    parser.add_argument("--add", metavar="NAME=HOST:PORT", help="add an agent, or replace it")
    parser.add_argument(
        "--certificate", type=Path, metavar="FILE.pem",
        help="with --add: the agent's certificate, from its owner",
    )  # fmt: skip
    parser.add_argument("--remove", metavar="NAME", help="forget an agent")
    add_json(parser, "the devices")
    parser.set_defaults(function=devices)


def devices(arguments: argparse.Namespace) -> None:
    """Add or forget an agent, or list all devices.

    Raises
    ------
    UsageError
        For arguments that make no sense, or an agent that is not known.
    """
    check_json(arguments.json)
    if (arguments.add is None) != (arguments.certificate is None):
        raise UsageError("`--add`, `--certificate`: expected both or neither")
    if arguments.remove is not None:
        forget_agent(arguments.remove)
        say(f"forgotten      {arguments.remove}")
        return
    if arguments.add is not None:
        name, _, place = arguments.add.partition("=")
        add_agent(name, place, certificate := read_certificate(arguments.certificate))
        say(f"added          remote://{name}/DEVICE at {place}")
        say(f"fingerprint    {certificate.fingerprint}; compare it with the owner's")
        return
    agents = [asked(agent) for agent in known_agents().values()]
    found = {"local": list(local_devices()), "agents": agents}
    if arguments.json:
        write_json(arguments.json, found)
    if arguments.json != "-":
        show(found)


def local_devices() -> Iterator[dict[str, Any]]:
    """Yield the devices of this machine."""
    for name in MEANINGS:
        yield {"device": name, "what": MEANINGS[name]}
    yield from gpus()
    for port in serial_ports(known_boards()):
        yield {"device": f"serial://{port.path}", "what": port.device}


def gpus() -> Iterator[dict[str, Any]]:
    """Yield the GPU that each driver finds, or why it finds none."""
    # Imported here: an agent's list needs no kernels of GPUs.
    from ....runtime.gpu.drivers import HARDWARE

    for name, open_driver in HARDWARE.items():
        device = f"{GpuDevice.name}:{name}"
        try:
            driver = open_driver()
        except TilewrightError as problem:
            yield {"device": device, "what": "", "problem": str(problem)}
            continue
        yield {"device": device, "what": driver.device}
        driver.close()


def asked(agent: KnownAgent) -> dict[str, Any]:
    """Ask an agent for its devices; one that is not there is listed with the reason."""
    found: dict[str, Any] = {"agent": agent.name, "place": agent.place, "devices": []}
    try:
        connection = connect(agent.name)
        try:
            found["devices"] = [
                {
                    "device": f"remote://{agent.name}/{each['name']}",
                    **{name: each[name] for name in LISTED if name != "name"},
                }
                for each in connection.devices()
            ]
        finally:
            connection.close()
    except TilewrightError as problem:
        found["problem"] = str(problem)
    return found


def show(found: dict[str, Any]) -> None:
    """Print the devices, and why some are not there."""
    rows, problems = [], []
    for each in found["local"]:
        if "problem" in each:
            problems.append(each["problem"])
        rows.append([each["device"], "not there" if "problem" in each else "here", each["what"]])
    for agent in found["agents"]:
        for each in agent["devices"]:
            rows.append([each["device"], each["state"], _details(each)])
        if "problem" in agent:
            rows.append([f"remote://{agent['agent']}/...", "not there", ""])
            problems.append(agent["problem"])
    stdout().print(table(["device", "state", "what"], rows, left=3))
    for problem in problems:
        say(problem)


def _details(device: dict[str, Any]) -> str:
    machines = (machine_text(int(each, 16)) for each in device["configurations"])
    parts = [device["kind"], *machines]
    if device["client"]:
        parts.append(f"used by {device['client']}")
    if device["waiting"]:
        parts.append(f"{device['waiting']} waiting")
    if device["why"]:
        parts.append(f"after {device['why']}")
    return ", ".join(parts)
