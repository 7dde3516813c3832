"""Everything a person can meet has its place in the guide: codes, reasons, statuses, events, commands and paths.

Each name is taken from the code and must stand in the named document as `name`, in code type.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Iterator

import typer.main
from fastapi import APIRouter

from dromos.api import problems
from dromos.cli.app import app
from dromos.domain import errors
from dromos.domain.events import EventType
from dromos.domain.reasons import ErrorCode, Reason
from dromos.domain.statuses import FollowupStatus, RunStatus, TriggerStatus, WhenBusy
from dromos.settings import OTHER_VARIABLES, SETTINGS
from tests.house.repository import DOCS, SOURCE, modules


def _missing(names: Iterable[str], *documents: str) -> list[str]:
    """Names that stand in none of the documents in code type (alone or as the beginning of what is in code type)."""
    text = "\n".join((DOCS / document).read_text() for document in documents)
    spans = set(re.findall(r"`([^`\n]+)`", text))
    return sorted(
        name for name in names if not any(re.match(re.escape(name) + r"(?![\w.-])", span) for span in spans)
    )


def test_each_error_code_has_a_section_with_its_cure() -> None:
    sections = re.split(r"^### ", (DOCS / "errors.md").read_text(), flags=re.MULTILINE)[1:]
    by_name = {section.split("\n", 1)[0]: section for section in sections}
    assert set(by_name) == set(ErrorCode)
    assert [name for name, section in by_name.items() if "**Cure:**" not in section] == []


def test_each_reason_of_a_status_change_is_explained() -> None:
    assert _missing(Reason, "lifecycle.md") == []


def test_each_status_is_explained() -> None:
    assert _missing([*RunStatus, *TriggerStatus], "lifecycle.md") == []


def test_each_way_of_a_followup_is_explained() -> None:
    assert _missing(WhenBusy, "http-api.md") == []
    text = (DOCS / "concepts.md").read_text()
    assert [status for status in FollowupStatus if status.removesuffix("ing") not in text] == []


def test_each_event_is_explained() -> None:
    assert _missing(EventType, "events.md") == []


def test_each_code_of_a_refusal_is_explained() -> None:
    def tree(kind: type) -> Iterator[type]:
        yield kind
        for child in kind.__subclasses__():
            yield from tree(child)

    codes = {kind.code for root in (errors.Refusal, errors.Unavailable) for kind in tree(root)}  # type: ignore[attr-defined]
    assert _missing(codes, "errors.md") == []


def test_each_code_the_http_door_itself_answers_with_is_explained() -> None:
    source = "\n".join(path.read_text() for path in (SOURCE / "api").rglob("*.py"))
    codes = set(re.findall(r"RefusedByDoor\(\s*\d+,\s*\"(\w+)\"", source)) | set(problems._CODES.values())
    assert codes
    assert _missing(codes, "errors.md") == []


def _routers() -> Iterator[APIRouter]:
    """Of every module of the doors that has one."""
    for path in (SOURCE / "api").rglob("*.py"):
        name = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
        router = getattr(importlib.import_module(name), "router", None)
        if router is not None:
            yield router


def _served() -> set[str]:
    served = set()
    for route in (route for router in _routers() for route in router.routes):
        path = re.sub(r"\{\w+\}", "{id}", getattr(route, "path", ""))
        served |= {f"{method} {path}" for method in getattr(route, "methods", None) or ()}
    return {name for name in served if not name.startswith("HEAD ")}


def _written() -> set[str]:
    """`METHOD /path` of every row in the guide's tables: `| GET, PATCH `/a` · `/b` | …`."""
    written = set()
    for cell in re.findall(
        r"^\| ((?:GET|POST|PATCH|DELETE)[^|]*) \|", (DOCS / "http-api.md").read_text(), re.MULTILINE
    ):
        methods = re.findall(r"\b(GET|POST|PATCH|DELETE)\b", cell.split("`", 1)[0])
        paths = [path for path in re.findall(r"`([^`]+)`", cell) if path.startswith("/")]
        written |= {f"{method} {path}" for method in methods for path in paths}
    return written


def test_each_http_path_is_in_the_guide_and_each_in_the_guide_is_served() -> None:
    assert sorted(_served() - _written()) == []
    assert sorted(_written() - _served()) == []


def test_each_metric_is_explained() -> None:
    source = "\n".join(path.read_text() for path in modules())
    shown = {
        f"{name}_total" if kind.startswith("Counter") else name
        for kind, name in re.findall(
            r"\b((?:Counter|Gauge|Histogram)(?:MetricFamily)?)\(\s*\"(dromos_\w+)\"", source
        )
    }
    assert shown
    assert _missing(shown, "operations.md") == []


def test_each_command_is_explained() -> None:
    def commands(group: object, prefix: str) -> Iterator[str]:
        for name, command in sorted(getattr(group, "commands", {}).items()):
            if getattr(command, "commands", None):
                yield from commands(command, f"{prefix} {name}")
            elif not command.hidden:
                yield f"{prefix} {name}"

    assert _missing(commands(typer.main.get_command(app), "dromos"), "cli.md") == []


def test_each_setting_is_explained() -> None:
    names = {name for setting in SETTINGS for name in (setting.key, *setting.variables)}
    assert _missing(names | OTHER_VARIABLES, "configuration.md") == []


def test_every_guide_ends_with_what_is_not_guaranteed() -> None:
    last = {
        path.name: re.findall(r"^## (.+)$", path.read_text(), re.MULTILINE)[-1:]
        for path in DOCS.glob("*.md")
        if path.name != "index.md"
    }
    assert {name: heading for name, heading in last.items() if heading != ["What is NOT guaranteed"]} == {}


def test_every_page_of_the_guide_is_in_its_contents() -> None:
    contents = (DOCS.parent / "mkdocs.yml").read_text()
    pages = [path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")]
    assert [page for page in pages if page not in contents and not re.match(r"decisions/0\d+-", page)] == []
