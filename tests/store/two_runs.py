"""A store with two runs, each in a conversation of its own, and an operation that locks one of them."""

from __future__ import annotations

from functools import partial

from dromos.domain.runs import Run
from dromos.ports.store import Store, Tx
from dromos.testing.conformance.rows_of import a_user_with, run


async def add_two_runs(store: Store) -> None:
    """`r1` in `c1` and `r2` in `c2`, of the user `ada`."""
    await a_user_with(store, "c1", "c2")
    for number in (1, 2):
        await store.write(partial(_insert, run(f"r{number}", f"c{number}")))


def _insert(made: Run, tx: Tx) -> None:
    tx.insert_run(made)


def lock(number: int, tx: Tx) -> Run:
    found = tx.lock_run(f"r{number}", within=f"c{number}")
    assert found is not None
    return found
