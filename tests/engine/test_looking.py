"""Looking at tasks: whole, listed, by result, by SQL; and opening and closing the file."""

from __future__ import annotations

import datetime
import subprocess
import sys

import duckdb
import pytest

from canard_pipe.errors import (
    CloseError,
    ConnectionClosed,
    InputError,
    RestoreError,
    ResultUnavailable,
    SchemaError,
    StorageError,
)
from tests.engine.conftest import claimed, start


def test_inspect_gives_the_whole_task(db):
    """F8, L21."""
    db.spawn("job", {"a": 1}, id="t", queue="q", priority=2, max_failures=4)
    claim = claimed(db, queue="q")
    claim.step("s", lambda: (1,))
    record = db.inspect("t")
    assert (record.name, record.queue, record.priority, record.max_failures) == ("job", "q", 2, 4)
    assert (record.state, record.input, record.result) == ("running", {"a": 1}, None)
    assert [(saved.name, saved.kind, saved.value) for saved in record.checkpoints] == [("s", "step", (1,))]
    assert record.created_at.tzinfo is datetime.UTC
    assert db.inspect("unknown") is None


def test_inspect_keeps_its_first_view_while_work_goes_on(db, faults):
    """G15."""
    claim = start(db)
    claim.step("a", lambda: 1)
    faults.between["saved_checkpoints"] = lambda: claim.step("b", lambda: 2)
    assert [saved.name for saved in db.inspect("t").checkpoints] == ["a"]
    assert len(db.inspect("t").checkpoints) == 2


def test_tasks_lists_the_latest_change_first_then_by_id(db, clock):
    """F9, S44."""
    db.spawn_many("job", [1, 2, 3], ids=["b", "a", "c"])
    clock.advance(1)
    claimed(db, names=["job"])
    assert [task.id for task in db.tasks()] == ["b", "a", "c"]
    assert [task.id for task in db.tasks(limit=1)] == ["b"]
    assert [task.id for task in db.tasks(state="running")] == ["b"]
    assert [task.id for task in db.tasks(state=["ready", "failed"])] == ["a", "c"]
    assert db.tasks(state=[]) == []
    assert [task.id for task in db.tasks(id="c")] == ["c"]
    assert db.tasks(queue="other") == []


@pytest.mark.parametrize(
    "wrong", [{"state": "paused"}, {"limit": -1}, {"id": 5}, {"queue": 5}, {"state": ["ready", "x"]}]
)
def test_wrong_arguments_of_a_listing_are_input_errors(db, wrong):
    """F9, G16."""
    with pytest.raises(InputError):
        db.tasks(**wrong)


def test_a_result_that_is_not_there_says_the_state(db):
    """F10, E11, S37."""
    with pytest.raises(ResultUnavailable) as error:
        db.result("t")
    assert error.value.state is None
    claim = start(db)
    with pytest.raises(ResultUnavailable) as error:
        db.result("t")
    assert error.value.state == "running"
    claim.complete(None)
    assert db.result("t") is None


def test_an_unreadable_value_is_a_restore_error(db):
    """E8, G18."""
    start(db).complete(1)
    db.store.connection.execute("UPDATE canard_absurd.tasks SET result = '{'")
    for look in (db.result, db.inspect):
        with pytest.raises(RestoreError):
            look("t")


def test_the_queries_of_the_seed_run_unchanged(db):
    """F23 and the first decision above the rules."""
    for number in range(3):
        start(db, f"c{number}").complete(number)
    start(db, "f", max_failures=1).fail("x")
    claim = start(db, "n")
    claim.step("nullable", lambda: None)
    claim.step("dict", lambda: {"a": [1, "x"]})
    claim.complete(1)
    assert db.store.sql(
        "SELECT state, count(*) AS tasks\n  FROM canard_absurd.tasks\n  GROUP BY state\n  ORDER BY state"
    ) == (["state", "tasks"], [("completed", 4), ("failed", 1)])
    found = db.store.connection.execute(
        "SELECT name, kind, variant_typeof(value) AS value_type\n"
        "  FROM canard_absurd.task_checkpoints\n  WHERE task_id = ?",
        ["n"],
    ).fetchall()
    assert found == [("nullable", "step", "VARIANT_NULL"), ("dict", "step", "OBJECT(a)")]


# -- opening and closing ------------------------------------------------------------------------------------------


def test_what_was_written_is_there_after_reopening(reopen):
    """F1."""
    start(reopen()).complete({"a": 1})
    assert reopen().result("t") == {"a": 1}


@pytest.mark.parametrize("version", [0, 2, 99])
def test_another_schema_version_is_refused_and_the_file_left_unchanged(reopen, tmp_path, version):
    """F1, E13, S41."""
    reopen().close()
    file = tmp_path / "state.duckdb"
    with duckdb.connect(str(file)) as connection:
        connection.execute("UPDATE canard_absurd.schema_version SET version = ?", [version])
    before = file.read_bytes()
    with pytest.raises(SchemaError) as error:
        reopen()
    assert error.value.version == version
    assert file.read_bytes() == before
    assert not file.with_name("state.duckdb.wal").exists()


@pytest.mark.parametrize("content", ["CREATE TABLE x (i INTEGER)", "CREATE SCHEMA canard_absurd; CREATE TABLE "
                                     "canard_absurd.schema_version (version INTEGER, installed_at TIMESTAMP)"])
def test_a_database_of_something_else_is_refused(reopen, tmp_path, content):
    """E13, S41."""
    file = tmp_path / "state.duckdb"
    with duckdb.connect(str(file)) as connection:
        connection.execute(content)
    before = file.read_bytes()
    with pytest.raises(SchemaError):
        reopen()
    assert file.read_bytes() == before


def test_a_file_that_is_no_database_is_a_storage_error(reopen, tmp_path):
    """F1: and nothing is left open, so that the next open can succeed."""
    file = tmp_path / "state.duckdb"
    file.write_text("this is not a database" * 1000)
    with pytest.raises(StorageError):
        reopen()
    file.unlink()
    reopen()


def test_a_failed_open_leaves_nothing_open(reopen, tmp_path):
    """F1: another process can have the file at once."""
    def fail(name, execute):
        if name == "running_tasks":
            raise duckdb.IOException("IO Error: the disk is gone")
        return execute()

    with pytest.raises(StorageError):
        reopen(intercept=fail)
    script = f"import duckdb; duckdb.connect({str(tmp_path / 'state.duckdb')!r})"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
    reopen()


def test_closing_twice_does_nothing_and_then_nothing_works(db):
    """F4, S40, E15."""
    claim = start(db)
    db.close()
    db.close()
    for act in (db.tasks, lambda: db.spawn("job"), db.claim, claim.heartbeat, lambda: db.inspect("t")):
        with pytest.raises(ConnectionClosed):
            act()


def test_after_closing_another_process_can_have_the_file(reopen, tmp_path):
    """F4: also when threads have read from it."""
    import threading

    db = reopen()
    threads = [threading.Thread(target=db.tasks) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    db.tasks()
    db.close()
    script = f"import duckdb; duckdb.connect({str(tmp_path / 'state.duckdb')!r})"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_closing_tries_every_step_and_raises_all_that_failed(reopen, monkeypatch):
    """F4, E17."""
    db = reopen()

    def broken():
        raise StorageError("no", operation="x")

    monkeypatch.setattr(db, "stop_serving", broken)
    monkeypatch.setattr(db.writer, "flush", broken)
    with pytest.raises(CloseError) as error:
        db.close()
    assert len(error.value.exceptions) == 2
    with pytest.raises(ConnectionClosed):
        db.tasks()
    reopen()  # the file and its lock were given back all the same


def test_importing_and_opening_start_no_thread():
    """G19."""
    script = (
        "import threading, pathlib, canard_pipe\n"
        "from canard_pipe.engine.database import Database\n"
        "with Database(None, root=pathlib.Path('.')) as db:\n"
        "    assert [t.name for t in threading.enumerate()] == ['MainThread'], threading.enumerate()\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_caller_s_random_numbers_are_left_alone(db):
    """G20."""
    import random

    random.seed(5)
    expected = random.random()
    random.seed(5)
    start(db).complete()
    assert random.random() == expected


def test_versions_in_one_call(reopen):
    """F5."""
    from canard_pipe.engine import schema

    found = reopen().runtime()
    assert found.duckdb == duckdb.__version__
    assert found.schema == schema.VERSION
    assert found.quack == found.duckdb
    assert found.host
    assert set(found.as_dict()) == {"canard-pipe", "python", "duckdb", "quack", "schema", "host"}


def test_queues_are_listed_with_their_states(db):
    """L24."""
    assert db.queues() == {}
    db.spawn_many("job", [1, 2])
    start(db, "x", priority=1)
    db.spawn("job", queue="other")
    none = dict.fromkeys(("ready", "running", "suspended", "completed", "failed", "cancelled"), 0)
    assert db.queues() == {"default": none | {"ready": 2, "running": 1}, "other": none | {"ready": 1}}
