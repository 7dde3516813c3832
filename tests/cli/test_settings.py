"""Settings: precedence, sources, and errors that say the cure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from dromos.bootstrap.parts import stall_policy
from dromos.domain.retries import DEFAULT_POLICIES
from dromos.domain.stalls import StallLimits
from dromos.domain.statuses import Recovery
from dromos.lifecycle.contract import Policy
from dromos.settings import SETTINGS, Settings, SettingsError, load, masked
from dromos.settings.sections import RetryCode
from dromos.worker.service import WorkerOptions

Load = Callable[..., Settings]


@pytest.fixture
def read(tmp_path: Path) -> Load:
    """Reads settings from a TOML text, variables and flags, in a folder of the test's own."""

    def read(toml: str | None = None, env: dict[str, str] | None = None, **flags: Any) -> Settings:
        file = tmp_path / "dromos.toml"
        file.unlink(missing_ok=True)
        if toml is not None:
            file.write_text(toml)
        return load(flags, environment=env or {}, directory=tmp_path)

    return read


def problems(read: Load, *arguments: Any, **flags: Any) -> str:
    with pytest.raises(SettingsError) as caught:
        read(*arguments, **flags)
    return "\n".join(caught.value.problems)


# Keys with a way to write the same value in every layer.
SIMPLE: dict[str, st.SearchStrategy[Any]] = {
    "port": st.integers(0, 65535),
    "host": st.from_regex(r"[a-z][a-z0-9.-]{0,20}", fullmatch=True),
    "worker.concurrency": st.integers(1, 4096),
    "worker.drain_s": st.floats(0, 1e6, allow_nan=False),
    "worker.recovery": st.sampled_from(["auto", "ask"]),
    "log.level": st.sampled_from(["debug", "info", "warning", "error"]),
    "model": st.from_regex(r"[a-z]{1,10}:[a-zA-Z0-9.:-]{1,20}", fullmatch=True),
}
FLAGGED = {"port", "host"}


@st.composite
def layers(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    key = draw(st.sampled_from(sorted(SIMPLE)))
    possible = ["file", "env"] + (["flag"] if key in FLAGGED else [])
    chosen = draw(st.lists(st.sampled_from(possible), unique=True))
    return key, {layer: draw(SIMPLE[key]) for layer in chosen}


def value_of(settings: Settings, key: str) -> Any:
    return next(entry.value for entry in settings.in_force() if entry.key == key)


@given(layers())
@hypothesis_settings(suppress_health_check=list(HealthCheck), deadline=None)
def test_a_flag_wins_over_a_variable_and_a_variable_over_the_file(
    read: Load, tmp_path: Path, chosen: tuple[str, dict[str, Any]]
) -> None:
    key, given_values = chosen
    section, _, name = key.rpartition(".")
    variable = f"DROMOS_{key.replace('.', '_').upper()}"
    toml = None
    if "file" in given_values:
        value = given_values["file"]
        written = f'"{value}"' if isinstance(value, str) else repr(value)
        toml = (f"[{section}]\n" if section else "") + f"{name} = {written}\n"
    env = {variable: str(given_values["env"])} if "env" in given_values else {}
    flags = {key: given_values["flag"]} if "flag" in given_values else {}

    settings = read(toml, env, **flags)

    sources = {"flag": "flag", "env": f"env:{variable}", "file": f"file:{tmp_path / 'dromos.toml'}"}
    winner = next((layer for layer in ("flag", "env", "file") if layer in given_values), None)
    if winner is None:
        default = next(setting.default for setting in SETTINGS if setting.key == key)
        assert (value_of(settings, key), settings.source(key)) == (default, "default")
    else:
        assert (value_of(settings, key), settings.source(key)) == (given_values[winner], sources[winner])


def test_without_anything_the_defaults_hold(read: Load, tmp_path: Path) -> None:
    settings = read()
    assert settings.data == tmp_path / "dromos-data"
    assert settings.sqlite_path == tmp_path / "dromos-data" / "dromos.db"
    assert (settings.host, settings.port, settings.file) == ("127.0.0.1", 8321, None)
    assert {entry.source for entry in settings.in_force()} == {"default"}


def test_the_defaults_are_those_of_the_rules(read: Load) -> None:
    settings, policy = read(), Policy()
    assert settings.worker.stop_deadline_s == policy.stop_deadline
    assert settings.worker.drain_s == WorkerOptions().drain
    assert settings.worker.concurrency == WorkerOptions().slots
    assert settings.worker.step_limit == policy.step_limit
    assert settings.worker.queue_deadline_s == policy.queue_deadline
    assert settings.worker.recovery == policy.recovery
    assert settings.retention.idempotency_days == policy.idempotency_days
    assert settings.retention.events_days == policy.event_retention_days


def test_what_can_be_chosen_is_what_the_rules_know() -> None:
    from typing import get_args

    assert set(get_args(RetryCode)) == set(DEFAULT_POLICIES)
    recovery = next(setting for setting in SETTINGS if setting.key == "worker.recovery")
    assert recovery.type == " | ".join(f'"{each}"' for each in Recovery)


def test_every_setting_has_a_meaning_and_its_own_variable() -> None:
    assert [setting.key for setting in SETTINGS if not setting.description.endswith(".")] == []
    variables = [name for setting in SETTINGS for name in setting.variables]
    assert len(variables) == len(set(variables))
    assert {"DROMOS_MODEL", "DROMOS_DATABASE", "OLLAMA_HOST", "DROMOS_WORKER_STEP_LIMIT"} <= set(variables)


def test_paths_in_the_file_are_meant_from_its_folder(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "dromos.toml").write_text('data = "state"\n')
    env = {"DROMOS_CONFIG": "project/dromos.toml"}
    settings = load({}, environment=env, directory=tmp_path)
    assert (settings.data, settings.root) == (project / "state", project)
    assert load({"data": "other"}, environment=env, directory=tmp_path).data == tmp_path / "other"


def test_a_named_file_wins_over_the_variable_and_must_exist(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("port = 1\n")
    (tmp_path / "b.toml").write_text("port = 2\n")
    env = {"DROMOS_CONFIG": "b.toml"}
    assert load({}, config=Path("a.toml"), environment=env, directory=tmp_path).port == 1
    assert load({}, environment=env, directory=tmp_path).port == 2
    with pytest.raises(SettingsError, match="there is no file"):
        load({}, config=Path("c.toml"), environment=env, directory=tmp_path)


@pytest.mark.parametrize(
    ("toml", "told"),
    [
        ("prot = 1", "unknown key `prot`; did you mean `port`?"),
        ("step_limit = 1", "unknown key `step_limit`; did you mean `worker.step_limit`?"),
        ("[worker]\nconcurency = 1", "unknown key `worker.concurency`; did you mean `worker.concurrency`?"),
        ("[log]\nxyz = 1", "unknown key `log.xyz`; known here: `level`, `format`"),
        ('[agents.a]\ngraph = "m:x"\nmodle = "x"', "did you mean `agents.a.model`?"),
        ("[agents.a]", "[agents.a]: write exactly one of `graph`, `command` and `remote = true`"),
        ('[agents.a]\ngraph = "m:x"\nremote = true', "[agents.a]: write exactly one of `graph`, `command`"),
        ("[agents.a]\nremote = false", "[agents.a]: write exactly one of `graph`, `command`"),
        ("[agents.a]\nremote = 7", "`agents.a.remote`: write"),
        ("[adapters]\ngrace_s = 1", "`adapters.grace_s`: write a number of at least 3"),
        ('[agents.a]\ngraph = "m"', "`agents.a.graph`: write `module:attribute`"),
        ('[agents."a b"]\ngraph = "m:x"', "[agents.a b]: this name cannot be used"),
        ('agents = "x"', "`agents` is a table; write [agents.NAME]"),
        ("[agents]\na = 1", "`agents.a` is a table; write [agents.a]"),
        ("worker = 3", "`worker` is a table; write [worker]"),
        ('port = "high"', '`port`: write an integer, not "high"'),
        ("port = true", "`port`: write a number, not true"),
        ("port = 70000", "`port`: write a number of at most 65535, not 70000"),
        ("[worker]\nlease_s = 1", "`worker.lease_s`: write a number of at least 3"),
        ("[worker]\nrecovery = 'x'", '`worker.recovery`: write one of "auto", "ask"'),
        ("[worker]\ndrain_s = nan", "`worker.drain_s`: write a number"),
        (
            "[retries.NOTHING]\ntries = 1",
            "[retries.NOTHING]: this name cannot be used; allowed: MODEL_RATE_LIMITED",
        ),
        ("port = ", "not valid TOML"),
        ('mcp = "nowhere.json"', "`mcp`: there is no file"),
    ],
)
def test_a_wrong_file_is_told_with_its_place_and_the_cure(
    read: Load, tmp_path: Path, toml: str, told: str
) -> None:
    text = problems(read, toml)
    assert text.startswith(f"{tmp_path / 'dromos.toml'}")
    assert told in text
    assert len(text.splitlines()) == 1


@pytest.mark.parametrize(
    ("env", "told"),
    [
        ({"DROMOS_MODLE": "x"}, "DROMOS_MODLE: unknown setting; did you mean DROMOS_MODEL?"),
        ({"DROMOS_PORT": "x"}, 'DROMOS_PORT: write an integer, not "x"'),
        ({"DROMOS_PORT": "tcp://10.0.0.1:8321"}, "enableServiceLinks"),
        ({"DROMOS_DATABASE": "mysql://u:hidden@h/x"}, "DROMOS_DATABASE: write postgresql://"),
        ({"OLLAMA_HOST": "ftp://x"}, "OLLAMA_HOST: write an address"),
    ],
)
def test_a_wrong_variable_is_told_by_its_name(read: Load, env: dict[str, str], told: str) -> None:
    text = problems(read, None, env)
    assert told in text
    assert "hidden" not in text


def test_everything_wrong_is_told_at_once(read: Load) -> None:
    text = problems(read, "prot = 1\nport = 'x'\n", {"DROMOS_LOG_LEVEL": "loud"})
    assert len(text.splitlines()) == 3


def test_variables_of_others_with_our_prefix_are_left_alone(read: Load) -> None:
    foreign = {
        "DROMOS_SERVICE_HOST": "10.0.0.1",
        "DROMOS_PORT_8321_TCP_ADDR": "10.0.0.1",
        "DROMOS_SERVER": "x",
    }
    assert read(None, foreign).port == 8321


def test_an_empty_variable_counts_as_not_set(read: Load) -> None:
    settings = read('model = "local"', {"DROMOS_MODEL": "", "OLLAMA_HOST": ""})
    assert (settings.model, settings.ollama_host) == ("local", None)


@pytest.mark.parametrize(
    ("written", "address"),
    [
        ("box", "http://box:11434"),
        ("127.0.0.1:9", "http://127.0.0.1:9"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("[::]:9", "http://127.0.0.1:9"),
        ("http://box", "http://box"),
        ("https://box:443/path/", "https://box:443/path"),
    ],
)
def test_an_ollama_address_becomes_a_whole_one(read: Load, written: str, address: str) -> None:
    assert read(None, {"OLLAMA_HOST": written}).ollama_host == address


def test_our_own_variable_wins_over_ollama_s(read: Load) -> None:
    settings = read(None, {"OLLAMA_HOST": "a", "DROMOS_OLLAMA_HOST": "b"})
    assert settings.ollama_host == "http://b:11434"
    assert settings.source("ollama_host") == "env:DROMOS_OLLAMA_HOST"


def test_off_means_no_limit(read: Load) -> None:
    settings = read('[worker]\nqueue_deadline_s = "off"', {"DROMOS_RETENTION_EVENTS_DAYS": "off"})
    assert (settings.worker.queue_deadline_s, settings.retention.events_days) == (None, None)
    assert read("[worker]\nqueue_deadline_s = 5").worker.queue_deadline_s == 5.0


def test_an_agent_has_stall_limits_of_its_own_and_off_is_one_of_them(read: Load) -> None:
    toml = """
[stall]
model_s = 60
policy = "fail"

[agents.slow]
graph = "a.py:g"
stall = { model_s = "off", tool_s = 900 }

[agents.plain]
graph = "a.py:g"
stall = { policy = "flag" }
"""
    stall = stall_policy(read(toml))
    assert stall.of("slow") == StallLimits(None, 900, "fail")
    assert stall.of("plain") == StallLimits(60, 300, "flag")
    assert stall.of("built-in") == StallLimits(60, 300, "fail")


def test_a_list_is_written_with_commas_in_a_variable(read: Load) -> None:
    assert read(None, {"DROMOS_ALLOWED_HOSTS": "a.example, b.example"}).allowed_hosts == (
        "a.example",
        "b.example",
    )
    assert read('allowed_hosts = ["a"]').allowed_hosts == ("a",)


def test_files_that_lie_in_the_usual_places_are_taken(read: Load, tmp_path: Path) -> None:
    assert read().mcp is None
    (tmp_path / "dromos-data").mkdir()
    (tmp_path / "dromos-data" / "mcp.json").write_text("{}")
    assert read().mcp == tmp_path / "dromos-data" / "mcp.json"
    (tmp_path / "mcp.json").write_text("{}")
    (tmp_path / "langgraph.json").write_text("{}")
    assert (read().mcp, read().langgraph_json) == (tmp_path / "mcp.json", tmp_path / "langgraph.json")


def test_an_agent_is_a_table_of_its_own(read: Load, tmp_path: Path) -> None:
    settings = read('[agents.writer]\ngraph = "pkg.mod:graph"\ninput = "question"\nstep_limit = 5\n')
    assert settings.agents["writer"].graph == "pkg.mod:graph"
    assert (settings.agents["writer"].input, settings.agents["writer"].step_limit) == ("question", 5)
    assert settings.source("agents.writer.graph") == f"file:{tmp_path / 'dromos.toml'}"
    assert settings.source("agents.writer.output") == "default"


SECRETS = "postgresql://me:s3cr3t@db.example/x", "postgresql://me:a%40b:c@h/x?sslpassword=s3cr3t"


@pytest.mark.parametrize("url", SECRETS)
def test_a_password_is_used_and_never_shown(read: Load, url: str) -> None:
    settings = read(None, {"DROMOS_DATABASE": url})
    assert settings.database_url == url
    for shown in (repr(settings), str(settings), settings.database_shown, str(settings.in_force())):
        assert "s3cr3t" not in shown
        assert "a%40b:c" not in shown
    assert "***" in settings.database_shown


@given(st.from_regex(r"[^/?#\s]{3,30}", fullmatch=True))
def test_no_password_survives_masking(password: str) -> None:
    shown = masked(f"postgresql://user:{password}@host/name")
    assert shown == "postgresql://user:***@host/name"


def test_settings_are_final(read: Load) -> None:
    with pytest.raises(ValueError, match="frozen"):
        read().port = 1
