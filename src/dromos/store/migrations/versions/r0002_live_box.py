"""Adapters' tokens and signs of life, revisions of waiting texts, usage and cost of model calls, richer questions.

Revision ID: 0002
Revises: 0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

Text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.add_column("conversations", sa.Column("unseen_seq", sa.BigInteger, nullable=False, server_default="0"))
    # What was told of a conversation behind the newest event somebody saw there is still to be looked at.
    op.execute(
        "UPDATE conversations SET unseen_seq = COALESCE((SELECT MAX(events.seq) FROM events"
        " WHERE events.conversation_id = conversations.id AND events.user_id = conversations.user_id), 0)"
    )
    op.execute("UPDATE conversations SET unseen_seq = 0 WHERE unseen_seq <= seen_seq")
    op.add_column("run_steps", sa.Column("usage", Text))
    op.add_column("run_steps", sa.Column("cost", Text))
    op.add_column("runs", sa.Column("renewed_at", Text))
    op.add_column("run_followups", sa.Column("asked", Text))
    op.add_column("requests", sa.Column("answer_schema", Text))
    op.add_column("requests", sa.Column("default_decision", Text))
    op.add_column("requests", sa.Column("decisions", Text))
    op.add_column("requests", sa.Column("engine_id", Text))
    op.create_table(
        "run_tokens",
        sa.Column("token_sha256", Text, nullable=False),
        sa.Column("run_id", Text, nullable=False),
        sa.Column("conversation_id", Text, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("session", Text, nullable=False),
        sa.Column("created_at", Text, nullable=False),
        sa.Column("spent_at", Text),
        sa.Column("claim_key", Text),
        sa.Column("claim_body", Text),
        sa.Column("veiled", Text),
        sa.PrimaryKeyConstraint("token_sha256", name="pk_run_tokens"),
    )
    op.create_index("ix_run_tokens_run", "run_tokens", ["run_id"])
    op.create_index("uq_run_tokens_claim_key", "run_tokens", ["claim_key"], unique=True)
    op.create_index("ix_run_tokens_spent", "run_tokens", ["spent_at"])
    op.create_table(
        "message_revisions",
        sa.Column("followup_id", Text, nullable=False),
        sa.Column("num", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("conversation_id", Text, nullable=False),
        sa.Column("content", Text, nullable=False),
        sa.Column("author_id", Text, nullable=False),
        sa.Column("created_at", Text, nullable=False),
        sa.PrimaryKeyConstraint("followup_id", "num", name="pk_message_revisions"),
    )


def downgrade() -> None:
    raise NotImplementedError("a schema is not taken back: restore a backup instead")
