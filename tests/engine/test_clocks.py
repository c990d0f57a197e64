"""Clocks that jump and processes that stand still cost no lease and no failure (docs/design.md, "State and fence")."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from datetime import UTC
from pathlib import Path

import pytest

from canard_pipe.engine.clock_guard import ClockGuard
from canard_pipe.errors import StorageError, TaskSuspended
from tests.conftest import wait_until
from tests.engine.conftest import attempts, claimed, row, start

ROOT = Path(__file__).resolve().parents[2]
HOUR = 3600.0


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
def test_no_lease_is_lost_when_wall_time_is_set(db, clock, jump):
    """BUGS 60: nor does anything fail, or run twice."""
    claim = start(db, lease_seconds=30, max_failures=1)
    clock.advance(10)
    clock.set(jump)
    assert db.reap() == 0
    assert claim.seconds_left() == 20
    clock.advance(19)
    claim.check()
    claim.step("a", lambda: 1)
    claim.complete()
    assert (row(db)["failures"], attempts(db)) == (0, [(1, "completed")])


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
def test_a_lease_still_ends_when_its_time_is_over(db, clock, jump):
    """The gap is added, not more."""
    claim = start(db, lease_seconds=30)
    clock.advance(10)
    clock.set(jump)
    clock.advance(19)
    assert claim.seconds_left() == 1
    clock.advance(1)
    assert claim.seconds_left() == 0
    assert claimed(db).attempt == 2


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
@pytest.mark.parametrize("first", ["claim", "heartbeat", "complete", "step", "renew", "check", "cancel other"])
def test_whatever_comes_first_after_a_jump_sees_moved_leases(db, clock, jump, first):
    claim = start(db, lease_seconds=30)
    db.spawn("job", id="other")
    clock.set(jump)
    {
        "claim": lambda: db.claim(), "heartbeat": claim.heartbeat, "complete": claim.complete,
        "step": lambda: claim.step("a", lambda: 1), "renew": lambda: db.renew([claim]), "check": claim.check,
        "cancel other": lambda: db.cancel("other"),
    }[first]()
    if first != "complete":
        assert not claim.lost.is_set()
        claim.complete()
    assert attempts(db) == [(1, "completed")]


def test_what_had_expired_before_the_jump_stays_expired(db, clock):
    start(db, lease_seconds=5, max_failures=1)
    clock.advance(6)
    clock.set(-HOUR)
    assert db.reap() == 1


def test_work_that_was_ready_stays_ready_when_the_clock_is_set_back(db, clock):
    db.spawn("job", id="t")
    clock.set(-HOUR)
    assert claimed(db).id == "t"


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
def test_sleeping_tasks_keep_their_wake_time(db, clock, jump):
    """It is an instant of wall time."""
    with pytest.raises(TaskSuspended):
        start(db).sleep("nap", 600)
    before = row(db)["available_at"]
    clock.set(jump)
    db.mind_the_clock()
    assert row(db)["available_at"] == before


def test_small_steps_of_the_clock_are_left_alone(db, clock, faults):
    start(db)
    for _ in range(5):
        clock.set(0.9)
        db.mind_the_clock()
    assert "move_deadlines" not in faults.names


def test_a_jump_whose_repair_fails_is_repaired_by_the_next_write(db, clock, faults):
    claim = start(db)
    clock.set(HOUR)
    faults.planned["move_deadlines"] = "before"
    with pytest.raises(StorageError):
        claim.heartbeat()
    assert not claim.lost.is_set()
    claim.heartbeat()
    claim.complete()


@pytest.mark.embedded("the owner minds its clock")
@pytest.mark.parametrize("jump", [-HOUR, HOUR])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_deadlines_move_once_although_the_acknowledgement_was_lost(db, clock, faults, moment, jump):
    """S25: moved twice, a lease would end at once when the clock was set back, or an hour too late."""
    claim = start(db, lease_seconds=30)
    clock.set(jump)
    faults.planned["commit"] = moment
    if moment == "before":
        with pytest.raises(StorageError):
            db.mind_the_clock()
    db.mind_the_clock()
    assert round(row(db)["deadline"].replace(tzinfo=UTC).timestamp() * 1e6) == clock.now_us() + 30_000_000
    claim.heartbeat()
    claim.complete()


@pytest.mark.embedded("the owner minds its clock")
def test_the_version_moves_with_the_deadline(db, clock):
    """G3: an open transition of another connection must not commit on top of it."""
    start(db)
    before = row(db)["version"]
    clock.set(HOUR)
    db.mind_the_clock()
    assert row(db)["version"] == before + 1


def test_a_pulse_tells_standing_still_from_a_long_computation(clock):
    guard = ClockGuard(clock)
    clock.advance(HOUR)
    assert guard.look() is None
    with guard.pulse(1000.0, lambda: None):
        clock.advance(HOUR)
        gap = guard.look()
        assert gap is not None
        assert gap.shift_us == HOUR * 1e6
        assert guard.look() is not None  # it stays until the deadlines have been moved
        guard.settled(gap)
        assert guard.look() is None
    clock.advance(HOUR)
    assert guard.look() is None


@pytest.mark.embedded("the owner's pulse")
def test_a_process_that_stood_still_loses_no_lease(db, clock):
    claim = start(db, lease_seconds=30, max_failures=1)
    with db._guard.pulse(1000.0, db.mind_the_clock):
        clock.advance(HOUR)
        claim.heartbeat()
        claim.complete()
    assert attempts(db) == [(1, "completed")]


STOPPED = """
import sys, time
from pathlib import Path
from canard_pipe.engine.database import Database
from canard_pipe.engine.worker import work
folder, pulse = Path(sys.argv[1]), sys.argv[2] == "pulse"
with Database(folder / "state.duckdb", root=folder, pulse_seconds=0.05 if pulse else None) as db:
    def handler(_input, ctx):
        if ctx.attempt == 1:
            (folder / "started").touch()
            while not (folder / "go").exists():
                time.sleep(0.01)
        ctx.step("a", lambda: 1)
        return ctx.attempt
    db.spawn("job", id="t")
    work(db, {"job": handler}, idle_timeout=0, lease_seconds=2)
"""


@pytest.mark.parametrize(("pulse", "attempt"), [("pulse", 1), ("no pulse", 2)])
def test_a_worker_that_was_stopped_for_longer_than_its_lease_goes_on(tmp_path, reopen, pulse, attempt):
    """SIGSTOP and SIGCONT in earnest; without the pulse the lease is lost, so the test can fail."""
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(STOPPED), str(tmp_path), pulse], cwd=ROOT)
    try:
        wait_until((tmp_path / "started").exists, 20)
        os.kill(process.pid, signal.SIGSTOP)
        (tmp_path / "go").touch()
        time.sleep(3.0)  # longer than the lease: nothing to wait for but the time itself
        os.kill(process.pid, signal.SIGCONT)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
    db = reopen(clock=None)
    assert db.result("t") == attempt
    assert row(db)["failures"] == attempt - 1
