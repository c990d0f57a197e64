"""The worker: slots, what it leaves alone, what ends it and what does not."""

from __future__ import annotations

import logging
import threading
import time

import duckdb
import pytest

from canard_pipe.engine.attempt import Outcome, run
from canard_pipe.engine.worker import Worker, work
from canard_pipe.errors import InputError, LeaseLost, StorageError, TaskReleased
from tests.conftest import wait_until
from tests.engine.conftest import attempts, claimed, row, start


def drain(db, handlers, **options) -> int:
    return work(db, handlers, idle_timeout=0, **options)


def test_an_attempt_that_returns_is_completed(db):
    """F17."""
    db.spawn("job", 5, id="t")
    outcome = run(db.claim(), lambda input, _ctx: input + 1)
    assert (outcome.id, outcome.attempt, outcome.status, outcome.state, outcome.result, outcome.error) == (
        "t", 1, "completed", "completed", 6, None
    )
    assert db.result("t") == 6


@pytest.mark.parametrize(("max_failures", "state"), [(1, "failed"), (2, "ready")])
def test_a_handler_s_error_counts_and_the_outcome_says_the_new_state(db, max_failures, state):
    """F17, S1, S42: the live exception is kept."""
    error = ValueError("delivery unavailable")

    def handler(_input, _ctx):
        raise error

    outcome = run(start(db, max_failures=max_failures), handler)
    assert (outcome.status, outcome.state) == ("failed", state)
    assert outcome.error is error
    assert row(db)["error"] == "delivery unavailable"


def test_a_value_that_cannot_be_stored_is_a_failure_of_the_handler(db):
    """G17, S1."""
    outcome = run(start(db), lambda _input, _ctx: object())
    assert (outcome.status, row(db)["failures"]) == ("failed", 1)


@pytest.mark.parametrize(
    ("end", "status"),
    [(lambda ctx: ctx.complete(1), "completed"), (lambda ctx: ctx.fail("x"), "failed"),
     (lambda ctx: ctx.release(), "released")],
)
def test_a_handler_may_end_its_attempt_itself(db, end, status):
    """F17: the outcome says how; also if the handler raises afterwards."""
    assert run(start(db, "a"), lambda _input, ctx: end(ctx)).status == status

    def handler(_input, ctx):
        end(ctx)
        raise ValueError("afterwards")

    db.cancel("a")
    outcome = run(start(db, "b"), handler)
    assert outcome.status == status
    assert row(db, "b")["failures"] == int(status == "failed")


def test_a_lost_lease_is_not_recorded_against_the_newer_attempt(db, clock):
    """S30, G9."""
    def handler(_input, ctx):
        clock.advance(40)
        claimed(db)
        raise ValueError("of the old attempt")

    outcome = run(start(db), handler)
    assert (outcome.status, outcome.state) == ("lost", None)
    assert (row(db)["state"], row(db)["failures"], row(db)["error"]) == ("running", 1, "worker lease expired")


def test_a_storage_error_passes_and_uses_no_failure(db, faults):
    """G10, S1."""
    claim = start(db)
    faults.planned["save_checkpoints"] = "before"
    with pytest.raises(StorageError):
        run(claim, lambda _input, ctx: ctx.step("a", lambda: 1))
    assert row(db)["failures"] == 0


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("slots", [1, 3])
def test_an_interrupt_passes_and_counts_nothing(db, error, slots):
    """G23: the claim is handed back, so that nothing is counted when its lease runs out either (S2)."""
    db.spawn("job", id="t")

    def handler(_input, _ctx):
        raise error

    with pytest.raises(error):
        drain(db, {"job": handler}, slots=slots)
    assert (row(db)["state"], row(db)["failures"]) == ("ready", 0)


def test_a_catch_all_in_a_handler_does_not_take_a_suspension(db, clock):
    """G24."""
    def handler(_input, ctx):
        try:
            ctx.sleep("nap", 5)
        except Exception:
            return "swallowed"
        return "slept"

    db.spawn("job", id="t")
    assert drain(db, {"job": handler}) == 1
    clock.advance(5)
    assert drain(db, {"job": handler}) == 1
    assert db.result("t") == "slept"


# -- the loop -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slots", [1, 4])
def test_a_drain_does_everything_that_is_eligible_and_what_handlers_make(db, slots):
    """F18, S32, L7."""
    def parent(_input, ctx):
        ctx.database.spawn("child")

    db.spawn_many("parent", range(6))
    assert drain(db, {"parent": parent, "child": lambda _input, _ctx: None}, slots=slots) == 12
    assert {task.state for task in db.tasks()} == {"completed"}


def test_slots_run_at_the_same_time(db):
    """L7."""
    together = threading.Barrier(4, timeout=20)
    db.spawn_many("job", range(4))
    drain(db, {"job": lambda _input, _ctx: together.wait() and None}, slots=4)
    assert {task.state for task in db.tasks()} == {"completed"}


def test_a_worker_claims_nothing_while_its_renewals_fail(db, faults):
    """docs/parity.md, "health": what it cannot keep it should not take; it looks again by itself."""
    failing, second = threading.Event(), threading.Event()

    class Plan(dict[str, str]):
        def pop(self, name, default=None):
            return "before" if name == "renew_leases" and failing.is_set() else super().pop(name, default)

    faults.planned = Plan()
    claimed_meanwhile = []

    def first(_input, ctx):
        failing.set()
        with pytest.raises(StorageError):
            db.renew([ctx])
        faults.names.clear()
        wait_until(lambda: faults.names.count("renew_leases") >= 3, 20)  # it tries, so it does not claim any more
        db.spawn("second", id="u")
        faults.names.clear()
        wait_until(lambda: faults.names.count("renew_leases") >= 5, 20)
        claimed_meanwhile.append(faults.names.count("claim_tasks"))
        failing.clear()
        assert second.wait(20)

    db.spawn("first", id="t")
    drain(db, {"first": first, "second": lambda _input, _ctx: second.set()}, slots=2, poll_seconds=0.01)
    assert claimed_meanwhile == [0]
    assert {task.state for task in db.tasks()} == {"completed"}


def test_no_transaction_is_open_while_a_handler_or_a_step_runs(db):
    """G6: others write meanwhile, from another thread, and wait for nobody."""
    def spawn_elsewhere(id):
        thread = threading.Thread(target=lambda: db.spawn("other", id=id))
        thread.start()
        thread.join(20)
        return not thread.is_alive()

    def handler(_input, ctx):
        return spawn_elsewhere("in the handler"), ctx.step("s", lambda: spawn_elsewhere("in a step"))

    db.spawn("job", id="t")
    drain(db, {"job": handler})
    assert db.result("t") == (True, True)
    assert {task.id for task in db.tasks(state="ready")} == {"in the handler", "in a step"}


def test_tasks_of_unknown_names_are_left_alone(db):
    """S8."""
    db.spawn("unknown", id="u", priority=9)
    db.spawn("job", id="t")
    assert drain(db, {"job": lambda _input, _ctx: 1}) == 1
    assert (row(db, "u")["state"], row(db, "u")["attempt"]) == ("ready", 0)


def test_max_tasks_counts_attempts_of_every_kind(db):
    """S32: failures too; 0 claims nothing but checks its arguments."""
    def handler(_input, _ctx):
        raise ValueError

    db.spawn("job", id="t", max_failures=9)
    assert work(db, {"job": handler}, max_tasks=0) == 0
    assert row(db)["attempt"] == 0
    with pytest.raises(InputError):
        work(db, {"job": handler}, max_tasks=0, lease_seconds=0)
    assert work(db, {"job": handler}, max_tasks=2) == 2
    assert row(db)["failures"] == 2


@pytest.mark.parametrize(
    "wrong",
    [{"slots": 0}, {"lease_seconds": -1}, {"poll_seconds": 0}, {"queue": ""}, {"worker": 5}, {"reap_limit": -1},
     {"failure_delay": -1}, {"idle_timeout": -1}, {"max_tasks": -1}, {"handlers": {}}, {"handlers": {"job": 1}}],
)
def test_wrong_arguments_of_a_worker_are_refused(db, wrong):
    """G16."""
    with pytest.raises(InputError):
        work(db, **({"handlers": {"job": print}} | wrong))


def test_an_idle_worker_ends_after_its_timeout(tmp_path):
    """S32: waits are cut to what is left of it."""
    from canard_pipe.engine.database import Database

    with Database(None, root=tmp_path) as db:
        began = time.monotonic()
        assert work(db, {"job": print}, idle_timeout=0.2, poll_seconds=60) == 0
        assert 0.2 <= time.monotonic() - began < 20


@pytest.mark.parametrize("slots", [1, 3])
def test_a_lost_lease_does_not_end_the_worker(db, caplog, slots):
    """S31: cancelling a running task stops its handler, not the loop."""
    def handler(input, ctx):
        if input == "cancelled":
            ctx.database.cancel(ctx.id)
            ctx.step("a", lambda: pytest.fail("ran"))

    db.spawn("job", "cancelled", id="t", priority=1)
    db.spawn_many("job", [1, 2], ids=["a", "b"])
    assert drain(db, {"job": handler}, slots=slots) == 3
    assert [row(db, id)["state"] for id in "tab"] == ["cancelled", "completed", "completed"]
    assert any("lost its lease" in record.message for record in caplog.records)


@pytest.mark.parametrize("what", ["input", "checkpoint"])
def test_what_cannot_be_read_is_set_aside_once_with_its_reason(db, what):
    """G18, S31: no failure counted, not claimed for ever, the others go on."""
    start(db).step("a", lambda: 1)
    db.cancel("t")  # out of the way while the rest is made
    table, column = ("tasks", "input") if what == "input" else ("checkpoints", "value")
    db.store.connection.execute(f"UPDATE canard_absurd.{table} SET {column} = '{{'")
    db.store.connection.execute("UPDATE canard_absurd.tasks SET state = 'ready' WHERE id = 't'")
    db.spawn("job", id="good")
    outcomes: list[Outcome] = []
    handler = lambda _input, ctx: ctx.step("a", lambda: 2)  # noqa: E731
    assert drain(db, {"job": handler}, on_result=outcomes.append) == 2
    assert (row(db)["state"], row(db)["failures"]) == ("failed", 0)
    assert row(db)["error"].startswith("cannot be read: ")
    assert attempts(db)[-1] == (2, "failed")
    assert [(outcome.id, outcome.status) for outcome in outcomes] == [("t", "failed"), ("good", "completed")]


@pytest.mark.parametrize("slots", [1, 4])
def test_an_observer_s_error_reaches_the_caller_and_does_not_fail_the_task(db, slots):
    """G21: it is told after the outcome is durable."""
    seen = []

    def observe(outcome):
        seen.append(row(db, outcome.id)["state"])
        raise ZeroDivisionError

    db.spawn("job", id="t")
    with pytest.raises(ZeroDivisionError):
        drain(db, {"job": lambda _input, _ctx: 1}, slots=slots, on_result=observe)
    assert seen == ["completed"]
    assert (db.result("t"), row(db)["failures"]) == (1, 0)


def test_without_an_observer_a_failure_is_a_warning_with_its_error(db, caplog):
    """G22, N3."""
    def handler(_input, _ctx):
        raise ValueError("the reason")

    db.spawn("job", id="t", max_failures=1)
    with caplog.at_level(logging.WARNING):
        drain(db, {"job": handler})
    (record,) = [record for record in caplog.records if "failed" in record.message]
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ValueError)


@pytest.mark.parametrize("slots", [2, 4])
def test_stopping_hands_running_tasks_back_with_nothing_counted(db, slots):
    started = threading.Barrier(slots + 1, timeout=20)
    worker: Worker

    def handler(_input, ctx):
        started.wait()
        wait_until(lambda: worker.stopping)
        ctx.step("a", lambda: pytest.fail("ran"))

    db.spawn_many("job", range(slots), ids=[f"t{n}" for n in range(slots)])
    worker = Worker(db, {"job": handler}, slots=slots)
    thread = threading.Thread(target=worker.work)
    thread.start()
    started.wait()
    worker.stop()
    thread.join(20)
    assert not thread.is_alive()
    for number in range(slots):
        found = row(db, f"t{number}")
        assert (found["state"], found["failures"]) == ("ready", 0)


def test_a_claim_that_is_gone_when_it_is_handed_back_does_not_end_the_worker(db):
    """S31."""
    def handler(_input, ctx):
        ctx.database.cancel(ctx.id)
        raise TaskReleased(ctx.id)

    outcomes: list[Outcome] = []
    db.spawn("job", id="t")
    drain(db, {"job": handler}, on_result=outcomes.append)
    assert [outcome.status for outcome in outcomes] == ["lost"]
    assert isinstance(outcomes[0].error, LeaseLost)


def test_a_storage_error_in_one_slot_ends_the_worker_and_the_others_hand_back(db, faults):
    """G10, L7."""
    started = threading.Barrier(3, timeout=20)
    broke = threading.Event()

    def handler(input, ctx):
        started.wait()
        if input == "breaks":
            faults.planned["save_checkpoints"] = "before"
            try:
                ctx.step("a", lambda: 1)
            finally:
                broke.set()
        broke.wait(20)
        for number in range(10_000):
            ctx.step(f"s{number}", lambda: 1)

    db.spawn_many("job", ["breaks", "goes on", "goes on"], ids=["t", "a", "b"])
    with pytest.raises(StorageError, match="disk is gone"):
        drain(db, {"job": handler}, slots=3)
    assert [row(db, id)["state"] for id in "ab"] == ["ready", "ready"]
    assert [row(db, id)["failures"] for id in ["t", "a", "b"]] == [0, 0, 0]


def test_tasks_that_were_claimed_but_not_begun_are_handed_back_on_an_interrupt(db):
    """G23."""
    db.spawn_many("job", range(3))
    worker = Worker(db, {"job": print}, slots=3)

    def refuse(_claim):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        worker._start(db.claim_many(3), refuse)
    assert sorted(task.state for task in db.tasks()) == ["ready", "ready", "running"]


def test_a_conflict_is_repeated_without_running_the_step_again(db, faults):
    """G7, N2."""
    claim, ran = start(db), []
    faults.error = lambda: duckdb.TransactionException("TransactionContext Error: Conflict on update!")
    faults.planned["save_checkpoints"] = "before"
    claim.step("a", lambda: ran.append(1))
    assert ran == [1]
    assert faults.names.count("save_checkpoints") == 3  # the update twice, the insert once


def test_conflicts_are_repeated_as_often_as_told(tmp_path, clock, faults):
    """S33, E4, E5, N1: with two retries the error says three attempts; section 5: the delays double."""
    from canard_pipe.engine.database import Database
    from canard_pipe.errors import ConflictError

    faults.error = lambda: duckdb.TransactionException("TransactionContext Error: Conflict on update!")

    def always(name, execute):
        if name == "spawn_tasks":
            raise faults.error()
        return execute()

    with Database(None, root=tmp_path, clock=clock, intercept=always, conflict_retries=2, pulse_seconds=None) as db:
        began = clock.monotonic()
        with pytest.raises(ConflictError) as error:
            db.spawn("job")
        assert error.value.attempts == 3
        assert error.value.elapsed_seconds == pytest.approx(clock.monotonic() - began)
        assert error.value.error_type == "TransactionException"
        assert 0.015 <= clock.monotonic() - began <= 0.03
