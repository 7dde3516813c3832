"""MCP servers that come with Dromos, each a program of its own: `python -m dromos.tools.servers.NAME`."""
