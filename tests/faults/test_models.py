"""The protocol as models that a model checker explores whole: every order of events, not those that a test happens on.

`models/run.pml` is the life of one run, `models/journal.pml` the journal of a tool call and the messages that wait.
Each names the bugs it can be given; every one of them must be found by the property written beside it, or the property
says nothing. Needs `spin` and `gcc`; without them these tests are skipped, and the summary says so.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

MODELS = Path(__file__).parent / "models"
BUG = re.compile(r"^ {5}(BUG_\w+) .* (\w+) *(?:\*/)?$", re.MULTILINE)
LIVENESS = {"stop_ends", "decision_is_used", "comes_to_rest", "word_is_used"}
SMALL = {"run": ("CRASHES=2",), "journal": ("CRASHES=2", "MESSAGES=0")}
NEEDS_MORE = {
    "BUG_RETRYSTANDS": ("CRASHES=3", "MESSAGES=0"),
    "BUG_EPOCHONLY": ("CRASHES=2", "MESSAGES=1"),
    "BUG_FINISH2TX": ("CRASHES=2", "MESSAGES=1"),
    "BUG_SENDNOLOCK": ("CRASHES=2", "MESSAGES=1"),
    "BUG_TWOSTART": ("CRASHES=2", "MESSAGES=2"),
}
IN_EVERY_RUN = {
    "BUG_NOFENCE",
    "BUG_FIRSTCAUSE",
    "BUG_EARLYUSED",
    "BUG_OPENSETTLE",
    "BUG_REFUSE",
    "BUG_SENDNOLOCK",
}
"""One bug of each kind; the full size plants them all."""


@dataclass(frozen=True)
class Verdict:
    errors: int
    states: int


def check(
    compiler: tuple[str, str], folder: Path, model: str, claim: str, *defines: str, thorough: bool = False
) -> Verdict:
    """Explore every state of a model against one claim."""
    spin, gcc = compiler
    flags = [f"-D{define}" for define in defines]
    _call([spin, "-a", *flags, str(MODELS / f"{model}.pml")], folder)
    build = [
        gcc,
        "-w",
        "-O2" if thorough else "-O0",
        "-DCOLLAPSE",
        "-DMEMLIM=3000",
        "-DNFAIR=4",
        "-o",
        "pan",
        "pan.c",
    ]
    _call(build, folder)
    fair = ["-f"] if claim in LIVENESS else []
    sizes = ["-w24" if thorough else "-w20", f"-m{1_000_000 if fair else 100_000}"]  # slots (log), depth
    told = _call(["./pan", "-a", *fair, *sizes, "-N", claim], folder)
    assert "max search depth too small" not in told and "out of memory" not in told, told
    errors = re.search(r"errors: (\d+)", told)
    states = re.search(r"(\d+) states, stored", told)
    assert errors and states, told
    return Verdict(int(errors[1]), int(states[1]))


def _call(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def bugs(model: str) -> dict[str, str]:
    """By bug the property that must break, as the head of the model lists them."""
    head, _, _ = (MODELS / f"{model}.pml").read_text().partition("*/")
    return dict(BUG.findall(head + "*/"))


PLANTED = [
    pytest.param(
        model, bug, claim, id=f"{model}-{bug}", marks=[] if bug in IN_EVERY_RUN else [pytest.mark.full]
    )
    for model in sorted(SMALL)
    for bug, claim in bugs(model).items()
]


def test_every_bug_that_a_model_can_be_given_is_listed_with_its_property() -> None:
    for model in SMALL:
        text = (MODELS / f"{model}.pml").read_text()
        _, _, body = text.partition("*/")
        listed = bugs(model)
        assert set(listed) == set(re.findall(r"\bBUG_\w+", body)), model
        assert set(listed.values()) <= set(re.findall(r"^ltl (\w+)", body, re.MULTILINE)), model


@pytest.mark.slow(120)
@pytest.mark.parametrize("model", sorted(SMALL))
def test_no_order_of_events_breaks_what_the_protocol_promises(
    model: str, spin: tuple[str, str], tmp_path: Path
) -> None:
    verdict = check(spin, tmp_path, model, "safe", *SMALL[model])
    assert verdict.errors == 0
    assert verdict.states > 10_000, "the model has come to a stop before anything happens"


@pytest.mark.slow(180)
@pytest.mark.full
@pytest.mark.parametrize(
    ("model", "defines"),
    [
        pytest.param("run", (), id="run"),
        pytest.param("run", ("WORKERS=3", "CRASHES=2"), id="run-3-workers"),
        pytest.param("journal", ("MESSAGES=1",), id="journal-3-crashes"),
        pytest.param("journal", ("MESSAGES=2", "CRASHES=2"), id="journal-2-messages"),
    ],
)
def test_no_order_of_events_breaks_it_at_full_size(
    model: str, defines: tuple[str, ...], spin: tuple[str, str], tmp_path: Path
) -> None:
    assert check(spin, tmp_path, model, "safe", *defines, thorough=True).errors == 0


@pytest.mark.slow(120)
@pytest.mark.parametrize(
    ("model", "claim", "defines"),
    [
        pytest.param("run", "stop_ends", ("CRASHES=2",), id="stop_ends"),
        pytest.param("run", "decision_is_used", ("CRASHES=2",), id="decision_is_used"),
        pytest.param("run", "comes_to_rest", (), id="run-comes_to_rest", marks=pytest.mark.full),
        pytest.param("journal", "word_is_used", ("MESSAGES=0", "CRASHES=2", "LIVENESS"), id="word_is_used"),
        pytest.param(
            "journal",
            "comes_to_rest",
            ("WORKERS=1", "MESSAGES=1", "LIVENESS"),
            id="journal-comes_to_rest",
            marks=pytest.mark.full,
        ),
    ],
)
def test_what_must_come_to_pass_does_in_every_order_of_events(
    model: str, claim: str, defines: tuple[str, ...], spin: tuple[str, str], tmp_path: Path
) -> None:
    assert check(spin, tmp_path, model, claim, *defines).errors == 0


@pytest.mark.slow(120)
@pytest.mark.parametrize(("model", "bug", "claim"), PLANTED)
def test_a_planted_bug_is_found_by_its_property(
    model: str, bug: str, claim: str, spin: tuple[str, str], tmp_path: Path
) -> None:
    verdict = check(spin, tmp_path, model, claim, bug, *NEEDS_MORE.get(bug, SMALL[model]))
    assert verdict.errors > 0, f"{claim} holds although {bug} is planted"


ENDS = {
    "run": ("COMPLETED", "FAILED", "CANCELLED", "INTERRUPTED", "EXPIRED"),
    "journal": ("WAITING", "COMPLETED", "FAILED", "CANCELLED"),
}


@pytest.mark.slow(120)
@pytest.mark.full
@pytest.mark.parametrize(("model", "status"), [(model, end) for model in sorted(ENDS) for end in ENDS[model]])
def test_each_model_comes_to_each_of_its_ends(
    model: str, status: str, spin: tuple[str, str], tmp_path: Path
) -> None:
    assert check(spin, tmp_path, model, "unreached", f"REACH={status}", *SMALL[model]).errors > 0
