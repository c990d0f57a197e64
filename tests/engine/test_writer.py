"""Group commit: many threads, one transaction, and each gets what its own write deserves."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import pytest

from canard_pipe.engine import writer
from canard_pipe.engine.database import Database
from canard_pipe.engine.writer import RIDE_SECONDS
from canard_pipe.errors import LeaseLost, StorageError
from tests.conftest import wait_until
from tests.engine.conftest import row, start, steps

pytestmark = pytest.mark.embedded("the owner's writer")


class Threads:
    """Calls in threads of their own, with what came of each by name."""

    def __init__(self) -> None:
        self.results: dict[str, object] = {}
        self._threads: list[threading.Thread] = []

    def call(self, name: str, act: Callable[[], object]) -> None:
        def run() -> None:
            try:
                self.results[name] = act()
            except BaseException as error:
                self.results[name] = error

        self._threads.append(threading.Thread(target=run))
        self._threads[-1].start()

    def join(self) -> dict[str, object]:
        for thread in self._threads:
            thread.join(20)
            assert not thread.is_alive(), self.results
        return self.results


def save(claim) -> Callable[[], object]:
    return lambda: claim.step("s", lambda: claim.id)


def together(db, threads: Threads, **acts: Callable[[], object]) -> None:
    """Let the acts be gathered into one transaction."""
    with db.writer._turn:
        for name, act in acts.items():
            threads.call(name, act)
        wait_until(lambda: len(db.writer._waiting) == len(acts))


def test_what_waits_is_written_in_one_transaction(db, faults):
    claims = [start(db, id) for id in "abcdefgh"]
    threads = Threads()
    faults.names.clear()
    together(db, threads, **{claim.id: save(claim) for claim in claims})
    assert threads.join() == {id: id for id in "abcdefgh"}
    assert faults.names == ["begin", "save_checkpoints", "save_checkpoints", "commit"]


def test_one_stale_claim_fails_alone(db):
    """G4: the others of its transaction are written."""
    a, b, c = (start(db, id) for id in "abc")
    db.cancel("b")
    b.lost.clear()
    threads = Threads()
    together(db, threads, a=save(a), b=save(b), c=save(c))
    results = threads.join()
    assert (results["a"], results["c"]) == ("a", "c")
    assert isinstance(results["b"], LeaseLost)
    assert [len(steps(db, id)) for id in "abc"] == [1, 0, 1]


@pytest.mark.parametrize(
    "bad",
    [("no_such_statement", [{}]), ("record_waits", [{"seq": "not a number", "kind": "event", "key": "e"}]),
     ("record_waits", [{"seq": 1, "kind": None, "key": None}]), ("record_waits", [{"seq": object()}])],
    ids=["unknown statement", "conversion", "constraint", "not JSON"],
)
def test_a_write_that_the_database_refuses_fails_alone(db, bad):
    a, b, c = (start(db, id) for id in "abc")
    threads = Threads()
    together(db, threads, a=save(a), b=lambda: b.write(*bad), c=save(c))
    results = threads.join()
    assert (results["a"], results["c"]) == ("a", "c")
    assert isinstance(results["b"], Exception)
    b.complete()
    assert db.store.sql("SELECT * FROM canard_absurd.waits")[1] == []


def test_a_rider_that_the_database_refuses_harms_nobody(db, clock):
    """Rows that only inform may be lost, and poison nothing."""
    a, b = start(db, "a"), start(db, "b")
    a.ride("record_waits", {"seq": 1, "kind": None, "key": None})
    clock.advance(RIDE_SECONDS)
    threads = Threads()
    together(db, threads, a=save(a), b=save(b))
    assert threads.join() == {"a": "a", "b": "b"}
    a.ride("no_such_statement", {})
    b.fail("trouble")
    a.complete()
    db.writer.flush()


def waits(db) -> int:
    return len(db.store.sql("SELECT * FROM canard_absurd.waits")[1])


def ride(claim, key: str = "e") -> None:
    claim.ride("record_waits", {"seq": 1, "kind": "event", "key": key})


def test_riders_wait_for_each_other_while_all_goes_well(db, clock, faults):
    """One statement for the rows of many steps; at the latest after RIDE_SECONDS."""
    claim = start(db)
    ride(claim)
    claim.heartbeat()
    assert waits(db) == 0
    clock.advance(RIDE_SECONDS * 0.9)
    ride(claim, "f")
    claim.step("a", lambda: 1)
    assert waits(db) == 0
    clock.advance(RIDE_SECONDS * 0.1)
    faults.names.clear()
    claim.heartbeat()
    assert waits(db) == 2
    assert faults.names.count("commit") == 1
    assert faults.names.count("record_waits") == 1


@pytest.mark.embedded("the owner's own sweep")
def test_riders_do_not_wait_for_a_write_that_never_comes(db, clock, faults):
    """A worker whose tasks are all at long commands still tells what has ended: its sweeps see to it."""
    db.spawn("job", id="t")
    ride(db.claim())
    db.sweep("default", 1)
    assert "record_waits" not in faults.names
    clock.advance(RIDE_SECONDS)
    db.sweep("default", 1)
    assert faults.names.count("record_waits") == 1


def test_riders_go_along_at_once_with_trouble_and_by_closing(db):
    """So that what tells of a failure is there when the failure is."""
    claim = start(db)
    ride(claim)
    claim.fail("trouble")
    assert waits(db) == 1
    ride(claim, "f")
    db.writer.flush()
    assert waits(db) == 2


def test_riders_go_along_although_the_write_is_refused(db, clock):
    claim = start(db)
    ride(claim)
    clock.advance(RIDE_SECONDS)
    db.cancel("t")
    with pytest.raises(LeaseLost):
        claim.heartbeat()
    assert waits(db) == 1


def test_those_that_were_served_together_are_waited_for(db, faults, monkeypatch):
    """Else they and those that came meanwhile take turns, half as many in each transaction."""
    monkeypatch.setattr(writer, "GATHER_SECONDS", 60.0)  # so that only their coming ends the wait
    claims = [start(db, id) for id in "abcd"]
    threads = Threads()
    together(db, threads, **{claim.id: save(claim) for claim in claims})
    threads.join()
    faults.names.clear()
    again = Threads()
    for claim in claims:
        again.call(claim.id, partial(claim.step, "more", lambda id=claim.id: id))
    assert again.join() == {id: id for id in "abcd"}
    assert faults.names.count("commit") == 1


def test_nobody_waits_for_long_for_those_that_do_not_come(db, faults):
    claims = [start(db, id) for id in "abcd"]
    threads = Threads()
    together(db, threads, **{claim.id: save(claim) for claim in claims})
    threads.join()
    assert claims[0].step("more", lambda: 1) == 1


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_commit_in_doubt_is_told_to_each_and_repeated_for_none(db, faults, moment):
    """G8, S25: by an error of its own for each thread."""
    claims = [start(db, id) for id in "abc"]
    threads = Threads()
    faults.planned["commit"] = moment
    faults.names.clear()
    together(db, threads, **{claim.id: save(claim) for claim in claims})
    results = threads.join()
    assert all(isinstance(error, StorageError) for error in results.values())
    assert len({id(error) for error in results.values()}) == 3
    assert faults.names.count("commit") == 1
    assert [len(steps(db, claim.id)) for claim in claims] == [int(moment == "after")] * 3


@pytest.mark.parametrize(("statement", "written"), [("begin", True), ("save_checkpoints", True), ("commit", False)])
def test_an_interrupted_leader_strands_nobody(db, faults, statement, written):
    """What was certainly not written is written by the next leader; only a commit in the air leaves others in doubt."""
    claims = [start(db, id) for id in "abcd"]
    threads = Threads()
    faults.error = KeyboardInterrupt
    faults.planned[statement] = "before"
    together(db, threads, **{claim.id: save(claim) for claim in claims})
    results = threads.join()
    interrupted = [name for name, result in results.items() if isinstance(result, KeyboardInterrupt)]
    assert len(interrupted) == 1
    for name in set(results) - set(interrupted):
        assert results[name] == name if written else isinstance(results[name], StorageError)
    claims[1].heartbeat()  # and the writer works on
    assert db.writer._leader is None


def test_an_interrupted_follower_strands_nobody(db, monkeypatch):
    a, b, c = (start(db, id) for id in "abc")
    threads = Threads()
    real = threading.Event.wait

    def interrupted() -> None:
        with pytest.raises(KeyboardInterrupt):
            b.heartbeat()

    def wait(self, timeout=None):
        if threading.current_thread() is follower:
            raise KeyboardInterrupt
        return real(self, timeout)

    with db.writer._turn:
        threads.call("a", save(a))
        wait_until(lambda: len(db.writer._waiting) == 1)
        follower = threading.Thread(target=interrupted)
        monkeypatch.setattr(threading.Event, "wait", wait)
        follower.start()
        follower.join(20)
        monkeypatch.setattr(threading.Event, "wait", real)
        threads.call("c", save(c))
        wait_until(lambda: len(db.writer._waiting) == 2)
    assert threads.join() == {"a": "a", "c": "c"}


def test_many_threads_write_everything_once_and_end(tmp_path):
    """Steps, heartbeats, cancels and claims of owner and handlers at the same time."""
    with Database(tmp_path / "state.duckdb", root=tmp_path) as db:
        claims = [start(db, f"t{number}") for number in range(16)]
        threads = Threads()

        def handler(claim) -> int:
            for number in range(15):
                claim.step(f"s{number}", lambda: number)  # noqa: B023 - called at once
                claim.ride("record_waits", {"seq": claim.seq, "kind": "event", "key": str(number)})
            claim.complete(15)
            return 15

        def owner() -> int:
            for number in range(20):
                db.spawn("other", id=f"o{number}")
                db.cancel(f"o{number}")
                db.renew([claim for claim in claims if not claim.ended])
                db.reap()
            return 20

        for claim in claims:
            threads.call(claim.id, partial(handler, claim))
        threads.call("owner", owner)
        assert set(threads.join().values()) == {15, 20}
        db.writer.flush()
        assert {len(steps(db, claim.id)) for claim in claims} == {15}
        assert db.store.sql("SELECT count(*) FROM canard_absurd.waits")[1] == [(16 * 15,)]
        assert row(db, "t0")["state"] == "completed"
