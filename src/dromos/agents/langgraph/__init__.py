"""The LangGraph engine behind the agent port."""
