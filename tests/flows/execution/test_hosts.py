"""Processors that stand for the host in estimates."""

import json

import pytest

from tilewright.compiler.placement.costs import HostSpeed
from tilewright.flows.cli.placement_options import HOST_NAMES
from tilewright.flows.execution import host_figures, hosts
from tilewright.flows.execution.hosts import HERE, HOSTS


def test_the_option_names_every_host():
    assert (HERE, *HOSTS) == HOST_NAMES


@pytest.mark.cpu_kernels
def test_a_named_host_takes_the_place_of_this_machine(tilewright, model, tmp_path):
    page = tmp_path / "page.html"
    words = ("report", model, "--config", "8x8", "-o", page, "--place", "conv2=host", "--json")
    times = []
    for name in ("cortex-a53", "cortex-a9", "picorv32"):
        placement = json.loads(tilewright(*words, "--host", name))["placement"]
        assert placement["host"].startswith(HOSTS[name].title)
        assert HOSTS[name].title in page.read_text()
        times.append(placement["total_us"]["host"])
    assert times == sorted(times)
    assert times[2] > 100 * times[1]


def test_the_page_names_this_machines_processor(monkeypatch, tmp_path):
    monkeypatch.setattr(hosts, "CPU_INFO", tmp_path / "cpuinfo")
    hosts.CPU_INFO.write_text("processor\t: 0\nmodel name\t: Example 9000 @ 3 GHz\n")
    monkeypatch.setattr(host_figures, "measured_host", HostSpeed)
    assert hosts.host_title("here") == (
        "Example 9000 @ 3 GHz, this machine's processor, with figures measured on it"
    )
