"""An MCP server for what an agent wants to know later: `remember`, `recall`, `forget`, over one SQLite file.

`python -m dromos.tools.servers.memory --file memory.db` speaks stdio; with `--http --port N` streamable HTTP at `/mcp`.
A call that carries `dev.dromos/idempotency-key` in `_meta` has its effect once, and its repeat the first answer, also
where the memory has changed meanwhile. It must not know who calls.
"""

from __future__ import annotations

from typing import Annotated, Any

from mcp.server.mcpserver import Context, MCPServer
from pydantic import Field

from dromos.tools.servers.keyed_file import Db, Refused
from dromos.tools.servers.serving import KEYED, KEYED_AND_DESTRUCTIVE, READS, Calls, main

TABLES = """
CREATE TABLE IF NOT EXISTS memories (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    text TEXT NOT NULL,
    topic TEXT NOT NULL,
    remembered_at TEXT NOT NULL
);
"""
_NOW = "strftime('%Y-%m-%dT%H:%M:%fZ')"

Text = Annotated[str, Field(min_length=1, max_length=20_000, description="What to keep, one fact.")]
Topic = Annotated[str, Field(max_length=200, description="What it is about.")]
Query = Annotated[str, Field(max_length=500, description="Words to look for; left out: the newest.")]
Most = Annotated[int, Field(ge=1, le=100, description="At most so many.")]


def memory_server(calls: Calls) -> MCPServer:
    """The server over one file."""
    server = MCPServer("dromos-memory", instructions="Facts that are kept on disk between conversations.")

    @server.tool(annotations=KEYED)
    def remember(text: Text, ctx: Context, topic: Topic = "") -> dict[str, Any]:
        """Keep a fact. Returns it with its id, and how many facts there are now."""

        def effect(db: Db) -> dict[str, Any]:
            made = f"INSERT INTO memories (text, topic, remembered_at) VALUES (?, ?, {_NOW}) RETURNING *"
            fact = dict(db.execute(made, (text, topic)).fetchone())
            return {**fact, "count": db.execute("SELECT count(*) FROM memories").fetchone()[0]}

        return calls.once(ctx, "remember", {"text": text, "topic": topic}, effect)

    @server.tool(annotations=READS)
    def recall(query: Query = "", topic: Topic = "", limit: Most = 20) -> dict[str, Any]:
        """Facts in which every word of the query stands, newest first."""
        words = query.split()
        where = " AND ".join(["(text LIKE ? ESCAPE '!' OR topic LIKE ? ESCAPE '!')"] * len(words)) or "1"
        values: list[Any] = [like for word in words for like in [_containing(word)] * 2]
        if topic:
            where, values = f"{where} AND topic = ?", [*values, topic]
        sql = f"SELECT * FROM memories WHERE {where} ORDER BY id DESC LIMIT ?"
        return {"memories": calls.file.rows(sql, [*values, limit])}

    @server.tool(annotations=KEYED_AND_DESTRUCTIVE)
    def forget(id: int, ctx: Context) -> dict[str, Any]:
        """Remove a fact for good, by its id. Returns what it was."""

        def effect(db: Db) -> dict[str, Any]:
            row = db.execute("DELETE FROM memories WHERE id = ? RETURNING *", (id,)).fetchone()
            if row is None:
                raise Refused(f"There is no fact {id}. Take an id from recall.")
            return {"forgotten": dict(row)}

        return calls.once(ctx, "forget", {"id": id}, effect)

    return server


def _containing(word: str) -> str:
    escaped = word.replace("!", "!!").replace("%", "!%").replace("_", "!_")
    return f"%{escaped}%"


if __name__ == "__main__":
    main("memory", "what an agent wants to know later", TABLES, memory_server)
