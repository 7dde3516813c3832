"""A thin adapter over `mcp.Client`: configured servers as one toolbox.

`configuration` reads mcp.json · `stdio` runs a server as a child process · `connection` is one session owned
by one task · `server` keeps one server's connection alive, lazily · `results` translates · `toolbox` is the
port. It must not know runs, agents or policy.
"""
