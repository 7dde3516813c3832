"""An MCP server for a list of tasks: `create_task`, `complete_task`, `list_tasks`, over one SQLite file.

`python -m dromos.tools.servers.tasks --file tasks.db` speaks stdio; with `--http --port N` streamable HTTP at `/mcp`.
A call that carries `dev.dromos/idempotency-key` in `_meta` has its effect once: it may be repeated after a time-out,
a lost answer or a crash, and answers what it answered the first time. It must not know who calls.
"""

from __future__ import annotations

from typing import Annotated, Any

from mcp.server.mcpserver import Context, MCPServer
from pydantic import Field

from dromos.tools.servers.keyed_file import Db, Refused
from dromos.tools.servers.serving import KEYED, READS, Calls, main

TABLES = """
CREATE TABLE IF NOT EXISTS tasks (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    title TEXT NOT NULL,
    notes TEXT NOT NULL,
    created_at TEXT NOT NULL,
    completed_at TEXT
);
"""
_NOW = "strftime('%Y-%m-%dT%H:%M:%fZ')"

Title = Annotated[str, Field(min_length=1, max_length=500, description="What is to be done, in a few words.")]
Notes = Annotated[str, Field(max_length=20_000, description="Anything more there is to know.")]
Most = Annotated[int, Field(ge=1, le=1000, description="At most so many, the newest.")]


def tasks_server(calls: Calls) -> MCPServer:
    """The server over one file."""
    server = MCPServer("dromos-tasks", instructions="A list of tasks that is kept on disk.")

    @server.tool(annotations=KEYED)
    def create_task(title: Title, ctx: Context, notes: Notes = "") -> dict[str, Any]:
        """Add a task to the list. Returns it with its id."""

        def effect(db: Db) -> dict[str, Any]:
            made = f"INSERT INTO tasks (title, notes, created_at) VALUES (?, ?, {_NOW}) RETURNING *"
            return dict(db.execute(made, (title, notes)).fetchone())

        return calls.once(ctx, "create_task", {"title": title, "notes": notes}, effect)

    @server.tool(annotations=KEYED)
    def complete_task(id: int, ctx: Context) -> dict[str, Any]:
        """Mark a task as done, by its id. Returns it."""

        def effect(db: Db) -> dict[str, Any]:
            row = db.execute("SELECT * FROM tasks WHERE id = ?", (id,)).fetchone()
            if row is None:
                raise Refused(f"There is no task {id}. Take an id from list_tasks.")
            if row["completed_at"] is not None:
                raise Refused(f"Task {id} was completed before, at {row['completed_at']}.")
            done = f"UPDATE tasks SET completed_at = {_NOW} WHERE id = ? RETURNING *"
            return dict(db.execute(done, (id,)).fetchone())

        return calls.once(ctx, "complete_task", {"id": id}, effect)

    @server.tool(annotations=READS)
    def list_tasks(completed: bool | None = None, limit: Most = 100) -> dict[str, Any]:
        """The tasks, oldest first. `completed` true or false: only those; left out: all."""
        where = {None: "1", True: "completed_at IS NOT NULL", False: "completed_at IS NULL"}[completed]
        found = calls.file.rows(f"SELECT * FROM tasks WHERE {where} ORDER BY id DESC LIMIT ?", (limit,))
        return {"tasks": found[::-1]}

    return server


if __name__ == "__main__":
    main("tasks", "a list of tasks", TABLES, tasks_server)
