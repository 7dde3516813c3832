"""LangChain's human-in-the-loop middleware in both its modes: asked in people's terms, answered in the middleware's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt

from dromos.domain.errors import Invalid
from dromos.domain.reasons import Reason
from dromos.domain.statuses import RunStatus, Verdict
from dromos.ports.agent import Finished, Parked
from dromos.ports.store import Row, Store, Table
from tests.agents.play import Play
from tests.lifecycle.world import check_history, check_invariants

APPROVE, DENY, ANSWER = Verdict.APPROVE, Verdict.DENY, Verdict.ANSWER


class Twofold(BaseChatModel):
    """Asks for the calls it was given, then says what came of them."""

    calls: list[dict[str, Any]]

    @property
    def _llm_type(self) -> str:
        return "twofold"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _generate(self, messages: Sequence[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        results = [message for message in messages if isinstance(message, ToolMessage)]
        if not results:
            made = AIMessage("", tool_calls=[{**call, "type": "tool_call"} for call in self.calls])
        else:
            made = AIMessage(" | ".join(str(message.content).split("\n")[0] for message in results))
        return ChatResult(generations=[ChatGeneration(message=made)])


class Office:
    """Two tools with effects that are counted, and an agent that may call them when a person lets it."""

    def __init__(self, store: Store, mode: str, allowed: Any = True, count: int = 2) -> None:
        self.sent: list[tuple[str, int]] = []

        @tool
        def send(to: str, copies: int = 1) -> str:
            """Send a letter."""
            self.sent.append((to, copies))
            return f"sent to {to}"

        names = ["bob", "ann", "joe"][:count]
        calls = [{"name": "send", "args": {"to": name}, "id": f"call-{name}"} for name in names]
        gate = HumanInTheLoopMiddleware(interrupt_on={"send": allowed}, interrupt_mode=mode)
        self.play = Play(store, create_agent(Twofold(calls=calls), tools=[send], middleware=[gate]))

    async def asked(self) -> list[Row]:
        self.run_id = await self.play.begin("write to them")
        outcome = await self.play.attempt()
        assert isinstance(outcome, Parked)
        rows = await self.play.asked()
        reasons = {"approval": Reason.APPROVAL_REQUIRED, "question": Reason.QUESTION_ASKED}
        assert outcome.reason is reasons[rows[0]["kind"]]
        return sorted(rows, key=lambda row: str(row["arguments"]))

    async def decide(self, request: Row, verdict: Verdict, answer: Any = None, **seen: Any) -> None:
        await self.play.world.decide(request, verdict, answer, **seen)

    async def end(self) -> str:
        assert await self.play.attempt() == Finished()
        assert (await self.play.world.run(self.run_id)).status is RunStatus.COMPLETED
        await check_invariants(self.play.world)
        return str((await self.play.said(self.run_id))[-1])


async def test_each_gated_call_is_asked_for_with_its_arguments_and_decided_on_its_own(store: Store) -> None:
    office = Office(store, "per_call", {"allowed_decisions": ["approve", "reject"]})
    ann, bob = await office.asked()
    assert [(row["kind"], row["tool"], row["tool_call_id"], row["arguments"]) for row in (ann, bob)] == [
        ("approval", "send", "call-ann", {"to": "ann"}),
        ("approval", "send", "call-bob", {"to": "bob"}),
    ]
    assert ann["decisions"] == ["approve", "deny"] and ann["answer_schema"] is None
    assert "Tool execution requires approval" in ann["prompt"]
    await office.decide(ann, APPROVE)
    await office.decide(bob, DENY, comment="not him")
    told = await office.end()
    assert office.sent == [("ann", 1)]
    assert "not him" in told and "sent to ann" in told


@pytest.mark.case("P38")
async def test_a_call_may_be_answered_in_the_middlewares_own_words(store: Store) -> None:
    office = Office(store, "per_call", count=3)
    ann, bob, joe = await office.asked()
    assert ann["decisions"] == ["approve", "deny", "answer"]
    with pytest.raises(Invalid):
        await office.decide(
            ann, ANSWER, {"type": "edit", "edited_action": {"name": "send", "args": {"to": 7}}}
        )
    with pytest.raises(Invalid):
        await office.decide(ann, ANSWER, {"type": "shred"})
    edited = {"name": "send", "args": {"to": "anna", "copies": 2}}
    await office.decide(joe, APPROVE)
    await office.decide(bob, ANSWER, {"type": "respond", "message": "I told him myself"})
    await office.decide(ann, ANSWER, {"type": "edit", "edited_action": edited})
    told = await office.end()
    assert sorted(office.sent) == [("anna", 2), ("joe", 1)]
    assert "I told him myself" in told


async def test_all_calls_of_a_turn_are_approved_or_denied_at_once(store: Store) -> None:
    for verdict, sent in ((APPROVE, [("ann", 1), ("bob", 1)]), (DENY, [])):
        office = Office(store, "batched", {"allowed_decisions": ["approve", "reject"]})
        (turn,) = await office.asked()
        assert turn["kind"] == "approval" and turn["tool"] == "send"
        assert turn["arguments"] == {
            "calls": [{"name": "send", "args": {"to": "bob"}}, {"name": "send", "args": {"to": "ann"}}]
        }
        await office.decide(turn, verdict)
        await office.end()
        assert sorted(office.sent) == sent


@pytest.mark.parametrize(
    "wrong",
    [
        {"decisions": [{"type": "approve"}]},
        {"decisions": [{"type": "approve"}] * 3},
        {"decisions": [{"type": "approve"}, {"type": "respond", "message": "no such form here"}]},
        {"decisions": [{"type": "approve"}, "approve"]},
        {"decisions": {}},
        {},
        "approve",
    ],
    ids=str,
)
async def test_a_malformed_answer_for_a_turn_is_refused_before_it_can_spoil_the_thread(
    sqlite_store: Store, wrong: Any
) -> None:
    office = Office(sqlite_store, "batched", {"allowed_decisions": ["approve", "reject"]})
    (turn,) = await office.asked()
    with pytest.raises(Invalid):
        await office.decide(turn, ANSWER, wrong)
    await office.decide(
        turn, ANSWER, {"decisions": [{"type": "reject", "message": "not him"}, {"type": "approve"}]}
    )
    told = await office.end()
    assert office.sent == [("ann", 1)]
    assert "not him" in told


async def test_a_malformed_answer_that_stands_in_the_store_is_asked_for_anew(store: Store) -> None:
    """However it came there: what the engine would choke on for ever never reaches it."""
    office = Office(store, "batched", {"allowed_decisions": ["approve", "reject"]})
    (turn,) = await office.asked()
    await office.decide(turn, APPROVE)
    kept = {"decision": "answer", "answer": {"decisions": []}, "comment": None}
    where = {"id": turn["id"]}
    await store.write(lambda tx: tx.change(Table.REQUESTS, where, {"decision": kept}))
    assert isinstance(await office.play.attempt(), Parked)
    (again,) = await office.play.asked()
    assert again["replaces"] == turn["id"]
    await office.decide(again, APPROVE)
    await office.end()
    assert len(office.sent) == 2


@pytest.mark.parametrize("mode", ["batched", "per_call"])
async def test_a_tool_that_a_person_stands_in_for_asks_a_question(store: Store, mode: str) -> None:
    office = Office(store, mode, {"allowed_decisions": ["respond"]}, count=1)
    (question,) = await office.asked()
    assert (question["kind"], question["decisions"]) == ("question", ["answer"])
    await office.decide(question, ANSWER, "she says hello")
    assert await office.end() == "she says hello"
    assert office.sent == []


async def test_a_turn_in_which_one_call_cannot_be_denied_is_not_denied_at_once(store: Store) -> None:
    office = Office(store, "batched", {"allowed_decisions": ["approve"]})
    (turn,) = await office.asked()
    assert turn["decisions"] == ["approve", "answer"]
    with pytest.raises(Invalid):
        await office.decide(turn, DENY)


@pytest.mark.parametrize("mode", ["batched", "per_call"])
async def test_a_stop_at_an_approval_leaves_a_history_that_the_next_message_can_go_on_from(
    store: Store, mode: str
) -> None:
    office = Office(store, mode)
    asked = await office.asked()
    await office.play.world.cancel(office.run_id)
    assert {row["status"] for row in await office.play.asked(run_id=office.run_id)} == {"void"}
    conversation = asked[0]["conversation_id"]
    await check_history(office.play.world, conversation)
    again = await office.play.world.resume(conversation)
    assert again.retry_of == office.run_id
    assert await office.play.attempt() == Finished()
    assert office.sent == []
    assert (await office.play.said(again.id)) == ["cancelled by the person | cancelled by the person"]
    await check_history(office.play.world, conversation)


async def test_continue_after_a_stop_at_a_question_of_a_chat_asks_it_again(store: Store) -> None:
    def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(f"{len(state['messages'])}: {interrupt('Which account?')}")]}

    builder = StateGraph(MessagesState)
    builder.add_node("ask", ask)
    builder.add_edge(START, "ask")
    builder.add_edge("ask", END)
    stage = Play(store, builder.compile())
    run_id = await stage.begin("pay the rent")
    await stage.attempt()
    (question,) = await stage.asked()
    await stage.world.cancel(run_id)
    again = await stage.world.resume(question["conversation_id"])
    assert isinstance(await stage.attempt(), Parked)
    await stage.answer("savings")
    await stage.attempt()
    assert await stage.said(again.id) == ["1: savings"]
    await check_history(stage.world, question["conversation_id"])
