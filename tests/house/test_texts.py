"""Nothing in the repository names the machine it was written on, a package registry, or how it was written."""

from __future__ import annotations

import json
import re

from tests.house.repository import ROOT, shown, texts

# Written in pieces, so that this file does not find itself.
FORBIDDEN = {
    "a folder of one machine": re.compile(r"(?<![\w.:}])/(?:" + "work" + r"|root)/\w"),
    "a package registry": re.compile(
        "|".join(["pypi" + r"\.org", "python" + "hosted", "registry" + r"\.npmjs", "npmjs" + r"\.org"])
    ),
    "a lock that names hosts": re.compile(r"\buv" + r"\.lock\b"),
    "a number in a tracker": re.compile(r"\b[Ii]ssue" + r" #?\d"),
}


def test_no_text_names_what_is_not_part_of_the_project() -> None:
    found = [
        f"{shown(path)}:{text[: match.start()].count(chr(10)) + 1} names {what}: {match.group()!r}"
        for path, text in texts()
        for what, pattern in FORBIDDEN.items()
        for match in pattern.finditer(text)
    ]
    assert found == []


def test_the_page_s_lock_names_no_address() -> None:
    packages = json.loads((ROOT / "web" / "package-lock.json").read_text())["packages"]
    assert [name for name, entry in packages.items() if "resolved" in entry] == []
    assert [
        name
        for name, entry in packages.items()
        if name and not entry.get("link") and "integrity" not in entry
    ] == []


def test_every_link_and_picture_of_the_first_pages_leads_somewhere() -> None:
    lost = [
        f"{page}: {target}"
        for page in ("README.md", "AGENTS.md", "CHANGELOG.md")
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", (ROOT / page).read_text())
        if not (ROOT / target).exists()
    ]
    assert lost == []
