"""Command-line agents behind the agent port."""

from dromos.agents.process.adapter import CommandConfig, ProcessAgent

__all__ = ["CommandConfig", "ProcessAgent"]
