"""A graph that has no messages: one field in, one field out. A factory works as well as a compiled graph."""

from typing import TypedDict

from langgraph.graph import END, START, StateGraph


class Sizes(TypedDict, total=False):
    text: str
    length: int


def graph():
    builder = StateGraph(Sizes)
    builder.add_node("measure", lambda state: {"length": len(state["text"])})
    builder.add_edge(START, "measure")
    builder.add_edge("measure", END)
    return builder.compile()
