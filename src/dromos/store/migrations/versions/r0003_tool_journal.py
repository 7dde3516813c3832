"""The journal of tool calls, leave that a person gave for good, and what call a question is about.

Revision ID: 0003
Revises: 0002
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

Text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.add_column("requests", sa.Column("call_key", Text))
    op.add_column("requests", sa.Column("grants", Text))
    op.create_index("ix_requests_call", "requests", ["call_key"])
    op.create_table(
        "tool_calls",
        sa.Column("key", Text, nullable=False),
        sa.Column("conversation_id", Text, nullable=False),
        sa.Column("run_id", Text, nullable=False),
        sa.Column("tool", Text, nullable=False),
        sa.Column("tool_call_id", Text, nullable=False),
        sa.Column("replay", Text, nullable=False),
        sa.Column("arguments", Text, nullable=False),
        sa.Column("arguments_sha256", Text, nullable=False),
        sa.Column("edited", Text),
        sa.Column("status", Text, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("request_id", Text),
        sa.Column("grant_id", Text),
        sa.Column("outcome", Text),
        sa.Column("state", Text),
        sa.Column("begun_at", Text, nullable=False),
        sa.Column("ended_at", Text),
        sa.Column("keep_until", Text),
        sa.PrimaryKeyConstraint("key", name="pk_tool_calls"),
    )
    op.create_index("ix_tool_calls_conversation", "tool_calls", ["conversation_id", "tool_call_id"])
    op.create_index("ix_tool_calls_run", "tool_calls", ["run_id", "status"])
    op.create_index("ix_tool_calls_kept", "tool_calls", ["keep_until"])
    op.create_table(
        "tool_grants",
        sa.Column("id", Text, nullable=False),
        sa.Column("user_id", Text, nullable=False),
        sa.Column("conversation_id", Text, nullable=False),
        sa.Column("tool", Text, nullable=False),
        sa.Column("arguments", Text),
        sa.Column("arguments_sha256", Text),
        sa.Column("request_id", Text, nullable=False),
        sa.Column("created_at", Text, nullable=False),
        sa.Column("revoked_at", Text),
        sa.PrimaryKeyConstraint("id", name="pk_tool_grants"),
    )
    op.create_index("ix_tool_grants_conversation", "tool_grants", ["conversation_id", "tool"])
    op.create_index("ix_tool_grants_user", "tool_grants", ["user_id", "created_at"])


def downgrade() -> None:
    raise NotImplementedError("a schema is not taken back: restore a backup instead")
