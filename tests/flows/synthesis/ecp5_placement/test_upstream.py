"""The refinement is a workaround; a nextpnr that needs none is noticed when it is installed."""

import re

import pytest

from tilewright.flows.synthesis.tools import NEXTPNR_ECP5
from tilewright.sim.gate.tools import tool_version

LAST_WITHOUT, COMMITS = (0, 11, 1), 3
"""The last release without nextpnr's commit 930fef44, and the number of commits from there to it,
which `git describe` appends to the release in versions of builds between two releases."""


def has_the_fix(version: str) -> bool:
    found = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?(?:-(\d+)-g)?", version)
    assert found, version
    *release, commits = (int(part or 0) for part in found.groups())
    return (*release, commits) >= (*LAST_WITHOUT, COMMITS)


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0.9", False),
        ("0.11", False),
        ("0.11.1", False),
        ("0.11.1-2-g0123abcd", False),
        ("0.11.1-3-g930fef44", True),
        ("0.11.2", True),
        ("0.12", True),
        ("1.0", True),
    ],
)
def test_versions_with_the_fix(version, expected):
    assert has_the_fix(version) == expected


def test_the_installed_nextpnr_still_needs_the_refinement():
    version = tool_version(NEXTPNR_ECP5)
    assert not has_the_fix(version), (
        f"nextpnr {version} contains commit 930fef44: set `refines=False` for the ECP5 in "
        "`flows/synthesis/devices.py` and run `make area`; if no clock is lower than in "
        "`docs/reference/area.md`, delete `flows/synthesis/ecp5_placement`, `refines` and these "
        "tests"
    )
