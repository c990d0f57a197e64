"""A backup is a committed state that a Database can open, made while work goes on."""

from __future__ import annotations

import os
import threading

import pytest

from canard_pipe.engine.database import Database
from canard_pipe.errors import InputError, StorageError
from tests.engine.conftest import row, start, steps

BACKUPS = 50
SHAPE = (
    "SELECT table_name, sql FROM duckdb_tables() WHERE schema_name = 'canard_absurd' ORDER BY ALL",
    "SELECT table_name, column_name, column_index, data_type, is_nullable, column_default FROM duckdb_columns() "
    "WHERE schema_name = 'canard_absurd' ORDER BY ALL",
    "SELECT view_name, sql FROM duckdb_views() WHERE schema_name = 'canard_absurd' ORDER BY ALL",
    "SELECT table_name, constraint_type, constraint_text FROM duckdb_constraints() ORDER BY ALL",
)


def shape(database: Database) -> list[object]:
    return [database.store.sql(query)[1] for query in SHAPE]


def test_a_backup_opens_with_all_that_was_committed(reopen, tmp_path):
    db = reopen()
    claim = start(db, lease_seconds=1000)
    claim.step("a", lambda: {"x": 1})
    db.spawn_many("job", [1, 2, 3])
    db.emit("go", 1)
    db.backup(tmp_path / "copy.duckdb")
    db.spawn("job", None, id="later")
    with Database(tmp_path / "copy.duckdb", root=tmp_path, clock=db.clock, pulse_seconds=None) as copy:
        assert shape(copy) == shape(db)
        assert copy.inspect("later") is None
        assert len(copy.tasks()) == 4
        assert steps(copy) == [("a", "{'x': 1}")]
        assert copy.event("go") == 1
        copy.spawn("job", None, id="new")  # the sequence goes on
        assert row(copy, "new")["seq"] == 5
    claim.complete()  # the original is as it was
    assert db.result("t") is None


@pytest.mark.embedded("a backup is made by the owner")
def test_a_database_in_memory_can_be_backed_up(db, tmp_path):
    db.spawn("job", None, id="t")
    db.backup(tmp_path / "copy.duckdb")
    with Database(tmp_path / "copy.duckdb", root=tmp_path, clock=db.clock) as copy:
        assert row(copy)["state"] == "ready"


def test_a_path_that_is_taken_or_nowhere_is_refused(reopen, tmp_path):
    """Nothing is replaced, the state itself least of all; and nothing is left beside it."""
    db = reopen()
    (tmp_path / "there").write_text("mine")
    (tmp_path / "dangling").symlink_to("nowhere")
    before = {path.name for path in tmp_path.iterdir()}
    for path in ("there", "dangling", "state.duckdb", "no/such/folder/x.duckdb", "."):
        with pytest.raises(InputError):
            db.backup(tmp_path / path)
    assert (tmp_path / "there").read_text() == "mine"
    assert {path.name for path in tmp_path.iterdir()} == before


def test_a_backup_that_fails_leaves_nothing(reopen, tmp_path, monkeypatch):
    db = reopen()
    before = {path.name for path in tmp_path.iterdir()}

    def no_room(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_room)
    with pytest.raises(StorageError):
        db.backup(tmp_path / "copy.duckdb")
    assert {path.name for path in tmp_path.iterdir()} == before
    monkeypatch.undo()
    db.backup(tmp_path / "copy.duckdb")


def test_backups_during_work_open_to_a_committed_state(tmp_path):
    """Each task is spawned with its twin in one transaction and completed with two steps: a copy has all or none."""
    over = threading.Event()

    def busy(database: Database, name: str) -> None:
        number = 0
        while not over.is_set():
            number += 1
            database.spawn_many("job", [1, 2], ids=[f"{name}{number}a", f"{name}{number}b"], queue=name)
            claim = database.claim(name)
            assert claim is not None
            claim.step("one", lambda: 1)
            claim.step("two", lambda: 2)
            claim.complete()

    with Database(tmp_path / "state.duckdb", root=tmp_path) as database:
        threads = [threading.Thread(target=busy, args=(database, name)) for name in ("x", "y")]
        for thread in threads:
            thread.start()
        try:
            for number in range(BACKUPS):
                database.backup(tmp_path / f"copy{number}.duckdb")
        finally:
            over.set()
            for thread in threads:
                thread.join()
    seen = []
    for number in range(BACKUPS):
        with Database(tmp_path / f"copy{number}.duckdb", root=tmp_path) as copy:
            ((tasks, odd, torn, behind),) = copy.store.sql(
                "SELECT count(*), count(*) % 2, count(*) FILTER (WHERE state = 'completed' AND 2 <> (SELECT count(*) "
                "FROM canard_absurd.checkpoints c WHERE c.task_seq = t.seq)), "
                "max(seq) >= nextval('canard_absurd.task_seq') FROM canard_absurd.tasks t"
            )[1]
            assert (odd, torn) == (0, 0)
            assert not behind
            seen.append(tasks)
    assert seen == sorted(seen)
    assert seen[-1] > seen[0]
