"""Claims and leases: who gets what, who may write, and until when."""

from __future__ import annotations

import json

import pytest

from canard_pipe.errors import InputError, LeaseLost, ProtocolError
from tests.engine.conftest import attempts, claimed, row, start, steps


def test_claiming_takes_the_higher_priority_then_the_earlier_time_then_the_order_of_spawning(db, clock):
    """S7."""
    db.spawn("job", id="late")
    db.claim().fail("x", delay_seconds=5)
    clock.advance(1)
    db.spawn_many("job", [0, 0], ids=["z", "a"])
    db.spawn("job", id="first", priority=1)
    clock.advance(10)
    assert [claim.id for claim in db.claim_many(9)] == ["first", "z", "a", "late"]


def test_an_expired_task_competes_with_its_old_time(db, clock):
    """S7."""
    start(db, "old", lease_seconds=5)
    clock.advance(1)
    db.spawn("job", id="new")
    clock.advance(5)
    assert [claim.id for claim in db.claim_many(2)] == ["old", "new"]


def test_nothing_eligible_gives_none(db, clock):
    """F7."""
    assert db.claim() is None
    start(db)
    assert db.claim() is None


def test_a_claim_takes_only_names_and_queues_that_were_asked_for(db):
    """F7, S8: whatever the priority."""
    db.spawn("other", id="a", priority=9)
    db.spawn("job", id="b", queue="q")
    assert db.claim(names=["job"]) is None
    assert db.claim("q", names=["job"]).id == "b"
    assert db.claim(names=[]) is None
    assert db.claim_many(5, ids=[]) == []
    assert db.claim_many(5, ids=["a"])[0].id == "a"


def test_a_claim_counts_an_attempt_and_brings_input_and_saved_steps(db):
    """S3, S28, L19: in the same transaction."""
    db.spawn("job", {"a": (1,)}, id="t")
    first = db.claim()
    assert (first.input, first.attempt, first.failures, first.name) == ({"a": (1,)}, 1, 0, "job")
    first.step("a", lambda: 5)
    first.release()
    second = db.claim()
    assert second.attempt == 2
    assert second.has_saved("a")
    assert second.token != first.token


@pytest.mark.parametrize(
    "wrong",
    [{"lease_seconds": 0}, {"lease_seconds": -1}, {"lease_seconds": float("nan")}, {"lease_seconds": float("inf")},
     {"lease_seconds": 1e300}, {"lease_seconds": 1e-9}, {"worker": ""}, {"queue": ""}, {"reap_limit": -1},
     {"names": "job"}, {"names": [""]}],
)
def test_wrong_arguments_of_a_claim_fail_before_any_sql(db, faults, wrong):
    """G16."""
    faults.names.clear()
    with pytest.raises(InputError):
        db.claim(**wrong)
    assert faults.names == []


def test_running_tasks_have_an_owner_and_others_have_none(db):
    """G5."""
    claim = start(db)
    owner = ("worker", "token", "claimed_at", "deadline")
    assert all(row(db)[name] is not None for name in owner)
    claim.complete()
    assert all(row(db)[name] is None for name in owner)


# -- fencing ------------------------------------------------------------------------------------------------------


def writes(claim):
    return {
        "heartbeat": claim.heartbeat, "step": lambda: claim.step("s", lambda: 1), "complete": claim.complete,
        "fail": lambda: claim.fail("x"), "sleep": lambda: claim.sleep("z", 1), "release": claim.release,
        "suspend": lambda: claim.suspend([]), "quarantine": lambda: claim.quarantine("x"),
        "write": lambda: claim.write("record_waits", [{"seq": claim.seq, "kind": "event", "key": "e"}]),
    }


@pytest.mark.parametrize("name", list(writes(type("Any", (), {"__getattr__": lambda *_: None})())))
@pytest.mark.parametrize("why", ["taken over", "expired", "cancelled"])
def test_a_stale_claim_writes_nothing(db, clock, name, why):
    """G3, G4, G9, G14, S11, S27, S36: every write needs the token, state running and an unexpired deadline."""
    claim = start(db, lease_seconds=5)
    if why == "cancelled":
        assert db.cancel("t")
    else:
        clock.advance(5)  # S9: at the exact instant it counts as expired
    if why == "taken over":
        claimed(db)
    claim.lost.clear()  # what the memory knows must not be what protects the database
    claim._deadline_us += 10**9
    before = row(db), attempts(db), steps(db)
    with pytest.raises(LeaseLost) as error:
        writes(claim)[name]()
    assert (error.value.task_id, error.value.attempt) == ("t", 1)
    assert (row(db), attempts(db), steps(db)) == before
    assert db.store.sql("SELECT * FROM canard_absurd.waits")[1] == []
    assert claim.lost.is_set()


def test_one_microsecond_before_its_end_a_lease_still_counts(db, clock):
    """S9, S46, L21: microseconds throughout."""
    claim = start(db, lease_seconds=5)
    clock.advance(4.999999)
    claim.heartbeat()
    assert db.claim() is None


def test_a_shorter_heartbeat_keeps_the_longer_lease(db, clock):
    """F11, S10, S12: from the database's clock; a success that changes only updated_at and the version."""
    claim = start(db, lease_seconds=60)
    before = row(db)
    clock.advance(1)
    claim.heartbeat(5)
    changed = {name for name, value in row(db).items() if before[name] != value}
    assert changed == {"updated_at", "version"}
    clock.advance(58)
    claim.complete()


def test_a_heartbeat_renews_from_now(db, clock):
    """F11, S44."""
    claim = start(db, lease_seconds=10)
    clock.advance(9)
    claim.heartbeat()
    clock.advance(9)
    assert claim.seconds_left() == 1
    claim.heartbeat(100)
    clock.advance(99)
    claim.complete()


def test_entering_a_step_late_and_saving_it_renew_the_lease(db, clock):
    """S10, S17."""
    claim = start(db, lease_seconds=10)
    clock.advance(6)
    claim.step("a", lambda: clock.advance(9))  # entry renewed: 10 s from the sixth second
    clock.advance(9)
    claim.complete()


def test_renewing_many_claims_tells_which_are_lost(db, faults):
    """One statement for all; a storage error is not taken for a loss (G10)."""
    claims = [start(db, id) for id in "abc"]
    db.cancel("b")
    claims[1].lost.clear()
    faults.names.clear()
    assert [claim.id for claim in db.renew(claims)] == ["b"]
    assert claims[1].lost.is_set()
    faults.planned["commit"] = "before"
    with pytest.raises(Exception, match="disk is gone"):
        db.renew(claims)
    assert not claims[0].lost.is_set()
    faults.names.clear()
    assert db.renew([claims[0], claims[2]]) == []
    assert faults.names.count("renew_leases") == 1


def test_more_than_one_changed_row_is_a_protocol_error(db):
    """E7, S27."""
    claim = start(db)
    db.store.connection.execute(
        "INSERT INTO canard_absurd.tasks SELECT * REPLACE ('copy' AS id) FROM canard_absurd.tasks"
    )
    with pytest.raises(ProtocolError):
        claim.heartbeat()


# -- expiry -------------------------------------------------------------------------------------------------------


def test_an_expired_lease_with_budget_left_is_reclaimed_in_one_step(db, clock):
    """S3, S5: attempt + 1, failures + 1, the text says why; never ready in between."""
    old = start(db, lease_seconds=5, max_failures=2)
    clock.advance(5)
    new = claimed(db)
    assert (new.attempt, new.failures) == (2, 1)
    assert (row(db)["attempt"], row(db)["failures"]) == (2, 1)
    assert row(db)["error"] == "worker lease expired"
    assert attempts(db) == [(1, "expired")]
    assert old.lost.is_set()


@pytest.mark.parametrize("max_failures", [1, 2, 3])
def test_every_expired_task_is_either_reclaimed_or_swept_and_never_both(db, clock, max_failures):
    """S4: exactly complementary, for every count of failures."""
    db.spawn("job", id="t", max_failures=max_failures)
    for failures in range(1, max_failures + 1):
        claim = claimed(db, lease_seconds=5)
        assert claim.failures == failures - 1
        clock.advance(5)
        last = failures == max_failures
        assert not last or db.claim(reap_limit=0) is None  # nobody has swept it yet
        assert db.reap() == int(last)
        assert (row(db)["state"] == "failed") == last
    assert db.claim() is None
    assert row(db)["failures"] == max_failures


def test_a_sweep_takes_the_oldest_of_its_queue_up_to_its_limit(db, clock):
    """S6, S45."""
    for number in range(4):
        start(db, f"t{number}", max_failures=1, lease_seconds=5, queue="default")
        clock.advance(1)
    db.spawn("job", id="elsewhere", queue="q", max_failures=1)
    db.claim("q", lease_seconds=1)
    clock.advance(20)
    assert db.reap("default", limit=3) == 3
    assert row(db, "t3")["state"] == "running"
    assert db.reap("default") == 1
    assert row(db, "elsewhere")["state"] == "running"
    assert db.reap() == 1  # all queues


def test_a_sweep_changes_only_what_it_should_in_only_the_rows_it_should(db, clock):
    """G27: whole rows are compared."""
    start(db, "gone", max_failures=1, lease_seconds=5, priority=3)
    start(db, "budget left", max_failures=2, lease_seconds=5)
    start(db, "alive", lease_seconds=50)
    start(db, "done").complete(1)
    db.spawn("job", id="ready")
    clock.advance(6)
    before = {id: row(db, id) for id in ("gone", "budget left", "alive", "done", "ready")}
    assert db.reap() == 1
    after = {id: row(db, id) for id in before}
    changed = {name for name, value in after["gone"].items() if before["gone"][name] != value}
    assert changed == {
        "state", "failures", "error", "worker", "token", "claimed_at", "deadline", "updated_at", "version",
    }
    del before["gone"], after["gone"]
    assert after == before
    assert attempts(db, "gone") == [(1, "expired")]


def test_a_claim_sweeps_its_queue_first(db, clock):
    """F7, S6."""
    start(db, max_failures=1, lease_seconds=5)
    clock.advance(5)
    assert db.claim() is None
    assert row(db)["state"] == "failed"


# -- ending -------------------------------------------------------------------------------------------------------


def test_completing_stores_the_result_and_clears_the_error(db):
    """F12, S20."""
    start(db).fail("first")
    claimed(db).complete({"n": None})
    assert db.result("t") == {"n": None}
    assert row(db)["error"] is None


def test_failing_counts_and_makes_ready_after_the_delay(db, clock):
    """F13, S21: the text whole."""
    text = "line 1\n" + "x" * 100_000
    start(db).fail(text, delay_seconds=7.5)
    assert row(db)["error"] == text
    assert db.claim() is None
    clock.advance(7.5)
    assert claimed(db).failures == 1
    assert row(db)["error"] == text  # S20: a claim keeps it


def test_the_last_failure_is_final_and_sets_the_time_too(db, clock):
    """F13, S21, G14."""
    start(db, max_failures=1).fail("", delay_seconds=50)
    found = row(db)
    assert (found["state"], found["failures"], found["error"]) == ("failed", 1, "")
    assert found["available_at"].timestamp() - found["updated_at"].timestamp() == 50
    clock.advance(99)
    assert db.claim() is None


def test_a_fatal_failure_is_final_at_once(db):
    start(db, max_failures=9).fail("no such program", fatal=True, cause={"kind": "not_found"})
    assert row(db)["state"] == "failed"
    ((cause,),) = db.store.sql("SELECT cause FROM canard_absurd.attempts")[1]
    assert json.loads(cause) == {"kind": "not_found"}


def test_a_failure_that_is_not_counted_leaves_the_budget_as_it_was(db):
    # F13: the caller sees to it that this ends
    start(db, max_failures=1).fail("preempted", counted=False)
    task = db.tasks()[0]
    assert (task.state, task.failures, task.error) == ("ready", 0, "preempted")
    db.claim().fail("no use", fatal=True, counted=False)
    task = db.tasks()[0]
    assert (task.state, task.failures) == ("failed", 1)


@pytest.mark.parametrize("wrong", [lambda c: c.fail(5), lambda c: c.fail("x", -1), lambda c: c.heartbeat(0),
                                   lambda c: c.sleep("z", -1), lambda c: c.step("", print), lambda c: c.step(1, print)])
def test_wrong_arguments_of_a_claim_s_methods_change_nothing(db, wrong):
    """G16."""
    claim = start(db)
    before = row(db)
    with pytest.raises(InputError):
        wrong(claim)
    assert row(db) == before


@pytest.mark.parametrize("state", ["ready", "running", "suspended"])
def test_an_unfinished_task_can_be_cancelled(db, state):
    """F14, S20, S36: keeps checkpoints and the last text; the claim here learns at once."""
    start(db).fail("earlier")
    claim = claimed(db)
    claim.step("a", lambda: 1)
    if state == "ready":
        claim.release()
    if state == "suspended":
        with pytest.raises(BaseException, match="suspended"):
            claim.suspend([("event", "e")])
    assert db.cancel("t") is True
    assert (row(db)["state"], row(db)["error"], steps(db)) == ("cancelled", "earlier", [("a", "1")])
    assert claim.lost.is_set() == (state == "running")
    assert db.cancel("t") is False
    assert db.claim() is None


def test_a_finished_or_unknown_task_cannot_be_cancelled(db):
    """F14, G14."""
    start(db).complete(1)
    assert db.cancel("t") is False
    assert db.cancel("unknown") is False
    assert row(db)["state"] == "completed"


@pytest.mark.embedded("handlers elsewhere learn at their next write")
def test_a_cancel_reaches_a_claim_that_was_granted_just_now(db, faults):
    """A cancel that follows the claim's commit finds the claim to tell, however soon it comes (S17, relaxed)."""
    db.spawn("job", id="t")
    told: list[int] = []
    real = db.writer.transact

    def transact(action, **options):
        result = real(action, **options)
        if not told:
            told.append(1)
            db.writer.transact = real
            db.cancel("t")
        return result

    db.writer.transact = transact
    claim = db.claim(reap_limit=0)
    assert claim.lost.is_set()


def test_every_claim_has_one_row_in_the_history(db, clock):
    """L3."""
    start(db).fail("x")
    claimed(db).release()
    with pytest.raises(BaseException, match="suspended"):
        claimed(db).sleep("nap", 0)
    claimed(db, lease_seconds=1)
    clock.advance(1)
    claimed(db).complete(1)
    assert attempts(db) == [(1, "failed"), (2, "released"), (3, "suspended"), (4, "expired"), (5, "completed")]
    rows = db.store.sql("SELECT worker, started_at <= ended_at, error FROM canard_absurd.attempts")[1]
    assert all(worker.startswith("worker@") and ordered for worker, ordered, _ in rows)
    assert [error for _, _, error in rows if error] == ["x", "worker lease expired"]
