"""The house keeps its shape: small modules that say what they are, short records, nothing unlisted."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

from tests.house.repository import DOCS, ROOT, modules, shown, tree_of

MOST_LINES = 600
FORBIDDEN_NAMES = {"utils", "helpers", "common", "core", "services", "managers", "models"}


def test_no_module_is_longer_than_a_reader_can_hold() -> None:
    lengths = {shown(path): len(path.read_text().splitlines()) for path in modules()}
    assert {path: lines for path, lines in lengths.items() if lines > MOST_LINES} == {}


def test_every_module_begins_by_saying_what_it_is() -> None:
    silent = [shown(path) for path in modules() if not (ast.get_docstring(tree_of(path)) or "").strip()]
    assert silent == []


def test_no_module_or_folder_has_a_name_that_says_nothing() -> None:
    named = {shown(path) for path in modules() if FORBIDDEN_NAMES & {*path.with_suffix("").parts}}
    assert named == set()


def test_the_guide_for_agents_fits_on_three_screens() -> None:
    assert len((ROOT / "AGENTS.md").read_text().splitlines()) <= 150


def test_the_changelog_has_a_place_for_what_is_not_released() -> None:
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "Unreleased"


def test_the_licence_is_apache_2() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text


@pytest.mark.parametrize("path", sorted((DOCS / "decisions").glob("[0-9]*.md")), ids=lambda path: path.stem)
def test_a_decision_record_is_one_numbered_page(path: Path) -> None:
    lines = path.read_text().splitlines()
    number = re.fullmatch(r"(\d{4})-[a-z0-9-]+", path.stem)
    assert number, f"name it NNNN-title.md, not {path.name}"
    assert lines[0].startswith(f"# {int(number[1])}. ")
    assert len(lines) <= 60
    assert {"## Context", "## Decision", "## Consequences"} <= set(lines)


def test_decision_records_are_numbered_without_a_gap() -> None:
    numbers = sorted(int(path.name[:4]) for path in (DOCS / "decisions").glob("[0-9]*.md"))
    assert numbers == list(range(1, len(numbers) + 1))


def test_every_folder_of_tests_is_run() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    folders = {
        f"tests/{path.name}"
        for path in (ROOT / "tests").iterdir()
        if path.is_dir() and path.name[0] not in "._"
    }
    assert folders <= set(settings["testpaths"])
