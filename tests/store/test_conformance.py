"""The conformance suite of `dromos.testing.conformance`, run on SQLite and on PostgreSQL."""

from __future__ import annotations

from dromos.testing.conformance.events import TestEvents
from dromos.testing.conformance.rows import TestChanges, TestConditions, TestValues
from dromos.testing.conformance.runs import TestClaims, TestFence, TestOneLiveRun, TestOneRun
from dromos.testing.conformance.transactions import TestAhead, TestEnd, TestGroups, TestLoad, TestOperations

__all__ = [
    "TestAhead",
    "TestChanges",
    "TestClaims",
    "TestConditions",
    "TestEnd",
    "TestEvents",
    "TestFence",
    "TestGroups",
    "TestLoad",
    "TestOneLiveRun",
    "TestOneRun",
    "TestOperations",
    "TestValues",
]
