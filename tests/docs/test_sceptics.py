"""The pages for sceptical readers: what they call durable is really a column, and they are drawn from the rules."""

from __future__ import annotations

import re

import pytest

from dromos.store.tables import metadata
from tests.house.repository import DOCS

PAGES = {"stop.md": "stops", "ask.md": "asks", "never-twice.md": "calls"}


def durable(page: str) -> list[list[str]]:
    """The cells of each row of the table of what is durable."""
    _, found, text = (DOCS / page).read_text().partition("## What is durable, and whose it is\n")
    assert found, page
    rows = [line for line in text.partition("\n## ")[0].splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[1:]]


@pytest.mark.parametrize("page", PAGES)
def test_what_is_called_durable_names_real_tables_and_columns_and_who_writes_them(page: str) -> None:
    columns = {column.name for table in metadata.tables.values() for column in table.columns}
    paths = {f"{table.name}.{column.name}" for table in metadata.tables.values() for column in table.columns}
    rows = durable(page)
    assert len(rows) >= 5
    for _what, where, written, replayed in rows:
        named = re.findall(r"`([\w.]+)`", where)
        assert named or where == "the tool's own store", where
        known = set(metadata.tables) | columns | paths | {"waiting_for"}
        assert set(named) <= known, f"{page}: {set(named) - known}"
        assert "by " in written and replayed


@pytest.mark.parametrize(("page", "part"), PAGES.items())
def test_each_page_is_drawn_from_the_rules_and_says_who_dies_when_and_what_is_not_guaranteed(
    page: str, part: str
) -> None:
    text = (DOCS / page).read_text()
    assert f"<!-- generated: {part} -->" in text
    for heading in ("## Questions", "## Step by step: who dies when", "## What is NOT guaranteed"):
        assert heading in text
