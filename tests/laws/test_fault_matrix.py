"""Every transition, with an error or a SIGKILL before and after each of its commits: all of it is there or nothing.

G1, G2, G8, G11, S25; section 8.10 of the rules. tests/engine/test_lost_acknowledgements.py says what callers see.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from canard_pipe.engine.database import Database
from canard_pipe.engine.store import Rows, Store
from canard_pipe.engine.worker import work
from canard_pipe.errors import LeaseLost, StorageError
from tests.engine.conftest import FakeClock
from tests.laws.scenarios import SCENARIOS, Stage, snapshot
from tests.laws.victim import Calls, play

ROOT = Path(__file__).resolve().parents[2]


class Unanswered(Calls):
    """Makes the n-th commit of the act fail for its caller, before it happens or after it has."""

    def __init__(self, commit: int, moment: str) -> None:
        super().__init__()
        self.commit, self.moment = commit, moment

    def __call__(self, name: str, execute: Callable[[], Rows]) -> Rows:
        if not self.armed or name != "commit":
            return super().__call__(name, execute)
        self.commit -= 1
        if self.commit == 0 and self.moment == "before":
            raise duckdb.IOException("IO Error: the disk is gone")
        rows = super().__call__(name, execute)
        if self.commit == 0:
            raise duckdb.IOException("IO Error: the disk is gone")
        return rows


def carry_to_the_end(db: Database, clock: FakeClock) -> None:
    """Let a worker do what is left, and check what must hold whatever has happened before."""
    db.emit("e", 1)
    db.spawn("job", None, id="x")
    for _ in range(5):
        clock.advance(3 * 3600)
        db.mind_the_clock()
        work(db, {"job": lambda _input, _ctx: "done"}, idle_timeout=0)
    states = {task.id: (task.state, task.failures) for task in db.tasks()}
    assert {state for state, _ in states.values()} <= {"completed", "failed", "cancelled"}
    assert all(failures <= 1 for _, failures in states.values()), states
    columns = "task_seq, attempt FROM canard_absurd.attempts"
    ended = Counter(db.store.sql(f"SELECT {columns}")[1])
    assert set(ended.values()) <= {1}, "an attempt has ended twice"
    saved = Counter(db.store.sql(
        "SELECT task_seq, name FROM canard_absurd.checkpoints WHERE archived_at IS NULL AND kind <> 'waiting'")[1])
    assert set(saved.values()) <= {1}, "a step is saved twice"
    counted = db.store.sql(
        "SELECT id FROM canard_absurd.tasks t WHERE attempt <> "
        "(SELECT count(*) FROM canard_absurd.attempts a WHERE a.task_seq = t.seq)")[1]
    assert counted == [], "an attempt has no row in the history"


@pytest.mark.parametrize("name", list(SCENARIOS))
def test_after_a_sigkill_around_a_commit_the_file_holds_what_was_committed(tmp_path, name):
    """G2: the next owner reads exactly the transactions that were through, and brings every task to its end."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.laws.victim", str(tmp_path), name],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=110,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    snapshots, points = told["snapshots"], told["points"]
    assert len(points) == 2 * (len(snapshots) - 1) >= 2, "before and after each commit"
    assert points[-1]["commits"] == len(snapshots) - 1
    for point in points:
        folder = tmp_path / point["folder"]
        store = Store(folder / "state.duckdb", read_only=True)
        assert snapshot(store) == snapshots[point["commits"]], point["moment"]
        store.close()
        stage = Stage(folder)
        with stage.db as db:
            assert db.store.sql("SELECT count(*) FROM canard_absurd.tasks WHERE state = 'running'")[1] == [(0,)]
            if SCENARIOS[name].anyones:
                SCENARIOS[name].act(stage)
                assert snapshot(db) == snapshots[-1], "done again by another process, it has one effect"
            carry_to_the_end(db, stage.clock)


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("name", list(SCENARIOS))
def test_a_lost_answer_surfaces_and_the_call_may_be_repeated(tmp_path, name, moment):
    """S25: for each commit of the call all of it is there or nothing, and after the repetition all is."""
    scenario = SCENARIOS[name]
    snapshots = play(tmp_path / "undisturbed", scenario, Calls())
    for commit in range(1, len(snapshots)):
        folder = tmp_path / str(commit)
        folder.mkdir()
        calls = Unanswered(commit, moment)
        stage = Stage(folder, calls)
        scenario.before(stage)
        calls.armed = True
        try:
            scenario.act(stage)
        except LeaseLost:
            pytest.fail("a lost answer is no lost lease")
        except StorageError as error:
            told = str(error)
            assert "disk is gone" in told
        else:
            assert snapshot(stage.db) == snapshots[-1]
        calls.armed = False
        assert snapshot(stage.db) == snapshots[commit if moment == "after" else commit - 1]
        if scenario.may_repeat:
            scenario.act(stage)
            assert snapshot(stage.db) == snapshots[-1]
        stage.db.close()
