"""The guide to the adapter protocol is run as it stands: an adapter of `curl` and `jq` against the real server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.docs.test_lab import run_blocks
from tests.house.repository import DOCS


@pytest.mark.slow(120)
def test_the_guide_to_the_adapter_protocol_works_as_it_is_written(tmp_path: Path) -> None:
    output = run_blocks(DOCS / "adapters.md", tmp_path)
    _, posted, claimed, renewed, steps, messages, effects, asked, ended = [
        text.strip().splitlines() for text in output
    ]
    assert json.loads(posted[-1]) == ["queued", "no_worker"]
    claim = json.loads(claimed[-1])
    assert (claim["input"], claim["history"], claim["progress"]) == ("Which primes are below ten?", [], [])
    assert json.loads(renewed[-1]) == [None, []]
    assert json.loads(steps[-1]) == {"steps": 1}
    assert [json.loads(line)[0] for line in messages] == ["assistant", "tool"]
    assert [json.loads(line) for line in effects] == [["make", 64], "done", ["done", {"id": 7}]]
    parked, refused, decided, again = asked
    assert (json.loads(parked), refused, decided) == (["waiting_input", "open"], "lease_lost", "queued")
    assert json.loads(again) == [2, "yes", 2]
    assert json.loads(ended[0]) == ["completed", "3, 5 and 7."]
    assert [json.loads(line)[0] for line in ended[1:]] == ["user", "assistant", "tool", "assistant"]
