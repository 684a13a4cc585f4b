"""The page on the Python interface: every public name, and listings that its code prints."""

import re

import tilewright

from .listings import API_PAGE, refreshed


def test_the_listings_are_what_the_code_prints():
    assert refreshed(API_PAGE) == API_PAGE.read_text()


def test_every_public_name_has_its_heading():
    headings = re.findall(r"^### (.*)", API_PAGE.read_text(), re.MULTILINE)
    named = [name for heading in headings for name in heading.split(" and ")]
    assert sorted(named) == sorted(tilewright.__all__)
