"""The engine against the model: whatever is done in whatever order, the file says what the rules say.

A run is a list of actions drawn by Hypothesis. With CANARD_BIG=1 there are many more runs, others each time, and a
failing one is shortened to the fewest actions that still fail. Time passes only when an action lets it. After each
action all rows of tasks, checkpoints and attempts are compared, and each row that changed must have a higher version
(G3).
"""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from canard_pipe.engine.claim import Claim
from canard_pipe.engine.database import Database
from canard_pipe.engine.recovery import RUNS_BEFORE_BLAME
from canard_pipe.errors import LeaseLost, SpawnConflict, TaskSuspended
from canard_pipe.pipeline import ready_again
from tests.engine.conftest import FakeClock
from tests.laws.model import FINAL, Lease, Lost, Model, Op, Suspended

IDS, EVENTS = ("t0", "t1", "t2", "t3"), ("e0", "e1")
LEASES = (5.0, 10.0, 60.0)
ENDS = ("fail", "complete", "complete", "fail later", "release", "fail for good")
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


TURNS = st.tuples(
    st.sampled_from([0.0, 0.0, 5.0, 60.0]), st.sampled_from(LEASES), st.lists(OPS, max_size=3),
    st.sampled_from([*ENDS, None]),
)


PICKED: dict[str, st.SearchStrategy[Any]] = {
    "which": st.integers(0, 5), "stale": st.sampled_from([False, False, True]), "forgets": st.booleans(),
}
# What can be done, how often compared with the rest, and with which arguments.
ACTIONS: dict[str, tuple[int, dict[str, st.SearchStrategy[Any]]]] = {
    "spawn": (2, {"id": st.sampled_from(IDS), "priority": st.sampled_from([0, 0, 1]),
                  "max_failures": st.sampled_from([1, 2, 3])}),
    "claim": (1, {"limit": st.sampled_from([1, 2]), "seconds": st.sampled_from(LEASES)}),
    "work_a_while": (4, {"turns": st.lists(TURNS, min_size=1, max_size=3)}),
    "emit": (1, {"name": st.sampled_from(EVENTS), "value": VALUES}),
    "cancel": (1, {"id": st.sampled_from(IDS)}),
    "retry": (1, {"which": st.integers(0, 3), "from_step": st.none() | st.integers(0, 5)}),
    "let_time_pass": (2, {"seconds": st.sampled_from([1e-6, 1.0, 4.999999, 5.0, 10.0, 60.0])}),
    "set_the_clock": (1, {"seconds": st.sampled_from([-3600.0, 3600.0])}),
    "sweep": (1, {}),
    "wake": (2, {}),
    "retain": (1, {"age": st.sampled_from([0.0, 60.0]), "keep": st.sampled_from([0, 1])}),
    "die_and_open_again": (1, {}),
    "proceed": (2, {"op": OPS, **PICKED}),
    "heartbeat": (1, {"seconds": st.sampled_from([1.0, 60.0]), **PICKED}),
    "end_one": (2, {"how": st.sampled_from(ENDS), **PICKED}),
}


ACTION = st.one_of(*[
    st.tuples(st.just(name), st.fixed_dictionaries(arguments))
    for name, (weight, arguments) in ACTIONS.items() for _ in range(weight)
])


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

    def is_current(self, lease: Lease) -> bool:
        task = self.model.tasks.get(lease.id)
        return task is not None and task.lease is lease

    def pick(self, which: int, *, stale: bool, forgets: bool) -> tuple[Claim, Lease] | None:
        """One of the claims, a current one unless ``stale``. Of one that is lost, memory can forget that it is."""
        among = [(claim, lease) for claim, lease in self.claims if stale or self.is_current(lease)][-6:]
        if not among:
            return None
        claim, lease = among[which % len(among)]
        if forgets and not self.is_current(lease) and not claim.ended:
            claim.lost.clear()
            claim._deadline_us = self.now_us + 10**9
        return claim, lease

    @rule(actions=st.lists(ACTION, min_size=10, max_size=10))
    def act(self, actions: list[tuple[str, dict[str, Any]]]) -> None:
        """Many in one rule: Hypothesis leaves out some rules in each run, and often ends after a few."""
        for name, arguments in actions:
            getattr(self, name)(**arguments)
            self.every_row_is_as_the_rules_say()
            self.results_come_back()

    @initialize(count=st.integers(1, 3), max_failures=st.sampled_from([1, 2, 3]))
    def begin(self, count: int, max_failures: int) -> None:
        for id in IDS[:count]:
            self.spawn(id, 0, max_failures)

    # -- what anybody does ------------------------------------------------------------------------------------

    def spawn(self, id: str, priority: int, max_failures: int) -> None:
        """F6, S22."""
        if self.model.spawn(id, priority, max_failures, self.now_us):
            assert self.db.spawn("job", None, id=id, priority=priority, max_failures=max_failures) == id
        else:
            with pytest.raises(SpawnConflict):
                self.db.spawn("job", None, id=id, priority=priority, max_failures=max_failures)

    def claim(self, limit: int, seconds: float) -> None:
        """F7: sweep, then claim."""
        self.model.sweep(self.now_us)
        leases = self.model.claim(limit, seconds, self.now_us)
        claims = self.db.claim_many(limit, lease_seconds=seconds)
        assert [(claim.id, claim.attempt) for claim in claims] == [(lease.id, lease.attempt) for lease in leases]
        self.claims += zip(claims, leases, strict=True)

    def emit(self, name: str, value: object) -> None:
        """L1."""
        assert self.db.emit(name, value) == self.model.emit(name, value)

    def cancel(self, id: str) -> None:
        """F14."""
        assert self.db.cancel(id) == self.model.cancel(id, self.now_us)

    def retry(self, which: int, from_step: int | None) -> None:
        """G14, and retry --from."""
        ended = [task for task in self.model.tasks.values() if task.state in FINAL[1:]]
        if not ended:
            return
        task = ended[which % len(ended)]
        steps = len(task.saved) + (task.marker_until_us is not None)
        place = from_step % steps if steps and from_step is not None else None
        with self.db.store.transaction():
            if place is not None:
                ready_again.archive_from(self.db, [task.seq], name_of(place, task.script[place]))
            ((_, seq, version, _),) = self.db.store.run("task_versions", ids=json.dumps([task.id]))
            ready_again.make_ready(self.db, [{"seq": seq, "version": version, "input": None}])
        self.model.retry(task.id, place, self.now_us)

    # -- time and maintenance ---------------------------------------------------------------------------------

    def let_time_pass(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def set_the_clock(self, seconds: float) -> None:
        """No lease lost, no failure counted."""
        then_us = self.now_us
        self.clock.set(seconds)
        self.db.mind_the_clock()
        self.model.set_clock(self.now_us - then_us, then_us, self.now_us)

    def sweep(self) -> None:
        """S4, G27."""
        assert self.db.reap() == self.model.sweep(self.now_us)

    def wake(self) -> None:
        assert self.db.wake() == self.model.wake(self.now_us)

    def retain(self, age: float, keep: int) -> None:
        """L5."""
        removed = self.model.retain(round(age * 1e6), keep, self.now_us)
        assert self.db.retain(older_than_seconds=age, keep=keep) == removed

    def die_and_open_again(self) -> None:
        """S2, G11: what was held is ready at once."""
        if self.deaths == RUNS_BEFORE_BLAME - 1:
            return
        self.deaths += 1
        self.db.close()
        self.db = self.opened()
        self.claims.clear()
        assert self.db.interrupted == self.model.interrupt(self.now_us)

    # -- what the holder of a claim does ----------------------------------------------------------------------

    def work_a_while(self, turns: list[tuple[float, float, list[Op], str | None]]) -> None:
        """Several times: a pause, a claim, some steps and an end. So runs get far."""
        for pause, seconds, ops, end in turns:
            self.clock.advance(pause)
            self.claim(1, seconds)
            if self.claims and self.is_current(self.claims[-1][1]):
                claim, lease = self.claims[-1]
                if all(self.advance(claim, lease, op) for op in ops) and end is not None:
                    self.end(claim, lease, end)

    def proceed(self, op: Op, **picked: Any) -> None:
        """One step, or its replay."""
        held = self.pick(**picked)
        if held is not None:
            self.advance(*held, op)

    def advance(self, claim: Claim, lease: Lease, op: Op) -> bool:
        """F15, F16, L1, L9, G11, G13, S19; return whether the handler goes on."""
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
            return False
        except Suspended:
            with pytest.raises(TaskSuspended):
                self.do(claim, name_of(place, op), op)
            return False
        assert self.do(claim, name_of(place, op), op) == expected
        return True

    def do(self, claim: Claim, name: str, op: Op) -> object:
        if op.kind == "step":
            return claim.step(name, lambda: op.value)
        if op.kind == "sleep":
            claim.sleep(name, op.seconds or 0.0)
            return None
        found = claim.wait(name, events=op.events, tasks=op.tasks, timeout_seconds=op.seconds)
        return found.events, {id: end.state for id, end in found.tasks.items()}, found.missing

    def heartbeat(self, seconds: float, **picked: Any) -> None:
        """F11."""
        held = self.pick(**picked)
        if held is not None:
            claim, lease = held
            self.same(lambda: self.model.heartbeat(lease, seconds, self.now_us), lambda: claim.heartbeat(seconds))

    def end_one(self, how: str, **picked: Any) -> None:
        held = self.pick(**picked)
        if held is not None:
            self.end(*held, how)

    def end(self, claim: Claim, lease: Lease, how: str) -> None:
        """F12, F13, S20, S21, and a graceful stop."""
        now_us = self.now_us
        if how == "complete":
            self.same(lambda: self.model.complete(lease, (1, b"y"), now_us), lambda: claim.complete((1, b"y")))
        elif how == "release":
            self.same(lambda: self.model.release(lease, now_us), claim.release)
        else:
            delay, fatal = (5.0, False) if how == "fail later" else (0.0, how == "fail for good")
            self.same(
                lambda: self.model.fail(lease, "x", delay, fatal, now_us), lambda: claim.fail("x", delay, fatal=fatal)
            )

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

    def results_come_back(self) -> None:
        for task in self.model.tasks.values():
            if task.state == "completed":
                assert self.db.result(task.id) == task.result


BIG = bool(os.environ.get("CANARD_BIG"))  # runs for minutes, another way each time

TestEngine = pytest.mark.timeout(3600 if BIG else 300)(Engine.TestCase)
TestEngine.settings = settings(
    max_examples=2000 if BIG else 40, stateful_step_count=5, deadline=None, derandomize=not BIG,
    phases=list(Phase) if BIG else [Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
