"""The reference of all commands."""

import re

from tilewright.flows.cli.main import COMMANDS
from tilewright.flows.cli.manual import MANUAL, manual


def test_the_page_is_current():
    assert MANUAL.read_text() == manual(), "run `python -m tilewright.flows.cli.manual`"


def test_every_command_and_group_has_its_place():
    text = manual()
    assert [line[3:] for line in text.splitlines() if line.startswith("## ")] == list(COMMANDS)
    assert "| main memory (sim, rtl, gate) | meaning |" in text
    assert "`tilewright config show [NAME|FILE] [OPTIONS]`" in text
    assert "| `--json [FILE.json]` | the results for machines, to stdout or to a file |" in text
    assert "--verbose`" not in text.partition("| command |")[2]


def test_code_has_no_entities():
    """Markdown shows `&lt;` as it is there."""
    assert not [code for code in re.findall(r"`[^`]*`", manual()) if "&lt;" in code]
