"""Conflicts, embedded and over Quack (E5, S34, S35): the texts are those that DuckDB really gives."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import duckdb
import pytest

from canard_pipe.engine import conflicts, quack
from canard_pipe.errors import ConflictError, StorageError
from tests.conftest import wait_until

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def embedded(tmp_path):
    """Two connections to one file, and a third over Quack, all in this process."""
    with duckdb.connect(str(tmp_path / "embedded.duckdb")) as first:
        first.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b INTEGER)")
        first.execute("INSERT INTO t SELECT i, 0 FROM range(10) r(i)")
        quack.load_extensions(first)
        token = quack.new_token()
        with (
            quack.serve(first, token) as server,
            quack.RemoteConnection(server.uri, token) as remote,
            first.cursor() as second,
        ):
            yield first, second, remote


@pytest.mark.parametrize(
    "statement",
    ["UPDATE t SET b = b + 1 WHERE a = 1", "DELETE FROM t WHERE a = 1", "ALTER TABLE t ADD COLUMN c INTEGER"],
)
def test_a_conflict_is_known_embedded_by_type_and_over_quack_by_its_first_line(embedded, statement):
    """E5, S35. The words after the first line are not read."""
    first, second, remote = embedded
    first.execute("BEGIN")
    first.execute(statement)
    with pytest.raises(duckdb.TransactionException) as caught:
        second.execute(statement)
    assert conflicts.classify(caught.value) == conflicts.Conflict(message_based=False)
    with pytest.raises(ConflictError) as remotely:
        remote.query(statement)
    assert remotely.value.message_based
    with pytest.raises(ConflictError):
        remote.execute([statement, "SELECT 1"])
    first.execute("ROLLBACK")
    remote.query(statement)


def test_two_that_insert_one_key_conflict_at_the_commit(embedded):
    """S24."""
    first, second, remote = embedded
    first.execute("BEGIN")
    first.execute("INSERT INTO t VALUES (50, 1)")
    remote.query("INSERT INTO t VALUES (50, 2)")
    with pytest.raises(duckdb.TransactionException) as caught:
        first.execute("COMMIT")
    assert conflicts.classify(caught.value) is not None
    # Over Quack: the key is taken by another while the message is between its INSERT and its COMMIT. The sequence
    # tells when: its steps belong to no transaction.
    first.execute("CREATE SEQUENCE inserted")
    errors: list[Exception] = []

    def slow() -> None:
        try:
            remote.query(
                "BEGIN; INSERT INTO t VALUES (60, 1); SELECT nextval('inserted'); SELECT count(*) FROM "
                "range(12000) x, range(12000) y WHERE x.range + y.range < 0; COMMIT"
            )
        except Exception as error:  # looked at below
            errors.append(error)

    thread = threading.Thread(target=slow)
    thread.start()
    wait_until(lambda: second.execute("SELECT last_value FROM duckdb_sequences()").fetchall() != [(None,)])
    second.execute("INSERT INTO t VALUES (60, 2)")
    thread.join()
    (error,) = errors
    assert isinstance(error, ConflictError)
    assert error.message_based
    assert 'duplicate key "60"' in str(error)


def test_a_key_that_is_there_is_no_conflict(embedded):
    _, second, remote = embedded
    with pytest.raises(duckdb.ConstraintException) as caught:
        second.execute("INSERT INTO t VALUES (1, 1)")
    assert conflicts.classify(caught.value) is None
    with pytest.raises(StorageError) as remotely:
        remote.query("INSERT INTO t VALUES (1, 1)")
    assert not isinstance(remotely.value, ConflictError)


def test_misuse_of_transactions_is_no_conflict(embedded):
    """S34: DuckDB gives these the same type."""
    first, second, _ = embedded
    second.execute("BEGIN")
    first.execute("UPDATE t SET b = 1 WHERE a = 1")
    second.execute("SELECT * FROM t")
    first.execute("UPDATE t SET b = 2 WHERE a = 1")
    with pytest.raises(duckdb.TransactionException) as lost:
        second.execute("UPDATE t SET b = 3 WHERE a = 1")
    assert conflicts.classify(lost.value) is not None
    misuse = [(second, "SELECT 1"), (first, "COMMIT"), (first, "ROLLBACK")]
    for connection, statement in misuse:
        with pytest.raises(duckdb.TransactionException) as caught:
            connection.execute(statement)
        assert conflicts.classify(caught.value) is None, statement
    second.execute("ROLLBACK")
    second.execute("BEGIN TRANSACTION READ ONLY")
    for statement in ("BEGIN", "DELETE FROM t"):
        with pytest.raises(duckdb.TransactionException) as caught:
            second.execute(statement)
        assert conflicts.classify(caught.value) is None, statement
        second.execute("ROLLBACK")
        second.execute("BEGIN TRANSACTION READ ONLY")


def test_conflict_words_inside_another_error_are_no_conflict(embedded):
    """S34: only the whole first line counts, and only over Quack."""
    _, second, remote = embedded
    for text in ("Conflict on update! And more", "x Conflict on update!", "more\nConflict on update!"):
        with pytest.raises(StorageError) as remotely:
            remote.query(f"SELECT error('{text}')")
        assert not isinstance(remotely.value, ConflictError), text
    with pytest.raises(duckdb.InvalidInputException) as caught:
        second.execute("SELECT error('Conflict on update!')")
    assert conflicts.classify(caught.value) is None
    assert conflicts.classify(ValueError("Invalid Input Error: Conflict on update!"), remote=True) is None


def test_a_commit_without_room_is_no_conflict(tmp_path):
    """It has the type of a conflict, embedded, and a commit that fails so must not be repeated."""
    script = """
import os, resource, signal, sys
import duckdb
from canard_pipe.engine import conflicts, quack
from canard_pipe.errors import ConflictError, StorageError
connection = duckdb.connect(sys.argv[1])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
quack.load_extensions(connection)
connection.execute("CREATE TABLE t (a BIGINT)")
token = quack.new_token()
with quack.serve(connection, token) as server, quack.RemoteConnection(server.uri, token) as remote:
    resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(sys.argv[1] + ".wal") + 1000, resource.RLIM_INFINITY))
    insert = "INSERT INTO t SELECT range FROM range(20000)"
    try:
        connection.execute(insert)
    except duckdb.TransactionException as error:
        print("embedded", "Failed to commit" in str(error), conflicts.classify(error))
    try:
        remote.query(insert)
    except StorageError as error:
        print("remote", "Failed to commit" in str(error), isinstance(error, ConflictError))
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "state.duckdb")], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=60, check=True,
    )
    assert done.stdout.splitlines() == ["embedded True None", "remote True False"]
