"""The guide's table of the four identities names real tables and columns."""

from __future__ import annotations

import re

import pytest

from dromos.store.tables import metadata
from tests.house.repository import DOCS

TEXT = (DOCS / "concepts.md").read_text()


def _row(identity: str) -> list[str]:
    """The cells of one identity: what it is, how long it lives, where it is stored, who writes it."""
    found = re.search(rf"^\| \*\*{identity}\*\* \|(.+)\|$", TEXT, re.MULTILINE)
    assert found, f"no row for {identity}"
    return [cell.strip() for cell in found[1].split("|")]


@pytest.mark.promise("S1")
@pytest.mark.parametrize("identity", ["conversation", "thread", "run", "checkpoint"])
def test_each_identity_says_where_it_is_stored_and_who_writes_it(identity: str) -> None:
    _what, _life, stored, writer = _row(identity)
    named = set(re.findall(r"`(\w+)`", stored))
    columns = {column.name for table in metadata.tables.values() for column in table.columns}
    assert named
    assert named <= set(metadata.tables) | columns
    assert re.search(r"lifecycle|checkpointer", writer)


@pytest.mark.promise("S1")
def test_the_documented_queries_between_runs_and_checkpoints_use_real_columns() -> None:
    checkpoints = metadata.tables["checkpoints"].columns
    for block in re.findall(r"```sql\n(.+?)```", TEXT, re.DOTALL):
        for line in filter(str.strip, block.splitlines()):
            selected = re.match(r"SELECT ([\w, ]+) FROM checkpoints WHERE (.+?);", line)
            assert selected, line
            names = [*re.split(r", ", selected[1]), *re.findall(r"(\w+) = :", selected[2])]
            assert [name for name in names if name not in checkpoints] == []
