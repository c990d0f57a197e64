"""Retention removes finished tasks that nobody needs, whole, and nothing else (L5)."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from canard_pipe.engine.database import Database
from canard_pipe.errors import ConflictError, InputError, StorageError, TaskSuspended
from tests.engine.conftest import FakeClock, claimed, row, start
from tests.engine.test_fence import outcome_of, retry, sides  # noqa: F401 - sides is a fixture

DAY = 86_400.0


def ids(db) -> set[str]:
    return {task.id for task in db.tasks(limit=10_000)}


def count(db, table: str, seq: int) -> int:
    return int(db.store.sql(f"SELECT count(*) FROM canard_absurd.{table} WHERE task_seq = {seq}")[1][0][0])


def plan(db, id: str) -> None:
    db.store.sql(
        "INSERT INTO canard_absurd.planned VALUES "
        f"('p', 'sample', 'f', '{id}', '{id}', 1, 1, 1, '{id}', 'd', NULL, [], false, false, false, 'r')"
    )


def publish(db, id: str) -> None:
    db.store.sql(
        "INSERT INTO canard_absurd.outputs "
        "SELECT id, id, 'file', 's', 's', 'a', 1, 'c', seq, 1, 'published', now(), now() "
        f"FROM canard_absurd.tasks WHERE id = '{id}'"
    )


def test_a_finished_task_goes_with_all_that_belongs_to_it(db, clock):
    claim = start(db)
    claim.step("a", lambda: 1)
    claim.complete(2)
    db.store.sql(
        "INSERT INTO canard_absurd.jobs "
        "(task_seq, task_attempt, step, ordinal, attempt, executor, token, digest, folder, command, state) "
        f" VALUES ({claim.seq}, 1, 'a', 1, 1, 'local', 't', 'd', 'f', 'c', 'done')"
    )
    start(db, "other").complete(3)
    clock.advance(DAY)
    db.emit("x")
    assert db.retain(older_than_seconds=DAY, limit=1) == 1
    assert ids(db) == {"other"}
    assert [count(db, table, claim.seq) for table in ("checkpoints", "attempts", "jobs")] == [0, 0, 0]
    other = row(db, "other")["seq"]
    assert count(db, "attempts", other) == 1
    assert db.spawn("job", None, id="t") == "t"  # G25: the ID is free again
    assert row(db)["state"] == "ready"


def test_age_is_counted_from_the_end(db, clock):
    claim = start(db, lease_seconds=2 * DAY)
    clock.advance(DAY)
    claim.complete()
    clock.advance(DAY - 0.000001)
    assert db.retain(older_than_seconds=DAY) == 0
    clock.advance(0.000001)
    assert db.retain(older_than_seconds=DAY) == 1


def test_what_only_a_cancelled_task_waited_for_goes_too(db):
    """L5: a cancel leaves nothing behind that would keep it for ever."""
    db.spawn_many("job", [1, 2], ids=["waiting", "other"])
    with pytest.raises(TaskSuspended):
        claimed(db).wait("w", tasks=["other"])
    db.cancel_many(["waiting", "other"])
    assert db.store.sql("SELECT * FROM canard_absurd.waits")[1] == []
    assert db.retain(older_than_seconds=0) == 2


def test_the_latest_of_each_queue_stay(db, clock):
    for number in range(4):
        for queue in ("a", "b"):
            db.spawn("job", None, id=f"{queue}{number}", queue=queue)
            claimed(db, queue=queue).complete()
        clock.advance(1)
    clock.advance(DAY)
    assert db.retain(older_than_seconds=0, keep=3, queue="a") == 1
    assert db.retain(older_than_seconds=0, keep=2) == 3
    assert ids(db) == {"a2", "a3", "b2", "b3"}


def test_the_oldest_go_first(db, clock):
    for number in range(4):
        start(db, f"t{number}").complete()
        clock.advance(1)
    assert db.retain(older_than_seconds=0, limit=3) == 3
    assert ids(db) == {"t3"}
    assert db.retain(older_than_seconds=0, limit=0) == 0


def test_what_somebody_waits_for_stays(db, clock):
    """Also while the one who waits has been woken and has not looked yet."""
    waiter = start(db, "waiter", priority=1)
    db.spawn("job", None, id="t")
    with pytest.raises(TaskSuspended):
        waiter.wait("w", tasks=["t"])
    claimed(db).complete(5)
    assert db.retain(older_than_seconds=0) == 0
    assert db.wake() == 1
    assert db.retain(older_than_seconds=0) == 0
    again = claimed(db)
    assert again.wait("w", tasks=["t"]).tasks["t"].result == 5
    assert db.retain(older_than_seconds=0) == 1


def test_a_task_that_leaves_its_final_state_meanwhile_is_not_removed(db, clock):
    """docs/design.md, "The fence": by itself a DELETE would win over the retry that another connection commits."""
    start(db, max_failures=1).fail("no")
    rival = Database(None, root=db.root, clock=clock, beside=db, pulse_seconds=None)
    rows = [{"seq": row(db)["seq"], "version": row(db)["version"], "input": None}]

    def both() -> None:
        with db.store.transaction():
            (found,) = db.store.run("retainable_tasks", before_us=clock.now_us(), keep=0, queue=None, most=9)
            with rival.store.transaction():
                rival.store.run("retry_tasks", rows=rows, now_us=clock.now_us())
            db.store.changed("remove_tasks", rows=[{"seq": found[0], "version": found[1]}])

    with pytest.raises(ConflictError):
        both()
    assert row(db)["state"] == "ready"
    rival.close()


@pytest.mark.parametrize(("first", "at"), [
    ("retain", "remove_tasks"), ("retain", "commit"), ("retry", "retry_tasks"), ("retry", "commit"),
])
def test_of_a_removal_and_a_retry_that_overlap_exactly_one_wins(sides, first, at):  # noqa: F811 - the fixture
    """G3, on two handles: the task is gone, or ready with all its rows."""
    one, two = sides
    claim = start(one.db, max_failures=1)
    claim.step("s", lambda: 1)
    claim.fail("no")
    acts: dict[str, Any] = {"retain": lambda side: side.db.retain(older_than_seconds=0), "retry": retry}
    results: list[str] = []
    thread = threading.Thread(target=lambda: results.append(outcome_of(acts[first], one)))
    one.hold.at = at
    thread.start()
    try:
        assert one.hold.reached.wait(20)
        results.append(outcome_of(acts["retry" if first == "retain" else "retain"], two))
    finally:
        one.hold.let_go.set()
        thread.join()
    assert sorted(results) == ["lost", "won"]
    assert [task.state for task in one.db.tasks()] in ([], ["ready"])
    assert count(one.db, "checkpoints", claim.seq) == len(one.db.tasks())


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_lost_acknowledgement_surfaces_and_the_removal_may_be_repeated(db, faults, moment):
    """S25: all of a task is there, or nothing of it."""
    claim = start(db)
    claim.complete()
    faults.planned["commit"] = moment
    with pytest.raises(StorageError):
        db.retain(older_than_seconds=0)
    left = int(moment == "before")
    assert (len(ids(db)), count(db, "attempts", claim.seq)) == (left, left)
    assert db.retain(older_than_seconds=0) == left


def test_arguments_are_checked(db):
    """G16."""
    for wrong in ({"older_than_seconds": -1}, {"keep": -1}, {"limit": -1}, {"queue": ""}):
        with pytest.raises(InputError):
            db.retain(**({"older_than_seconds": 0} | wrong))


STATES = ("ready", "running", "suspended", "completed", "failed", "cancelled")
TASK = st.tuples(
    st.sampled_from(STATES), st.integers(0, 3), st.sampled_from(("a", "b")), st.sampled_from(("", "planned", "output"))
)


def bring_to(db, id: str, state: str, queue: str) -> None:
    db.spawn("job", None, id=id, queue=queue, max_failures=1)
    if state == "ready":
        return
    if state == "cancelled":
        db.cancel(id)
        return
    (claim,) = db.claim_many(1, queue=queue, ids=[id], lease_seconds=100 * DAY)
    claim.step("s", lambda: id)
    if state == "completed":
        claim.complete(id)
    elif state == "failed":
        claim.fail("no")
    elif state == "suspended":
        with pytest.raises(TaskSuspended):
            claim.wait("w", events=["never"])


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    tasks=st.lists(TASK, max_size=8), older=st.integers(0, 3), keep=st.integers(0, 3),
    queue=st.sampled_from((None, "a")), limit=st.integers(0, 8),
)
def test_the_law_of_retention(tasks, older, keep, queue, limit):
    """What is removed is exactly what the rule says, computed here another way; all else is unchanged, whole."""
    clock = FakeClock()
    with tempfile.TemporaryDirectory() as folder, Database(
        None, root=Path(folder), clock=clock, pulse_seconds=None
    ) as db:
        for number, (state, _, in_queue, named) in enumerate(tasks):
            bring_to(db, f"t{number}", state, in_queue)
            if named == "planned":
                plan(db, f"t{number}")
            elif named == "output":
                publish(db, f"t{number}")
            clock.advance(1)
        clock.advance(3)
        now_us = clock.now_us()
        finished = [
            (task.updated_at, number, task.queue, f"t{number}")
            for number, (state, *_) in enumerate(tasks)
            if state in ("completed", "failed", "cancelled") for task in db.tasks(id=f"t{number}")
        ]
        expected = []
        for updated, number, in_queue, id in sorted(finished):
            newer = sum(1 for other in finished if other[2] == in_queue and other[:2] > (updated, number))
            age_us = now_us - round(updated.timestamp() * 1e6)
            if newer >= keep and queue in (None, in_queue) and not tasks[number][3] and age_us >= older * 2_000_000:
                expected.append(id)
        expected = expected[:limit]
        before = {f"t{number}": db.inspect(f"t{number}") for number in range(len(tasks))}
        assert db.retain(older_than_seconds=older * 2, keep=keep, queue=queue, limit=limit) == len(expected)
        assert ids(db) == before.keys() - set(expected)
        for id in ids(db):
            assert db.inspect(id) == before[id]
        for table in ("checkpoints", "attempts"):
            _, orphans = db.store.sql(
                f"SELECT 1 FROM canard_absurd.{table} WHERE task_seq NOT IN (SELECT seq FROM canard_absurd.tasks)"
            )
            assert orphans == []
