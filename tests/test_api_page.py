"""Pages in Python: every public name has its place, and listings are what the code prints."""

import re

import pytest

import tilewright
from tilewright.compiler.registered import REGISTERED

from .listings import API_PAGE, LIFE_PAGE, OPERATORS_PAGE, WRITERS_PAGE, refreshed

PAGES = [API_PAGE, OPERATORS_PAGE, WRITERS_PAGE, LIFE_PAGE]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_listings_are_what_the_code_prints(page):
    before = dict(REGISTERED)
    assert refreshed(page) == page.read_text()
    REGISTERED.clear()
    REGISTERED.update(before)


def test_every_public_name_has_its_heading():
    headings = re.findall(r"^### (.*)", API_PAGE.read_text(), re.MULTILINE)
    named = [name for heading in headings for name in heading.split(" and ")]
    assert sorted(named) == sorted(tilewright.__all__)
