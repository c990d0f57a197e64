"""The fence: of two transitions of one task that overlap, exactly one wins, whichever of them is left open.

Every transition runs by the code that runs it in earnest, on two handles of one database. The first is held just
before its commit, or (where it reads before it writes) between its read and its write, until the second is through.
"""

from __future__ import annotations

import itertools
import json
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from canard_pipe.engine import recovery, statements
from canard_pipe.engine.claim import Claim
from canard_pipe.engine.clock_guard import Gap
from canard_pipe.engine.database import Database
from canard_pipe.errors import ConflictError, LeaseLost, TaskSuspended
from tests.engine.conftest import FakeClock, attempts, row, start

LATE_SECONDS = 100.0


class Hold:
    """An ``intercept`` that holds one statement until it is let go."""

    def __init__(self) -> None:
        self.at: str | None = None
        self.reached, self.let_go = threading.Event(), threading.Event()

    def __call__(self, name, execute):
        if name == self.at:
            self.at = None
            self.reached.set()
            assert self.let_go.wait(20)
        return execute()


@dataclass
class Side:
    """One of the two: a handle, its clock, and its own copy of the claim."""

    db: Database
    clock: FakeClock
    claim: Claim | None
    hold: Hold


def retry(side: Side) -> object:
    def act() -> None:
        ((id, seq, version, _),) = side.db.store.run("task_versions", ids=json.dumps(["t"]))
        assert id == "t"
        rows = [{"seq": seq, "version": version, "input": None}]
        side.db.store.run("retry_tasks", rows=rows, now_us=side.clock.now_us())

    side.db.writer.transact(act)
    return True


def take_over(side: Side) -> object:
    side.clock.advance(LATE_SECONDS)  # by this one's clock the lease has run out
    side.db._guard.settled(Gap(0, 0, side.clock.now_us()))
    return side.db.claim(reap_limit=0)


def expire(side: Side) -> object:
    side.clock.advance(LATE_SECONDS)
    side.db._guard.settled(Gap(0, 0, side.clock.now_us()))
    return side.db.reap()


def interrupt(side: Side) -> object:
    side.db.identity, before = "gone:1:x", side.db.identity
    monkey = recovery._is_dead
    try:
        recovery._is_dead = lambda *_: True
        return recovery.hand_back(side.db)
    finally:
        recovery._is_dead = monkey
        side.db.identity = before


def of_claim(act: Callable[[Claim], object]) -> Callable[[Side], object]:
    def run(side: Side) -> object:
        assert side.claim is not None
        with suppress(TaskSuspended):
            act(side.claim)
        return True

    return run


WAIT = [{"seq": 1, "kind": "event", "key": "e"}]
RUNNING: dict[str, Callable[[Side], object]] = {
    "renew": of_claim(lambda claim: claim.heartbeat()),
    "checkpoint": of_claim(lambda claim: claim.step("s", lambda: 1)),
    "fenced write": of_claim(lambda claim: claim.write("record_waits", WAIT)),
    "suspend": of_claim(lambda claim: claim.suspend([("event", "e")])),
    "wait": of_claim(lambda claim: claim.wait("w", events=["e"])),
    "wait that is over": of_claim(lambda claim: claim.wait("w", events=["e"], timeout_seconds=0)),
    "sleep": of_claim(lambda claim: claim.sleep("z", 1)),
    "complete": of_claim(lambda claim: claim.complete(1)),
    "fail": of_claim(lambda claim: claim.fail("x")),
    "release": of_claim(lambda claim: claim.release()),
    "quarantine": of_claim(lambda claim: claim.quarantine("x")),
    "cancel": lambda side: side.db.cancel("t"),
    "interrupt": interrupt,
    "take over": take_over,
    "expire": expire,
}
READY: dict[str, Callable[[Side], object]] = {
    "claim": lambda side: side.db.claim(reap_limit=0), "cancel": RUNNING["cancel"], "retry": retry,
}
SUSPENDED: dict[str, Callable[[Side], object]] = {
    "wake": lambda side: side.db.wake(), "cancel": RUNNING["cancel"], "retry": retry,
}
# Where a transition reads the row before it writes it: the statement that writes.
WRITES = {
    "cancel": "cancel_tasks", "interrupt": "interrupt_tasks", "take over": "claim_tasks", "expire": "expire_tasks",
    "claim": "claim_tasks", "retry": "retry_tasks", "wake": "wake_tasks",
}
LOST: tuple[object, ...] = (False, 0, None)


def pairs(transitions: dict[str, Callable[[Side], object]]) -> list[tuple[str, str, str]]:
    """Return every ordered pair with where the first is held. Taking over and expiring exclude each other (S4)."""
    found = []
    for first, second in itertools.product(transitions, repeat=2):
        if {first, second} == {"take over", "expire"}:
            continue
        found += [(first, second, at) for at in ("commit", WRITES.get(first)) if at]
    return found


def outcome_of(act: Callable[[Side], object], side: Side) -> str:
    try:
        return "lost" if act(side) in LOST else "won"
    except (ConflictError, LeaseLost):
        return "lost"


@pytest.fixture
def sides(tmp_path: Path):
    holds = [Hold(), Hold()]
    clocks = [FakeClock(), FakeClock()]
    options: dict[str, Any] = {"root": tmp_path, "pulse_seconds": None, "conflict_retries": 0}
    with (
        Database(None, clock=clocks[0], intercept=holds[0], **options) as one,
        Database(None, clock=clocks[1], intercept=holds[1], beside=one, **options) as two,
    ):
        yield Side(one, clocks[0], None, holds[0]), Side(two, clocks[1], None, holds[1])


def contest(sides: tuple[Side, Side], state: str, first: str, second: str, at: str) -> list[str]:
    """Let two transitions overlap and return what became of each; the row's version must tell the same."""
    one, two = sides
    transitions = {"running": RUNNING, "ready": READY, "suspended": SUSPENDED}[state]
    claim = start(one.db, max_failures=1 if "expire" in (first, second) else 3)
    if state == "ready":
        claim.release()
    elif state == "suspended":
        with pytest.raises(TaskSuspended):
            claim.suspend([])
    one.claim, two.claim = claim, Claim(two.db, claim.grant)
    before = row(one.db)["version"]
    results: list[str] = []
    thread = threading.Thread(target=lambda: results.append(outcome_of(transitions[first], one)))
    one.hold.at = at
    thread.start()
    try:
        assert one.hold.reached.wait(20)
        other = outcome_of(transitions[second], two)
    finally:
        one.hold.let_go.set()
        thread.join()
    won = [*results, other]
    assert row(one.db)["version"] == before + won.count("won")
    assert len(attempts(one.db)) == len(set(attempts(one.db)))
    return won


@pytest.mark.parametrize(
    ("state", "first", "second", "at"),
    [(state, *pair) for state, all_ in (("running", RUNNING), ("ready", READY), ("suspended", SUSPENDED))
     for pair in pairs(all_)],
)
def test_of_two_transitions_that_overlap_exactly_one_wins(sides, state, first, second, at):
    """G3, docs/design.md "State and fence"."""
    assert sorted(contest(sides, state, first, second, at)) == ["lost", "won"]


def mutated(monkeypatch, name: str, change: Callable[[str], str]) -> None:
    """Change the text of the first statement of a file."""
    real = statements.load
    first, *rest = real(name)
    text = change(first.sql)
    assert text != first.sql
    changed = (statements.parse(text), *rest)
    monkeypatch.setattr(statements, "load", lambda asked: changed if asked == name else real(asked))


def without_shared_columns(text: str) -> str:
    """Update only a column that no other transition of a running task does: the fence is only read then."""
    return re.sub(r"SET version.*?\nFROM", "SET priority = t.priority\nFROM", text, flags=re.DOTALL)


def with_version_only(text: str) -> str:
    return re.sub(r"SET version.*?\nFROM", "SET version = t.version + 1\nFROM", text, flags=re.DOTALL)


@pytest.mark.parametrize("second", ["cancel", "complete", "take over"])
@pytest.mark.parametrize(("first", "statement"), [("renew", "renew_leases"), ("checkpoint", "save_checkpoints")])
def test_a_fence_that_is_only_read_lets_both_win(sides, monkeypatch, first, statement, second):
    """A mutation that the test above must find: DuckDB looks for conflicts by column."""
    mutated(monkeypatch, statement, without_shared_columns)
    with pytest.raises(AssertionError):
        assert sorted(contest(sides, "running", first, second, "commit")) == ["lost", "won"]


@pytest.mark.parametrize("second", ["cancel", "complete", "take over"])
@pytest.mark.parametrize(("first", "statement"), [("renew", "renew_leases"), ("checkpoint", "save_checkpoints")])
def test_the_version_alone_is_a_fence(sides, monkeypatch, first, statement, second):
    mutated(monkeypatch, statement, with_version_only)
    assert sorted(contest(sides, "running", first, second, "commit")) == ["lost", "won"]


def test_every_transition_adds_one_to_the_version():
    """So that no new statement forgets it: each update of tasks in the engine and above."""
    from importlib import resources

    found = 0
    for package in statements.PACKAGES:
        for file in resources.files(package).joinpath("sql").iterdir():
            if file.name.endswith(".sql"):
                for statement in statements.split(file.read_text(encoding="utf-8")):
                    if "UPDATE canard_absurd.tasks" in statement.sql:
                        found += 1
                        assert "SET version = t.version + 1" in statement.sql, file.name
    assert found >= 15
