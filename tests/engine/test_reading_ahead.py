"""A worker reads candidates ahead; what changes their order meanwhile is seen."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from canard_pipe.engine.reading_ahead import MOST, SECONDS
from canard_pipe.engine.worker import Worker, work
from canard_pipe.errors import StorageError
from tests.engine.conftest import owner_of


def claim(db, limit: int = 1) -> list[str]:
    return [claim.id for claim in db.claim_many(limit, ahead=True)]


def spawn(db, *ids: str, **options) -> None:
    db.spawn_many("job", [None] * len(ids), ids=ids, **options)


def test_tasks_come_in_order_and_are_read_once(db, faults):
    """S7."""
    spawn(db, *(f"t{at}" for at in range(10)))
    faults.names.clear()
    assert [claim(db) for _ in range(4)] == [["t0"], ["t1"], ["t2"], ["t3"]]
    assert claim(db, 3) == ["t4", "t5", "t6"]
    assert faults.names.count("claim_candidates") == 1
    assert claim(db, 9) == ["t7", "t8", "t9"]
    assert claim(db) == []


@pytest.mark.parametrize("change", [
    lambda db: spawn(db, "urgent", priority=9),
    lambda db: owner_of(db).write("retry_tasks", [{"seq": 1, "version": 2}]),
], ids=["spawned", "retried"])
def test_a_change_of_this_process_is_seen_at_the_next_claim(db, change: Callable[[object], None]):
    """S7: whatever comes first now is claimed first."""
    spawn(db, "urgent-once", priority=5)
    db.claim_many(1)[0].complete()
    spawn(db, *(f"t{at}" for at in range(5)))
    assert claim(db) == ["t0"]
    change(db)
    assert claim(db)[0].startswith("urgent")


def test_a_cancelled_task_is_not_claimed(db):
    """F14."""
    spawn(db, "a", "b", "c")
    assert claim(db) == ["a"]
    db.cancel("b")
    assert claim(db) == ["c"]


def test_what_another_process_has_taken_is_read_anew(db):
    """G3: the version that was read is the fence; nothing is claimed twice, nothing is left out."""
    spawn(db, "a", "b", "c")
    assert claim(db) == ["a"]
    db.store.sql("UPDATE canard_absurd.tasks SET version = version + 1, priority = -1 WHERE id = 'b'")
    assert claim(db) == ["c"]
    assert claim(db) == ["b"]


def test_a_claim_that_could_not_be_committed_leaves_nothing_out(db, faults):
    spawn(db, "a", "b")
    faults.planned["commit"] = "before"
    with pytest.raises(Exception, match="disk"):
        claim(db)
    assert claim(db, 2) == ["a", "b"]


def test_what_becomes_due_is_seen_when_the_time_is_over(db, clock):
    spawn(db, *(f"t{at}" for at in range(5)))
    spawn(db, "due", priority=9)
    db.claim_many(1, ids=["due"])[0].fail("later", delay_seconds=SECONDS / 2)
    assert claim(db) == ["t0"]
    clock.advance(SECONDS * 0.9)
    assert claim(db) == ["t1"]
    clock.advance(SECONDS * 0.2)
    assert claim(db) == ["due"]


def test_other_names_or_ids_are_read_for_themselves(db):
    """S8."""
    spawn(db, *(f"t{at}" for at in range(5)))
    db.spawn("other", id="o")
    assert claim(db) == ["t0"]
    assert [claim.id for claim in db.claim_many(1, names=["other"], ahead=True)] == ["o"]
    assert [claim.id for claim in db.claim_many(1, ids=["t4"], ahead=True)] == ["t4"]


def test_large_inputs_come_with_the_claim(db):
    """What is read ahead is small, whatever the inputs are."""
    large = ["x" * 5000]
    db.spawn_many("job", [large, "small", large], ids=["a", "b", "c"])
    claims = [db.claim_many(1, ahead=True)[0], *db.claim_many(2, ahead=True)]
    assert [claim.input for claim in claims] == [large, "small", large]
    assert [len(json.dumps(claim.input)) > 4096 for claim in claims] == [True, False, True]


def test_more_than_is_read_ahead_can_be_claimed_at_once(db):
    spawn(db, *(f"t{at:03}" for at in range(MOST + 9)))
    assert len(claim(db, MOST + 5)) == MOST + 5


def transactions(faults) -> int:
    return faults.names.count("commit")


@pytest.mark.embedded("a connection claims by itself, by messages")
def test_a_slot_claims_its_next_task_with_the_end_of_the_last(db, faults):
    """S5: one transaction ends a task and claims the next, as long as candidates are at hand."""
    spawn(db, *(f"t{at}" for at in range(5)))
    ran: list[str] = []
    faults.names.clear()
    assert work(db, {"job": lambda _input, ctx: ran.append(ctx.id)}, idle_timeout=0, poll_seconds=60) == 5
    assert ran == [f"t{at}" for at in range(5)]
    assert transactions(faults) == 6 + 1  # the first claim, five ends, the claim that finds nothing
    assert {task.state for task in db.tasks()} == {"completed"}
    assert db.store.sql("SELECT count(*), max(attempt) FROM canard_absurd.attempts")[1] == [(5, 1)]


@pytest.mark.embedded("a connection claims by itself, by messages")
def test_a_task_that_was_taken_meanwhile_is_not_claimed_with_an_end(db):
    """G3: the end stands, the claim is left out, and the next look finds what there is."""
    spawn(db, "a", "b", "c")
    ran: list[str] = []

    def handler(_input, ctx):
        ran.append(ctx.id)
        if ctx.id == "a":
            db.store.sql(
                "UPDATE canard_absurd.tasks SET version = version + 1, state = 'cancelled' WHERE id = 'b'"
            )

    assert work(db, {"job": handler}, idle_timeout=0, poll_seconds=60) == 2
    assert ran == ["a", "c"]
    assert {task.id: task.state for task in db.tasks()} == {"a": "completed", "b": "cancelled", "c": "completed"}


@pytest.mark.embedded("a connection claims by itself, by messages")
def test_what_succeeds_a_task_is_given_back_when_the_work_ends(db):
    """G21, G23: what follows the end raises, and the task that was claimed with it is ready and unharmed."""
    spawn(db, "a", "b")

    def refuse(_outcome):
        raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        work(db, {"job": lambda _input, _ctx: None}, idle_timeout=0, poll_seconds=60, on_result=refuse)
    assert [(task.id, task.state, task.failures) for task in sorted(db.tasks(), key=lambda task: task.id)] == [
        ("a", "completed", 0), ("b", "ready", 0),
    ]


def test_no_more_tasks_are_taken_than_were_asked_for(db):
    """F18."""
    spawn(db, "a", "b", "c")
    assert work(db, {"job": lambda _input, _ctx: None}, idle_timeout=0, max_tasks=2) == 2
    assert sorted(task.state for task in db.tasks()) == ["completed", "completed", "ready"]


@pytest.mark.embedded("a connection claims by itself, by messages")
def test_a_worker_looks_round_at_each_poll_however_busy_its_slots_are(db, clock):
    """L1: what waits wakes although every end is followed by a claim."""
    spawn(db, "waits", priority=1)
    spawn(db, *(f"t{at}" for at in range(4)))
    ran: list[str] = []

    def handler(_input, ctx):
        ran.append(ctx.id)
        if ctx.id == "waits":
            ctx.wait("w", events=["go"])
        if ctx.id == "t1":
            db.emit("go")
            clock.advance(0.2)

    work(db, {"job": handler}, idle_timeout=0, poll_seconds=0.1)
    assert ran == ["waits", "t0", "t1", "waits", "t2", "t3"]


@pytest.mark.embedded("a connection claims by itself, by messages")
def test_what_succeeds_a_task_is_renewed_after_the_end_was_told_slowly(db, clock):
    """S17: nobody renews it meanwhile."""
    spawn(db, "a", "b")
    left: list[float] = []

    def handler(_input, ctx):
        left.append(ctx.seconds_left())

    work(db, {"job": handler}, idle_timeout=0, poll_seconds=60, lease_seconds=10, on_result=lambda _: clock.advance(8))
    assert left == [10, 10]
    assert [(task.state, task.failures) for task in db.tasks()] == [("completed", 0)] * 2


@pytest.mark.embedded("a connection claims by itself, by messages")
def test_a_handler_that_ends_its_task_by_itself_claims_no_other(db):
    """It may go on for as long as it likes, and nobody would renew the lease of the next."""
    spawn(db, "a", "b")

    def handler(_input, ctx):
        ctx.complete()
        assert ctx.successor is None

    assert work(db, {"job": handler}, idle_timeout=0, poll_seconds=60) == 2


def test_claims_that_were_granted_are_given_back_when_the_second_look_fails(db, monkeypatch):
    """G23: else their leases would run out, which counts."""
    spawn(db, "a", "b")
    worker = Worker(db, {"job": print}, slots=2)
    worker._item_ended = True
    monkeypatch.setattr(worker, "_claim_at_most", lambda _limit, real=worker._claim_at_most: real(1))

    def fails() -> int:
        raise StorageError("no disk", operation="wake")

    monkeypatch.setattr(db, "wake", fails)
    monkeypatch.setattr(db, "sweep", lambda *_: None)
    with pytest.raises(StorageError):
        worker._claim(2)
    assert [(task.state, task.failures) for task in db.tasks()] == [("ready", 0)] * 2
