"""A graph whose node posts a letter: made once, however often the node runs."""

from pathlib import Path

from langchain_core.messages import AIMessage
from langgraph.graph import END, START, MessagesState, StateGraph

from dromos.agents.langgraph.durable import durable


def post_letter(text: str, idempotency_key: str = "") -> dict:
    with Path("letters.txt").open("a") as ledger:
        ledger.write(f"{idempotency_key} {text}\n")
    return {"posted": text}


post_once = durable(post_letter)  # unsafe: a crash within the call is a person's business


def post(state: MessagesState) -> dict:
    posted = post_once(state["messages"][-1].text)
    return {"messages": [AIMessage(f"Posted: {posted['posted']}")]}


builder = StateGraph(MessagesState)
builder.add_node("post", post)
builder.add_edge(START, "post")
builder.add_edge("post", END)

graph = builder.compile()
