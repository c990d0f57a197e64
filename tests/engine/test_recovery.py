"""A dead owner's work costs nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from canard_pipe.engine.recovery import RUNS_BEFORE_BLAME
from canard_pipe.engine.worker import work
from tests.engine.conftest import attempts, claimed, row, start, steps

ROOT = Path(__file__).resolve().parents[2]

OWNER = """
import os, signal, sys
from pathlib import Path
from canard_pipe.engine.database import Database
folder = Path(sys.argv[1])
db = Database(folder / "state.duckdb", root=folder)
db.spawn_many("job", [1, 2], ids=["t", "u"], max_failures=1)
claims = db.claim_many(2, lease_seconds=3600)
if sys.argv[2] == "save":
    for number in range(1, claims[0].attempt + 1):
        claims[0].step(f"step {number}", lambda: 1)
os.kill(os.getpid(), signal.SIGKILL)
"""


def die(folder: Path, what: str = "nothing") -> None:
    """Own the file in a process of its own, claim both tasks, and be killed."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(OWNER), str(folder), what],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=60,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


def test_after_a_kill_the_tasks_are_ready_at_once_and_nothing_is_counted(tmp_path, reopen):
    """docs/design.md "One owner"; S2, S5 relaxed: even the last attempt allowed."""
    die(tmp_path, "save")
    db = reopen(clock=None)
    assert db.interrupted == 2
    assert [(task.state, task.failures, task.attempt) for task in db.tasks()] == [("ready", 0, 1)] * 2
    assert attempts(db) == [(1, "interrupted")]
    assert [name for name, _ in steps(db)] == ["step 1"]
    assert work(db, {"job": lambda _input, _ctx: "done"}, idle_timeout=0) == 2


def test_a_task_that_dies_with_ten_runs_in_a_row_is_blamed(tmp_path, reopen):
    """docs/design.md: unless it saves something new, as the first of the two does."""
    for _ in range(RUNS_BEFORE_BLAME):
        die(tmp_path, "save")
    db = reopen(clock=None)
    assert (row(db, "t")["state"], row(db, "t")["failures"]) == ("ready", 0)
    assert (row(db, "u")["state"], row(db, "u")["failures"]) == ("failed", 0)
    assert row(db, "u")["error"] == "kills the run: 10 runs in a row died while it ran"
    outcomes = ["interrupted"] * (RUNS_BEFORE_BLAME - 1) + ["failed"]  # so that a retry begins to count anew
    assert attempts(db, "u") == list(enumerate(outcomes, 1))


def test_a_task_whose_command_was_at_work_is_never_blamed(reopen):
    """What a supervised command does cannot end the run, however often the run dies meanwhile."""
    db = reopen()
    db.spawn("job", id="t")
    for _ in range(RUNS_BEFORE_BLAME + 2):
        claimed(db)
        db = reopen(supervised=lambda: ["t"])
    assert row(db)["state"] == "ready"


def test_a_saved_step_or_another_outcome_begins_the_count_anew(reopen):
    db = reopen()
    db.spawn("job", id="t", max_failures=99)
    for number in range(1, 24):
        claim = claimed(db)
        if number == 9:
            claim.step("a", lambda: 1)
        if number == 18:  # nine in a row since the step
            claim.fail("x")
        db = reopen()
        assert row(db)["state"] == "ready", number


def test_what_a_closed_handle_of_this_process_held_is_handed_back(reopen):
    start(reopen(), lease_seconds=3600)
    db = reopen()
    assert db.interrupted == 1
    assert row(db)["state"] == "ready"


@pytest.mark.parametrize(
    ("holder", "left_alone"),
    [("worker@elsewhere:1:5", True), ("worker@{host}:1", True), ("worker@{host}:999999999:5", False),
     ("worker@{host}:1:another start", False), ("a@b@{host}:999999999", False), ("odd", True)],
)
def test_holders_elsewhere_and_living_ones_here_are_left_alone(reopen, holder, left_alone):
    """A process number alone says nothing: the start of the process counts too."""
    db = reopen()
    start(db, lease_seconds=3600)
    name = holder.format(host=db.identity.split(":")[0])
    db.store.connection.execute("UPDATE canard_absurd.tasks SET worker = ?", [name])
    before = row(db)
    db = reopen()
    assert (row(db) == before) == left_alone
    assert db.interrupted == int(not left_alone)


def test_a_lease_elsewhere_that_ran_out_while_nobody_owned_the_file_is_no_failure(reopen, clock):
    """Its worker could not renew it, however well it was."""
    db = reopen()
    db.spawn("job", id="t")
    for _ in range(RUNS_BEFORE_BLAME + 2):
        claimed(db, lease_seconds=30)
        db.store.connection.execute("UPDATE canard_absurd.tasks SET worker = 'worker@elsewhere:1:5'")
        clock.advance(31)
        db = reopen()
        assert (db.interrupted, row(db)["state"], row(db)["failures"]) == (1, "ready", 0)
    assert {outcome for _, outcome in attempts(db)} == {"interrupted"}
