"""A graph in a graph that speaks, asks a person, and goes on. Written beside `dromos.toml` of the tests' servers."""

from __future__ import annotations

from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt


def say(text: str) -> dict[str, list[AIMessage]]:
    """A model streams the text."""
    return {"messages": [GenericFakeChatModel(messages=iter([AIMessage(text)])).invoke("go")]}


def look(state: MessagesState) -> dict[str, list[AIMessage]]:
    return say("I looked the order up.")


def weigh(state: MessagesState) -> dict[str, list[AIMessage]]:
    """Two answers of a model before the question: nothing of this node is stored while it waits."""
    first, second = say("It was paid twice."), say("One payment goes back.")
    verdict = interrupt({"question": "Refund it?", "options": ["yes", "no"]})
    return {"messages": [*first["messages"], *second["messages"], AIMessage(f"You said {verdict}.")]}


def close(state: MessagesState) -> dict[str, list[AIMessage]]:
    return say("The case is closed.")


inner = StateGraph(MessagesState)
inner.add_node("weigh", weigh)
inner.add_edge(START, "weigh")
inner.add_edge("weigh", END)

asking = inner.compile()
"""The inner graph by itself."""

outer = StateGraph(MessagesState)
outer.add_node("look", look)
outer.add_node("inner", asking)
outer.add_node("close", close)
outer.add_edge(START, "look")
outer.add_edge("look", "inner")
outer.add_edge("inner", "close")
outer.add_edge("close", END)
graph = outer.compile()
