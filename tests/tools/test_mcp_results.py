"""What becomes of names, schemas and results at the border: cleaned, capped, unambiguous."""

from __future__ import annotations

import math

from mcp_types import (
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    Tool,
    ToolAnnotations,
)

from dromos.tools.mcp.naming import tool_behind, tool_names
from dromos.tools.mcp.results import NOT_FINITE, cut, outcome_of, spec_of, wants_key

CAP = 1_000


def test_texts_are_joined_and_other_content_is_named() -> None:
    result = CallToolResult(
        content=[
            TextContent(text="one"),
            ImageContent(data="AAAA", mime_type="image/png"),
            ResourceLink(name="doc", uri="file:///doc"),
            EmbeddedResource(resource=TextResourceContents(uri="file:///a", text="inner")),
            EmbeddedResource(resource=BlobResourceContents(uri="file:///b", blob="AAAAAAAA")),
        ]
    )
    assert outcome_of(result, CAP).text.split("\n") == [
        "one",
        "[image, image/png, 3 bytes: not shown]",
        "[resource doc: file:///doc]",
        "inner",
        "[resource file:///b, binary, 6 bytes: not shown]",
    ]


def test_nul_and_lone_surrogates_are_replaced_in_text_and_structure() -> None:
    result = CallToolResult(content=[TextContent(text="a\x00b")], structured_content={"a": "x\x00", "b": [1]})
    outcome = outcome_of(result, CAP)
    assert outcome.text == "a\ufffdb"
    assert outcome.structured == {"a": "x\ufffd", "b": [1]}
    assert cut("\ud83d and \ud83d\ude00", CAP) == "\ufffd and \U0001f600"


def test_a_number_that_is_not_finite_becomes_null_and_is_told() -> None:
    result = CallToolResult(
        content=[TextContent(text="n")], structured_content={"n": math.nan, "m": [math.inf]}
    )
    outcome = outcome_of(result, CAP)
    assert outcome.structured == {"n": None, "m": [None]}
    assert outcome.text == f"n\n\n{NOT_FINITE}"


def test_a_long_text_is_cut_at_a_character_and_tells_how_much_is_missing() -> None:
    text = "é" * 1_000
    shown = cut(text, 333)
    assert shown.startswith("é" * 166 + "\n\n[Cut here: ")
    assert "has 2,000 bytes, the last 1,668 are left out" in shown
    assert cut(text, 2_000) == text


def test_a_long_structure_is_left_out_and_told() -> None:
    outcome = outcome_of(CallToolResult(content=[], structured_content={"a": "x" * CAP}), CAP)
    assert outcome.structured is None
    assert "left out" in outcome.text


def test_an_error_stays_an_error() -> None:
    assert outcome_of(CallToolResult(content=[TextContent(text="no")], is_error=True), CAP).is_error


def test_a_description_keeps_schema_and_hints() -> None:
    tool = Tool(
        name="look",
        description="Look\x00 at it",
        input_schema={"type": "object", "properties": {"at": {"type": "string"}}},
        annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False),
    )
    spec = spec_of(tool, "eyes__look", "eyes")
    assert (spec.name, spec.source, spec.description) == ("eyes__look", "eyes", "Look\ufffd at it")
    assert spec.input_schema == tool.input_schema
    assert spec.annotations.read_only is True
    assert spec.annotations.open_world is False
    assert spec.annotations.idempotent is None


def test_the_model_is_not_asked_for_an_idempotency_key() -> None:
    schema = {
        "type": "object",
        "properties": {"amount": {"type": "number"}, "idempotency_key": {"type": "string"}},
        "required": ["amount", "idempotency_key"],
    }
    tool = Tool(name="pay", input_schema=schema)
    assert wants_key(tool)
    assert spec_of(tool, "bank__pay", "bank").input_schema == {
        "type": "object",
        "properties": {"amount": {"type": "number"}},
        "required": ["amount"],
    }


def test_names_are_what_models_take_and_no_two_are_equal() -> None:
    tools = ["look", "look.up", "look/up", "look_up", "x" * 100, "x" * 99]
    names = tool_names("eyes", tools)
    assert sorted(names.values()) == sorted(tools)
    assert len(names) == len(tools)
    for name in names:
        assert name.replace("_", "").replace("-", "").isalnum()
        assert len(name) <= 64
    assert names["eyes__look"] == "look"


def test_a_name_tells_its_server() -> None:
    assert tool_behind("eyes", "eyes__look") == "look"
    assert tool_behind("eyes", "ears__hear") is None
