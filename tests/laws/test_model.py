"""The engine against the model: whatever is done in whatever order, the file says what the rules say.

A run is a list of actions drawn by Hypothesis; a failing one is shortened to the fewest that still fail. Time passes
only when an action lets it. After each action all rows of tasks, checkpoints and attempts are compared, and each row
that changed must have a higher version (G3).
"""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from canard_pipe.engine.claim import Claim
from canard_pipe.engine.database import Database
from canard_pipe.engine.recovery import RUNS_BEFORE_BLAME
from canard_pipe.errors import LeaseLost, SpawnConflict, TaskSuspended
from canard_pipe.pipeline import ready_again
from tests.engine.conftest import FakeClock
from tests.laws.model import FINAL, Lease, Lost, Model, Op, Suspended

IDS, EVENTS = ("t0", "t1", "t2", "t3"), ("e0", "e1")
LEASES = (5.0, 10.0, 60.0)
VALUES = st.sampled_from([None, 1, "x", (1, b"y"), {"a": [1.5]}])
OPS = st.one_of(
    VALUES.map(lambda value: Op("step", value)),
    st.sampled_from([0.0, 5.0, 30.0]).map(lambda seconds: Op("sleep", seconds=seconds)),
    st.builds(
        lambda seconds, events, tasks: Op("wait", seconds=seconds, events=events, tasks=tasks),
        st.sampled_from([None, 0.0, 10.0]), st.sampled_from([("e0",), ("e0", "e1")]), st.sampled_from([(), ("t0",)]),
    ),
    st.just(Op("wait", tasks=("t1",))),
)


def name_of(place: int, op: Op) -> str:
    return f"{place} {op.kind}"


class Engine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.clock, self.model = FakeClock(), Model()
        self.db = self.opened()
        self.claims: list[tuple[Claim, Lease]] = []
        self.deaths = 0
        self.seen: dict[int, tuple[Any, ...]] = {}

    def opened(self) -> Database:
        root = Path(self.folder.name)
        return Database(root / "state.duckdb", root=root, clock=self.clock, pulse_seconds=None)

    def teardown(self) -> None:
        self.db.close()
        self.folder.cleanup()

    @property
    def now_us(self) -> int:
        return self.clock.now_us()

    def pick(self, data: st.DataObject) -> tuple[Claim, Lease]:
        """One of the latest claims, current or not; of one that is not, memory sometimes forgets that it is lost."""
        claim, lease = data.draw(st.sampled_from(self.claims[-6:]), label="claim")
        task = self.model.tasks.get(lease.id)
        if (task is None or task.lease is not lease) and not claim.ended and data.draw(st.booleans(), label="forgets"):
            claim.lost.clear()
            claim._deadline_us = self.now_us + 10**9
        return claim, lease

    # -- what anybody does ------------------------------------------------------------------------------------

    @rule(id=st.sampled_from(IDS), priority=st.sampled_from([0, 0, 1]), max_failures=st.sampled_from([1, 2, 3]))
    def spawn(self, id: str, priority: int, max_failures: int) -> None:
        """F6, S22."""
        if self.model.spawn(id, priority, max_failures, self.now_us):
            assert self.db.spawn("job", None, id=id, priority=priority, max_failures=max_failures) == id
        else:
            with pytest.raises(SpawnConflict):
                self.db.spawn("job", None, id=id, priority=priority, max_failures=max_failures)

    @rule(limit=st.sampled_from([1, 1, 2]), seconds=st.sampled_from(LEASES))
    def claim(self, limit: int, seconds: float) -> None:
        """F7: sweep, then claim."""
        self.model.sweep(self.now_us)
        leases = self.model.claim(limit, seconds, self.now_us)
        claims = self.db.claim_many(limit, lease_seconds=seconds)
        assert [(claim.id, claim.attempt) for claim in claims] == [(lease.id, lease.attempt) for lease in leases]
        self.claims += zip(claims, leases, strict=True)

    @rule(name=st.sampled_from(EVENTS), value=VALUES)
    def emit(self, name: str, value: object) -> None:
        """L1."""
        assert self.db.emit(name, value) == self.model.emit(name, value)

    @rule(id=st.sampled_from(IDS))
    def cancel(self, id: str) -> None:
        """F14."""
        assert self.db.cancel(id) == self.model.cancel(id, self.now_us)

    @precondition(lambda self: any(task.state in FINAL[1:] for task in self.model.tasks.values()))
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        """G14, and retry --from."""
        task = data.draw(st.sampled_from([task for task in self.model.tasks.values() if task.state in FINAL[1:]]))
        steps = len(task.saved) + (task.marker_until_us is not None)
        place = data.draw(st.none() | st.integers(0, steps - 1), label="from") if steps else None
        with self.db.store.transaction():
            if place is not None:
                ready_again.archive_from(self.db, [task.seq], name_of(place, task.script[place]))
            ((_, seq, version, _),) = self.db.store.run("task_versions", ids=json.dumps([task.id]))
            ready_again.make_ready(self.db, [{"seq": seq, "version": version, "input": None}])
        self.model.retry(task.id, place, self.now_us)

    # -- time and maintenance ---------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([1e-6, 1.0, 4.999999, 5.0, 10.0, 60.0]))
    def let_time_pass(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(seconds=st.sampled_from([-3600.0, 3600.0]))
    def set_the_clock(self, seconds: float) -> None:
        """No lease lost, no failure counted."""
        then_us = self.now_us
        self.clock.set(seconds)
        self.db.mind_the_clock()
        self.model.set_clock(self.now_us - then_us, then_us, self.now_us)

    @rule()
    def sweep(self) -> None:
        """S4, G27."""
        assert self.db.reap() == self.model.sweep(self.now_us)

    @rule()
    def wake(self) -> None:
        assert self.db.wake() == self.model.wake(self.now_us)

    @rule(age=st.sampled_from([0.0, 60.0]), keep=st.sampled_from([0, 1]))
    def retain(self, age: float, keep: int) -> None:
        """L5."""
        removed = self.model.retain(round(age * 1e6), keep, self.now_us)
        assert self.db.retain(older_than_seconds=age, keep=keep) == removed

    @precondition(lambda self: self.deaths < RUNS_BEFORE_BLAME - 1)
    @rule()
    def die_and_open_again(self) -> None:
        """S2, G11: what was held is ready at once."""
        self.deaths += 1
        self.db.close()
        self.db = self.opened()
        self.claims.clear()
        assert self.db.interrupted == self.model.interrupt(self.now_us)

    # -- what the holder of a claim does ----------------------------------------------------------------------

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), op=OPS)
    def proceed(self, data: st.DataObject, op: Op) -> None:
        """F15, F16, L1, L9, G11, G13, S19: one step, or its replay."""
        claim, lease = self.pick(data)
        task = self.model.tasks.get(lease.id)
        known = [] if task is None else task.script
        place = lease.place
        if place < len(known):
            op = known[place]
        try:
            expected = self.model.proceed(lease, op, self.now_us)
        except Lost:
            # What is saved is replayed from memory: only what writes has to be refused.
            with suppress(LeaseLost):
                self.do(claim, name_of(place, op), op)
            with pytest.raises(LeaseLost):
                claim.heartbeat()
        except Suspended:
            with pytest.raises(TaskSuspended):
                self.do(claim, name_of(place, op), op)
        else:
            assert self.do(claim, name_of(place, op), op) == expected

    def do(self, claim: Claim, name: str, op: Op) -> object:
        if op.kind == "step":
            return claim.step(name, lambda: op.value)
        if op.kind == "sleep":
            claim.sleep(name, op.seconds or 0.0)
            return None
        found = claim.wait(name, events=op.events, tasks=op.tasks, timeout_seconds=op.seconds)
        return found.events, {id: end.state for id, end in found.tasks.items()}, found.missing

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), seconds=st.sampled_from([1.0, 60.0]))
    def heartbeat(self, data: st.DataObject, seconds: float) -> None:
        """F11."""
        claim, lease = self.pick(data)
        self.same(lambda: self.model.heartbeat(lease, seconds, self.now_us), lambda: claim.heartbeat(seconds))

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), value=VALUES)
    def complete(self, data: st.DataObject, value: object) -> None:
        """F12."""
        claim, lease = self.pick(data)
        self.same(lambda: self.model.complete(lease, value, self.now_us), lambda: claim.complete(value))

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), delay=st.sampled_from([0.0, 5.0]), fatal=st.sampled_from([False, False, True]))
    def fail(self, data: st.DataObject, delay: float, fatal: bool) -> None:
        """F13."""
        claim, lease = self.pick(data)
        self.same(
            lambda: self.model.fail(lease, "x", delay, fatal, self.now_us),
            lambda: claim.fail("x", delay, fatal=fatal),
        )

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        claim, lease = self.pick(data)
        self.same(lambda: self.model.release(lease, self.now_us), claim.release)

    def same(self, by_the_rules: Any, by_the_engine: Any) -> None:
        """Both do it, or the claim is lost to both (G4, G9)."""
        try:
            by_the_rules()
        except Lost:
            with pytest.raises(LeaseLost):
                by_the_engine()
        else:
            by_the_engine()

    # -- what must hold ---------------------------------------------------------------------------------------

    @invariant()
    def every_row_is_as_the_rules_say(self) -> None:
        """Also S3 (the counters), S20 and S21 (texts and times), S43 (order), L3 (history)."""
        found = self.db.store.sql(
            "SELECT seq, id, state, attempt, failures, error, epoch_us(available_at), epoch_us(updated_at), "
            "epoch_us(deadline), token IS NULL, result IS NULL, version, "
            "(SELECT coalesce(list(name ORDER BY ordinal), []) FROM canard_absurd.checkpoints c "
            " WHERE c.task_seq = t.seq AND archived_at IS NULL AND kind <> 'waiting'), "
            "(SELECT coalesce(list(attempt || outcome ORDER BY attempt), []) FROM canard_absurd.attempts a "
            " WHERE a.task_seq = t.seq) FROM canard_absurd.tasks t ORDER BY seq")[1]
        expected = [
            (task.seq, task.id, task.state, task.attempt, task.failures, task.error, task.available_us,
             task.updated_us, task.deadline_us, task.lease is None, task.state != "completed",
             [name_of(place, task.script[place]) for place in range(len(task.saved))],
             [f"{attempt}{outcome}" for attempt, outcome in task.history])
            for task in sorted(self.model.tasks.values(), key=lambda task: task.seq)
        ]
        assert [row[:11] + row[12:] for row in found] == expected
        for row in found:
            before = self.seen.get(row[0])
            if before is not None and before[:11] != row[:11]:
                assert row[11] > before[11], "a row changed and its version did not"
        self.seen = {row[0]: row for row in found}

    @invariant()
    def results_come_back(self) -> None:
        for task in self.model.tasks.values():
            if task.state == "completed":
                assert self.db.result(task.id) == task.result


BIG = bool(os.environ.get("CANARD_BIG"))  # runs for minutes, another way each time

TestEngine = pytest.mark.timeout(3600 if BIG else 600)(Engine.TestCase)  # a failing run is shortened first
TestEngine.settings = settings(
    max_examples=2000 if BIG else 30, stateful_step_count=40, deadline=None, derandomize=not BIG,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
