"""How many messages wait or are held in a conversation, with its row: most have none, and need not look.

Revision ID: 0005
Revises: 0004
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "conversations", sa.Column("open_followups", sa.Integer, nullable=False, server_default="0")
    )
    op.execute(
        "UPDATE conversations SET open_followups = (SELECT count(*) FROM run_followups"
        " WHERE run_followups.conversation_id = conversations.id AND run_followups.status IN ('waiting', 'held'))"
    )


def downgrade() -> None:
    raise NotImplementedError("a schema is not taken back: restore a backup instead")
