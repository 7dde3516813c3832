"""`ask_person`: a tool of the built-in assistant by which the model asks the person something and waits for the answer.

It calls nothing: the question becomes a request, and what the person says is the tool's result. It must not know runs,
requests or gates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dromos.domain.answer_schema import answer_faults
from dromos.domain.effects import answered, declined
from dromos.domain.requests import MAX_OPTIONS
from dromos.domain.text import clean_text
from dromos.ports.journal import Suspended
from dromos.ports.tool import (
    ToolAnnotations,
    Toolbox,
    ToolContext,
    ToolOutcome,
    ToolSourceHealth,
    ToolSpec,
)

ASK_PERSON = ToolSpec(
    name="ask_person",
    description=(
        "Ask the person you work for a question and wait for the answer, however long it takes. "
        "Use it only for what you cannot find out or decide yourself. "
        "Give options where the answer is one of a few."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "question": {
                "type": "string",
                "minLength": 1,
                "maxLength": 4000,
                "description": "The whole question.",
            },
            "options": {
                "type": "array",
                "items": {"type": "string", "minLength": 1, "maxLength": 400},
                "minItems": 1,
                "maxItems": MAX_OPTIONS,
                "description": "Answers to choose from; left out: any text.",
            },
        },
        "required": ["question"],
        "additionalProperties": False,
    },
    source="local",
    annotations=ToolAnnotations(read_only=True, destructive=False, idempotent=True, open_world=False),
)


class WithAskPerson:
    """A `Toolbox` and this tool."""

    def __init__(self, toolbox: Toolbox) -> None:
        self._toolbox = toolbox

    async def specs(self) -> Sequence[ToolSpec]:
        others = await self._toolbox.specs()
        return (*(spec for spec in others if spec.name != ASK_PERSON.name), ASK_PERSON)

    async def find(self, name: str) -> ToolSpec | None:
        return ASK_PERSON if name == ASK_PERSON.name else await self._toolbox.find(name)

    async def call(self, name: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        """Raises `Suspended` with the question."""
        if name != ASK_PERSON.name:
            return await self._toolbox.call(name, arguments, context)
        if context.answers:
            word = context.answers[-1]
            kept = answered(word) if word.decision == "answer" else declined(word)
            return ToolOutcome(kept["text"], kept["is_error"], kept["structured"])
        wrong = answer_faults(ASK_PERSON.input_schema, arguments, "arguments")
        if wrong:
            return ToolOutcome(f"Nobody was asked. {wrong[0].path}: {wrong[0].message}", is_error=True)
        options = [clean_text(option) for option in arguments.get("options") or ()]
        asked = {"prompt": clean_text(arguments["question"]), "options": list(dict.fromkeys(options)) or None}
        raise Suspended(asked, state={"asked": True})

    async def health(self) -> Sequence[ToolSourceHealth]:
        return await self._toolbox.health()

    async def aclose(self) -> None:
        await self._toolbox.aclose()
