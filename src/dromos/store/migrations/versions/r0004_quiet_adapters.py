"""Since when the work of an adapter's run is quiet.

Revision ID: 0004
Revises: 0003
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

Text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.add_column("runs", sa.Column("quiet_since", Text))
    # Of runs that adapters have now, the last patch counts as the last sign of work.
    op.execute(
        "UPDATE runs SET quiet_since = (SELECT saved_at FROM run_documents"
        " WHERE run_documents.run_id = runs.id AND run_documents.epoch = runs.epoch)"
        " WHERE status = 'running' AND owner_kind = 'adapter'"
    )


def downgrade() -> None:
    raise NotImplementedError("a schema is not taken back: restore a backup instead")
