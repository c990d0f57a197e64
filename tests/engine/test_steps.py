"""Steps, sleeps and waits: saved once, replayed for ever."""

from __future__ import annotations

import pytest

from canard_pipe.errors import (
    InputError,
    LeaseLost,
    ReplayError,
    RestoreError,
    StorageError,
    TaskReleased,
    TaskSuspended,
)
from tests.engine.conftest import attempts, claimed, row, start, steps


def never():
    pytest.fail("a saved step ran again")


def test_a_saved_step_is_never_called_again(db):
    """F15, G11."""
    first = start(db)
    assert first.step("a", lambda x, y: [x, y], 1, (2,)) == [1, (2,)]
    first.fail("x")
    second = claimed(db)
    assert second.step("a", never) == [1, (2,)]
    assert steps(db)[0][0] == "a"


def test_a_saved_step_is_not_called_again_after_a_restart(reopen):
    """G11: from the file."""
    claim = start(reopen())
    claim.step("a", lambda: {"n": 1})
    db = reopen()
    assert claimed(db).step("a", never) == {"n": 1}


def test_a_saved_none_is_not_a_missing_checkpoint(db):
    """G12: the seed's example."""
    first = start(db)
    assert first.step("nullable", lambda: None) is None
    first.fail("retry")
    second = claimed(db)
    second.complete(second.step("nullable", never))
    assert db.inspect("t").state == "completed"
    assert db.result("t") is None


def test_a_saved_step_is_a_row_and_its_task_does_not_grow(db):
    """L6: the row changes in its lease and its version, however many and large its steps are."""
    claim = start(db)
    before = row(db)
    for number in range(50):
        claim.step(f"s{number}", lambda: "x" * 10_000)
    changed = {name for name, value in row(db).items() if before[name] != value}
    assert changed <= {"version", "updated_at", "deadline"}
    assert len(steps(db)) == 50


def test_a_name_can_be_used_once_in_an_attempt(db):
    """E12, S1."""
    claim = start(db)
    claim.step("a", lambda: 1)
    with pytest.raises(ReplayError):
        claim.step("a", lambda: 2)
    claim.release()
    again = claimed(db)
    again.step("a", never)
    with pytest.raises(ReplayError):
        again.step("a", never)


def test_steps_and_sleeps_share_their_names(db):
    """S15, E12: the error names what was expected and what was asked for."""
    claim = start(db)
    claim.step("a", lambda: 1)
    claim.release()
    claim = claimed(db)
    with pytest.raises(ReplayError) as error:
        claim.sleep("a", 1)
    assert (error.value.expected, error.value.actual, error.value.name) == ("step", "sleep", "a")
    with pytest.raises(TaskSuspended):
        claim.sleep("nap", 0)
    with pytest.raises(ReplayError):
        claimed(db).step("nap", never)


def test_an_entry_that_failed_may_be_tried_again(db, clock, faults):
    """S16."""
    claim = start(db, lease_seconds=10)
    clock.advance(6)
    faults.planned["commit"] = "before"  # of the renewal at the step's entry
    with pytest.raises(StorageError):
        claim.step("a", never)
    assert claim.step("a", lambda: 1) == 1


def test_a_step_that_could_not_be_saved_runs_again(db, faults):
    """G1, S18."""
    claim, ran = start(db), []
    faults.planned["save_checkpoints"] = "before"
    with pytest.raises(StorageError):
        claim.step("a", lambda: ran.append(1))
    claim.release()
    claimed(db).step("a", lambda: ran.append(2))
    assert ran == [1, 2]


def test_a_cancelled_task_stops_at_the_next_step_before_its_callback(db):
    """S17, S36: replayed steps too."""
    claim = start(db)
    claim.step("a", lambda: 1)
    claim.release()
    claim = claimed(db)
    db.cancel("t")
    with pytest.raises(LeaseLost):
        claim.step("a", never)
    with pytest.raises(LeaseLost):
        claim.step("b", never)


def test_a_stopping_worker_s_claim_is_handed_back_at_the_next_step(db):
    claim = start(db)
    claim.stopping = lambda: True
    with pytest.raises(TaskReleased):
        claim.step("a", never)


def test_checkpoints_are_inspected_in_the_order_saved(db):
    """S43, F8: also when one was saved although it was not acknowledged."""
    claim = start(db)
    for name in "cab":
        claim.step(name, lambda: 1)
    assert [saved.name for saved in db.inspect("t").checkpoints] == ["c", "a", "b"]


def test_after_a_lost_acknowledgement_the_next_step_has_an_order_of_its_own(db, faults):
    """S43, S26."""
    claim = start(db)
    faults.planned["commit"] = "after"
    with pytest.raises(StorageError):
        claim.step("first", lambda: 1)
    claim.step("second", lambda: 2)
    assert db.store.sql("SELECT name, ordinal FROM canard_absurd.checkpoints ORDER BY ordinal")[1] == [
        ("first", 1), ("second", 2),
    ]


def test_steps_may_be_nested(db):
    claim = start(db)
    assert claim.step("outer", lambda: claim.step("inner", lambda: claim.step_name)) == "inner"
    assert claim.step_name is None
    assert [name for name, _ in steps(db)] == ["inner", "outer"]


def test_a_sleep_gives_the_claim_up_and_passes_at_once_on_replay(db, clock):
    """F16, S3, S14: a later retry does not sleep again."""
    claim = start(db)
    with pytest.raises(TaskSuspended):
        claim.sleep("nap", 60)
    found = row(db)
    assert (found["state"], found["attempt"], found["failures"]) == ("ready", 1, 0)
    assert db.claim() is None
    clock.advance(60)
    second = claimed(db)
    second.sleep("nap", 60)
    second.fail("later")
    third = claimed(db)
    third.sleep("nap", 60)
    assert (third.attempt, third.failures) == (3, 1)
    assert [name for name, _ in steps(db)] == ["nap"]
    assert db.inspect("t").checkpoints[0].kind == "sleep"


def test_a_sleep_of_no_seconds_still_suspends(db):
    """S13."""
    with pytest.raises(TaskSuspended):
        start(db).sleep("nap", 0)
    assert claimed(db).attempt == 2


def test_suspension_is_no_ordinary_exception(db):
    """G24."""
    claim = start(db)

    def handler() -> None:
        try:
            claim.sleep("nap", 0)
        except Exception:
            pytest.fail("an ordinary catch-all took the suspension")

    with pytest.raises(TaskSuspended):
        handler()


def test_a_suspended_task_wakes_when_all_it_waits_for_is_fulfilled(db):
    """Level-triggered: nothing is lost if what it waits for came first."""
    start(db, "other").complete(1)
    claim = start(db)
    with pytest.raises(TaskSuspended):
        claim.suspend([("task", "other"), ("event", "go")])
    assert (db.wake(), row(db)["state"]) == (0, "suspended")
    db.store.connection.execute("INSERT INTO canard_absurd.events VALUES ('go', 'null', now()::TIMESTAMP)")
    assert (db.wake(), row(db)["state"]) == (1, "ready")
    assert db.store.sql("SELECT * FROM canard_absurd.waits")[1] == []
    assert attempts(db) == [(1, "suspended")]


def test_a_suspended_task_wakes_at_its_deadline(db, clock):
    claim = start(db)
    with pytest.raises(TaskSuspended):
        claim.suspend([("event", "never")], until_us=clock.now_us() + 5_000_000)
    clock.advance(4)
    assert db.wake() == 0
    clock.advance(1)
    assert db.wake() == 1
    assert claimed(db).failures == 0


def test_a_step_whose_file_is_gone_and_those_after_it_run_again(db):
    """docs/design.md, "Gone files": the one exception to G11; those before it are kept."""
    file = db.root / "out.txt"
    claim = start(db)
    claim.step("before", lambda: 1)
    claim.step("file", lambda: [file.write_text("x"), file])
    claim.step("after", lambda: 3)
    claim.release()
    file.unlink()
    claim = claimed(db)
    assert claim.step("before", never) == 1
    assert claim.step("file", lambda: 20) == 20
    assert claim.step("after", lambda: 30) == 30
    assert steps(db) == [("before", "1"), ("file", "20"), ("after", "30")]
    history = "SELECT count(*) FROM canard_absurd.checkpoints WHERE archived_at IS NOT NULL AND kind <> 'archive'"
    ((archived,),) = db.store.sql(history)[1]
    assert archived == 2


@pytest.mark.parametrize("text", ["{", '{"$project": 3}', '{"$odd": 1}'])
def test_a_checkpoint_that_cannot_be_read_is_a_restore_error_and_its_step_does_not_run(db, text):
    """E8, G18."""
    claim = start(db)
    claim.step("a", lambda: 1)
    claim.release()
    db.store.connection.execute("UPDATE canard_absurd.checkpoints SET value = ?", [text])
    with pytest.raises(RestoreError) as error:
        claimed(db).step("a", never)
    assert error.value.task_id == "t"


def test_a_step_wants_a_function_and_not_its_result(db):
    """G16: the check comes before any effect."""
    claim = start(db)
    with pytest.raises(InputError, match="not what it returned"):
        claim.step("a", "a result")  # type: ignore[arg-type]
    assert claim.step("a", lambda: 1) == 1
