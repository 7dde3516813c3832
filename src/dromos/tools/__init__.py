"""Tools for agents: MCP servers, a few of our own, and the gateway that is the only way to call any of them.

It must not know the engine that asks, the store or HTTP; it implements `dromos.ports.tool`.
"""
