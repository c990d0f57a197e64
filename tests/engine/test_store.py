"""The store: what a named statement sees is what is committed now."""

from __future__ import annotations

import duckdb

from canard_pipe.engine.database import Database


def test_a_prepared_statement_of_duckdb_keeps_what_was_true_when_it_was_planned():
    """Why the store prepares nothing. If this fails, DuckDB has been mended and preparing may be tried again."""
    con = duckdb.connect()
    con.execute("CREATE TABLE t (a INTEGER, b INTEGER)")
    con.execute("PREPARE q AS SELECT a FROM t WHERE b IS NULL")
    con.execute("EXECUTE q").fetchall()
    con.execute("INSERT INTO t VALUES (1, NULL)")
    assert con.execute("SELECT a FROM t WHERE b IS NULL").fetchall() == [(1,)]
    assert con.execute("EXECUTE q").fetchall() == []


def test_a_named_statement_sees_rows_that_appear_later_and_drops_those_that_no_longer_match(tmp_path):
    with Database(tmp_path / "state.duckdb", root=tmp_path) as database:
        assert database.query("open_requests") == []
        database.store.sql(
            "INSERT INTO canard_absurd.requests (request_id, kind, arguments, asked_at) "
            "VALUES ('r', 'cancel', '{}', TIMESTAMP '2026-01-01')"
        )
        assert [row[0] for row in database.query("open_requests")] == ["r"]
        database.write("answer_requests", [{"request_id": "r", "answer": "{}"}])
        assert database.query("open_requests") == []
