"""The order of a handler's steps is checked on replay (L6, G11; docs/engine.md, "Changed steps")."""

from __future__ import annotations

import pytest

from canard_pipe.errors import ReplayError, StorageError, TaskSuspended
from tests.engine.conftest import claimed, start, steps


def after(db, *names: str):
    """Save steps in an attempt, fail it, and return the next claim."""
    claim = start(db, max_failures=99)
    for name in names:
        claim.step(name, lambda: 1)
    claim.fail("x")
    return claimed(db)


def never():
    pytest.fail("this step must not run")


def test_swapped_steps_are_an_error_that_names_the_two_ways_out(db):
    """E12: it is found at the step that comes too late."""
    claim = after(db, "a", "b c", "d")
    claim.step("b c", never)
    with pytest.raises(ReplayError, match="the order of its steps has changed at 'a'") as error:
        claim.step("a", never)
    assert "order in which they were saved, or run those from 'a' on anew" in str(error.value)
    assert "canard-pipe retry SAMPLE --from a" in str(error.value)
    assert (error.value.task_id, error.value.name) == ("t", "a")


@pytest.mark.parametrize("kind", ["step", "sleep", "wait"])
def test_a_step_put_in_before_a_saved_one_does_not_run(db, kind):
    claim = after(db, "a", "b c")
    claim.step("a", never)
    with pytest.raises(ReplayError, match="--from 'b c'"):
        {"step": lambda: claim.step("new", never), "sleep": lambda: claim.sleep("new", 1),
         "wait": lambda: claim.wait("new", events=["e"])}[kind]()
    assert steps(db) == [("a", "1"), ("b c", "1")]


def test_a_renamed_step_is_found(db):
    with pytest.raises(ReplayError, match="'A': it was not there when 'a'"):
        after(db, "a").step("A", never)


def test_steps_after_the_saved_ones_can_be_changed_and_saved_ones_passed_over(db):
    claim = after(db, "a", "b", "c")
    claim.step("a", never)
    claim.step("c", never)
    claim.step("new", lambda: 2)
    claim.fail("x")
    claim = claimed(db)
    for name in ("a", "c", "new"):
        claim.step(name, never)


def test_a_step_whose_failure_was_caught_may_succeed_in_its_place_later(db):
    def handler(claim, broken: bool) -> list[object]:
        found: list[object] = []
        try:
            found.append(claim.step("optional", lambda: 1 / (not broken)))
        except ZeroDivisionError:
            found.append(None)
        found.append(claim.step("main", lambda: "main"))
        return found

    claim = start(db, max_failures=9)
    assert handler(claim, broken=True) == [None, "main"]
    for expected in ([None, "main"], [1.0, "main"], [1.0, "main"]):
        claim.fail("x")
        claim = claimed(db)
        assert handler(claim, broken=expected[0] is None) == expected


def test_steps_within_steps_have_no_place(db):
    """Their outer step is what is replayed; they are not asked for then."""

    def handler(claim) -> None:
        claim.step("outer", lambda: claim.step("inner", lambda: 1))
        claim.step("after", lambda: 2)

    claim = start(db)
    handler(claim)
    claim.fail("x")
    claim = claimed(db)
    handler(claim)
    claim.step("last", lambda: 3)


def test_a_wait_keeps_its_place_while_it_goes_on(db):
    def handler(claim) -> None:
        claim.step("a", lambda: 1)
        claim.wait("w", events=["e"])
        claim.step("b", lambda: 2)

    with pytest.raises(TaskSuspended):
        handler(start(db))
    db.emit("e", 1)
    db.wake()
    handler(claim := claimed(db))
    claim.fail("x")
    handler(claimed(db))
    (places,) = zip(*db.store.sql(
        "SELECT place FROM canard_absurd.checkpoints WHERE archived_at IS NULL ORDER BY ordinal")[1], strict=True)
    assert places == (0, 1, 2)


def test_a_step_that_could_not_be_saved_keeps_its_place(db, faults):
    """S16, S26: the same step asked for again is not a second one."""
    claim = start(db)
    faults.planned["commit"] = "before"
    with pytest.raises(StorageError):
        claim.step("a", lambda: 1)
    claim.step("a", lambda: 1)
    claim.step("b", lambda: 1)
    claim.fail("x")
    again = claimed(db)
    again.step("a", never)
    again.step("b", never)


def test_after_a_retry_from_a_step_the_new_order_holds(db):
    """The second way out: canard-pipe retry --from."""
    import json

    after(db, "a", "b").fail("the order has changed", fatal=True)
    with db.store.transaction():
        db.store.run("archive_from_step", rows=[{"seq": 1, "from_step": "b"}], now_us=db.clock.now_us())
        ((_, seq, version, _),) = db.store.run("task_versions", ids=json.dumps(["t"]))
        db.store.run("retry_tasks", rows=[{"seq": seq, "version": version, "input": None}],
                     now_us=db.clock.now_us())
    claim = claimed(db)
    claim.step("a", never)
    assert claim.step("new", lambda: "new") == "new"
    assert claim.step("b", lambda: "again") == "again"
