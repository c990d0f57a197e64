"""Every operation with its acknowledgement lost, before and after the commit: nothing is lost, nothing is double."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from canard_pipe.engine.attempt import run
from canard_pipe.errors import FailureRecordingError, LeaseLost, StorageError, TaskSuspended
from tests.engine.conftest import attempts, claimed, row, start, steps

ROOT = Path(__file__).resolve().parents[2]


def unwound(act: Callable[[], object]) -> None:
    with pytest.raises(TaskSuspended):
        act()


# name -> (the operation, the task's state if it was written, the history then)
ENDS = {
    "complete": (lambda claim: claim.complete(7), "completed", "completed"),
    "fail": (lambda claim: claim.fail("x"), "ready", "failed"),
    "sleep": (lambda claim: claim.sleep("z", 9), "ready", "suspended"),
    "suspend": (lambda claim: claim.suspend([("event", "e")]), "suspended", "suspended"),
    "wait": (lambda claim: claim.wait("w", events=["e"]), "suspended", "suspended"),
    "release": (lambda claim: claim.release(), "ready", "released"),
    "quarantine": (lambda claim: claim.quarantine("x"), "failed", "failed"),
}


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("name", list(ENDS))
def test_an_end_whose_acknowledgement_is_lost_surfaces_and_may_be_repeated(db, faults, name, moment):
    """G8, S25, L3: one row of history in both worlds."""
    act, state, outcome = ENDS[name]
    claim = start(db)
    faults.planned["commit"] = moment
    with pytest.raises(StorageError, match="disk is gone") as error:
        act(claim)
    assert not isinstance(error.value, LeaseLost)
    written = moment == "after"
    assert row(db)["state"] == (state if written else "running")
    if name in ("sleep", "suspend", "wait"):
        unwound(lambda: act(claim))
    else:
        act(claim)
    assert row(db)["state"] == state
    assert attempts(db) == [(1, outcome)]
    assert row(db)["failures"] == int(name == "fail")
    assert len(steps(db)) == int(name in ("sleep", "wait"))
    assert len(db.store.sql("SELECT * FROM canard_absurd.waits")[1]) == int(name in ("suspend", "wait"))


@pytest.mark.parametrize("moment", ["before", "after"])
def test_another_end_does_not_follow_one_that_was_written(db, faults, moment):
    """G14: a completion that nobody acknowledged is not turned into a failure."""
    claim = start(db)
    faults.planned["commit"] = moment
    with pytest.raises(StorageError):
        claim.complete(7)
    if moment == "after":
        with pytest.raises(LeaseLost):
            claim.fail("x")
        assert db.result("t") == 7
    else:
        claim.fail("x")
        assert row(db)["failures"] == 1


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_repeated_step_after_a_lost_acknowledgement_returns_the_stored_value(db, faults, moment):
    """G13, S26: if it had been saved it does not run again; otherwise it does."""
    claim, ran = start(db), []

    def step() -> str:
        ran.append(1)
        return f"run {len(ran)}"

    faults.planned["commit"] = moment
    with pytest.raises(StorageError):
        claim.step("a", step)
    expected = "run 1" if moment == "after" else "run 2"
    assert claim.step("a", step) == expected
    assert [name for name, _ in steps(db)] == ["a"]
    claim.release()
    assert claimed(db).step("a", step) == expected


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_heartbeat_whose_acknowledgement_is_lost_leaves_the_claim_alive(db, faults, clock, moment):
    claim = start(db, lease_seconds=10)
    clock.advance(5)
    faults.planned["commit"] = moment
    with pytest.raises(StorageError):
        claim.heartbeat()
    assert not claim.lost.is_set()
    clock.advance(4)
    claim.heartbeat()
    claim.complete()


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_claim_whose_acknowledgement_is_lost_costs_at_most_a_lease(db, faults, clock, moment):
    """S2: written or not, the task is done in the end."""
    db.spawn("job", id="t")
    faults.planned["commit"] = moment
    with pytest.raises(StorageError):
        db.claim(reap_limit=0)
    written = moment == "after"
    assert row(db)["state"] == ("running" if written else "ready")
    clock.advance(30)
    claim = claimed(db)
    assert (claim.attempt, claim.failures) == ((2, 1) if written else (1, 0))
    claim.complete()


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_cancel_whose_acknowledgement_is_lost_may_be_repeated(db, faults, moment):
    claim = start(db)
    faults.planned["commit"] = moment
    with pytest.raises(StorageError):
        db.cancel("t")
    assert db.cancel("t") == (moment == "before")
    assert row(db)["state"] == "cancelled"
    assert attempts(db) == [(1, "cancelled")]
    with pytest.raises(LeaseLost):
        claim.complete()


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_failure_that_cannot_be_recorded_keeps_both_errors(db, faults, moment):
    """E9, S29: if the write had in fact committed, one failure is counted."""
    claim = start(db)
    faults.between["fail_tasks"] = lambda: faults.planned.update(commit=moment)

    def handler(_input, _ctx):
        raise ValueError("the handler's own")

    with pytest.raises(FailureRecordingError) as error:
        run(claim, handler)
    assert isinstance(error.value.__cause__, ValueError)
    assert "disk is gone" in str(error.value.storage_error)
    assert row(db)["failures"] == int(moment == "after")


@pytest.mark.parametrize("operation", ["begin", "save_checkpoints"])
def test_an_error_after_an_early_statement_rolls_everything_back(db, faults, operation):
    claim = start(db)
    faults.planned[operation] = "after"
    with pytest.raises(StorageError):
        claim.step("a", lambda: 1)
    assert steps(db) == []
    assert claim.step("a", lambda: 2) == 2


# -- the process killed -------------------------------------------------------------------------------------------

VICTIM = """
import os, signal, sys
from pathlib import Path
from canard_pipe.engine.database import Database
folder, statement, moment = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
last = [None]
def intercept(name, execute):
    armed = name == "commit" and last[0] == statement
    last[0] = name if name != "record_attempts" else last[0]
    if armed and moment == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    rows = execute()
    if armed:
        os.kill(os.getpid(), signal.SIGKILL)
    return rows
db = Database(folder / "state.duckdb", root=folder, intercept=intercept)
db.spawn("job", id="t")
claim = db.claim()
claim.complete(claim.step("a", lambda: "first"))
"""


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("statement", ["save_checkpoints", "complete_tasks"])
def test_after_a_kill_around_a_commit_the_next_owner_finds_all_of_it_or_nothing(tmp_path, reopen, statement, moment):
    """G1, G11: and goes on without a failure counted."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(VICTIM), str(tmp_path), statement, moment],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=60,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    db = reopen(clock=None)
    if (statement, moment) == ("complete_tasks", "after"):
        assert db.result("t") == "first"
        assert attempts(db) == [(1, "completed")]
        return
    assert db.interrupted == 1
    claim = claimed(db)
    saved = (statement, moment) != ("save_checkpoints", "before")
    assert claim.step("a", lambda: "second") == ("first" if saved else "second")
    claim.complete()
    assert attempts(db) == [(1, "interrupted"), (2, "completed")]
    assert row(db)["failures"] == 0
