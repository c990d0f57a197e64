"""Numbered migrations (L4): a copy first, one transaction, fresh equals migrated, newer refused unchanged."""

from __future__ import annotations

import pytest

from canard_pipe.engine import schema
from canard_pipe.engine.database import Database
from canard_pipe.errors import SchemaError, StorageError
from tests.engine.conftest import row, start
from tests.engine.test_backup import shape

SECOND = schema.Migration(2, """
-- A column with a default, a table and a view.
ALTER TABLE canard_absurd.events ADD COLUMN source VARCHAR DEFAULT 'unknown';
CREATE TABLE canard_absurd.notes (task_seq BIGINT NOT NULL, note VARCHAR NOT NULL CHECK (length(note) > 0));
CREATE VIEW canard_absurd.noted AS SELECT count(*) AS notes FROM canard_absurd.notes;
""")
BROKEN = schema.Migration(3, """
CREATE TABLE canard_absurd.more (i INTEGER);
INSERT INTO canard_absurd.nothing VALUES (1);
""")


def test_an_older_file_is_copied_and_migrated(reopen, tmp_path):
    """L4."""
    db = reopen()
    start(db).complete(1)
    db.emit("go", 5)
    db.close()
    before = (tmp_path / "state.duckdb").read_bytes()
    db = reopen(migrations=[*schema.released(), SECOND])
    assert (tmp_path / "state.duckdb.schema-1.bak").read_bytes() == before
    assert db.store.sql("SELECT version FROM canard_absurd.schema_version ORDER BY ALL")[1] == [(1,), (2,)]
    assert db.runtime().schema == 2
    assert db.result("t") == 1
    assert db.store.sql("SELECT name, source FROM canard_absurd.events")[1] == [("go", "unknown")]
    db.close()
    (tmp_path / "state.duckdb.schema-1.bak").unlink()
    reopen(migrations=[*schema.released(), SECOND])  # nothing is left to do: no other copy
    assert not (tmp_path / "state.duckdb.schema-1.bak").exists()


def test_a_migrated_file_has_the_shape_of_a_fresh_one(reopen, tmp_path, clock):
    reopen().close()
    migrations = [*schema.released(), SECOND]
    migrated = reopen(migrations=migrations)
    with Database(None, root=tmp_path, clock=clock, migrations=migrations) as fresh:
        assert shape(migrated) == shape(fresh)
    with Database(None, root=tmp_path, clock=clock) as other:
        assert shape(migrated) != shape(other)


def test_the_copy_opens_with_the_release_before(reopen, tmp_path, clock):
    start(reopen())
    reopen(migrations=[*schema.released(), SECOND])
    with Database(tmp_path / "state.duckdb.schema-1.bak", root=tmp_path, clock=clock) as copy:
        assert row(copy)["name"] == "job"


def test_a_migration_that_fails_changes_nothing(reopen, tmp_path):
    """One transaction for all steps; what was open is closed, and the file opens as before."""
    start(reopen()).complete(1)
    with pytest.raises(StorageError):
        reopen(migrations=[*schema.released(), SECOND, BROKEN])
    db = reopen()
    assert db.result("t") == 1
    assert db.runtime().schema == 1
    assert db.store.sql("SELECT 1 FROM duckdb_tables() WHERE table_name IN ('notes', 'more')")[1] == []


def test_a_file_that_cannot_be_copied_is_not_migrated(reopen, tmp_path):
    reopen().close()
    (tmp_path / "state.duckdb.schema-1.bak").mkdir()
    before = (tmp_path / "state.duckdb").read_bytes()
    with pytest.raises(StorageError, match="copied"):
        reopen(migrations=[*schema.released(), SECOND])
    assert (tmp_path / "state.duckdb").read_bytes() == before
    assert not (tmp_path / "state.duckdb.schema-1.bak.partial").exists()


def test_a_newer_file_is_refused_and_unchanged(reopen, tmp_path):
    """S41: no copy either."""
    reopen(migrations=[*schema.released(), SECOND]).close()
    before = {path.name: path.read_bytes() for path in tmp_path.glob("state.duckdb*") if path.suffix != ".lock"}
    with pytest.raises(SchemaError) as error:
        reopen()
    assert error.value.version == 2
    assert {path.name: path.read_bytes() for path in tmp_path.glob("state.duckdb*") if path.suffix != ".lock"} == before


def test_the_release_has_its_migrations():
    assert [migration.version for migration in schema.released()] == list(range(1, schema.VERSION + 1))
