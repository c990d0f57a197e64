"""Maintenance by itself, without a worker (F20-F22)."""

from __future__ import annotations

import threading

import pytest

from canard_pipe.engine.database import Database
from canard_pipe.errors import InputError, MaintenanceError, TaskSuspended
from tests.conftest import wait_until
from tests.engine.conftest import row, start

pytestmark = pytest.mark.embedded("maintenance runs in the owner's process")


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "coordinator"]


def test_it_fails_what_has_expired_for_the_last_time_in_all_queues(db, clock):
    """F20, S45: and leaves alone what a worker could still take."""
    start(db, "a", max_failures=1)
    db.spawn("job", None, id="b", queue="other", max_failures=1)
    assert db.claim("other") is not None
    start(db, "again", max_failures=2)
    clock.advance(31)
    assert db.coordinator.start(poll_seconds=0.01)
    wait_until(lambda: db.coordinator.status().reaped == 2)
    assert [row(db, id)["state"] for id in ("a", "b", "again")] == ["failed", "failed", "running"]


def test_reap_limit_bounds_one_poll(db, clock):
    """S6: the rest follows in the next polls."""
    for number in range(5):
        start(db, f"t{number}", max_failures=1)
    clock.advance(31)
    db.coordinator.start(poll_seconds=0.01, reap_limit=2)
    wait_until(lambda: db.coordinator.status().reaped == 5)
    assert db.coordinator.status().polls >= 3


def test_it_wakes_suspended_tasks(db):
    claim = start(db)
    with pytest.raises(TaskSuspended):
        claim.suspend([("event", "go")])
    db.coordinator.start(poll_seconds=0.01)
    db.emit("go")
    wait_until(lambda: row(db)["state"] == "ready")
    wait_until(lambda: db.coordinator.status().woken == 1)


def test_it_minds_the_clock_first(db, clock):
    """A wall clock that was set forward loses no lease, though nobody works."""
    start(db, max_failures=1)
    clock.set(3600)
    db.coordinator.start(poll_seconds=0.01)
    wait_until(lambda: db.coordinator.status().polls >= 2)
    assert row(db)["state"] == "running"


def test_starting_twice_is_once_and_it_can_be_started_again(db):
    """F20, F22, L18."""
    coordinator = db.coordinator
    assert coordinator.status().state == "idle"
    assert coordinator.stop() is False
    assert coordinator.start(poll_seconds=0.01) is True
    assert coordinator.start(poll_seconds=5) is False
    assert coordinator.status().poll_seconds == 0.01
    assert threads() == ["coordinator"]
    assert coordinator.stop() is True
    assert coordinator.stop() is False
    assert (coordinator.status().state, threads()) == ("stopped", [])
    coordinator.restart()
    wait_until(lambda: coordinator.status().polls >= 1)
    coordinator.restart()
    assert (coordinator.status().state, coordinator.status().poll_seconds) == ("running", 0.01)


def test_its_defaults(db):
    """F20: SEMANTICS section 5."""
    db.coordinator.start()
    assert (db.coordinator.status().poll_seconds, db.coordinator.status().reap_limit) == (1.0, 64)


def test_stop_does_not_wait_for_the_next_poll(db):
    db.coordinator.start(poll_seconds=1000)
    assert db.coordinator.stop()


def test_a_poll_that_fails_is_told_and_the_next_one_tries_again(db, clock, faults):
    """F21."""
    coordinator = db.coordinator
    start(db, max_failures=1)
    clock.advance(31)
    faults.planned["expire_tasks"] = "before"
    coordinator.start(poll_seconds=1000)
    wait_until(lambda: coordinator.status().error is not None)
    assert "the disk is gone" in coordinator.status().error
    assert (coordinator.status().state, coordinator.status().polls) == ("running", 0)
    coordinator.stop()
    assert coordinator.status().state == "stopped"
    assert "the disk is gone" in coordinator.status().error
    faults.planned["expire_tasks"] = "before"
    coordinator.start(poll_seconds=0.01)
    wait_until(lambda: coordinator.status().reaped == 1)
    assert (coordinator.status().state, coordinator.status().error) == ("running", None)


def test_closing_ends_it_before_the_file(tmp_path):
    """S40, E16: afterwards it cannot start."""
    database = Database(tmp_path / "state.duckdb", root=tmp_path)
    database.coordinator.start(poll_seconds=0.01)
    wait_until(lambda: database.coordinator.status().polls >= 1)
    database.close()
    assert threads() == []
    assert database.coordinator.status().error is None
    with pytest.raises(MaintenanceError):
        database.coordinator.start()
    database.close()


def test_it_ends_when_the_database_is_gone(db):
    """Nothing more can be done then: the state says so, and why."""
    db.store.close()
    db.coordinator.start(poll_seconds=0.01)
    wait_until(lambda: db.coordinator.status().state == "broken")
    assert "closed" in (db.coordinator.status().error or "")


def test_settings_are_checked(db):
    """G16."""
    for wrong in ({"poll_seconds": 0}, {"reap_limit": 0}):
        with pytest.raises(InputError):
            db.coordinator.start(**wrong)
    assert db.coordinator.status().state == "idle"
