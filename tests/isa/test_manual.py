"""The manual in `docs/` is what the contract says today, and its examples are legal."""

import re

import pytest

from tilewright.isa.assembly import parse_instruction
from tilewright.isa.configuration import DEFAULT, PRESETS
from tilewright.isa.instructions import FAMILIES
from tilewright.isa.legality import instruction_faults
from tilewright.isa.manual import MANUAL, manual
from tilewright.isa.manual_instructions import EXAMPLES
from tilewright.isa.registers import OFFSETS, REGISTER_SPACE_BYTES, REGISTERS, Error


def test_the_manual_is_current():
    assert MANUAL.read_text() == manual(), "run `python -m tilewright.isa.manual`"


@pytest.mark.parametrize("configuration", PRESETS.values(), ids=PRESETS)
def test_the_manual_can_be_written_for_any_configuration(configuration):
    text = manual(configuration)
    assert f"configuration `{configuration.name}`" in text
    for family in FAMILIES:
        for field in family.layout(configuration):
            name = field.name.rpartition(".")[2]
            assert not field.bits or f"`{name}`" in text


def test_links_lead_to_headings():
    text = manual()
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}
    assert set(re.findall(r"\]\(#([^)]*)\)", text)) <= anchors


@pytest.mark.parametrize("line", [line for lines in EXAMPLES.values() for line, _ in lines])
def test_examples_are_legal(line):
    assert list(instruction_faults(parse_instruction(line), DEFAULT, 1 << 20)) == []


def test_every_family_has_an_example():
    assert set(EXAMPLES) == {family.mnemonic for family in FAMILIES}


def test_registers_have_their_own_places():
    assert len(OFFSETS) == len(REGISTERS) == len({r.offset for r in REGISTERS})
    assert all(r.offset % 4 == 0 and 0 <= r.offset < REGISTER_SPACE_BYTES for r in REGISTERS)
    assert {r.name for r in REGISTERS if r.writable} == {
        "CONTROL",
        "PROGRAM_BASE",
        "PROGRAM_BYTES",
        "DATA_BASE",
        "DATA_BYTES",
    }
    assert max(Error) < 16
