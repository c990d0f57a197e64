"""Events, and steps that wait for events and tasks (L1, L9, L22)."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from canard_pipe.engine import worker
from canard_pipe.engine.database import Database
from canard_pipe.engine.waiting import TaskEnd
from canard_pipe.errors import (
    InputError,
    ReplayError,
    ResultUnavailable,
    StorageError,
    TaskSuspended,
    ValueEncodeError,
)
from tests.conftest import wait_until
from tests.engine.conftest import claimed, row, start, steps


def wakes(db) -> bool:
    db.wake()
    return row(db)["state"] == "ready"


def tenfold(given, _ctx):
    return given * 10


def test_the_first_emission_wins(db):
    """L1."""
    assert db.event("go", "nothing") == "nothing"
    assert db.emit("go", {"lane": (1, 2)}) is True
    assert db.emit("go", "later") is False
    assert db.event("go") == {"lane": (1, 2)}
    assert db.emit("none") is True
    assert db.event("none", "nothing") is None


def test_an_event_is_there_after_reopening(reopen):
    reopen().emit("go", 1)
    assert reopen().event("go") == 1


def test_what_cannot_be_an_event_is_refused_before_any_sql(db, faults):
    """G16, G17."""
    before = list(faults.names)
    for name, value, error in (("", 1, InputError), ("x" * 257, 1, InputError), ("go", object(), ValueEncodeError)):
        with pytest.raises(error):
            db.emit(name, value)
    assert faults.names == before


def test_of_two_that_emit_at_once_one_is_first(db, faults):
    """The look and the insert are one transaction, which is repeated when it conflicts."""
    rival = db.store.connection.cursor()
    faults.between["insert_events"] = lambda: rival.execute(
        "INSERT INTO canard_absurd.events VALUES ('go', '\"rival\"', now()::TIMESTAMP)"
    )
    assert db.emit("go", "mine") is False
    assert db.event("go") == "rival"


def test_a_lost_acknowledgement_of_emit_surfaces(db, faults):
    """S25: both worlds are possible; asking again is harmless."""
    faults.planned["commit"] = "after"
    with pytest.raises(StorageError):
        db.emit("go", 1)
    assert db.emit("go", 1) is False
    assert db.event("go") == 1


def test_what_is_there_is_returned_at_once(db):
    """An event that was emitted before anybody waited."""
    db.emit("go", 5)
    claim = start(db)
    got = claim.wait("ready", events=["go"])
    assert (got.events, got.tasks, got.missing, got.timed_out) == ({"go": 5}, {}, (), False)
    assert row(db)["state"] == "running"


def test_a_wait_suspends_until_all_are_there(db):
    """L1, L9: attempts count, failures do not (S3)."""
    claim = start(db)
    db.spawn("other", None, id="o", queue="other")
    asked: dict[str, Any] = {"events": ["a", "b"], "tasks": ["o"]}
    with pytest.raises(TaskSuspended):
        claim.wait("ready", **asked)
    assert row(db)["state"] == "suspended"
    assert not wakes(db)
    db.emit("b", 2)
    db.emit("a", 1)
    assert not wakes(db)
    claimed(db, queue="other").complete([7])
    assert wakes(db)
    second = claimed(db)
    got = second.wait("ready", **asked)
    assert list(got.events.items()) == [("a", 1), ("b", 2)]  # in the order asked for
    assert got.tasks == {"o": TaskEnd("completed", [7], None)}
    found = row(db)
    assert (found["attempt"], found["failures"]) == (2, 0)
    assert [name for name, _ in steps(db)] == ["ready"]  # the marker that the wait had begun is history
    second.release()
    assert claimed(db).wait("ready", **asked) == got


def test_a_task_that_fails_or_is_cancelled_has_ended_too(db):
    start(db, "bad", max_failures=1).fail("no good")
    start(db, "off")
    db.cancel("off")
    got = start(db).wait("others", tasks=["bad", "off"])
    assert got.tasks == {"bad": TaskEnd("failed", None, "no good"), "off": TaskEnd("cancelled", None, None)}


def test_a_replay_returns_the_saved_value(db):
    """G11: whatever has become of the event and the task since."""
    start(db, "o").complete(1)
    db.emit("go", 1)
    first = start(db)
    got = first.wait("ready", events=["go"], tasks=["o"])
    first.fail("again")
    db.store.sql("UPDATE canard_absurd.events SET value = '2'")
    db.store.sql("DELETE FROM canard_absurd.tasks WHERE id = 'o'")
    second = claimed(db)
    assert second.wait("ready", events=["go"], tasks=["o"]) == got
    assert second.step("next", lambda: 3) == 3
    assert [name for name, _ in steps(db)] == ["ready", "next"]


@pytest.mark.parametrize("moment", ["suspend_tasks", "record_waits"])
def test_an_event_between_the_look_and_the_suspension_is_not_missed(db, clock, faults, moment):
    """docs/design.md, "Waking is level-triggered": also when it came at the same instant, or before."""
    claim = start(db)
    rival = db.store.connection.cursor()
    faults.between[moment] = lambda: rival.execute(
        f"INSERT INTO canard_absurd.events VALUES ('go', '1', make_timestamp({clock.now_us()}))"
    )
    with pytest.raises(TaskSuspended):
        claim.wait("ready", events=["go"])
    assert moment not in faults.between
    assert wakes(db)
    assert claimed(db).wait("ready", events=["go"]).events == {"go": 1}


def test_a_time_that_is_over_brings_what_is_there(db, clock):
    """The time counts from the first call, not from the last."""
    claim = start(db)
    asked: dict[str, Any] = {"events": ["a", "b"], "tasks": ["o"], "timeout_seconds": 60}
    with pytest.raises(TaskSuspended):
        claim.wait("ready", **asked)
    db.emit("a", None)
    clock.advance(59.9)
    assert not wakes(db)
    clock.advance(0.1)
    assert wakes(db)
    second = claimed(db)
    got = second.wait("ready", **asked)
    assert (got.events, got.tasks, got.missing, got.timed_out) == ({"a": None}, {}, ("b", "o"), True)
    second.fail("again")
    db.emit("b")
    assert claimed(db).wait("ready", **asked) == got  # it was saved so


def test_a_wait_that_is_woken_by_hand_waits_on_to_its_first_deadline(db, clock):
    claim = start(db)
    with pytest.raises(TaskSuspended):
        claim.wait("ready", events=["a"], timeout_seconds=60)
    clock.advance(30)
    db.store.sql("UPDATE canard_absurd.tasks SET state = 'ready', available_at = created_at, version = version + 1")
    with pytest.raises(TaskSuspended):
        claimed(db).wait("ready", events=["a"], timeout_seconds=60)
    clock.advance(30)
    assert wakes(db)
    assert claimed(db).wait("ready", events=["a"], timeout_seconds=60).timed_out


def test_no_time_at_all_only_looks(db):
    db.emit("a", 1)
    got = start(db).wait("ready", events=["a", "b"], timeout_seconds=0)
    assert (got.events, got.missing) == ({"a": 1}, ("b",))


def test_names_are_shared_with_steps_and_sleeps(db):
    """S15."""
    db.emit("go")
    claim = start(db)
    claim.wait("a", events=["go"])
    claim.step("b", lambda: 1)
    with pytest.raises(ReplayError):
        claim.wait("a", events=["go"])
    claim.fail("again")
    second = claimed(db)
    with pytest.raises(ReplayError):
        second.wait("b", events=["go"])
    with pytest.raises(ReplayError):
        second.step("a", lambda: 1)
    with pytest.raises(TaskSuspended):
        second.wait("c", events=["never"])
    db.store.sql("UPDATE canard_absurd.tasks SET state = 'ready', available_at = created_at, version = version + 1")
    with pytest.raises(ReplayError):
        claimed(db).step("c", lambda: 1)


def test_values_come_back_as_they_were_emitted(db):
    """S19: tags, names that begin with $, files below the launch folder."""
    value = {"$odd": [(1, b"x")], "path": Path("reads.fq"), "inside": db.root / "a.txt"}
    db.emit("$name", value)
    assert start(db).wait("ready", events=["$name"]).events == {"$name": value}


def test_arguments_are_checked(db):
    """G16."""
    claim = start(db)
    wrongs: tuple[dict[str, Any], ...] = (
        {}, {"events": "go"}, {"tasks": [1]}, {"events": ["a"], "timeout_seconds": -1},
    )
    for wrong in wrongs:
        with pytest.raises(InputError):
            claim.wait("w", **wrong)
    assert claim.wait("w", events=["x"], timeout_seconds=0).timed_out


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_wait_whose_save_is_not_acknowledged_can_be_asked_again(db, faults, moment):
    """S25, S26."""
    db.emit("go", 1)
    claim = start(db)
    faults.planned["commit"] = moment
    with pytest.raises(StorageError):
        claim.wait("ready", events=["go"])
    assert claim.wait("ready", events=["go"]).events == {"go": 1}
    assert [name for name, _ in steps(db)] == ["ready"]


@pytest.mark.parametrize("slots", [1, 3])
def test_a_worker_carries_a_wait_to_its_end(tmp_path, slots):
    """L9: a parent that spawns its children and waits for them."""
    ended = []

    def parent(given, ctx):
        ids = ctx.step("children", lambda: ctx.database.spawn_many("child", [1, 2, 3], ids=["c1", "c2", "c3"]))
        return sum(end.result for end in ctx.wait("ended", tasks=ids).tasks.values())

    with Database(None, root=tmp_path) as database:
        database.spawn("parent", id="p")
        worker.work(
            database, {"parent": parent, "child": tenfold}, slots=slots, poll_seconds=0.01,
            on_result=lambda outcome: ended.append(outcome.status),
            finished=lambda: database.tasks(id="p")[0].state == "completed",
        )
        assert database.result("p") == 60
    assert sorted(ended) == ["completed"] * 4 + ["suspended"]


def test_waiting_for_a_result(db, clock):
    """L22."""
    db.spawn("job", None, id="t")
    with pytest.raises(ResultUnavailable) as late:
        db.wait("t", 5)
    assert (late.value.state, clock.seconds) == ("ready", 1005.0)
    claimed(db).complete(None)
    assert db.wait("t") is None
    for id, state in (("bad", "failed"), ("off", "cancelled")):
        claim = start(db, id, max_failures=1)
        claim.fail("no") if state == "failed" else db.cancel(id)
        with pytest.raises(ResultUnavailable) as ended:
            db.wait(id)
        assert ended.value.state == state
    with pytest.raises(ResultUnavailable) as unknown:
        db.wait("nobody", 5)
    assert unknown.value.state is None


def test_waiting_for_a_result_that_another_thread_makes(tmp_path):
    """L22: with the machine's own clock."""
    with Database(None, root=tmp_path) as database:
        database.spawn("job", 2, id="t")
        found: list[int] = []
        waiter = threading.Thread(target=lambda: found.append(database.wait("t", 30)))
        waiter.start()
        worker.work(database, {"job": tenfold}, idle_timeout=0)
        wait_until(lambda: found == [20])
        waiter.join()
