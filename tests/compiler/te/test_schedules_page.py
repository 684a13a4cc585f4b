"""The listings of the page on schedules are what its code prints.

`python tests/listings.py` writes them anew.
"""

import re

from tilewright.compiler import te
from tilewright.compiler.te.steps import STEPS

from ...listings import SCHEDULES_PAGE as PAGE
from ...listings import refreshed


def test_the_listings_are_what_the_code_prints():
    assert refreshed(PAGE) == PAGE.read_text()


def test_every_step_has_its_place_on_the_page():
    headings = re.findall(r"^### (.*)", PAGE.read_text(), re.MULTILINE)
    assert {name for heading in headings for name in heading.split(", ")} == set(STEPS)


def test_every_step_is_a_method_of_the_same_name():
    assert all(callable(getattr(te.Schedule, name)) for name in STEPS)
