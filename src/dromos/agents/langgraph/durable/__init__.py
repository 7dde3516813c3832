"""Calls of a person's own graph that are made once: its tools, and functions its nodes call.

    from dromos.agents.langgraph.durable import DurableTools, durable

    agent = create_agent(model, tools, middleware=[DurableTools({"send_mail": "ask"}, {"search": "read"})])
    charge = durable(charge, replay="keyed")

Outside of a run of Dromos all of it passes calls through unchanged, so the same graph runs anywhere.
"""

from dromos.agents.langgraph.durable.functions import DurableCallFailed, durable
from dromos.agents.langgraph.durable.places import idempotency_key
from dromos.agents.langgraph.durable.tools import DurableTools

__all__ = ["DurableCallFailed", "DurableTools", "durable", "idempotency_key"]
