"""The form of `run_document.v1`: one description for the schema, the check of patches, and what our own pens write."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import jsonschema
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dromos.domain import document, forms
from dromos.domain.forms import Form, Unfit
from dromos.domain.limits import CUT, MAX_STRING
from dromos.domain.statuses import RunStatus
from dromos.domain.text import clean_json
from dromos.wire.document import document_json
from dromos.wire.shapes import run_json, server_part
from tests.domain.samples import run_in

SCHEMA = document.json_schema()
WHOLE = jsonschema.Draft202012Validator(SCHEMA)


def test_the_schema_is_a_schema_and_takes_the_document_of_a_new_run() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    made = document_json(server_part(run_json(run_in(RunStatus.QUEUED))), None, 0)["document"]
    WHOLE.validate(made)
    assert set(SCHEMA["properties"]) == set(made)


def test_the_parts_do_not_overlap_and_each_member_says_whose_it_is() -> None:
    parts = {name: shape["x-part"] for name, shape in SCHEMA["properties"].items()}
    assert {name for name, part in parts.items() if part == "server"} == set(document.SERVER.members)
    assert {name for name, part in parts.items() if part == "content"} == {*document.CONTENT.members, "text"}
    assert set(document.EMPTY_CONTENT) == {*document.CONTENT.members, "text"}


def test_an_empty_content_part_is_ones_own() -> None:
    first, second = document.empty_content(), document.empty_content()
    first["steps"].append(1)
    first["usage"]["input"] = 9
    assert second["steps"] == []
    assert second["usage"]["input"] == document.EMPTY_CONTENT["usage"]["input"] == 0


def test_a_new_owner_begins_beyond_every_version_of_the_old_one() -> None:
    assert document.first_version(4) + 2**31 < document.first_version(5) < 2**53


def test_every_path_of_the_list_may_be_patched_and_no_other() -> None:
    for path, _ in document.paths():
        parts = path.replace("<id>", "i").replace("<n>", "0").split("/")[1:]
        assert document.form_at(parts) is not None, path
    for name in (*document.SERVER.members, "text", "nonsense"):
        assert document.form_at([name]) is None


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("x" * 9000),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def near(form: Form) -> st.SearchStrategy[Any]:
    """Values that fit the form, nearly fit it, or do not at all."""
    fits: st.SearchStrategy[Any]
    match form:
        case forms.Text(choices=choices):
            fits = st.sampled_from(choices) if choices else st.text(max_size=5)
        case forms.Moment():
            fits = st.sampled_from(["2026-11-29T13:46:04Z", "2026-11-29 13:46:04.123+01:00", "yesterday"])
        case forms.Number():
            fits = st.integers(-2, 9) | st.floats(-2, 9)
        case forms.Flag():
            fits = st.booleans()
        case forms.Group(members=members, optional=optional):
            needed = {name: near(member) for name, member in members.items() if name not in optional}
            fits = st.fixed_dictionaries(
                needed, optional={**{name: near(members[name]) for name in optional}, "unknown": st.just(1)}
            )
        case forms.Register(of=of):
            fits = st.dictionaries(st.text(max_size=3), near(of), max_size=2)
        case forms.Series(of=of):
            fits = st.lists(near(of), max_size=3)
        case _:
            fits = st.dictionaries(st.text(max_size=3), ANYTHING, max_size=2)
    return fits | (ANYTHING if form.nullable else fits)


@given(st.data(), st.sampled_from(sorted(document.CONTENT.members)))
def test_whatever_our_own_pen_says_fits_afterwards_or_is_left_out(data: st.DataObject, name: str) -> None:
    form = document.CONTENT.members[name]
    value = data.draw(near(form) | ANYTHING)
    try:
        made = form.conform(value)
    except Unfit:
        return
    assert list(form.faults(made)) == []
    jsonschema.Draft202012Validator(form.schema()).validate(orjson.loads(orjson.dumps(made)))


@given(st.data(), st.sampled_from(sorted(document.CONTENT.members)))
def test_what_has_no_fault_fits_the_schema_and_is_kept_as_it_is(data: st.DataObject, name: str) -> None:
    form = document.CONTENT.members[name]
    value = data.draw(near(form))
    if not list(form.faults(value)):
        jsonschema.Draft202012Validator(form.schema()).validate(orjson.loads(orjson.dumps(value)))
        assert form.conform(value) == clean_json(value)[0]


def test_too_much_is_cut_and_shows_that_it_was() -> None:
    line = document.CONTENT.members["line"].conform("é" * MAX_STRING)
    assert line.endswith(CUT)
    assert len(line.encode()) <= MAX_STRING
    steps = document.CONTENT.members["steps"].conform(
        [{"id": str(n), "kind": "tool", "name": "x", "status": "done", "colour": "red"} for n in range(60)]
    )
    assert [step["id"] for step in steps] == [str(n) for n in range(10, 60)]
    assert "colour" not in steps[0]
    nested: Any = "deep"
    for _ in range(50):
        nested = [nested]
    assert CUT in str(document.CONTENT.members["workflows"].conform({"w": {"a": nested}}))


def test_times_of_our_own_are_written_as_everywhere_else() -> None:
    at = datetime(2026, 11, 29, 13, 46, 4, tzinfo=UTC)
    form = document.CONTENT.members["activity_at"]
    assert form.conform(at) == "2026-11-29T13:46:04.000000Z"
    assert form.conform("yesterday") is None
    assert form.conform(at.replace(tzinfo=None)) is None


@pytest.mark.parametrize("name", ["usage", "context", "retries"])
def test_members_that_always_stand_there_are_filled(name: str) -> None:
    assert document.CONTENT.members[name].conform({}) == document.EMPTY_CONTENT[name]


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("2026-11-29T13:46:04Z", True),
        ("2026-11-29t13:46:04.123456789z", True),
        ("2026-11-29 13:46:04+23:59", True),
        ("2026-99-99T99:99:99Z", False),
        ("2026-02-30T00:00:00Z", False),
        ("2026-11-29T13:46:04+99:99", False),
        ("0001-01-01T00:00:00+14:00", False),
        ("9999-12-31T23:59:59-14:00", False),
    ],
)
def test_a_time_is_one_that_every_device_has_a_date_for(text: str, fits: bool) -> None:
    moment = forms.Moment(nullable=True)
    assert (list(moment.faults(text)) == []) is fits
    assert moment.conform(text) == (text if fits else None)
