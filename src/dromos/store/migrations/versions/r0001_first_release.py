"""All tables of the first release, as they were then.

Revision ID: 0001
Revises: -
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

Text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "checkpoint_blobs",
        sa.Column("thread_id", Text, nullable=False),
        sa.Column("checkpoint_ns", Text, nullable=False),
        sa.Column("channel", Text, nullable=False),
        sa.Column("version", Text, nullable=False),
        sa.Column("type", Text, nullable=False),
        sa.Column("value", sa.LargeBinary),
        sa.PrimaryKeyConstraint(
            "thread_id", "checkpoint_ns", "channel", "version", name="pk_checkpoint_blobs"
        ),
    )
    op.create_table(
        "checkpoints",
        sa.Column("thread_id", Text, nullable=False),
        sa.Column("checkpoint_ns", Text, nullable=False),
        sa.Column("checkpoint_id", Text, nullable=False),
        sa.Column("parent_checkpoint_id", Text),
        sa.Column("run_id", Text),
        sa.Column("source", Text),
        sa.Column("step", sa.Integer),
        sa.Column("message_count", sa.Integer, nullable=False, server_default="0"),
        sa.Column("type", Text, nullable=False),
        sa.Column("checkpoint", sa.LargeBinary, nullable=False),
        sa.Column("metadata", Text, nullable=False),
        sa.Column("created_at", Text, nullable=False),
        sa.PrimaryKeyConstraint("thread_id", "checkpoint_ns", "checkpoint_id", name="pk_checkpoints"),
    )
    op.create_index("ix_checkpoints_run", "checkpoints", ["run_id"])
    op.create_table(
        "conversations",
        sa.Column("id", Text, nullable=False),
        sa.Column("user_id", Text, nullable=False),
        sa.Column("title", Text, nullable=False),
        sa.Column("agent", Text, nullable=False),
        sa.Column("state", Text, nullable=False, server_default="open"),
        sa.Column("archived", sa.Boolean, nullable=False, server_default=sa.text("false")),
        sa.Column("message_count", sa.Integer, nullable=False, server_default="0"),
        sa.Column("next_num", sa.BigInteger, nullable=False, server_default="1"),
        sa.Column("last_run_id", Text),
        sa.Column("seen_seq", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("created_at", Text, nullable=False),
        sa.Column("updated_at", Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_conversations"),
    )
    op.create_index("ix_conversations_user", "conversations", ["user_id", "updated_at"])
    op.create_table(
        "events",
        sa.Column("user_id", Text, nullable=False),
        sa.Column("seq", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("type", Text, nullable=False),
        sa.Column("conversation_id", Text),
        sa.Column("run_id", Text),
        sa.Column("at", Text, nullable=False),
        sa.Column("payload", Text),
        sa.PrimaryKeyConstraint("user_id", "seq", name="pk_events"),
    )
    op.create_index("ix_events_conversation", "events", ["conversation_id"])
    op.create_index("ix_events_run", "events", ["run_id"])
    op.create_table(
        "idempotency",
        sa.Column("user_id", Text, nullable=False),
        sa.Column("route", Text, nullable=False),
        sa.Column("key", Text, nullable=False),
        sa.Column("body_sha256", Text, nullable=False),
        sa.Column("status", sa.Integer, nullable=False),
        sa.Column("answer", Text, nullable=False),
        sa.Column("created_at", Text, nullable=False),
        sa.PrimaryKeyConstraint("user_id", "route", "key", name="pk_idempotency"),
    )
    op.create_index("ix_idempotency_created", "idempotency", ["created_at"])
    op.create_table(
        "leases",
        sa.Column("owner_id", Text, nullable=False),
        sa.Column("kind", Text, nullable=False),
        sa.Column("host", Text, nullable=False),
        sa.Column("pid", sa.Integer, nullable=False),
        sa.Column("started_at", Text, nullable=False),
        sa.Column("renewed_at", Text, nullable=False),
        sa.Column("lease_until", Text),
        sa.PrimaryKeyConstraint("owner_id", name="pk_leases"),
    )
    op.create_table(
        "messages",
        sa.Column("conversation_id", Text, nullable=False),
        sa.Column("num", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("id", Text, nullable=False),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Column("role", Text),
        sa.Column("kind", Text, nullable=False),
        sa.Column("content", Text),
        sa.Column("tool_calls", Text),
        sa.Column("tool_call_id", Text),
        sa.Column("name", Text),
        sa.Column("status", Text),
        sa.Column("run_id", Text),
        sa.Column("interrupted", sa.Boolean, nullable=False, server_default=sa.text("false")),
        sa.Column("hidden", sa.Boolean, nullable=False, server_default=sa.text("false")),
        sa.Column("ns", Text, nullable=False, server_default=""),
        sa.Column("channel", Text, nullable=False, server_default="messages"),
        sa.Column("log_seq", sa.BigInteger),
        sa.Column("pending_of", Text),
        sa.Column("engine", sa.LargeBinary),
        sa.Column("engine_type", Text),
        sa.Column("created_at", Text, nullable=False),
        sa.PrimaryKeyConstraint("conversation_id", "num", name="pk_messages"),
    )
    op.create_index("ix_messages_id", "messages", ["conversation_id", "id"])
    op.create_index("ix_messages_position", "messages", ["conversation_id", "position"])
    op.create_index(
        "ix_messages_unlogged",
        "messages",
        ["conversation_id", "kind"],
        sqlite_where=sa.text("log_seq IS NULL"),
        postgresql_where=sa.text("log_seq IS NULL"),
    )
    op.create_index(
        "uq_messages_log",
        "messages",
        ["conversation_id", "ns", "channel", "log_seq"],
        unique=True,
        sqlite_where=sa.text("log_seq IS NOT NULL"),
        postgresql_where=sa.text("log_seq IS NOT NULL"),
    )
    op.create_table(
        "requests",
        sa.Column("id", Text, nullable=False),
        sa.Column("user_id", Text, nullable=False),
        sa.Column("conversation_id", Text, nullable=False),
        sa.Column("run_id", Text, nullable=False),
        sa.Column("kind", Text, nullable=False),
        sa.Column("tool", Text),
        sa.Column("tool_call_id", Text),
        sa.Column("arguments", Text),
        sa.Column("arguments_sha256", Text),
        sa.Column("prompt", Text),
        sa.Column("options", Text),
        sa.Column("status", Text, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("expires_at", Text),
        sa.Column("on_timeout", Text),
        sa.Column("opened_at", Text, nullable=False),
        sa.Column("decided_by", Text),
        sa.Column("decided_at", Text),
        sa.Column("decision", Text),
        sa.Column("comment", Text),
        sa.Column("consumed_epoch", sa.BigInteger),
        sa.Column("replaces", Text),
        sa.PrimaryKeyConstraint("id", name="pk_requests"),
    )
    op.create_index("ix_requests_run", "requests", ["run_id", "status"])
    op.create_index("ix_requests_user", "requests", ["user_id", "status"])
    op.create_table(
        "run_attempts",
        sa.Column("run_id", Text, nullable=False),
        sa.Column("attempt", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("conversation_id", Text, nullable=False),
        sa.Column("owner_id", Text, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("started_at", Text, nullable=False),
        sa.Column("ended_at", Text),
        sa.Column("reason", Text),
        sa.PrimaryKeyConstraint("run_id", "attempt", name="pk_run_attempts"),
    )
    op.create_table(
        "run_documents",
        sa.Column("run_id", Text, nullable=False),
        sa.Column("conversation_id", Text, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("content", Text, nullable=False),
        sa.Column("saved_at", Text, nullable=False),
        sa.PrimaryKeyConstraint("run_id", name="pk_run_documents"),
    )
    op.create_table(
        "run_followups",
        sa.Column("id", Text, nullable=False),
        sa.Column("user_id", Text, nullable=False),
        sa.Column("conversation_id", Text, nullable=False),
        sa.Column("run_id", Text, nullable=False),
        sa.Column("status", Text, nullable=False),
        sa.Column("when_busy", Text, nullable=False),
        sa.Column("content", Text, nullable=False),
        sa.Column("run_options", Text),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("during_stop", sa.Boolean, nullable=False, server_default=sa.text("false")),
        sa.Column("message_id", Text),
        sa.Column("created_at", Text, nullable=False),
        sa.Column("updated_at", Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_run_followups"),
    )
    op.create_index(
        "ix_run_followups_conversation", "run_followups", ["conversation_id", "status", "position"]
    )
    op.create_table(
        "run_inputs",
        sa.Column("run_id", Text, nullable=False),
        sa.Column("conversation_id", Text, nullable=False),
        sa.Column("input", Text),
        sa.Column("composed_at", Text, nullable=False),
        sa.PrimaryKeyConstraint("run_id", name="pk_run_inputs"),
    )
    op.create_table(
        "run_steps",
        sa.Column("run_id", Text, nullable=False),
        sa.Column("id", Text, nullable=False),
        sa.Column("conversation_id", Text, nullable=False),
        sa.Column("num", sa.Integer, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("kind", Text, nullable=False),
        sa.Column("name", Text, nullable=False),
        sa.Column("status", Text, nullable=False),
        sa.Column("summary", Text),
        sa.Column("checkpoint_id", Text),
        sa.Column("started_at", Text, nullable=False),
        sa.Column("ms", sa.Integer),
        sa.PrimaryKeyConstraint("run_id", "id", name="pk_run_steps"),
    )
    op.create_table(
        "runs",
        sa.Column("id", Text, nullable=False),
        sa.Column("user_id", Text, nullable=False),
        sa.Column("conversation_id", Text, nullable=False),
        sa.Column("agent", Text, nullable=False),
        sa.Column("status", Text, nullable=False),
        sa.Column("reason", Text, nullable=False),
        sa.Column("error_code", Text),
        sa.Column("error_message", Text),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("crashes", sa.Integer, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("owner_id", Text),
        sa.Column("owner_kind", Text),
        sa.Column("wait", Text),
        sa.Column("not_before", Text),
        sa.Column("stop", Text),
        sa.Column("trigger_message_id", Text),
        sa.Column("anchor_message_id", Text),
        sa.Column("resume_of", Text),
        sa.Column("retry_of", Text),
        sa.Column("parent_run_id", Text),
        sa.Column("session_id", Text),
        sa.Column("backend_policy", Text, nullable=False),
        sa.Column("model", Text),
        sa.Column("model_used", Text),
        sa.Column("budget", Text),
        sa.Column("step_limit", sa.Integer),
        sa.Column("recovery", Text, nullable=False),
        sa.Column("deadline_at", Text),
        sa.Column("queue_deadline_at", Text),
        sa.Column("tries", Text, nullable=False),
        sa.Column("steps", sa.Integer, nullable=False),
        sa.Column("usage", Text, nullable=False),
        sa.Column("cost", Text),
        sa.Column("line", Text),
        sa.Column("document_version", sa.BigInteger, nullable=False),
        sa.Column("created_at", Text, nullable=False),
        sa.Column("started_at", Text),
        sa.Column("finished_at", Text),
        sa.PrimaryKeyConstraint("id", name="pk_runs"),
    )
    op.create_index("ix_runs_conversation", "runs", ["conversation_id", "created_at"])
    op.create_index(
        "ix_runs_live",
        "runs",
        ["status", "created_at", "id"],
        sqlite_where=sa.text("status IN ('queued', 'running', 'waiting_input', 'cancelling')"),
        postgresql_where=sa.text("status IN ('queued', 'running', 'waiting_input', 'cancelling')"),
    )
    op.create_index("ix_runs_user", "runs", ["user_id", "created_at"])
    op.create_index(
        "uq_runs_live_conversation",
        "runs",
        ["conversation_id"],
        unique=True,
        sqlite_where=sa.text("status IN ('queued', 'running', 'waiting_input', 'cancelling')"),
        postgresql_where=sa.text("status IN ('queued', 'running', 'waiting_input', 'cancelling')"),
    )
    op.create_table(
        "users",
        sa.Column("id", Text, nullable=False),
        sa.Column("name", Text, nullable=False),
        sa.Column("last_seq", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("first_seq", sa.BigInteger, nullable=False, server_default="1"),
        sa.Column("created_at", Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_users"),
    )
    op.create_table(
        "writes",
        sa.Column("thread_id", Text, nullable=False),
        sa.Column("checkpoint_ns", Text, nullable=False),
        sa.Column("checkpoint_id", Text, nullable=False),
        sa.Column("task_id", Text, nullable=False),
        sa.Column("idx", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("channel", Text, nullable=False),
        sa.Column("type", Text),
        sa.Column("value", sa.LargeBinary),
        sa.Column("task_path", Text, nullable=False, server_default=""),
        sa.Column("run_id", Text),
        sa.PrimaryKeyConstraint(
            "thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "idx", name="pk_writes"
        ),
    )


def downgrade() -> None:
    raise NotImplementedError("there is nothing before the first release: restore a backup instead")
