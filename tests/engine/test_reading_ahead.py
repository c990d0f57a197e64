"""A worker reads candidates ahead; what changes their order meanwhile is seen."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from canard_pipe.engine.reading_ahead import MOST, SECONDS
from tests.engine.conftest import owner_of


def claim(db, limit: int = 1) -> list[str]:
    return [claim.id for claim in db.claim_many(limit, ahead=True)]


def spawn(db, *ids: str, **options) -> None:
    db.spawn_many("job", [None] * len(ids), ids=ids, **options)


def test_tasks_come_in_order_and_are_read_once(db, faults):
    """S7."""
    spawn(db, *(f"t{at}" for at in range(10)))
    faults.names.clear()
    assert [claim(db) for _ in range(4)] == [["t0"], ["t1"], ["t2"], ["t3"]]
    assert claim(db, 3) == ["t4", "t5", "t6"]
    assert faults.names.count("claim_candidates") == 1
    assert claim(db, 9) == ["t7", "t8", "t9"]
    assert claim(db) == []


@pytest.mark.parametrize("change", [
    lambda db: spawn(db, "urgent", priority=9),
    lambda db: owner_of(db).write("retry_tasks", [{"seq": 1, "version": 2}]),
], ids=["spawned", "retried"])
def test_a_change_of_this_process_is_seen_at_the_next_claim(db, change: Callable[[object], None]):
    """S7: whatever comes first now is claimed first."""
    spawn(db, "urgent-once", priority=5)
    db.claim_many(1)[0].complete()
    spawn(db, *(f"t{at}" for at in range(5)))
    assert claim(db) == ["t0"]
    change(db)
    assert claim(db)[0].startswith("urgent")


def test_a_cancelled_task_is_not_claimed(db):
    """F14."""
    spawn(db, "a", "b", "c")
    assert claim(db) == ["a"]
    db.cancel("b")
    assert claim(db) == ["c"]


def test_what_another_process_has_taken_is_read_anew(db):
    """G3: the version that was read is the fence; nothing is claimed twice, nothing is left out."""
    spawn(db, "a", "b", "c")
    assert claim(db) == ["a"]
    db.store.sql("UPDATE canard_absurd.tasks SET version = version + 1, priority = -1 WHERE id = 'b'")
    assert claim(db) == ["c"]
    assert claim(db) == ["b"]


def test_a_claim_that_could_not_be_committed_leaves_nothing_out(db, faults):
    spawn(db, "a", "b")
    faults.planned["commit"] = "before"
    with pytest.raises(Exception, match="disk"):
        claim(db)
    assert claim(db, 2) == ["a", "b"]


def test_what_becomes_due_is_seen_when_the_time_is_over(db, clock):
    spawn(db, *(f"t{at}" for at in range(5)))
    spawn(db, "due", priority=9)
    db.claim_many(1, ids=["due"])[0].fail("later", delay_seconds=SECONDS / 2)
    assert claim(db) == ["t0"]
    clock.advance(SECONDS * 0.9)
    assert claim(db) == ["t1"]
    clock.advance(SECONDS * 0.2)
    assert claim(db) == ["due"]


def test_other_names_or_ids_are_read_for_themselves(db):
    """S8."""
    spawn(db, *(f"t{at}" for at in range(5)))
    db.spawn("other", id="o")
    assert claim(db) == ["t0"]
    assert [claim.id for claim in db.claim_many(1, names=["other"], ahead=True)] == ["o"]
    assert [claim.id for claim in db.claim_many(1, ids=["t4"], ahead=True)] == ["t4"]


def test_large_inputs_come_with_the_claim(db):
    """What is read ahead is small, whatever the inputs are."""
    large = ["x" * 5000]
    db.spawn_many("job", [large, "small", large], ids=["a", "b", "c"])
    claims = [db.claim_many(1, ahead=True)[0], *db.claim_many(2, ahead=True)]
    assert [claim.input for claim in claims] == [large, "small", large]
    assert [len(json.dumps(claim.input)) > 4096 for claim in claims] == [True, False, True]


def test_more_than_is_read_ahead_can_be_claimed_at_once(db):
    spawn(db, *(f"t{at:03}" for at in range(MOST + 9)))
    assert len(claim(db, MOST + 5)) == MOST + 5
