"""`doctor` says what each command needs."""

import sys
import tomllib
from pathlib import Path

import pytest

from tilewright.errors import install_command
from tilewright.flows.cli import command_needs as needs
from tilewright.flows.cli.command_needs import EXTRAS, Need, command_needs, packages_of

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
DEVELOPERS = {"test", "assembler", "dev", "docs", "zoo", "examples", "bench"}


def test_every_extra_belongs_to_commands_or_to_developers():
    extras = set(PROJECT["project"]["optional-dependencies"])
    assert {*EXTRAS, "synth", *DEVELOPERS} == extras
    assert list(packages_of("torch")) == ["torch", "onnxscript"]


def test_a_build_without_its_tools_is_found_out(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    for variable in ("YOSYS", "NEXTPNR_ECP5", "ECPPACK", "OPENFPGALOADER"):
        monkeypatch.delenv(variable, raising=False)
    found = {need.commands: need for need in command_needs()}
    assert found["build, synth for ECP5"] == Need(
        "build, synth for ECP5",
        ("yosys", "nextpnr-ecp5", "ecppack"),
        f"run `{install_command('synth')}`",
    )
    assert found["flash"] == Need(
        "flash",
        ("openFPGALoader",),
        "install it (Debian and Ubuntu: `apt install openfpgaloader`), or set `OPENFPGALOADER`",
    )


@pytest.mark.parametrize("installed", [True, False])
def test_the_doctor_lists_extras(tilewright, monkeypatch, installed):
    monkeypatch.setattr(needs, "_is_installed", lambda name: installed)
    said = tilewright("doctor")
    line = next(line for line in said.splitlines() if line.startswith("ablation --figure "))
    assert line.split()[2:] == (["installed"] if installed else ["NOT", "INSTALLED", "matplotlib"])
    remedy = f"for ablation --figure: run `{install_command('figures')}`\n"
    assert (remedy in said) is not installed
