"""The table of a run's life: every pair of statuses, every reason, every command."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import product

import pytest

from dromos.domain.errors import AlreadyEnded, InvalidTransition, Refusal
from dromos.domain.machine import (
    CREATION,
    EDGES,
    MAX_CRASHES,
    Cancel,
    Claim,
    Command,
    Complete,
    ExceedBudget,
    Expire,
    Fail,
    HandBack,
    OwnerLost,
    Park,
    RefuseWork,
    Resume,
    Stopped,
    Supersede,
    WithdrawAgent,
    allowed,
    decide,
    ended_open,
)
from dromos.domain.reasons import ErrorCode, Reason
from dromos.domain.runs import Run
from dromos.domain.statuses import FINAL, LIVE, OWNED, TRIGGER_STATUS, Recovery, RunStatus, TriggerStatus
from tests.domain.samples import NOW, run_in

# The guide's table, written down a second time on purpose: from, to, name, reasons.
TABLE = """
queued         running        T2   claimed reclaimed input_received
queued         cancelled      T3   cancelled_by_user cancelled_by_admin cancelled_by_parent
queued         interrupted    T4   superseded agent_removed
queued         expired        T5   queue_deadline run_deadline
queued         failed         T6   attempts_exhausted agent_unavailable config_invalid
running        queued         T7   owner_lost drained retry_backoff rate_limited stalled
running        waiting_input  T8   approval_required question_asked tool_outcome_unknown
running        cancelling     T9   cancel_requested superseded run_deadline budget_exceeded
running        completed      T10  finished
running        failed         T11  agent_error model_error tool_error adapter_error stalled attempts_exhausted
running        interrupted    T12  owner_lost adapter_disconnected drained
waiting_input  queued         T13  decision_recorded default_decision
waiting_input  cancelled      T14  cancelled_by_user cancelled_by_admin cancelled_by_parent
waiting_input  expired        T15  input_deadline run_deadline
waiting_input  interrupted    T16  superseded
cancelling     cancelled      T17  cancel_requested
cancelling     interrupted    T17  superseded budget_exceeded
cancelling     expired        T17  run_deadline
"""
EXPECTED = {
    (RunStatus(source), RunStatus(target)): (name, {Reason(reason) for reason in reasons})
    for source, target, name, *reasons in (line.split() for line in TABLE.strip().splitlines())
}
PAIRS = list(product(RunStatus, RunStatus))
CAUSES = (Reason.CANCEL_REQUESTED, Reason.SUPERSEDED, Reason.BUDGET_EXCEEDED, Reason.RUN_DEADLINE)
COMMANDS: list[Command] = [
    Claim("next"),
    *(Cancel(by) for by in ("user", "admin", "parent")),
    Supersede(),
    WithdrawAgent(),
    *(Expire(reason) for reason in Reason),
    *(RefuseWork(reason, ErrorCode.CONFIG_INVALID, "no") for reason in Reason),
    *(HandBack(reason) for reason in Reason),
    *(OwnerLost(reason) for reason in (Reason.OWNER_LOST, Reason.ADAPTER_DISCONNECTED)),
    *(Park(reason) for reason in Reason),
    *(Resume(reason) for reason in Reason),
    ExceedBudget(),
    Complete("done"),
    *(Fail(code, "broken") for code in ErrorCode),
    *(Stopped(outcome) for outcome in ("acknowledged", "forced", "after_work_done")),
]


def runs_in(status: RunStatus) -> list[Run]:
    """Runs in `status` that differ in what commands look at."""
    causes = CAUSES if status is RunStatus.CANCELLING else CAUSES[:1]
    runs = [
        run_in(status, cause=cause, recovery=recovery, crashes=crashes)
        for cause in causes
        for recovery in Recovery
        for crashes in (0, MAX_CRASHES - 1)
    ]
    if status is RunStatus.QUEUED:
        runs += [
            run_in(status, attempt=1, reason=Reason.OWNER_LOST),
            run_in(status, attempt=1, reason=Reason.DECISION_RECORDED),
        ]
    return runs


def moves(source: RunStatus) -> list[tuple[Run, Command, Run]]:
    """Every change of status that any command makes from `source`."""
    found = []
    for run, command in product(runs_in(source), COMMANDS):
        try:
            after = decide(run, command, NOW).run
        except Refusal:
            continue
        if after.status is not source:
            found.append((run, command, after))
    return found


@pytest.mark.promise("L9")
@pytest.mark.parametrize(("source", "target"), PAIRS, ids=lambda status: status.value)
def test_each_of_the_81_pairs_is_an_edge_of_the_guide_or_refused(
    source: RunStatus, target: RunStatus
) -> None:
    reached = {after.reason for _, _, after in moves(source) if after.status is target}
    if (source, target) not in EXPECTED:
        assert not allowed(source, target)
        assert reached == set()
        return
    name, reasons = EXPECTED[source, target]
    assert allowed(source, target)
    assert (EDGES[source, target].name, EDGES[source, target].reasons) == (name, reasons)
    assert reached == reasons, "every reason of an edge has a command that leads there, and no other has"


def test_there_are_18_edges_and_17_rows_with_the_creation() -> None:
    assert len(PAIRS) == 81
    assert len(EDGES) == 18
    assert {edge.name for edge in EDGES.values()} | {CREATION.name} == {f"T{n}" for n in range(1, 18)}


@pytest.mark.promise("L1")
@pytest.mark.parametrize("status", FINAL, ids=lambda status: status.value)
@pytest.mark.parametrize("command", COMMANDS, ids=repr)
def test_a_final_run_is_final(status: RunStatus, command: Command) -> None:
    run = run_in(status)
    with pytest.raises(AlreadyEnded) as refused:
        decide(run, command, NOW)
    assert status.value in refused.value.detail


@pytest.mark.parametrize("source", LIVE, ids=lambda status: status.value)
def test_every_move_raises_the_version_by_one_and_the_epoch_when_ownership_changes(source: RunStatus) -> None:
    for before, _, after in moves(source):
        assert after.version == before.version + 1
        ends = before.status in OWNED and after.status not in OWNED
        begins = after.status is RunStatus.RUNNING
        assert after.epoch == before.epoch + (1 if ends or begins else 0)
        assert (after.owner_id is not None) == (after.status in OWNED)
        assert (after.finished_at is not None) == after.is_final
        assert after.attempt == before.attempt + (1 if begins else 0)


def test_a_stop_keeps_the_epoch_so_that_its_owner_can_put_things_in_order() -> None:
    running = run_in(RunStatus.RUNNING)
    stopping = decide(running, Cancel(), NOW).run
    assert (stopping.status, stopping.epoch, stopping.owner_id) == (
        RunStatus.CANCELLING,
        running.epoch,
        "owner",
    )


@pytest.mark.parametrize("cause", CAUSES, ids=lambda reason: reason.value)
@pytest.mark.parametrize(
    "command",
    [Complete("x"), Fail(ErrorCode.TOOL_FAILED, "x"), HandBack(Reason.DRAINED), OwnerLost(), Stopped()],
)
def test_an_accepted_stop_never_ends_completed_whatever_the_owner_reports(
    cause: Reason, command: Command
) -> None:
    end = {
        Reason.CANCEL_REQUESTED: RunStatus.CANCELLED,
        Reason.SUPERSEDED: RunStatus.INTERRUPTED,
        Reason.BUDGET_EXCEEDED: RunStatus.INTERRUPTED,
        Reason.RUN_DEADLINE: RunStatus.EXPIRED,
    }[cause]
    after = decide(run_in(RunStatus.CANCELLING, cause=cause), command, NOW).run
    assert (after.status, after.reason) == (end, cause)
    assert after.error_code is None


def test_the_outcome_of_a_stop_says_how_it_ended() -> None:
    stopping = run_in(RunStatus.CANCELLING)
    outcomes = {
        command: decide(stopping, command, NOW).run.stop
        for command in (Complete(), OwnerLost(), Stopped("acknowledged"), Stopped("forced", ("send_mail",)))
    }
    assert [stop.outcome for stop in outcomes.values() if stop] == [
        "after_work_done",
        "forced",
        "acknowledged",
        "forced",
    ]
    forced = outcomes[Stopped("forced", ("send_mail",))]
    assert forced is not None
    assert forced.unknown_calls == ("send_mail",)
    assert forced.forced_at == NOW


def test_a_persons_stop_outranks_a_policys_once_and_a_repeat_changes_nothing() -> None:
    superseded = run_in(RunStatus.CANCELLING, cause=Reason.SUPERSEDED)
    first = decide(superseded, Cancel("user", "enough"), NOW + timedelta(seconds=1))
    assert first.edge is None
    assert first.run.stop is not None
    assert first.run.stop.cause is Reason.CANCEL_REQUESTED
    assert first.run.stop.accepted_at == NOW
    again = decide(first.run, Cancel("admin"), NOW)
    assert not again.changed
    assert again.run is first.run
    assert not decide(first.run, Supersede(), NOW).changed


def test_a_repeat_of_a_cancel_is_accepted_after_the_end_it_led_to() -> None:
    cancelled = decide(run_in(RunStatus.QUEUED), Cancel(), NOW).run
    assert not decide(cancelled, Cancel(), NOW).changed
    with pytest.raises(AlreadyEnded):
        decide(run_in(RunStatus.COMPLETED), Cancel(), NOW)


@pytest.mark.case("P19")
def test_the_third_crash_ends_the_run_and_the_second_waits_two_seconds() -> None:
    run = run_in(RunStatus.RUNNING)
    first = decide(run, OwnerLost(), NOW).run
    assert (first.status, first.crashes, first.not_before) == (RunStatus.QUEUED, 1, None)
    second = decide(decide(first, Claim("b"), NOW).run, OwnerLost(), NOW).run
    assert (second.crashes, second.not_before) == (2, NOW + timedelta(seconds=2))
    with pytest.raises(InvalidTransition):
        decide(second, Claim("c"), NOW + timedelta(seconds=1))
    third = decide(decide(second, Claim("c"), NOW + timedelta(seconds=2)).run, OwnerLost(), NOW).run
    assert (third.status, third.reason, third.attempt, third.crashes) == (
        RunStatus.FAILED,
        Reason.ATTEMPTS_EXHAUSTED,
        3,
        3,
    )
    assert third.error_code is ErrorCode.ATTEMPTS_EXHAUSTED


@pytest.mark.parametrize(
    "reason", [Reason.DRAINED, Reason.RETRY_BACKOFF, Reason.RATE_LIMITED, Reason.STALLED]
)
def test_handing_a_run_back_counts_no_crash(reason: Reason) -> None:
    after = decide(run_in(RunStatus.RUNNING), HandBack(reason), NOW).run
    assert (after.status, after.crashes) == (RunStatus.QUEUED, 0)


def test_where_recovery_asks_a_lost_or_drained_run_ends_for_a_person_to_continue() -> None:
    run = run_in(RunStatus.RUNNING, recovery=Recovery.ASK)
    for command in (OwnerLost(), HandBack(Reason.DRAINED), OwnerLost(Reason.ADAPTER_DISCONNECTED)):
        after = decide(run, command, NOW).run
        assert after.status is RunStatus.INTERRUPTED
        assert ended_open(after)


@pytest.mark.case("P14")
def test_a_claim_shows_nothing_of_an_earlier_wait_or_end() -> None:
    waiting = decide(
        run_in(RunStatus.RUNNING), HandBack(Reason.RETRY_BACKOFF, NOW, tries={"MODEL_BAD_RESPONSE": 1}), NOW
    ).run
    again = decide(waiting, Claim("b"), NOW).run
    assert (again.reason, again.wait, again.not_before, again.finished_at, again.stop) == (
        Reason.RECLAIMED,
        None,
        None,
        None,
        None,
    )


def test_ends_are_open_exactly_by_t6_t11_and_t12() -> None:
    open_ends = set()
    for source in LIVE:
        for before, _, after in moves(source):
            if after.is_final and ended_open(after):
                open_ends.add(EDGES[before.status, after.status].name)
            elif after.is_final and after.status is not RunStatus.COMPLETED:
                assert EDGES[before.status, after.status].name in {
                    "T3",
                    "T4",
                    "T5",
                    "T14",
                    "T15",
                    "T16",
                    "T17",
                }
    assert open_ends == {"T6", "T11", "T12"}


@pytest.mark.promise("L9")
def test_the_trigger_message_has_a_status_for_every_status_of_its_run() -> None:
    assert set(TRIGGER_STATUS) == set(RunStatus)
    assert {status.value: TRIGGER_STATUS[status].value for status in FINAL} == {
        "completed": "answered",
        "failed": "failed",
        "cancelled": "cancelled",
        "interrupted": "interrupted",
        "expired": "expired",
    }
    assert TRIGGER_STATUS[RunStatus.QUEUED] is TriggerStatus.PENDING
    working = {status for status, shown in TRIGGER_STATUS.items() if shown is TriggerStatus.WORKING}
    assert working == {RunStatus.RUNNING, RunStatus.WAITING_INPUT, RunStatus.CANCELLING}


def test_a_refusal_names_the_status_that_is_and_the_one_that_was_wanted() -> None:
    with pytest.raises(InvalidTransition, match="waiting_input cannot become completed"):
        decide(run_in(RunStatus.WAITING_INPUT), Complete(), NOW)
    run = replace(run_in(RunStatus.QUEUED), not_before=NOW + timedelta(seconds=5))
    with pytest.raises(InvalidTransition, match="waits for its time"):
        decide(run, Claim("a"), NOW)
