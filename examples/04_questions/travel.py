"""A graph that asks a person: two things at once, then leave to book. It waits for as long as the answers take."""

from operator import add
from typing import Annotated

from langchain_core.messages import AIMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt


class Trip(MessagesState):
    wishes: Annotated[list[str], add]


def ask_where(state: Trip) -> dict:
    place = interrupt({"question": "Where to?", "options": ["the sea", "the mountains"]})
    return {"wishes": [f"to {place or 'wherever it is cheap'}"]}


def ask_budget(state: Trip) -> dict:
    amount = interrupt("How much may it cost?", response_schema=int)
    return {"wishes": [f"for {amount}"]}


def book(state: Trip) -> dict:
    plan = "A trip " + " ".join(sorted(state["wishes"], reverse=True))
    yes = interrupt(
        {"question": f"{plan}. Book it?", "options": ["yes", "no"], "expires_in_s": 86_400, "default": "no"}
    )
    return {"messages": [AIMessage(f"{plan} is booked." if yes == "yes" else "Nothing is booked.")]}


builder = StateGraph(Trip)
for node in (ask_where, ask_budget, book):
    builder.add_node(node.__name__, node)
builder.add_edge(START, "ask_where")
builder.add_edge(START, "ask_budget")
builder.add_edge(["ask_where", "ask_budget"], "book")
builder.add_edge("book", END)

graph = builder.compile()
