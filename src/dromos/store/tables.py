"""The tables, once for both databases. Columns only; who writes them is the lifecycle's business.

`conversations.id` is the engine's thread id too. One row of `messages` is one message: the history shows it by
`position`, and the engine's thread (namespace `ns`, channel `channel`) holds it at `log_seq`. A checkpoint names the
messages of its list as ranges of `log_seq`, so each message is stored once however many checkpoints hold it.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    text,
)

from dromos.store.types import Instant, Json, Text

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)

users = Table(
    "users",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("last_seq", BigInteger, nullable=False, server_default="0"),
    Column("first_seq", BigInteger, nullable=False, server_default="1"),  # oldest event that is kept
    Column("created_at", Instant, nullable=False),
)

conversations = Table(
    "conversations",
    metadata,
    Column("id", Text, primary_key=True),
    Column("user_id", Text, nullable=False),
    Column("title", Text, nullable=False),
    Column("agent", Text, nullable=False),
    Column("state", Text, nullable=False, server_default="open"),  # open | deleting
    Column("archived", Boolean, nullable=False, server_default=text("false")),
    Column("message_count", Integer, nullable=False, server_default="0"),
    Column("next_num", BigInteger, nullable=False, server_default="1"),  # next messages.num
    Column("last_run_id", Text),  # newest run, live or ended
    Column("open_followups", Integer, nullable=False, server_default="0"),  # rows that wait or are held
    Column("seen_seq", BigInteger, nullable=False, server_default="0"),
    Column(
        "unseen_seq", BigInteger, nullable=False, server_default="0"
    ),  # newest event to look at; 0: all seen
    Column("created_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
    Index("ix_conversations_user", "user_id", "updated_at"),
)

messages = Table(
    "messages",
    metadata,
    Column("conversation_id", Text, primary_key=True),
    Column("num", BigInteger, primary_key=True, autoincrement=False),  # order of insertion
    Column("id", Text, nullable=False),
    Column(
        "position", BigInteger, nullable=False
    ),  # order in the history; = num unless it replaces a message
    Column("role", Text),  # user | assistant | tool | system | NULL for anchors
    Column("kind", Text, nullable=False),  # text | run | tool
    Column("content", Json),
    Column("tool_calls", Json),  # [{"id", "name", "args"}]
    Column("tool_call_id", Text),
    Column("name", Text),
    Column("status", Text),  # trigger status of a person's message; "error" for a failed tool result
    Column("run_id", Text),  # the run that wrote it, or that it started
    Column("interrupted", Boolean, nullable=False, server_default=text("false")),
    Column(
        "hidden", Boolean, nullable=False, server_default=text("false")
    ),  # replaced or inner; not in the history
    Column("ns", Text, nullable=False, server_default=""),
    Column("channel", Text, nullable=False, server_default="messages"),
    Column("log_seq", BigInteger),  # place in the thread's log; NULL: not in the thread (yet)
    Column("pending_of", Text),  # checkpoint whose pending write this is; NULL once committed
    Column("engine", LargeBinary),  # the engine's own form without the content
    Column("engine_type", Text),
    Column("created_at", Instant, nullable=False),
    Index("ix_messages_id", "conversation_id", "id"),
    Index("ix_messages_position", "conversation_id", "position"),
    Index(
        "ix_messages_unlogged",
        "conversation_id",
        "kind",
        sqlite_where=text("log_seq IS NULL"),
        postgresql_where=text("log_seq IS NULL"),
    ),
    Index(
        "uq_messages_log",
        "conversation_id",
        "ns",
        "channel",
        "log_seq",
        unique=True,
        sqlite_where=text("log_seq IS NOT NULL"),
        postgresql_where=text("log_seq IS NOT NULL"),
    ),
)

LIVE = text("status IN ('queued', 'running', 'waiting_input', 'cancelling')")

runs = Table(
    "runs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("user_id", Text, nullable=False),
    Column("conversation_id", Text, nullable=False),
    Column("agent", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("error_code", Text),
    Column("error_message", Text),
    Column("attempt", Integer, nullable=False),
    Column("crashes", Integer, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("owner_id", Text),
    Column("owner_kind", Text),
    Column("wait", Json),
    Column("not_before", Instant),
    Column("stop", Json),
    Column("trigger_message_id", Text),
    Column("anchor_message_id", Text),
    Column("resume_of", Text),
    Column("retry_of", Text),
    Column("parent_run_id", Text),
    Column("session_id", Text),
    Column("backend_policy", Json, nullable=False),
    Column("model", Text),
    Column("model_used", Text),
    Column("budget", Json),
    Column("step_limit", Integer),
    Column("recovery", Text, nullable=False),
    Column("deadline_at", Instant),
    Column("queue_deadline_at", Instant),
    Column("tries", Json, nullable=False),
    Column("steps", Integer, nullable=False),
    Column("usage", Json, nullable=False),
    Column("cost", Json),
    Column("line", Text),
    Column("document_version", BigInteger, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("started_at", Instant),
    Column("finished_at", Instant),
    Column("renewed_at", Instant),  # an adapter's last sign of life for this run
    Column("quiet_since", Instant),  # an adapter's last sign of work; NULL: nothing is to be watched
    Index(
        "uq_runs_live_conversation",
        "conversation_id",
        unique=True,
        sqlite_where=LIVE,
        postgresql_where=LIVE,
    ),
    Index("ix_runs_conversation", "conversation_id", "created_at"),
    Index("ix_runs_user", "user_id", "created_at"),
    Index("ix_runs_live", "status", "created_at", "id", sqlite_where=LIVE, postgresql_where=LIVE),
)

run_inputs = Table(
    "run_inputs",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("conversation_id", Text, nullable=False),
    Column("input", Json),  # None: a run without an input of its own (resume)
    Column("composed_at", Instant, nullable=False),
)

run_steps = Table(
    "run_steps",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("conversation_id", Text, nullable=False),
    Column("num", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("kind", Text, nullable=False),  # model | tool | step
    Column("name", Text, nullable=False),
    Column("status", Text, nullable=False),  # running | done | failed | cancelled | unknown
    Column("summary", Text),
    Column("checkpoint_id", Text),
    Column("started_at", Instant, nullable=False),
    Column("ms", Integer),
    Column("usage", Json),  # of a model call: {"input", "output", "cached", "reasoning"}; NULL: not told
    Column("cost", Json),  # of a model call: {"currency", "amount", "estimated"}; NULL: price unknown
)

run_attempts = Table(
    "run_attempts",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("conversation_id", Text, nullable=False),
    Column("owner_id", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("started_at", Instant, nullable=False),
    Column("ended_at", Instant),
    Column("reason", Text),  # reason of the status change that ended the attempt
)

run_documents = Table(
    "run_documents",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("conversation_id", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("content", Json, nullable=False),  # content part of run_document.v1, text included
    Column("saved_at", Instant, nullable=False),
)

run_followups = Table(
    "run_followups",
    metadata,
    Column("id", Text, primary_key=True),
    Column("user_id", Text, nullable=False),
    Column("conversation_id", Text, nullable=False),
    Column("run_id", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("when_busy", Text, nullable=False),
    Column("asked", Text),  # the mode that was asked for, where it acts as another; NULL: as asked
    Column("content", Json, nullable=False),
    Column("run_options", Json),  # what the message asked of its run: agent, model, budget, …
    Column("position", BigInteger, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("during_stop", Boolean, nullable=False, server_default=text("false")),  # accepted while cancelling
    Column("message_id", Text),  # once applied
    Column("created_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
    Index("ix_run_followups_conversation", "conversation_id", "status", "position"),
)

requests = Table(
    "requests",
    metadata,
    Column("id", Text, primary_key=True),
    Column("user_id", Text, nullable=False),
    Column("conversation_id", Text, nullable=False),
    Column("run_id", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("tool", Text),
    Column("tool_call_id", Text),
    Column("arguments", Json),
    Column("arguments_sha256", Text),
    Column("prompt", Text),
    Column("options", Json),
    Column("status", Text, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("expires_at", Instant),
    Column("on_timeout", Text),
    Column("opened_at", Instant, nullable=False),
    Column("decided_by", Text),
    Column("decided_at", Instant),
    Column("decision", Json),
    Column("comment", Text),
    Column("consumed_epoch", BigInteger),
    Column("replaces", Text),
    Column("answer_schema", Json),  # JSON Schema of the answer; NULL: anything
    Column("default_decision", Json),  # what counts where it expires with on_timeout = default
    Column("decisions", Json),  # what it takes: approve, deny, answer; NULL: the usual of its kind
    Column("engine_id", Text),  # the engine's own name for the question (an interrupt's id)
    Column("call_key", Text),  # the journal's call that it is about; NULL: none
    Column("grants", Json),  # whether leave may be given for good, and for what: ["call", "tool"]
    Index("ix_requests_run", "run_id", "status"),
    Index("ix_requests_user", "user_id", "status"),
    Index("ix_requests_call", "call_key"),
)

tool_calls = Table(
    "tool_calls",
    metadata,
    Column("key", Text, primary_key=True),
    Column("conversation_id", Text, nullable=False),
    Column("run_id", Text, nullable=False),  # the run that wrote the newest intent
    Column("tool", Text, nullable=False),
    Column("tool_call_id", Text, nullable=False),
    Column("replay", Text, nullable=False),  # read | keyed | unsafe
    Column("arguments", Json, nullable=False),  # as the agent asked
    Column("arguments_sha256", Text, nullable=False),
    Column("edited", Json),  # as a person changed them; these were called
    Column("status", Text, nullable=False),  # intent | parked | done
    Column("epoch", BigInteger, nullable=False),  # of the newest intent
    Column("tries", Integer, nullable=False),  # intents written
    Column("request_id", Text),  # the decision that the newest intent rests on
    Column("grant_id", Text),
    Column("outcome", Json),  # {"text", "is_error", "structured"}
    Column("state", Json),  # what a call that parked itself goes on with
    Column("begun_at", Instant, nullable=False),
    Column("ended_at", Instant),
    Column("keep_until", Instant),  # from then on a sweep looks whether anything may still ask for it
    Index("ix_tool_calls_conversation", "conversation_id", "tool_call_id"),
    Index("ix_tool_calls_run", "run_id", "status"),
    Index("ix_tool_calls_kept", "keep_until"),
)

tool_grants = Table(
    "tool_grants",
    metadata,
    Column("id", Text, primary_key=True),
    Column("user_id", Text, nullable=False),
    Column("conversation_id", Text, nullable=False),
    Column("tool", Text, nullable=False),
    Column("arguments", Json),  # NULL: the whole tool
    Column("arguments_sha256", Text),  # NULL: the whole tool
    Column("request_id", Text, nullable=False),  # where it was given
    Column("created_at", Instant, nullable=False),
    Column("revoked_at", Instant),
    Index("ix_tool_grants_conversation", "conversation_id", "tool"),
    Index("ix_tool_grants_user", "user_id", "created_at"),
)

run_tokens = Table(
    "run_tokens",
    metadata,
    Column("token_sha256", Text, primary_key=True),  # the token itself is told once and kept nowhere
    Column("run_id", Text, nullable=False),
    Column("conversation_id", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("session", Text, nullable=False),  # the adapter session it was given to
    Column("created_at", Instant, nullable=False),
    Column("spent_at", Instant),  # the epoch ended; it still names its run for a day
    Column("claim_key", Text),  # digest of the claim's Idempotency-Key; NULL: it had none
    Column("claim_body", Text),  # digest of that claim's body
    Column("veiled", Text),  # the token, readable with that key only, for a repeat of the claim
    Index("ix_run_tokens_run", "run_id"),
    Index("uq_run_tokens_claim_key", "claim_key", unique=True),
    Index("ix_run_tokens_spent", "spent_at"),
)

message_revisions = Table(
    "message_revisions",
    metadata,
    Column("followup_id", Text, primary_key=True),
    Column("num", Integer, primary_key=True, autoincrement=False),  # 1 is the text as it was first sent
    Column("conversation_id", Text, nullable=False),
    Column("content", Json, nullable=False),
    Column("author_id", Text, nullable=False),
    Column("created_at", Instant, nullable=False),
)

events = Table(
    "events",
    metadata,
    Column("user_id", Text, primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("type", Text, nullable=False),
    Column("conversation_id", Text),
    Column("run_id", Text),
    Column("at", Instant, nullable=False),
    Column("payload", Json),
    Index("ix_events_run", "run_id"),
    Index("ix_events_conversation", "conversation_id"),
)

leases = Table(
    "leases",
    metadata,
    Column("owner_id", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("host", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("started_at", Instant, nullable=False),
    Column("renewed_at", Instant, nullable=False),
    Column("lease_until", Instant),  # NULL: no expiry (the data folder's lock is the proof of life)
)

idempotency = Table(
    "idempotency",
    metadata,
    Column("user_id", Text, primary_key=True),
    Column("route", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("body_sha256", Text, nullable=False),
    Column("status", Integer, nullable=False),
    Column("answer", Text, nullable=False),  # the JSON that was sent
    Column("created_at", Instant, nullable=False),
    Index("ix_idempotency_created", "created_at"),
)

checkpoints = Table(
    "checkpoints",
    metadata,
    Column("thread_id", Text, primary_key=True),
    Column("checkpoint_ns", Text, primary_key=True),
    Column("checkpoint_id", Text, primary_key=True),
    Column("parent_checkpoint_id", Text),
    Column("run_id", Text),
    Column("source", Text),
    Column("step", Integer),
    Column("message_count", Integer, nullable=False, server_default="0"),
    Column("type", Text, nullable=False),
    Column("checkpoint", LargeBinary, nullable=False),
    Column("metadata", Json, nullable=False),
    Column("created_at", Instant, nullable=False),
    Index("ix_checkpoints_run", "run_id"),
)

checkpoint_blobs = Table(
    "checkpoint_blobs",
    metadata,
    Column("thread_id", Text, primary_key=True),
    Column("checkpoint_ns", Text, primary_key=True),
    Column("channel", Text, primary_key=True),
    Column("version", Text, primary_key=True),
    Column("type", Text, nullable=False),
    Column("value", LargeBinary),
)

writes = Table(
    "writes",
    metadata,
    Column("thread_id", Text, primary_key=True),
    Column("checkpoint_ns", Text, primary_key=True),
    Column("checkpoint_id", Text, primary_key=True),
    Column("task_id", Text, primary_key=True),
    Column("idx", Integer, primary_key=True, autoincrement=False),
    Column("channel", Text, nullable=False),
    Column("type", Text),
    Column("value", LargeBinary),
    Column("task_path", Text, nullable=False, server_default=""),
    Column("run_id", Text),
)
