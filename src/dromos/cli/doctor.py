"""`dromos doctor`: what is in force and from where, what works, and the cure for what does not.

It judges and words what `bootstrap.inspect` found (facts, read-only) and what this machine says about the port. It
must not open the database, load an agent or start a tool server itself.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from dromos import bootstrap
from dromos.cli.failures import ExitCode
from dromos.ports.tool import ToolSourceHealth
from dromos.settings import SETTINGS, Settings, SettingsError, load

Verdict = Literal["ok", "warning", "problem"]
PortState = Literal["free", "dromos", "taken", "unknown address"]
GLYPHS: Mapping[Verdict, tuple[str, str]] = {
    "ok": ("✓", "green"),
    "warning": ("!", "yellow"),
    "problem": ("✗", "red"),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. A problem stops serving; a warning does not. `cure` says what to do."""

    verdict: Verdict
    subject: str
    detail: str
    cure: str | None = None


# ── the command ───────────────────────────────────────────────────────────────────────────────────────────────


def examine(flags: Mapping[str, Any], config: Path | None, *, as_json: bool) -> ExitCode:
    """Print the report; FAILED if something would stop `dromos serve` from serving."""
    findings = [_python()]
    settings: Settings | None = None
    try:
        settings = load(flags, config=config)
    except SettingsError as error:
        findings += [
            Finding("problem", "settings", text, "repair it; `dromos doctor --settings` lists all")
            for text in error.problems
        ]
    else:
        findings += judge(settings, bootstrap.inspect(settings), port_state(settings))
    if as_json:
        _print_json(settings, findings)
    else:
        _print_report(settings, findings)
    return ExitCode.FAILED if any(finding.verdict == "problem" for finding in findings) else ExitCode.DONE


def list_settings(*, as_json: bool) -> None:
    """Every setting: key, variable, flag, default and meaning."""
    if as_json:
        print(json.dumps([asdict(setting) for setting in SETTINGS], indent=2))
        return
    for setting in SETTINGS:
        names = [*setting.variables, *([setting.flag] if setting.flag else [])]
        default = (
            "required" if setting.required else "not set" if setting.default is None else setting.default
        )
        print(f"{setting.key}  ({', '.join(names) or 'file only'}; {setting.type}; {default})")
        print(f"    {setting.description}")


# ── judging ───────────────────────────────────────────────────────────────────────────────────────────────────


def judge(settings: Settings, seen: bootstrap.Inspection, port: PortState) -> Iterator[Finding]:
    """The findings, in the order in which a person would look."""
    yield _data(settings, port)
    yield from _database(settings, seen.database, port)
    yield from _agents(seen)
    yield _model(seen)
    yield from _tools(settings, seen.tools)
    yield _port_finding(settings, port)


def _python() -> Finding:
    return Finding("ok", "python", f"{platform.python_version()} on {platform.system()} {platform.machine()}")


def _data(settings: Settings, port: PortState) -> Finding:
    folder = settings.data
    if folder.exists() and not folder.is_dir():
        return Finding(
            "problem", "data folder", f"{folder} is a file", "move it away, or name a folder with --data"
        )
    nearest = next(path for path in (folder, *folder.parents) if path.exists())
    if not os.access(nearest, os.W_OK | os.X_OK):
        return Finding(
            "problem",
            "data folder",
            f"{nearest} cannot be written",
            "allow this user to write, or name another: --data",
        )
    return Finding(
        "ok", "data folder", f"{folder}" if folder.exists() else f"{folder} (made at the first start)"
    )


def _database(settings: Settings, database: bootstrap.DatabaseFacts, port: PortState) -> Iterator[Finding]:
    where = f"{settings.database_shown} · {database.version}"
    if database.error is not None:
        yield Finding("problem", "database", where, database.error)
        return
    told = {
        "none": Finding("ok", "database", f"{where} · empty, the first start makes its tables"),
        "current": Finding("ok", "database", f"{where} · schema is current"),
        "old": Finding(
            "warning",
            "database",
            f"{where} · schema of an earlier version",
            "`dromos migrate`, after a backup",
        ),
        "newer": Finding(
            "problem",
            "database",
            f"{where} · schema of a later version of Dromos",
            "run the version that wrote it, or restore a backup from before",
        ),
    }
    if database.schema in told:
        yield told[database.schema]
    if not database.locked:
        return
    if port == "dromos":
        yield Finding("ok", "lock", "a running server holds the data folder")
    else:
        yield Finding(
            "problem",
            "lock",
            f"another process holds {settings.data}, and no Dromos answers on port {settings.port}",
            "if it is a Dromos on another port, name that: --port; else stop it, or choose another folder: --data",
        )


def _agents(seen: bootstrap.Inspection) -> Iterator[Finding]:
    for agent in seen.agents:
        name = f"agent {agent.name}"
        if agent.error is not None:
            only = "" if agent.name == seen.default_agent else "; only its own runs fail"
            yield Finding("warning" if only else "problem", name, f"cannot be loaded{only}", agent.error)
        else:
            default = "answers where none is named" if agent.name == seen.default_agent else ""
            yield Finding("ok", name, " · ".join(filter(None, [agent.description, default])) or "loads")
    if seen.default_agent not in {agent.name for agent in seen.agents}:
        known = ", ".join(agent.name for agent in seen.agents) or "none"
        yield Finding(
            "problem", "default agent", f"{seen.default_agent} is not an agent", f"name one that is: {known}"
        )


def _model(seen: bootstrap.Inspection) -> Finding:
    if seen.model is None:
        return Finding("problem", "model", "none can be chosen", seen.model_error or "name one: DROMOS_MODEL")
    told = f"{seen.model.name} · {seen.model.source}"
    if seen.model_error is not None:
        return Finding("warning", "model", told, seen.model_error)
    return Finding("ok", "model", told, seen.model.hint or None)


def _tools(settings: Settings, sources: Sequence[ToolSourceHealth]) -> Iterator[Finding]:
    if not sources:
        detail = f"{settings.mcp} names none" if settings.mcp else "no mcp.json"
        yield Finding("ok", "tool servers", detail)
    for source in sources:
        name = f"tool server {source.name}"
        if source.ok:
            yield Finding("ok", name, f"{source.tools} tools" if source.tools != 1 else "1 tool")
        elif source.name == str(settings.mcp):  # the file itself, without which nothing starts
            yield Finding("problem", "tool servers", f"{source.name} cannot be used", source.detail)
        else:
            yield Finding("warning", name, "does not answer; only its own tools fail", source.detail)


def port_state(settings: Settings, answer_seconds: float = 2.0) -> PortState:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((settings.host, settings.port))
        return "free"
    except socket.gaierror:
        return "unknown address"
    except PermissionError:
        return "taken"
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            return "unknown address"
    return "dromos" if _is_dromos(settings, answer_seconds) else "taken"


def _is_dromos(settings: Settings, answer_seconds: float) -> bool:
    import httpx

    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)
    url = f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"
    try:
        answer = httpx.get(f"{url}/v1/agents", timeout=answer_seconds, trust_env=False)
        return answer.status_code == httpx.codes.OK and "items" in answer.json()
    except (httpx.HTTPError, ValueError):
        return False


def _port_finding(settings: Settings, port: PortState) -> Finding:
    where = f"{settings.host}:{settings.port}"
    if port == "free":
        return Finding("ok", "port", f"{where} is free")
    if port == "dromos":
        return Finding("ok", "port", f"Dromos is being served on {where}")
    if port == "unknown address":
        return Finding(
            "problem", "port", f"{settings.host} is not an address of this machine", "correct --host"
        )
    return Finding(
        "problem", "port", f"{where} cannot be used", "stop what listens there, or choose one: --port 8400"
    )


# ── printing ──────────────────────────────────────────────────────────────────────────────────────────────────


def _print_json(settings: Settings | None, findings: Sequence[Finding]) -> None:
    report = {
        "serves": all(finding.verdict != "problem" for finding in findings),
        "settings": [asdict(entry) for entry in settings.in_force()] if settings else None,
        "findings": [asdict(finding) for finding in findings],
    }
    print(json.dumps(report, indent=2))


def _print_report(settings: Settings | None, findings: Sequence[Finding]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    if settings is not None:
        file = settings.file or "none (looked for dromos.toml in the working folder)"
        console.print(Text.assemble(("Settings in force", "bold"), f" · file: {file}"))
        table = Table.grid(padding=(0, 2))
        for entry in settings.in_force():
            style = "dim" if entry.source == "default" else ""
            shown = "–" if entry.value is None else str(entry.value)
            table.add_row(Text(f"  {entry.key}", style), Text(shown, style), Text(entry.source, style))
        console.print(table)
        console.print()
    for finding in findings:
        glyph, colour = GLYPHS[finding.verdict]
        console.print(Text.assemble((f"{glyph} ", colour), (finding.subject, "bold"), f": {finding.detail}"))
        if finding.cure:
            console.print(Text(f"    → {finding.cure}"))
    console.print()
    counts = {verdict: sum(finding.verdict == verdict for finding in findings) for verdict in GLYPHS}
    if counts["problem"]:
        console.print(Text(f"Not ready to serve: {counts['problem']} to repair.", "bold red"))
    elif counts["warning"]:
        console.print(Text(f"Ready to serve; {counts['warning']} to look at.", "bold yellow"))
    else:
        console.print(Text("Ready to serve.", "bold green"))
