"""Spawning: once for each id, checked before anything is sent."""

from __future__ import annotations

import pytest

from canard_pipe.errors import InputError, SpawnConflict, StorageError
from tests.engine.conftest import row, start


def test_spawning_a_known_id_again_returns_it_and_starts_nothing(db):
    """F6, S22: in any state, also a final one."""
    for end in ("ready", "running", "completed"):
        assert db.spawn("job", {"a": 1}, id="t") == "t"
        before = row(db)
        assert before["state"] == end
        if end == "ready":
            claim = db.claim()
        elif end == "running":
            claim.complete("done")
    assert db.spawn("job", {"a": 1}, id="t") == "t"
    assert row(db) == before
    assert db.result("t") == "done"


def test_without_an_id_each_spawn_makes_a_task(db):
    assert len({db.spawn("job"), db.spawn("job")}) == 2


@pytest.mark.parametrize(
    ("change", "field"),
    [({"name": "other"}, "name"), ({"queue": "other"}, "queue"), ({"priority": 1}, "priority"),
     ({"max_failures": 9}, "max_failures"), ({"input": {"a": 1.0, "b": 2}}, "input"),
     ({"input": {"b": 2, "a": 1}}, "input"), ({"input": [1, 2]}, "input")],
)
def test_an_id_with_other_contents_is_a_conflict_that_names_the_field(db, change, field):
    """E10, S22: types and the order of keys count."""
    first = {"name": "job", "input": {"a": 1, "b": 2}, "id": "t"}
    db.spawn(**first)
    before = row(db)
    with pytest.raises(SpawnConflict) as error:
        db.spawn(**(first | change))
    assert error.value.differs_in == (field,)
    assert row(db) == before


def test_spawning_many_is_all_or_nothing(db):
    db.spawn("job", 1, id="b")
    with pytest.raises(SpawnConflict):
        db.spawn_many("job", [5, 6], ids=["a", "b"])
    assert db.inspect("a") is None


@pytest.mark.parametrize(
    "wrong",
    [{"name": ""}, {"name": "x" * 257}, {"name": 5}, {"id": ""}, {"id": "x" * 257}, {"id": 7}, {"id": "\ud800"},
     {"queue": ""}, {"queue": "x" * 129}, {"priority": 2**31}, {"priority": True}, {"priority": 1.0},
     {"max_failures": 0}, {"max_failures": 1_000_001}],
)
def test_wrong_arguments_fail_before_any_sql(db, faults, wrong):
    """G16, L15, E2."""
    faults.names.clear()
    with pytest.raises(InputError):
        db.spawn(**({"name": "job"} | wrong))
    assert faults.names == []


def test_the_longest_names_are_stored(db):
    """L15: characters, not bytes."""
    id = db.spawn("ä" * 256, id="ß" * 256, queue="ö" * 128, max_failures=1_000_000, priority=-(2**31))
    assert db.claim("ö" * 128).id == id


def test_the_table_refuses_what_python_refuses(db):
    """G5, L15: as constraints, for those who write SQL."""
    start(db)
    for wrong in ("max_failures = 0", "name = ''", "state = 'paused'", "token = NULL", "state = 'ready'"):
        with pytest.raises(Exception, match=r"(?i)constraint"):
            db.store.connection.execute(f"UPDATE canard_absurd.tasks SET {wrong}")


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_failed_insert_is_followed_by_a_look_up_and_never_by_a_second_insert(db, faults, moment):
    """S23, S25: both worlds, committed and not."""
    faults.planned["commit"] = moment
    faults.names.clear()
    if moment == "after":
        assert db.spawn("job", 1, id="t") == "t"
    else:
        with pytest.raises(StorageError, match="disk is gone"):
            db.spawn("job", 1, id="t")
        assert db.inspect("t") is None
    assert faults.names.count("spawn_tasks") == 1


def test_a_look_up_that_fails_keeps_the_first_error_too(db, faults):
    """S23."""
    def break_look_up():
        faults.planned["known_tasks"] = "before"

    faults.planned["commit"] = "after"
    faults.between["commit"] = break_look_up
    with pytest.raises(StorageError) as error:
        db.spawn("job", 1, id="t")
    assert error.value.operation == "known_tasks"
    assert isinstance(error.value.__cause__, StorageError)
    assert error.value.__cause__.operation == "commit"


def test_two_spawns_of_one_new_id_at_once_make_one_task(db, tmp_path, clock):
    """S24: on two connections; the loser finds the winner's row."""
    from canard_pipe.engine.database import Database

    with Database(None, root=tmp_path, clock=clock, beside=db) as other:
        def rival() -> None:
            db.spawn("job", 1, id="t")

        def intercept(name, execute):
            if name == "spawn_tasks" and not done:
                done.append(1)
                rival()
            return execute()

        done: list[int] = []
        other.store._intercept = intercept
        assert other.spawn("job", 1, id="t") == "t"
        assert len(db.tasks()) == 1
