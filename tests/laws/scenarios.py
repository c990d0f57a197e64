"""Every transition of the engine as a scenario: what is there before, and the one call that changes it.

Each runs on a file with a clock that stands still, so that two runs of one scenario write the same rows.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from canard_pipe.engine import recovery
from canard_pipe.engine.claim import Claim
from canard_pipe.engine.database import Database
from canard_pipe.engine.store import Intercept, straight
from canard_pipe.engine.worker import work
from canard_pipe.errors import TaskSuspended
from canard_pipe.pipeline import ready_again
from tests.engine.conftest import FakeClock

HOUR = 3600.0
# What a run leaves in the file, but for what is drawn by chance (tokens), names the process, or counts (a sequence
# goes on although its transaction is rolled back).
SNAPSHOT = {
    "tasks": "SELECT * EXCLUDE (token, worker, version, seq) FROM canard_absurd.tasks ORDER BY id",
    "checkpoints": "SELECT * REPLACE (rank() OVER (PARTITION BY task_seq ORDER BY ordinal) AS ordinal) "
                   "FROM canard_absurd.checkpoints ORDER BY ALL",
    "attempts": "SELECT * EXCLUDE (worker) FROM canard_absurd.attempts ORDER BY ALL",
    "waits": "SELECT * FROM canard_absurd.waits ORDER BY ALL",
    "children": "SELECT * EXCLUDE (task_seq) FROM canard_absurd.children ORDER BY ALL",
    "events": "SELECT * FROM canard_absurd.events ORDER BY ALL",
}
Snapshot = dict[str, list[str]]


@dataclass
class Stage:
    """A file with a clock and the claims of a scenario."""

    folder: Path
    intercept: Intercept = straight
    clock: FakeClock = field(default_factory=FakeClock)
    claims: list[Claim] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.db = Database(
            self.folder / "state.duckdb", root=self.folder, clock=self.clock, pulse_seconds=None,
            intercept=self.intercept, conflict_retries=0,
        )

    @property
    def claim(self) -> Claim:
        return self.claims[0]

    def start(self, id: str = "t", **options: Any) -> None:
        self.db.spawn("job", None, id=id, **options)
        claim = self.db.claim(reap_limit=0)
        assert claim is not None
        self.claims.append(claim)


def snapshot(db_or_store: Any) -> Snapshot:
    """Return the rows of the file as text."""
    store = getattr(db_or_store, "store", db_or_store)
    return {name: [repr(row) for row in store.sql(query)[1]] for name, query in SNAPSHOT.items()}


@dataclass(frozen=True)
class Scenario:
    """``may_repeat``: the caller that got no answer may simply call again, and what it wanted is there once.

    ``anyones``: so may another process, since the call needs no claim and leaves none.
    """

    before: Callable[[Stage], object]
    act: Callable[[Stage], object]
    may_repeat: bool = True
    anyones: bool = False


def nothing(_stage: Stage) -> None:
    """There is nothing before."""


def spawned(stage: Stage) -> None:
    stage.db.spawn("job", None, id="t")


def late(stage: Stage) -> None:
    stage.start()
    stage.clock.advance(29)


def expired(stage: Stage) -> None:
    stage.start()
    stage.clock.advance(31)


def exhausted(stage: Stage) -> None:
    stage.start(max_failures=1)
    stage.clock.advance(31)


def finished(stage: Stage) -> None:
    stage.start()
    stage.claim.step("a", lambda: 1)
    stage.claim.step("b", lambda: 2)
    stage.claim.fail("x", fatal=True)


def waiting(stage: Stage) -> None:
    stage.start()
    with suppress(TaskSuspended):
        stage.claim.wait("w", events=["e"])


def fulfilled(stage: Stage) -> None:
    waiting(stage)
    stage.db.emit("e", 1)


def woken(stage: Stage) -> None:
    fulfilled(stage)
    stage.db.wake()
    claim = stage.db.claim()
    assert claim is not None
    stage.claims[:] = [claim]


def two(stage: Stage) -> None:
    stage.start("t")
    stage.start("u")


def two_late(stage: Stage) -> None:
    two(stage)
    stage.clock.advance(29)


def jumped(seconds: float) -> Callable[[Stage], None]:
    def before(stage: Stage) -> None:
        stage.start()
        stage.clock.set(seconds)

    return before


def suspending(act: Callable[[Stage], object]) -> Callable[[Stage], object]:
    def run(stage: Stage) -> None:
        with suppress(TaskSuspended):
            act(stage)

    return run


def retry(from_step: str | None) -> Callable[[Stage], object]:
    """What `canard-pipe retry` does to a task, by the functions that do it there."""

    def act(stage: Stage) -> None:
        db = stage.db

        def write() -> None:
            ((_, seq, version, state),) = db.store.run("task_versions", ids='["t"]')
            if state != "failed":
                return
            if from_step is not None:
                ready_again.archive_from(db, [seq], from_step)
            ready_again.make_ready(db, [{"seq": seq, "version": version, "input": None}])

        db.writer.transact(write)

    return act


def drain(stage: Stage) -> None:
    """A worker ends one task and claims the next, by one transaction where it can."""
    work(stage.db, {"job": lambda _input, ctx: ctx.step("a", lambda: 1)}, idle_timeout=0)


WAIT_ROW = [{"seq": 1, "kind": "event", "key": "e"}]
SCENARIOS: dict[str, Scenario] = {
    "spawn": Scenario(nothing, spawned, anyones=True),
    "spawn many": Scenario(
        nothing, lambda stage: stage.db.spawn_many("job", [1, 2], ids=["t", "u"]), anyones=True),
    "emit": Scenario(nothing, lambda stage: stage.db.emit("e", 1), anyones=True),
    "claim": Scenario(spawned, lambda stage: stage.db.claim()),
    "take over": Scenario(expired, lambda stage: stage.db.claim()),
    "sweep": Scenario(exhausted, lambda stage: stage.db.reap()),
    "sweep before a claim": Scenario(exhausted, lambda stage: stage.db.claim()),
    "heartbeat": Scenario(late, lambda stage: stage.claim.heartbeat()),
    "renew many": Scenario(two_late, lambda stage: stage.db.renew(stage.claims)),
    "step": Scenario(Stage.start, lambda stage: stage.claim.step("a", lambda: {"n": 1})),
    "step that renews first": Scenario(late, lambda stage: stage.claim.step("a", lambda: None)),
    "fenced write": Scenario(Stage.start, lambda stage: stage.claim.write("record_waits", WAIT_ROW), may_repeat=False),
    "sleep": Scenario(Stage.start, suspending(lambda stage: stage.claim.sleep("z", 9))),
    "wait": Scenario(Stage.start, suspending(lambda stage: stage.claim.wait("w", events=["e"], tasks=["x"]))),
    "wait that is over": Scenario(woken, lambda stage: stage.claim.wait("w", events=["e"])),
    "map": Scenario(Stage.start, suspending(lambda stage: stage.claim.map("m", "job", [1, 2]))),
    "a worker": Scenario(lambda stage: stage.db.spawn_many("job", [1, 2], ids=["t", "u"]), drain, may_repeat=False),
    "complete": Scenario(Stage.start, lambda stage: stage.claim.complete([1])),
    "fail": Scenario(Stage.start, lambda stage: stage.claim.fail("x", 5)),
    "fail for the last time": Scenario(
        lambda stage: stage.start(max_failures=1), lambda stage: stage.claim.fail("x", cause={"kind": "exit"})),
    "release": Scenario(Stage.start, lambda stage: stage.claim.release()),
    "quarantine": Scenario(Stage.start, lambda stage: stage.claim.quarantine("x")),
    "cancel": Scenario(Stage.start, lambda stage: stage.db.cancel("t")),
    "cancel what waits": Scenario(waiting, lambda stage: stage.db.cancel("t"), anyones=True),
    "wake": Scenario(fulfilled, lambda stage: stage.db.wake(), anyones=True),
    "retry": Scenario(finished, retry(None), anyones=True),
    "retry from a step": Scenario(finished, retry("b"), anyones=True),
    "retain": Scenario(finished, lambda stage: stage.db.retain(older_than_seconds=0), anyones=True),
    "interrupt": Scenario(two, lambda stage: recovery.hand_back(stage.db)),
    "the clock set forward": Scenario(jumped(HOUR), lambda stage: stage.db.mind_the_clock()),
    "the clock set back": Scenario(jumped(-HOUR), lambda stage: stage.db.mind_the_clock()),
}
