"""The commands and their flags, and nothing else: each one hands over to the module that does the work.

Everything heavy is imported inside a command, so that `dromos --help` answers at once. Exit codes: 0 done, 1 refused or
failed, 2 wrong usage or settings, 3 no server to talk to.
"""

from __future__ import annotations

import gc
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from dromos.cli.failures import explain

app = typer.Typer(
    name="dromos",
    help="Durable agent runs: serve them, look at them, talk to them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
runs = typer.Typer(help="Look at runs on a running server.", no_args_is_help=True)
app.add_typer(runs, name="runs")
requests = typer.Typer(
    help="See what waits for you on a running server, and decide it.", no_args_is_help=True
)
app.add_typer(requests, name="requests")
grants = typer.Typer(help="See what you allowed for good on a running server, and take it back.")
app.add_typer(grants, name="grants")
followups = typer.Typer(
    help="See and change messages that wait for a run on a running server.", no_args_is_help=True
)
app.add_typer(followups, name="followups")


class Leave(StrEnum):
    CALL = "call"
    TOOL = "tool"


class ExportFormat(StrEnum):
    MD = "md"
    JSONL = "jsonl"
    JSON = "json"


Data = Annotated[
    Path | None, typer.Option(help="Folder for everything that is kept.", show_default="./dromos-data")
]
Database = Annotated[
    str | None,
    typer.Option(help="postgresql://user:password@host/name", show_default="dromos.db in the data folder"),
]
Host = Annotated[str | None, typer.Option(help="Address to listen on.", show_default="127.0.0.1")]
Port = Annotated[int | None, typer.Option(help="Port to listen on; 0: any.", show_default="8321")]
Config = Annotated[Path | None, typer.Option(help="Settings file.", show_default="./dromos.toml")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document for a program.")]
Server = Annotated[
    str, typer.Option(envvar="DROMOS_SERVER", help="Address of the running server.", metavar="URL")
]
LOCAL = "http://127.0.0.1:8321"


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"dromos {version('dromos')}")
        raise typer.Exit


@app.callback()
def dromos(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Durable agent runs: serve them, look at them, talk to them."""


@app.command()
def serve(
    data: Data = None,
    host: Host = None,
    port: Port = None,
    database: Database = None,
    config: Config = None,
) -> None:
    """Serve the page and the API, and work on runs, until stopped."""
    settings = _settings(config, data=data, host=host, port=port, database=database)
    from dromos import bootstrap

    raise typer.Exit(bootstrap.serve(settings))


@app.command()
def migrate(data: Data = None, database: Database = None, config: Config = None, json: Json = False) -> None:
    """Bring the database to this version's schema. Stop the server first."""
    settings = _settings(config, data=data, database=database)
    from dromos import bootstrap
    from dromos.cli.migrate import tell

    tell(settings.database_shown, bootstrap.migrate(settings), as_json=json)


@app.command()
def doctor(
    data: Data = None,
    host: Host = None,
    port: Port = None,
    database: Database = None,
    config: Config = None,
    only_settings: Annotated[
        bool, typer.Option("--settings", help="List every setting there is, and stop.")
    ] = False,
    json: Json = False,
) -> None:
    """Say what is in force and from where, what works, and what to do about the rest."""
    from dromos.cli.doctor import examine, list_settings

    if only_settings:
        list_settings(as_json=json)
        return
    flags = {"data": data, "host": host, "port": port, "database": database}
    raise typer.Exit(examine(flags, config, as_json=json))


@runs.command("list")
def list_runs(
    status: Annotated[str | None, typer.Option(help="Only runs with this status, e.g. failed.")] = None,
    conversation: Annotated[str | None, typer.Option(help="Only runs of this conversation.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=200, help="How many, newest first.")] = 20,
    server: Server = LOCAL,
    json: Json = False,
) -> None:
    """Runs, newest first."""
    from dromos.cli.runs import show_list

    show_list(server, status=status, conversation=conversation, limit=limit, as_json=json)


@runs.command("show")
def show_run(
    run: Annotated[str, typer.Argument(help="Id of the run.")], server: Server = LOCAL, json: Json = False
) -> None:
    """One run with its steps and attempts."""
    from dromos.cli.runs import show_one

    show_one(server, run, as_json=json)


Asked = Annotated[str, typer.Argument(help="Id of the question.", metavar="REQUEST")]
Why = Annotated[str | None, typer.Option(help="A word to the agent with it.")]


@requests.command("list")
def list_requests(server: Server = LOCAL, json: Json = False) -> None:
    """What waits for you over all conversations, oldest first."""
    from dromos.cli.requests import show_list

    show_list(server, as_json=json)


@requests.command("show")
def show_request(request: Asked, server: Server = LOCAL, json: Json = False) -> None:
    """One question, with all it is about and what may be said to it."""
    from dromos.cli.requests import show_one

    show_one(server, request, as_json=json)


@requests.command("approve")
def approve_request(
    request: Asked,
    always: Annotated[
        Leave | None,
        typer.Option(
            help="Do not ask again in this conversation: for just this call, or for the whole tool."
        ),
    ] = None,
    comment: Why = None,
    server: Server = LOCAL,
    json: Json = False,
) -> None:
    """Say yes to exactly what the question shows."""
    from dromos.cli.requests import decide

    grant = None if always is None else always.value
    decide(server, request, "approve", grant=grant, comment=comment, as_json=json)


@requests.command("edit")
def edit_request(
    request: Asked,
    arguments: Annotated[str, typer.Argument(help="All arguments to call with instead, as one JSON object.")],
    comment: Why = None,
    server: Server = LOCAL,
    json: Json = False,
) -> None:
    """Say yes, with other arguments."""
    from dromos.cli.requests import decide

    decide(server, request, "edit", text=arguments, comment=comment, as_json=json)


@requests.command("deny")
def deny_request(request: Asked, comment: Why = None, server: Server = LOCAL, json: Json = False) -> None:
    """Say no, or decline to answer."""
    from dromos.cli.requests import decide

    decide(server, request, "deny", comment=comment, as_json=json)


@requests.command("retry")
def retry_request(request: Asked, comment: Why = None, server: Server = LOCAL, json: Json = False) -> None:
    """Of a call whose outcome is unknown: make it again."""
    from dromos.cli.requests import decide

    decide(server, request, "retry", comment=comment, as_json=json)


@requests.command("mark-done")
def mark_request_done(
    request: Asked,
    result: Annotated[
        str | None, typer.Argument(help="What came of it, as the agent shall read it: JSON, or a text.")
    ] = None,
    comment: Why = None,
    server: Server = LOCAL,
    json: Json = False,
) -> None:
    """Of a call whose outcome is unknown: it was carried out."""
    from dromos.cli.requests import decide

    decide(server, request, "mark_done", text=result, comment=comment, as_json=json)


@requests.command("skip")
def skip_request(request: Asked, comment: Why = None, server: Server = LOCAL, json: Json = False) -> None:
    """Of a call whose outcome is unknown: do not repeat it, go on without."""
    from dromos.cli.requests import decide

    decide(server, request, "skip", comment=comment, as_json=json)


@requests.command("answer")
def answer_request(
    request: Asked,
    answer: Annotated[
        str, typer.Argument(help="The answer; JSON where the question has a schema for more than text.")
    ],
    comment: Why = None,
    server: Server = LOCAL,
    json: Json = False,
) -> None:
    """Answer a question."""
    from dromos.cli.requests import decide

    decide(server, request, "answer", text=answer, comment=comment, as_json=json)


@grants.callback(invoke_without_command=True)
def list_grants(
    context: typer.Context,
    conversation: Annotated[str | None, typer.Option(help="Only those of this conversation.")] = None,
    server: Server = LOCAL,
    json: Json = False,
) -> None:
    """What you allowed for good and is in force, newest first."""
    if context.invoked_subcommand is None:
        from dromos.cli.grants import show_list

        show_list(server, conversation=conversation, as_json=json)


@grants.command("revoke")
def revoke_grant(
    grant: Annotated[str, typer.Argument(help="Id of the grant.")], server: Server = LOCAL, json: Json = False
) -> None:
    """Take it back: from the next call on you are asked again."""
    from dromos.cli.grants import revoke

    revoke(server, grant, as_json=json)


Waiting = Annotated[str, typer.Argument(help="Id of the waiting message.", metavar="FOLLOWUP")]


@followups.command("list")
def list_followups(
    conversation: Annotated[str, typer.Argument(help="Id of the conversation.")],
    server: Server = LOCAL,
    json: Json = False,
) -> None:
    """What waits or is held in a conversation, in order."""
    from dromos.cli.followups import show_list

    show_list(server, conversation, as_json=json)


@followups.command("show")
def show_followup(followup: Waiting, server: Server = LOCAL, json: Json = False) -> None:
    """One waiting message with every text it had."""
    from dromos.cli.followups import show_one

    show_one(server, followup, as_json=json)


@followups.command("edit")
def edit_followup(
    followup: Waiting,
    text: Annotated[str, typer.Argument(help="The new text.")],
    server: Server = LOCAL,
    json: Json = False,
) -> None:
    """Give it another text."""
    from dromos.cli.followups import edit

    edit(server, followup, text, as_json=json)


@followups.command("move")
def move_followup(
    followup: Waiting,
    place: Annotated[int, typer.Argument(min=1, help="1 is the first of those that wait or are held.")],
    server: Server = LOCAL,
    json: Json = False,
) -> None:
    """Put it at another place."""
    from dromos.cli.followups import move

    move(server, followup, place - 1, as_json=json)


@followups.command("remove")
def remove_followup(followup: Waiting, server: Server = LOCAL, json: Json = False) -> None:
    """Take it back for good."""
    from dromos.cli.followups import remove

    remove(server, followup, as_json=json)


@followups.command("send")
def send_followup(followup: Waiting, server: Server = LOCAL, json: Json = False) -> None:
    """Send one that is held after all."""
    from dromos.cli.followups import send

    send(server, followup, as_json=json)


@app.command()
def export(
    conversation: Annotated[str, typer.Argument(help="Id of the conversation.")],
    format: Annotated[
        ExportFormat, typer.Option(help="Markdown, one line for each checkpoint, or everything.")
    ] = ExportFormat.MD,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write.", show_default="standard output")
    ] = None,
    server: Server = LOCAL,
) -> None:
    """Write a conversation as Markdown, JSON Lines or JSON."""
    from dromos.cli.export import write

    write(server, conversation, format.value, output)


@app.command()
def chat(
    message: Annotated[str | None, typer.Argument(help="What to say; without it you are asked.")] = None,
    conversation: Annotated[
        str | None, typer.Option(help="Id of the conversation to go on with.", show_default="a new one")
    ] = None,
    agent: Annotated[str | None, typer.Option(help="Who answers in a new conversation.")] = None,
    server: Server = LOCAL,
    json: Json = False,
) -> None:
    """Send a message and watch the answer. Ctrl-C stops the run, a second one only stops watching."""
    from dromos.cli.chat import talk

    raise typer.Exit(talk(server, message, conversation=conversation, agent=agent, as_json=json))


@app.command()
def watch(
    run: Annotated[str | None, typer.Argument(help="Id of the run.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All runs that are under way.")] = False,
    server: Server = LOCAL,
    json: Json = False,
) -> None:
    """Watch a run's live box, or all that are under way. `s` stops, `q` queues a message, Ctrl-C only leaves."""
    if (run is None) != every:
        raise typer.BadParameter("name one run, or write --all")
    from dromos.cli.watch import watch as look

    raise typer.Exit(look(server, run, as_json=json))


def _settings(config: Path | None, **flags: Any) -> Any:
    from dromos.settings import load

    return load(flags, config=config)


def main() -> None:
    """The console script. An error that says its cure goes to standard error; anything else is a fault of ours."""
    try:
        app()
    except Exception as error:
        text, code = explain(error)
        if text is None:
            raise
        print(text, file=sys.stderr)
        sys.exit(code)
    finally:
        gc.freeze()  # the process ends: a last look through all that was imported takes seconds on a busy machine
