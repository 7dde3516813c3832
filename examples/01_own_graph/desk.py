"""A LangGraph graph as anybody might write it: three nodes, messages in, messages out."""

from langchain_core.messages import AIMessage
from langgraph.graph import END, START, MessagesState, StateGraph


class Desk(MessagesState):
    subject: str
    findings: list[str]


def sort(state: Desk) -> dict:
    question = state["messages"][-1].text.lower()
    return {"subject": "invoice" if "invoice" in question or "pay" in question else "general", "findings": []}


def look_up(state: Desk) -> dict:
    known = {"invoice": "Invoices are due after 30 days.", "general": "The desk is open from 9 to 17."}
    return {"findings": [*state["findings"], known[state["subject"]]]}


def answer(state: Desk) -> dict:
    return {"messages": [AIMessage(f"[{state['subject']}] {' '.join(state['findings'])}")]}


builder = StateGraph(Desk)
builder.add_node("sort", sort)
builder.add_node("look_up", look_up)
builder.add_node("answer", answer)
builder.add_edge(START, "sort")
builder.add_edge("sort", "look_up")
builder.add_edge("look_up", "answer")
builder.add_edge("answer", END)

graph = builder.compile()
