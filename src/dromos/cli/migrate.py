"""`dromos migrate`: words for what was done. It must not do it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dromos.store.migrations import Migrated


def tell(database: str, done: Migrated, *, as_json: bool) -> None:
    """One line for a person, or one document for a program. `database` is the address without its password."""
    if as_json:
        facts = {"database": database, "before": done.before, "after": done.after, "changed": done.changed}
        print(json.dumps(facts, indent=2))
    elif done.changed:
        print(f"{database}: schema {done.before or 'none'} → {done.after}")
    else:
        print(f"{database} is up to date (schema {done.after})")
